//! The errors of this store: why a file cannot be used, and why an operation has no answer. Each names the path.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

use super::rows::Failure;
use crate::error::{Applied, StoreError, in_one_line};

/// The name of this store in errors and reports.
pub(super) const STORE: &str = "sqlite";

/// The longest message of SQLite's that is repeated.
pub(super) const LONGEST: usize = 300;

/// Why a SQLite store could not be opened. Nothing was changed in a file that was there.
///
/// Printed with the path, its cause and what to do, in one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A newer version of tenure wrote the file.
    Newer {
        /// The file.
        path: PathBuf,
        /// The layout of its tables.
        found: i64,
        /// The newest layout that this version knows.
        known: i64,
    },
    /// The file is not one of tenure's.
    Foreign {
        /// The file.
        path: PathBuf,
        /// The kind of file it is instead.
        what: String,
    },
    /// The file is not whole.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        problem: String,
    },
    /// The folder is not there, or no folder.
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// The file or its folder cannot be written by this user.
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// The file lies in a file system that is not known to be a local one.
    NotLocal {
        /// The folder.
        path: PathBuf,
        /// The file system.
        found: String,
    },
    /// The file has several names, under each of which it would be another database.
    Names {
        /// The file.
        path: PathBuf,
        /// The reason why it has several.
        problem: String,
    },
    /// There is no room for the file.
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file is in use, and its users would be cheated.
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Another process keeps the whole file locked.
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The system or SQLite failed.
    Failed {
        /// The file.
        path: PathBuf,
        /// The words of whichever failed.
        problem: String,
    },
}

impl OpenError {
    /// Returns whether the same call may succeed later, with nothing changed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::Failed { .. })
    }

    pub(super) fn of_io(path: &Path, error: &io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, problem: error.to_string() }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Failed { path, problem: error.to_string() },
        }
    }

    pub(super) fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let problem = message(error);
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, problem },
            Some(ErrorCode::NotADatabase) => Self::Foreign { path, what: problem },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path, problem },
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { path },
            _ => Self::Failed { path, problem },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { path, found, known } => write!(
                f,
                "{}: a newer version of tenure wrote it, with layout {found}, and this one knows layouts up to {known}: \
                 update this program, or use another file",
                path.display()
            ),
            Self::Foreign { path, what } => write!(
                f,
                "{}: it is not a file of tenure's but {what}: tenure needs a file of its own, use another path",
                path.display()
            ),
            Self::Damaged { path, problem } => write!(
                f,
                "{}: it is damaged: {problem}: stop all that use it, and restore a backup or move it and its -wal away",
                path.display()
            ),
            Self::Folder { path, error } => {
                write!(f, "{}: the folder cannot be used: {error}: create it first", path.display())
            }
            Self::ReadOnly { path, problem } => write!(
                f,
                "{}: it cannot be written ({problem}): this user needs to read and write the file and its folder",
                path.display()
            ),
            Self::NotLocal { path, found } => write!(
                f,
                "{}: it is on {found}, which is not known to lock files for all who see them: use a folder on a local disk",
                path.display()
            ),
            Self::Names { path, problem } => write!(
                f,
                "{}: {problem}: whoever uses the other name would be granted the same keys: use one name, and mount the folder",
                path.display()
            ),
            Self::Full { path } => write!(f, "{}: there is no room for it: the disk is full", path.display()),
            Self::InUse { path } => {
                write!(
                    f,
                    "{}: sessions in it are alive: stop all processes that use it first",
                    path.display()
                )
            }
            Self::Locked { path } => {
                write!(f, "{}: another process keeps it locked: stop that, or try again", path.display())
            }
            Self::Failed { path, problem } => write!(f, "{}: {problem}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

fn message(error: &rusqlite::Error) -> String {
    in_one_line(&error.to_string(), LONGEST)
}

/// Why a transaction was given up, for everybody who was in it.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    words: String,
    retryable: bool,
}

impl Trouble {
    /// The file is another one now: who goes on with the old one excludes nobody.
    pub(super) fn replaced(path: &Path) -> Self {
        let words = format!(
            "{}: the file was removed or replaced while it was in use: start this program again",
            path.display()
        );
        Self { words, retryable: false }
    }

    /// Others write a layout that this program does not know.
    pub(super) fn newer(path: &Path, found: i32) -> Self {
        let words = format!(
            "{}: a newer version of tenure has changed it to layout {found}: update this program",
            path.display()
        );
        Self { words, retryable: false }
    }

    pub(super) fn opening(error: &OpenError) -> Self {
        Self { words: error.to_string(), retryable: error.is_retryable() }
    }

    /// The error names the path.
    pub(super) fn of_io(error: &io::Error) -> Self {
        Self { words: error.to_string(), retryable: true }
    }

    pub(super) fn ended() -> Self {
        Self { words: "its thread has ended".to_owned(), retryable: false }
    }

    pub(super) fn out_of_time() -> Self {
        Self { words: "out of time".to_owned(), retryable: true }
    }

    pub(super) fn of(path: &Path, failure: &Failure) -> Self {
        let error = match failure {
            Failure::NoPlace => {
                let words = "the cursor was not made by a listing of this store".to_owned();
                return Self { words, retryable: false };
            }
            Failure::Sqlite(error) => error,
        };
        let (path, said) = (path.display(), message(error));
        let (words, retryable) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                (format!("{path} is damaged ({said}): stop all that use it, and restore a backup"), false)
            }
            Some(ErrorCode::DiskFull) => {
                (format!("there is no room for {path} ({said}): make room on the disk"), true)
            }
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
                format!(
                    "{path} cannot be written ({said}): this user needs to read and write it and its folder"
                ),
                false,
            ),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (format!("{path} is kept locked by another process ({said})"), true)
            }
            _ => (format!("{path}: {said}"), true),
        };
        Self { words, retryable }
    }

    pub(super) fn error(self, doing: &'static str, applied: Applied) -> StoreError {
        StoreError::new(STORE, doing, applied, self.retryable, self.words)
    }
}

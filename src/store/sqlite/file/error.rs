//! The errors of opening: why a file cannot be used. Each names the path.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

use crate::error::in_one_line;

/// The name of this store in errors and reports.
pub(crate) const STORE: &str = "sqlite";

/// The longest message of SQLite's that is repeated.
pub(crate) const LONGEST: usize = 300;

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

    pub(crate) fn of_io(path: &Path, error: &io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, problem: error.to_string() }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Failed { path, problem: error.to_string() },
        }
    }

    pub(crate) fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
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

pub(crate) fn message(error: &rusqlite::Error) -> String {
    in_one_line(&error.to_string(), LONGEST)
}

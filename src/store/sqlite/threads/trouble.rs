//! The errors of operations: why a transaction was given up. Each names the path.

use std::{
    io,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

use crate::{
    error::{Applied, StoreError},
    store::sqlite::{
        file::error::{OpenError, STORE, message},
        rows::Failure,
    },
};

/// Why a transaction was given up, for every operation that was in it.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    ForeignCursor,
    Locked(PathBuf),
    Other { words: String, retryable: bool },
}

impl Trouble {
    /// The file is another one now: a process that goes on with the old one excludes no other.
    pub(crate) fn replaced(path: &Path) -> Self {
        let words = format!(
            "{}: the file was removed or replaced while it was in use: start this program again",
            path.display()
        );
        Self::Other { words, retryable: false }
    }

    /// Others write a layout that this program does not know.
    pub(crate) fn newer(path: &Path, found: i32) -> Self {
        let words = format!(
            "{}: a newer version of tenure has changed it to layout {found}: update this program",
            path.display()
        );
        Self::Other { words, retryable: false }
    }

    pub(crate) fn opening(error: &OpenError) -> Self {
        if let OpenError::Locked { path } = error {
            return Self::Locked(path.clone());
        }
        Self::Other { words: error.to_string(), retryable: error.is_retryable() }
    }

    /// The error names the path.
    pub(crate) fn of_io(error: &io::Error) -> Self {
        Self::Other { words: error.to_string(), retryable: true }
    }

    pub(crate) fn ended() -> Self {
        Self::Other { words: "its thread has ended".to_owned(), retryable: false }
    }

    pub(crate) fn out_of_time() -> Self {
        Self::Other { words: "out of time".to_owned(), retryable: true }
    }

    pub(crate) fn of(path: &Path, failure: &Failure) -> Self {
        let error = match failure {
            Failure::NoPlace => return Self::ForeignCursor,
            Failure::Sqlite(error) => error,
        };
        if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) {
            return Self::Locked(path.to_owned());
        }
        let (path, said) = (path.display(), message(error));
        let (words, retryable) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
                format!(
                    "{path} is damaged, or its disk fails ({said}): if the log of the kernel has errors of the disk, \
                     mend that first; else stop all that use it, and restore a backup"
                ),
                false,
            ),
            Some(ErrorCode::DiskFull) => {
                (format!("there is no room for {path} ({said}): make room on the disk"), true)
            }
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
                format!(
                    "{path} cannot be written ({said}): this user needs to read and write it and its folder"
                ),
                false,
            ),
            _ => (format!("{path}: {said}"), true),
        };
        Self::Other { words, retryable }
    }

    pub(crate) fn error(self, doing: &'static str, applied: Applied) -> StoreError {
        match self {
            Self::ForeignCursor => StoreError::foreign_cursor(STORE, doing),
            Self::Locked(path) => StoreError::new(STORE, doing, applied, true, OpenError::Locked { path }),
            Self::Other { words, retryable } => StoreError::new(STORE, doing, applied, retryable, words),
        }
    }
}

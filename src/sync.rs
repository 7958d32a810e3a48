//! Tools for what threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lock, also after a panic of somebody who held it: what is behind these is whole between two statements.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

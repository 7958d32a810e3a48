//! Tools for what threads share.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The lock, also after a panic of a thread that held it: what is behind these is whole between two statements.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs code of others, such as a waker. Returns whether it did not panic.
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> bool {
    // The payload of the panic may panic again when it is dropped.
    catch_unwind(AssertUnwindSafe(code)).map(drop).map_err(mem::forget).is_ok()
}

//! Tools for what threads share.

use std::{
    io, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
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

/// A thread that all of the process share, by the id of the process that it is in: a fork has the memory of its parent,
/// and none of its threads.
#[derive(Debug)]
pub(crate) struct OwnThread(Option<u32>);

impl OwnThread {
    pub(crate) const NONE: Self = Self(None);

    /// Returns whether it was started in this process.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn runs(&self) -> bool {
        self.0 == Some(process::id())
    }

    /// Starts it, if this process has none yet. Returns whether it did.
    pub(crate) fn begin(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<bool> {
        self.begin_in(process::id(), name, run)
    }

    fn begin_in(
        &mut self,
        process: u32,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<bool> {
        if self.0 == Some(process) {
            return Ok(false);
        }
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        self.0 = Some(process);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_fork_has_a_thread_of_its_own_and_each_process_one() {
        let (begun, began) = mpsc::channel();
        let mut thread = OwnThread::NONE;
        assert!(!thread.runs());
        let begin = |thread: &mut OwnThread, process| {
            let begun = begun.clone();
            thread.begin_in(process, "of a test", move || begun.send(()).unwrap()).unwrap()
        };
        assert!(begin(&mut thread, process::id()) && thread.runs());
        assert!(!begin(&mut thread, process::id()));
        assert!(begin(&mut thread, process::id() + 1));
        drop(begun);
        assert_eq!(began.iter().count(), 2);
    }
}

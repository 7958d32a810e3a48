//! The presence that an instance keeps for its session, so that its store can prove the session's death.

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::{fmt, sync::Arc};

/// Shows that a session, or a job under it, may live: as long as one clone is kept, its store has no proof of the
/// contrary. See [`Store::presence`](super::Store::presence).
///
/// It has to end with the process, however that ends: a lock on a file does, a record does not.
#[derive(Clone)]
#[must_use = "once it is dropped, the session may be declared dead"]
pub struct Presence {
    #[cfg_attr(not(unix), expect(dead_code, reason = "it is let go with this"))]
    kept: Arc<dyn Kept>,
}

trait Kept: Send + Sync {
    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

struct Something<T> {
    _kept: T,
}

impl<T: Send + Sync> Kept for Something<T> {}

#[cfg(unix)]
struct OpenFile<T>(T);

#[cfg(unix)]
impl<T: AsFd + Send + Sync> Kept for OpenFile<T> {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

impl Presence {
    /// Made of what is let go when the last clone is dropped.
    pub fn new(kept: impl Send + Sync + 'static) -> Self {
        Self { kept: Arc::new(Something { _kept: kept }) }
    }

    /// Made of an open file, and kept by every process that has inherited it.
    #[cfg(unix)]
    pub fn of_file(file: impl AsFd + Send + Sync + 'static) -> Self {
        Self { kept: Arc::new(OpenFile(file)) }
    }

    /// Returns the open file that it is kept by, if it is one. A process that is started with it keeps the presence,
    /// too: others then have proof only when that one has ended as well.
    #[cfg(unix)]
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.kept.descriptor()
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Presence")
    }
}

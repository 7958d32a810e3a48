//! What an instance keeps for its session, so that its store can prove the session's death.

use std::{fmt, sync::Arc};

/// Shows that a session, or a job under it, may live: as long as one clone is kept, its store has no proof of the
/// contrary. See [`Store::presence`](super::Store::presence).
///
/// It has to end with the process, however that ends: a lock on a file does, a record does not.
#[derive(Clone)]
#[must_use = "once it is dropped, the session may be declared dead"]
pub struct Presence {
    _kept: Arc<dyn Send + Sync>,
}

impl Presence {
    /// Made of what is let go when the last clone is dropped.
    pub fn new(kept: impl Send + Sync + 'static) -> Self {
        Self { _kept: Arc::new(kept) }
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Presence")
    }
}

use std::time::Duration;

use super::{Call, Course, Intercept};

/// A store that is far away: every call takes its time to get there, and every answer to come back.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tenure::{model::SessionId, store::{MemoryStore, SessionSeen, StoreExt}, testing::{Intercept, Slow}};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tenure::StoreError> {
/// let overseas = Slow { before: Duration::from_millis(80), after: Duration::from_millis(80) };
/// let store = overseas.around(Arc::new(MemoryStore::default()));
///
/// let nobody = vec![SessionId::from_u128(7)];
/// assert!(store.observe(nobody.clone(), Duration::from_millis(100)).await.is_err());
/// assert_eq!(store.observe(nobody, Duration::from_millis(200)).await?, [SessionSeen::Missing]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slow {
    /// Time a call takes to arrive.
    pub before: Duration,
    /// Time an answer takes to come back.
    pub after: Duration,
}

impl Intercept for Slow {
    fn decide(&self, _: &Call) -> Course {
        Course { before: self.before, fault: None, after: self.after }
    }
}

use std::{ops::Sub, sync::Mutex};

use super::{Call, Course, Intercept, Operation};
use crate::sync::locked;

/// A store that keeps count of what is asked of it.
///
/// Its counts can be read at any time, and taken from one another.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tenure::{model::SessionId, store::{MemoryStore, StoreExt}, testing::{Counting, Intercept, Operation}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::StoreError> {
/// let store = Counting::default().around(Arc::new(MemoryStore::default()));
/// let before = store.intercept().counts();
///
/// let nobody = [1, 2, 3].map(SessionId::from_u128);
/// store.observe(nobody.to_vec(), Duration::from_secs(1)).await?;
///
/// let made = store.intercept().counts() - before;
/// assert_eq!((made.calls(Operation::Observe), made.keys(Operation::Observe)), (1, 3));
/// assert_eq!(made.writes(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Counting {
    counts: Mutex<Counts>,
}

impl Counting {
    /// Counts of the calls until now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *locked(&self.counts)
    }
}

impl Intercept for Counting {
    fn decide(&self, call: &Call) -> Course {
        let mut counts = locked(&self.counts);
        let of = &mut counts.of[call.operation.index()];
        of.calls += 1;
        of.keys += call.keys as u64;
        Course::PLAIN
    }
}

/// Numbers of calls, and of the keys they named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    of: [Count; Operation::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    calls: u64,
    keys: u64,
}

impl Counts {
    /// Number of calls of this operation.
    #[must_use]
    pub const fn calls(&self, operation: Operation) -> u64 {
        self.of[operation.index()].calls
    }

    /// Number of keys in all calls of this operation.
    #[must_use]
    pub const fn keys(&self, operation: Operation) -> u64 {
        self.of[operation.index()].keys
    }

    /// Number of calls of all operations.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.of.iter().map(|count| count.calls).sum()
    }

    /// Number of calls that may change a record.
    #[must_use]
    pub fn writes(&self) -> u64 {
        Operation::ALL.iter().filter(|operation| operation.is_write()).map(|one| self.calls(*one)).sum()
    }
}

impl Sub for Counts {
    type Output = Self;

    /// Difference to the earlier counts.
    fn sub(mut self, earlier: Self) -> Self {
        for (count, earlier) in self.of.iter_mut().zip(earlier.of) {
            count.calls -= earlier.calls;
            count.keys -= earlier.keys;
        }
        self
    }
}

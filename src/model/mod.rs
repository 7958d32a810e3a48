//! Stored data: sessions, locks, waiters, runs. Plain, no clock, no I/O.
//!
//! The words are those of the [glossary](crate#words); what may happen to the data is said by the
//! [`Store`](crate::store::Store).

mod digest;
mod drain;
mod ids;
mod lock;
mod loss;
mod names;
mod note;
mod retention;
mod run;
pub(crate) mod serial;
mod session;

pub(crate) use digest::Digest;
pub use ids::{Beat, MAX_NUMBER, Nonce, NotASession, SessionId, StoreTime, Term, Ticket};
pub use lock::{
    Candidate, Closed, Ended, FOR_GOOD, Holding, Kind, LockId, LockRecord, PAST_HOLDERS, Past, Waiter,
};
pub(crate) use lock::{SCHEDULES, schedules};
pub use loss::Loss;
pub use names::{Holder, Key, LimitError, Namespace, Rules, ScheduleName, SpreadName, Value, Who, Why};
pub use note::TaskNote;
pub(crate) use note::{DeathRow, FailureRow, is_revoked, name, revoked};
pub use retention::Retention;
pub use run::{
    Definition, Entry, Finish, Outcome, Pause, PauseBefore, RunId, RunNow, RunRecord, ScheduleId,
    ScheduleRecord, Skipped,
};
pub use session::{About, Buckets, Death, Request, SessionRecord, Share};

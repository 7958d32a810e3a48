//! Plain data that users and stores share: names, ids, instants, losses, runs. No clock, no I/O.
//!
//! The words are those of the glossary (`docs/glossary.md`). The other records,
//! and what may happen to them, are under [`store`](crate::store).

mod digest;
mod ids;
mod lock_id;
mod loss;
mod names;
mod retention;
mod run;
pub(crate) mod serial;

pub(crate) use digest::Digest;
pub(crate) use ids::number;
pub use ids::{MAX_NUMBER, NotASession, SessionId, StoreTime, Term};
pub use lock_id::{Kind, LockId};
pub(crate) use lock_id::{SCHEDULES, schedules};
pub use loss::Loss;
pub use names::{Holder, Key, LimitError, Namespace, Rules, ScheduleName, SpreadName, Value, Who, Why};
pub use retention::Retention;
pub use run::{Entry, Finish, Outcome, RunId, RunRecord, ScheduleId, Skipped};

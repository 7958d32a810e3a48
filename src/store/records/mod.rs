//! Records that stores keep and the engine reads: locks, sessions, schedules, and the notes in them.

mod beats;
mod lock;
mod note;
mod numbers;
mod schedule;
mod session;

pub use beats::{Beats, ClockAhead};
pub use lock::{Candidate, Closed, Ended, FOR_GOOD, Holding, LockRecord, PAST_HOLDERS, Past, Waiter};
pub use note::{DeathRow, FailureRow, Note};
pub use numbers::{Beat, Nonce, Ticket};
pub use schedule::{Definition, Pause, PauseBefore, RunNow, ScheduleRecord};
pub use session::{About, Buckets, Death, Drained, Request, SessionRecord, Share};

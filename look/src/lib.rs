//! The view of an operator on a namespace, and the actions: instances, locks, spreads, schedules, the last hour.
//!
//! Everything is made of records alone. A reader opens no session and holds nothing; its picture entitles to nothing.
//! Every read is bounded: a page of an index, or records by their names. Nothing is counted, and a ledger is read from its
//! end. So a picture costs the store the same, whatever the store holds.
//!
//! [`Reader`] reads a page at a time. [`Picture`] holds the records read so far, and [`LivePicture`] keeps one up to date
//! for all its viewers, as a member of a spread does: hints say where to look, and a little of everything is read from
//! time to time. [`Operator`] acts, with a name and a reason.

mod change;
mod group;
mod instance;
mod live;
mod liveness;
mod lock;
mod operator;
mod picture;
mod poller;
mod reader;
mod schedule;
mod serial;
mod spread;
mod verdict;
mod words;

use self::picture::Source;

pub use self::{
    change::{Change, ChangeKind, PreviousHolder, Records, Severity, changes},
    group::Group,
    instance::{HeldCounts, Instance},
    live::{LivePicture, NotLoaded, Subscription},
    liveness::{Liveness, SessionStates},
    lock::{KeyDetails, Lock},
    operator::{NotDone, Operator},
    picture::{Area, Coverage, LockQueue, Overview, Picture, Refused},
    reader::Reader,
    schedule::{Ledger, Owner, ScheduleState, ScheduleView},
    spread::{SpreadMember, SpreadSummary, SpreadView, TaskView},
    verdict::{Grade, Limits, Subject, Trouble, Verdict},
    words::{ago, count, ended, length, one_line, shell_word, terms, value, why_ended},
};
pub use tenure::store::ClockAhead;

//! A picture of a namespace, for people: instances, locks, spreads, schedules, and what happened in the last hour.
//!
//! It is made of records alone. Whoever looks opens no session, holds nothing, and is no instance; what it says entitles
//! nobody to anything. Every read is bounded: a page of an index, or records by their names. Nothing is counted, and no
//! ledger is read but from its end. So a picture costs the store the same, whatever the store holds.
//!
//! [`Reader`] reads a page at a time. [`Picture`] is what was read so far, and [`LivePicture`] keeps one up for all who look
//! at it, as a member of a spread does: hints say where to look, and a little of everything is read from time to time.

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
    picture::{Coverage, Overview, Picture, Queue, Refused},
    reader::Reader,
    schedule::{Ledger, Owner, ScheduleState, ScheduleView},
    spread::{SpreadMember, SpreadSummary, SpreadView, TaskView},
    words::{ago, ended, length, one_line, terms, why_ended},
};

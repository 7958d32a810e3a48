//! A picture of a namespace, for people: instances, locks, spreads, schedules, and what happened in the last hour.
//!
//! It is made of records alone. Whoever looks opens no session, holds nothing, and is no instance; what it says entitles
//! nobody to anything. Every read is bounded: a page of an index, or records by their names. Nothing is counted, and no
//! ledger is read but from its end. So a picture costs the store the same, whatever the store holds.
//!
//! [`Look`] reads a page at a time. [`Picture`] is what was read so far, and [`Pictures`] keeps one up for all who look
//! at it, as a member of a spread does: hints say where to look, and a little of everything is read from time to time.

mod change;
mod follow;
mod group;
mod instance;
mod life;
mod lock;
mod look;
mod reader;
mod schedule;
mod spread;
mod whole;
mod words;

use self::whole::Source;

pub use self::{
    change::{After, Change, Records, Sort, What, changes},
    follow::{Followed, Pictures, Unread},
    group::Group,
    instance::{Held, Instance},
    life::{Life, Lives},
    lock::{KeyLook, Lock},
    look::Look,
    schedule::{Ledger, Owner, Schedule, Standing},
    spread::{Spread, SpreadMember, SpreadSummary, Task},
    whole::{Overview, Picture, Queue, Read, Refused},
    words::{ago, ended, length, one_line, terms, why_ended},
};

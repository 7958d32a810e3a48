//! Tasks, members and processes that fail: the rules by which a task goes to another member, rests or pauses, and by which
//! a member gets no more of them. From records only, which all members read alike; docs/spread.md says them for people.

mod deaths;
mod member;
mod record;
mod row;

pub(crate) use deaths::{Counted, Deaths, Longest, WELL as ROW_ENDS, pause};
pub(crate) use member::{Due, Fault, judge};
pub(crate) use record::{Failures, Resting, is_ahead};

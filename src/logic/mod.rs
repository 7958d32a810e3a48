//! The decisions of the engine, as machines and pure functions: no I/O, no clock, no randomness of their own.
//!
//! ```text
//!   store's answers, hints, timers, calls            the actor: sleeps, sends, spawns
//!                  |                                                ^
//!                  | event, with the time and a random number       | actions
//!                  v                                                |
//!   +---------------------------------------------------------------------------------+
//!   | session     beats, the end of the lease, its loss      -> beat, extend, lose    |
//!   | watch       other sessions, until one is dead          -> look, declare dead    |
//!   | key         one key: take, wait, confirm, release      -> next operation, out   |
//!   | view, plan  a spread: members and tasks, the plan      -> take, wait, give      |
//!   | tick        a schedule: its ledger, what is due        -> claim, skip, wait     |
//!   +---------------------------------------------------------------------------------+
//! ```
//!
//! A machine is a value. An event changes it and returns what is to be done; it says when it wants to be asked again.
//! The actors in `elect`, `spread` and `schedule` carry that out and bring back the answer as the next event. So each
//! decision can be tested with any order of events, at any time, without a store.
//!
//! Beside the machines: `calendar` (the instants of a schedule), `store_time` (an estimate of the store's clock),
//! `failing` (tasks, members and processes that fail), `digest`, and `flaw` (rules broken on purpose, to
//! test the tests).

pub(crate) mod calendar;
pub(crate) mod digest;
pub(crate) mod failing;
pub(crate) mod flaw;
pub(crate) mod key;
pub(crate) mod plan;
pub(crate) mod session;
pub(crate) mod store_time;
pub(crate) mod tick;
pub(crate) mod view;
pub(crate) mod watch;

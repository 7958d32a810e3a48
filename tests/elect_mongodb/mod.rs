//! The engine on a real MongoDB: what its promises come to when servers, networks and processes fail.
//!
//! Each test has a database of its own. Those that hurt a server start one; the others share a replica
//! set of three. Figures are printed: `cargo test --all-features --test servers elect_mongodb -- --nocapture`.
//!
//! `TENURE_TEST_FLAW=NoEarlyCancel` lets all instances break a rule, to see which tests notice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod aside;
mod clocks;
mod connections;
mod contender;
mod damage;
mod default_durations;
mod fleet;
mod guards;
mod majority;
mod names;
mod outage;
mod polls;
mod processes;
mod queue;
mod revoked;
mod rights;
mod rings;
mod rotation;
mod schedules;
mod shutdown;
mod stuck;
mod unreachable;
mod unreadable;
mod wedged;

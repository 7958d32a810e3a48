//! Real engines in processes of their own, on a real replica set and on a file, while all goes wrong that can be made
//! to: and the same judges as over simulated fleets.
//!
//! `scripts/soak` runs the long rounds, of which `cargo test` has a short one.
//!
//! `TENURE_TEST_FLAW=NoCheckInPoll` lets all instances break a rule, to see that it is noticed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

#[path = "../../../tests/support/flaw.rs"]
mod flaw;
#[path = "../../../tests/support/mod.rs"]
mod support;

mod audit;
mod court;
mod demo;
mod fleet;
mod holder;
mod host;
mod ills;
mod ledger;
mod lines;
mod record;
mod resource;
mod short;
mod soak;
mod storm;
mod ticks;

//! Simulations in paused time: whole fleets, spreads and schedules on the memory store, and a model of the protocol.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

#[path = "../../tests/support/log.rs"]
mod captured;
#[path = "../../tests/support/example.rs"]
mod example;
mod fleet;
mod model;
#[path = "../../tests/support/numbers.rs"]
mod numbers;
mod schedule;
mod spread;
#[path = "../../tests/support/wait.rs"]
mod wait;

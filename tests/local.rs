//! Tests without a server and without a file: the engine in paused time, the memory store, what is kept for those who
//! look, properties of whatever is read, and the documents against the code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

#[path = "support/log.rs"]
mod captured;
mod docs;
mod elect;
#[cfg(feature = "mongodb")]
mod fuzz;
mod house;
mod left_out;
mod memory;
#[path = "support/numbers.rs"]
mod numbers;
mod reference;
#[path = "support/turns.rs"]
mod turns;
#[path = "support/wait.rs"]
mod wait;

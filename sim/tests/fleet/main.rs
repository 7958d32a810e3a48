//! Whole fleets in paused time: the engine as it is, and the engine with a rule broken.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod chance;
mod command;
#[path = "../../../tests/support/example.rs"]
mod example;
mod flaws;
mod keeper;
#[path = "../../../tests/support/wait.rs"]
mod wait;
mod world;

//! Whole fleets in paused time: the engine as it is, and the engine with a rule broken.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod chance;
mod command;
mod flaws;
mod keeper;
mod world;

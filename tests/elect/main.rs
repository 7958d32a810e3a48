//! The engine on the memory store, in paused time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod jobs;
mod rules;
mod world;

//! Schedules on the memory store, in paused time.

#![allow(clippy::disallowed_methods, reason = "how long things take is what these tests look at")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod blocking;
mod busy;
mod crashes;
mod crew;
mod failures;
mod fleet;
mod given_up;
mod housekeeping;
mod jumps;
mod lives;
mod metrics;
mod orders;
mod policies;
mod ticks;
mod unbegun;

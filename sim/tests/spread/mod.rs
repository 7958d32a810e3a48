//! Spreads on the memory store, in paused time.

#![allow(clippy::disallowed_methods, reason = "how long things take is what these tests look at")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod balance;
mod blocking;
mod deploys;
mod faults;
mod killers;
mod log;
mod oracle;
mod outages;
mod panics;
mod restarts;
mod resting;
mod slips;
mod sources;
mod team;
mod trouble;
mod twins;
mod young;

//! The engine on the memory store, in paused time.

#![allow(clippy::disallowed_methods, reason = "how long things take is what these tests look at")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod audit;
mod campaigns;
mod ends;
mod expiring;
mod guards;
mod hung;
mod jobs;
mod listings;
mod metrics;
mod presence;
mod queue;
mod rules;
mod sessions;
mod sooner;
mod timeouts;
mod troubles;
mod undriven;
mod wakers;
mod within;
mod words;
mod world;

//! A model of the protocol, and every order of its events up to a bound.
//!
//! The right design is walked through whole; each wrong one is refuted by a shortest trace. What is
//! modelled and what is not: `docs/testing.md`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod action;
mod audit;
mod budget;
mod holds;
mod lock;
mod properties;
mod protocol;
mod refuted;
mod session;
mod store;
mod time;
mod trace;
mod watch;
mod wire;
mod world;
mod wrong;

//! A model of the protocol, and every order of its events up to a bound.
//!
//! The right design is walked through whole; each wrong one is refuted by a shortest trace.
//!
//! Modelled:
//! - requests: applied at any later time, never, or twice; the answer is late or lost, and then the outcome is unknown;
//! - the replica set: what the primary has, what a majority has, and a failover that undoes the difference; a release
//!   is answered by the primary alone;
//! - sessions: opened, renewed with a number and a nonce, over, closed, declared dead, missing, reopened under another
//!   id;
//! - observers: each counts a ttl by its own clock, and declares dead naming the beat it saw; also a missing session;
//! - clocks: one of them may gain a tick, which is what the margin is for; a ttl is three or four ticks, the margin
//!   one;
//! - a key: tickets that are given up and made again, the queue, takes that name the dead, hand-overs, late hints,
//!   confirmations, the audit;
//! - a job: runs, is told to stop, drains, stops; it is dropped at its session's end.
//!
//! Not modelled: several keys and batches (a key behaves as if the others were not there); `not_before`, values, the
//! fence, revocation, the purge; two clones of one machine; the order of the queue, on which no promise depends; clocks
//! that keep gaining; progress, except for what is released.

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

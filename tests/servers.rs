//! Tests on real servers: the MongoDB store, the engine on it, the examples, and the support of these tests itself.
//!
//! `TENURE_TEST_MONGODB_URI` names a deployment for the conformance suite and the random scripts; without it, and for
//! every test that hurts a server, deployments are started by `scripts/mongod`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

#[path = "support/log.rs"]
mod captured;
mod elect_mongodb;
#[path = "support/example.rs"]
mod example;
mod examples;
#[path = "support/flaw.rs"]
mod flaw;
#[path = "support/killable.rs"]
mod killable;
mod mongodb;
mod reference;
mod support;
mod support_check;
#[path = "support/turns.rs"]
mod turns;

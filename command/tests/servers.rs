//! The command on real servers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]
#![allow(clippy::disallowed_methods, reason = "processes run by the clock of the machine")]

mod cli;
mod doctor;
mod exec_store;
mod looking;
mod see_mongodb;
mod serve_mongodb;
#[path = "../../tests/support/mod.rs"]
mod support;

use support::wait;

//! Shared parts of the tests on a real MongoDB: deployments to use and to break ([`mongod`]), a proxy that loses
//! messages ([`proxy`]), wall clocks that step ([`clock`]).
//!
//! A test binary takes it in with `mod support;`. Whatever waits in here does so with the one [limit](wait::LIMIT), of
//! no use where tokio's time is paused, as it then runs ahead of the servers.

#![allow(dead_code, reason = "each test binary uses its part of the support")]

pub(crate) mod clock;
pub(crate) mod mongod;
pub(crate) mod proxy;
pub(crate) mod rounds;
pub(crate) mod wait;
pub(crate) mod wire;

//! Shared parts of the tests on a real MongoDB: deployments to use and to break ([`mongod`]), a proxy that loses
//! messages ([`proxy`]), wall clocks that step ([`clock`]).
//!
//! A test binary takes it in with `mod support;`. Times in here are bounds for
//! things that happen much sooner; where one is exceeded, the test fails and
//! says what it was waiting for. They are of no use where tokio's time is
//! paused, as it then runs ahead of the servers.

#![allow(dead_code, reason = "each test binary uses its part of the support")]

pub(crate) mod clock;
pub(crate) mod mongod;
pub(crate) mod proxy;
pub(crate) mod wire;

//! What the engine decides: pure functions and machines, without I/O, clock or chance of their own.

pub(crate) mod age;
pub(crate) mod backoff;
pub(crate) mod calendar;
pub(crate) mod digest;
pub(crate) mod flaw;
pub(crate) mod key;
pub(crate) mod plan;
pub(crate) mod quarantine;
pub(crate) mod session;
pub(crate) mod store_time;
pub(crate) mod tick;
pub(crate) mod trial;
pub(crate) mod view;
pub(crate) mod watch;

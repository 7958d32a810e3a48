//! The client and the way to the server: connected, prepared, replaced when it is refused, with every outcome
//! classified.

pub(crate) mod aside;
pub(crate) mod codes;
pub(crate) mod command;
pub(crate) mod connect;
pub(crate) mod error;
pub(crate) mod indexes;
pub(crate) mod marks;
pub(crate) mod messages;
pub(crate) mod options;
pub(crate) mod prepare;
pub(crate) mod renewal;
pub(crate) mod rights;
pub(crate) mod role;

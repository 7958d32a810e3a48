//! The documents that are sent and read: fields, pipelines, commands. Nothing here talks to a server.

pub(crate) mod fields;
pub(crate) mod pipeline;
pub(crate) mod queries;

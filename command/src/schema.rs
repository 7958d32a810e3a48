//! Stub of schema.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Args, Debug)]
pub(crate) struct Schema {}

pub(crate) fn run(_: &Common, _: Schema) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

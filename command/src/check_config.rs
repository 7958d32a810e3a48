//! Stub of check_config.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Args, Debug)]
pub(crate) struct CheckConfig {}

pub(crate) fn run(_: &Common, _: CheckConfig) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

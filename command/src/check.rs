//! Stub of check.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Args, Debug)]
pub(crate) struct Check {}

pub(crate) async fn run(_: &Common, _: Check) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

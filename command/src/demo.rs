//! Stub of demo.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Args, Debug)]
pub(crate) struct Demo {}

pub(crate) async fn run(_: &Common, _: Demo) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

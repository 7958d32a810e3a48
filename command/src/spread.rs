//! Stub of spread.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Args, Debug)]
pub(crate) struct Spread {}

pub(crate) async fn run(_: &Common, _: Spread) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

//! Stub of doctor.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Args, Debug)]
pub(crate) struct Doctor {}

pub(crate) async fn run(_: &Common, _: Doctor) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

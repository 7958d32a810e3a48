//! Stub of exec.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Args, Debug)]
pub(crate) struct Exec {}

pub(crate) async fn run(_: &Common, _: Exec) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

//! Stub of cron.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Args, Debug)]
pub(crate) struct Cron {}

pub(crate) async fn run(_: &Common, _: Cron) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

//! Stub of act.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Act {
    /// Get a key back
    Release,
}

pub(crate) async fn run(_: &Common, _: Act) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

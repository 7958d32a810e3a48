//! Stub of see.
use crate::{common::Common, exit::Failure};

/// Stub.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum See {
    /// List what is held
    Ls,
}

pub(crate) async fn run(_: &Common, _: See) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

//! Stub of manual.
use crate::exit::Failure;

/// Stub.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Manual {
    /// Print completions for a shell
    Completions,
}

pub(crate) fn run(_: Manual) -> Result<u8, Failure> {
    Err(Failure::failed("not there yet"))
}

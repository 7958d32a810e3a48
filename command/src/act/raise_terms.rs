//! `tenure raise-terms`: what a store needs after it was restored from a backup.

use clap::Args;
use serde_json::json;

use super::{Done, agreed, nothing_done, tell};
use crate::{
    common::Common,
    exit::Failure,
    out,
    place::{StoreUri, raise_terms},
    settings::Settings,
};

/// Raise the terms of all locks in a store that was restored from a backup or moved
///
/// Larger terms may have been granted since the backup was made, and resources that have seen them refuse smaller ones.
/// All sessions of the backup are declared dead. The whole store is concerned, not one namespace. Stop all programs that
/// use it first: while a session is alive, nothing is changed.
#[derive(Args, Debug)]
pub(crate) struct RaiseTerms {
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(common: &Common, raise: &RaiseTerms) -> Result<u8, Failure> {
    let settings = Settings::of(common)?;
    let name = StoreUri::of(settings.store.as_ref())?.name();
    if !agreed(raise.yes, &format!("raise the terms of all locks in {name}, and end its sessions"))? {
        return nothing_done(common);
    }
    let raised = raise_terms(&settings).await?;
    let locks = out::count(usize::try_from(raised).unwrap_or(usize::MAX), "lock");
    let said = format!("Raised the terms of {locks} in {name}, and ended its sessions.");
    tell(common, &Done::new(said, json!({ "done": true, "raised": raised })))
}

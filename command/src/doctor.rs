//! `tenure doctor`: what is wrong with a store, and what to do about it.

mod dry_run;
mod findings;
#[cfg(feature = "mongodb")]
mod mongodb;
mod sqlite;

use clap::Args;

use self::findings::{Findings, Level};
use crate::{
    common::{Colour, Common},
    exit::{Failure, STORE_AWAY},
    out,
    place::{OpenMode, OpenStore, StoreUri},
    settings::Settings,
};

/// Find problems of the store, and show what to do about them
///
/// It locks and releases a key of its own in the namespace tenure.doctor, to measure how long that takes. Exit code 0
/// without a problem, 1 with a warning, 2 with something bad, 69 if the store cannot be used.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Only read: lock nothing
    #[arg(long)]
    read_only: bool,
}

pub(crate) async fn run(common: &Common, doctor: Doctor) -> Result<u8, Failure> {
    let settings = Settings::of(common)?;
    let (findings, code) = find(&settings, doctor.read_only).await?;
    let colours = common.color != Colour::Never && out::colours(common);
    out::print(common, &findings, || findings.render(colours))?;
    Ok(code.unwrap_or(match findings.worst() {
        Level::Bad => 2,
        Level::Warning => 1,
        _ => 0,
    }))
}

/// Looks at all there is to look at. Answers with the exit code, too, if the store cannot be used.
async fn find(settings: &Settings, read_only: bool) -> Result<(Findings, Option<u8>), Failure> {
    let mut findings = Findings::default();
    let uri = StoreUri::of(settings.store.as_ref())?;
    match &uri {
        StoreUri::Sqlite(path) => sqlite::look(path, &mut findings),
        #[cfg(feature = "mongodb")]
        StoreUri::Mongo(uri) => mongodb::look(uri, &settings.config, &mut findings).await,
        #[cfg(not(feature = "mongodb"))]
        StoreUri::Mongo(_) => return Err(crate::place::no_driver()),
    }
    // A path with a slip in it must not become a store that is well.
    let is_no_file = matches!(&uri, StoreUri::Sqlite(path) if !path.exists());
    let purpose = if read_only || is_no_file { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
    match OpenStore::open(settings, purpose).await {
        Ok(place) => {
            if read_only {
                findings.ok("open", format!("{} can be opened and read", place.name));
                findings.untested("dry run", "this run only reads, and locks no key");
            } else {
                findings.ok("open", format!("{} can be opened and used", place.name));
                dry_run::run(&place, &settings.config, &mut findings).await;
            }
            place.close().await;
            Ok((findings, None))
        }
        Err(failure) => {
            findings.bad("open", failure.message, "mend that first: the rest was not tested");
            Ok((findings, Some(STORE_AWAY)))
        }
    }
}

//! Everything to look at. It reads the store directly, opens no session, and changes nothing.

mod history;
mod instances;
pub(crate) mod look;
mod ls;
pub(crate) mod named;
mod next;
mod schedules;
mod show;
mod spreads;
#[cfg(feature = "top")]
mod top;
mod watch;

use clap::Subcommand;

use crate::{common::Common, exit::Failure};

#[derive(Debug, Subcommand)]
pub(crate) enum See {
    /// List the held keys and their holders
    Ls(ls::Ls),
    /// Show all about one key: holder, value, queue, and earlier holders
    Show(show::Show),
    /// List the instances: where they run, their last beats, and what they hold
    Instances(instances::Instances),
    /// List the spreads, or show one of them: members, tasks, resting tasks and orphans
    Spreads(spreads::Spreads),
    /// List the schedules: next tick, last run, failures, and owners
    Schedules(schedules::Schedules),
    /// Show the ledger of a schedule: its runs, and the ticks that were not run
    History(history::History),
    /// Show the next ticks of an expression; needs no store
    Next(next::Next),
    #[cfg(feature = "top")]
    Top(top::Top),
    /// Print changes, line by line, until Ctrl-C
    Watch(watch::Watch),
}

pub(crate) async fn run(common: &Common, see: See) -> Result<u8, Failure> {
    match see {
        See::Ls(ls) => ls::run(common, ls).await,
        See::Show(show) => show::run(common, show).await,
        See::Instances(instances) => instances::run(common, instances).await,
        See::Spreads(spreads) => spreads::run(common, spreads).await,
        See::Schedules(schedules) => schedules::run(common, schedules).await,
        See::History(history) => history::run(common, history).await,
        See::Next(next) => next::run(common, next),
        #[cfg(feature = "top")]
        See::Top(top) => top::run(common, top).await,
        See::Watch(watch) => watch::run(common, watch).await,
    }
}

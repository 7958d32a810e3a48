//! `tenure demo`: a fleet of processes on this machine, of which one is killed, one frozen, one drained, and one joins.

mod crew;
pub(crate) mod instance;
mod judge;
mod message;
mod picture;
mod record;
mod scratch;
mod screen;
mod script;
mod stage;
mod summary;

use std::time::Duration;

use self::{
    judge::Bounds,
    scratch::Scratch,
    screen::{How, Screen},
    stage::{Ended, Stage},
    summary::Summary,
};
use crate::{
    common::{Common, Form, Level},
    exit::Failure,
    out, times,
};

/// Lease of an instance: short, so that the wait for the end of a frozen one's is short.
const TTL: Duration = Duration::from_secs(3);
const TASKS: usize = 100;
const INSTANCES: usize = 5;
/// With less the script has no time between its steps; with more no user watches to the end.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(3600);
/// A promise was broken.
const BROKEN: u8 = 1;

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Demo {
    /// About how long it takes
    #[arg(long, default_value = "25s", value_name = "TIME")]
    time: String,

    /// Print lines instead of a picture; the default where standard output is not a terminal
    #[arg(long)]
    plain: bool,

    /// Keep the store and the instances' logs, and print how to inspect them
    #[arg(long)]
    keep: bool,
}

const AFTER_HELP: &str = "\
Five processes share 100 tasks and a schedule. One of them is killed, one is frozen and resumed later, one is drained, \
and one joins. At the end it prints every promise and its outcome: exit code 0 if every promise held, else 1.

It works on a SQLite file of its own, which is removed, unless --store is among its arguments: then under a namespace \
of its own. It has durations of its own, too.";

pub(crate) async fn run(common: &Common, demo: Demo) -> Result<u8, Failure> {
    let time = times::duration("--time", &demo.time)?;
    if !(SHORTEST..=LONGEST).contains(&time) {
        return Err(Failure::usage(format!("--time is {:?}, and has to be from 10s to 1h", demo.time)));
    }
    let how = match (common.output, demo.plain) {
        (Form::Json, _) => How::Silent,
        (Form::Table, true) => How::Lines,
        (Form::Table, false) => How::Picture,
    };
    // In this order they end: processes, picture, folder.
    let scratch = Scratch::new(common, demo.keep)?;
    let mut screen = Screen::new(how, out::colours(common));
    let bounds = bounds(scratch.database.is_some());
    let begun = instance::now();
    let mut stage = Stage::new(&scratch, &mut screen, common.log.unwrap_or(Level::Error), time, bounds.even)?;
    let ended = stage.play().await;
    let record = stage.end();
    let ended = ended?;
    #[cfg(feature = "mongodb")]
    scratch.clear().await?;
    if let Ended::Signal(number) = ended {
        return Ok(128 + number);
    }
    let verdicts = judge::all(&record, &bounds);
    let took = instance::now().since(begun);
    let summary = Summary::new(&record, verdicts, scratch.name(), scratch.namespace.clone(), took);
    screen.lines(&summary.text());
    for line in [scratch.how_to_look(), scratch.stays()].into_iter().flatten() {
        screen.lines(&format!("{line}\n"));
    }
    drop(screen);
    if how == How::Silent {
        out::print(common, &summary, String::new)?;
    }
    Ok(if summary.held { 0 } else { BROKEN })
}

/// Bounds of what is promised. A SQLite file proves that a process is dead; elsewhere its lease has to run out.
const fn bounds(proves_deaths: bool) -> Bounds {
    // A death is found, a plan made, the locks are taken: two seconds beyond the lease, whichever instance dies.
    let frozen = TTL.saturating_add(Duration::from_secs(2));
    Bounds {
        ttl: TTL,
        killed: if proves_deaths { Duration::from_secs(1) } else { frozen },
        frozen,
        notices: Duration::from_secs(1),
        even: Duration::from_secs(20),
    }
}

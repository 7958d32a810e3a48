//! `tenure cron`: lines of a crontab, each of which runs once per fleet.

mod crontab;
mod policies;

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc};

use clap::Args;
use tenure::{
    Elect, ElectConfig,
    schedule::{Schedule, Timing},
    store::MemoryStore,
};
use tenure_look::count;
use tokio::{runtime::Handle, sync::watch};

use self::{crontab::Line, policies::Policies};
use crate::{
    common::Common,
    exec::without,
    exit::Failure,
    file::Followed,
    job::Jobs,
    out::{self, Table},
    say,
    serve::{Long, Served},
    times,
};

/// Ticks that `--test` shows of each line.
const SHOWN: usize = 3;

/// Run a program at certain times, once per fleet
///
/// Each tick is run by one of the instances that have a schedule of this name.
///
/// An expression has five fields (minute, hour, day, month, weekday), or six with seconds first, or is @daily,
/// @every 90s, @at TIME. All instances of a name share its ticks; the ledger keeps the outcome of each.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["expression", "file"]))]
pub(crate) struct Cron {
    /// Times: "30 2 * * *", @daily, @every 90s
    #[arg(value_name = "EXPR", requires = "name", requires = "command")]
    expression: Option<String>,

    /// Name of the schedule, the same in all instances
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    name: Option<String>,

    /// Crontab whose lines are run with `sh -c`; a line `# name: NAME` names the next. Read again when it changes and
    /// on SIGHUP
    #[arg(long, short, value_name = "CRONTAB", conflicts_with = "command")]
    file: Option<PathBuf>,

    /// Check the expression or file and show the next ticks, without a store
    #[arg(long)]
    test: bool,

    /// Time zone of the expression, such as Europe/London [default: UTC]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,

    #[command(flatten)]
    policies: Policies,

    #[command(flatten)]
    long: Long,

    /// Program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) async fn run(common: &Common, cron: Cron) -> Result<u8, Failure> {
    let mut file = Followed::of(cron.file.as_deref());
    let lines = cron.lines()?;
    check(&lines, &cron.policies).await?;
    if cron.test {
        return test(common, &lines);
    }
    let mut served = Served::start(common, &cron.long, "cron").await?;
    let mut running = Running {
        jobs: Jobs {
            patience: served.patience,
            holder: served.elect.config().holder().to_string(),
            without: without(&served.settings),
            file: served.file().map(ToOwned::to_owned),
            prefix: false,
        },
        policies: cron.policies.clone(),
        schedules: BTreeMap::new(),
    };
    running.keep(&served.elect, lines)?;
    served.ready();
    while served.reload(&mut file).await {
        // A file with a slip in it, or none for a moment, changes nothing.
        let read = cron.lines().and_then(|lines| running.keep(&served.elect, lines));
        match read {
            Ok(()) => {
                say::say(format_args!(
                    "the crontab is read anew: {}",
                    count(running.schedules.len(), "line")
                ));
            }
            Err(failure) => say::say(format_args!("the schedules stay as they are: {failure}")),
        }
    }
    drop(running);
    served.stop().await
}

impl Cron {
    /// The lines to run, checked.
    fn lines(&self) -> Result<Vec<Line>, Failure> {
        let lines = match (&self.expression, &self.file) {
            (Some(expression), _) => vec![Line {
                name: self.name.clone().unwrap_or_default(),
                expression: expression.clone(),
                zone: self.zone.clone(),
                command: self.command.clone(),
                variables: Vec::new(),
            }],
            (None, Some(path)) => crontab::read(path, self.zone.as_deref())?,
            (None, None) => Vec::new(),
        };
        if lines.is_empty() {
            say::say("the crontab has no line, so nothing is run: write one such as `@daily CMD`");
        }
        for line in &lines {
            // A field too few, and the first word of the command is read as the last.
            let has_fields = self.file.is_some() && !line.expression.starts_with('@');
            let rule = if has_fields { " (a line has five fields, then the command)" } else { "" };
            let failure = |error| Failure::usage(format!("{}: {error}{rule}", line.name));
            line.timing().check().map_err(failure)?;
        }
        Ok(lines)
    }
}

/// Schedules as they are kept at present, by their names.
struct Running {
    jobs: Jobs,
    policies: Policies,
    schedules: BTreeMap<String, Kept>,
}

/// A schedule, and the line that its next run goes by: a run that has begun ends as it began.
struct Kept {
    line: watch::Sender<Arc<Line>>,
    schedule: Schedule,
}

impl Running {
    /// Keeps these lines. One that is gone ends with what it runs; one that has changed holds from its next tick on.
    fn keep(&mut self, elect: &Elect, lines: Vec<Line>) -> Result<(), Failure> {
        self.schedules.retain(|name, _| {
            let is_kept = lines.iter().any(|line| line.name == *name);
            if !is_kept {
                say::say(format_args!("{name:?} is in the crontab no more: it is ended, with what it runs"));
            }
            is_kept
        });
        for line in lines {
            if let Some(kept) = self.schedules.get(&line.name) {
                if !kept.line.borrow().has_times_of(&line) {
                    kept.schedule.set_timing(line.timing())?;
                }
                kept.line.send_replace(Arc::new(line));
                continue;
            }
            let name = line.name.clone();
            let kept = self.start(elect, line)?;
            self.schedules.insert(name, kept);
        }
        Ok(())
    }

    fn start(&self, elect: &Elect, line: Line) -> Result<Kept, Failure> {
        let (jobs, runtime) = (self.jobs.clone(), Handle::current());
        let builder = self.policies.apply(elect.schedule(&line.name, line.timing()))?;
        let name = line.name.clone();
        let (line, at_present) = watch::channel(Arc::new(line));
        let schedule = builder.run_blocking(move |tick, lease| {
            let line = at_present.borrow().clone();
            let mut variables = vec![
                ("TENURE_SCHEDULE", line.name.clone().into()),
                ("TENURE_TICK", tick.scheduled_at().to_string().into()),
                ("TENURE_ATTEMPT", tick.attempt().to_string().into()),
            ];
            variables.extend(line.variables.iter().map(|(name, value)| (*name, value.into())));
            jobs.run(&runtime, &lease, line.command.clone(), variables)
        });
        let schedule = schedule.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        Ok(Kept { line, schedule })
    }
}

/// Has the engine check names and policies, on a store of its own: an error must not cost a session in the real one.
/// The policies are the same as long as this runs, and a crontab's names are checked where they are read.
async fn check(lines: &[Line], policies: &Policies) -> Result<(), Failure> {
    let config = ElectConfig::new("check", "check").expect("both are names");
    let elect = Elect::start(MemoryStore::default(), config).await?;
    let checked = lines.iter().try_for_each(|line| {
        let builder = policies.apply(elect.schedule(&line.name, line.timing()))?;
        let schedule = builder.run(async |_, _| Ok::<_, String>(()));
        schedule.map(drop).map_err(|error| Failure::usage(format!("{}: {error}", line.name)))
    });
    elect.close().await;
    checked
}

/// Shows when each line is due next.
fn test(common: &Common, lines: &[Line]) -> Result<u8, Failure> {
    #[derive(serde::Serialize)]
    struct Shown<'a> {
        name: &'a str,
        expression: &'a str,
        zone: &'a str,
        next: Vec<tenure::model::StoreTime>,
        command: Vec<String>,
    }

    let now = times::now();
    let mut shown = Vec::new();
    for line in lines {
        let next = line
            .timing()
            .next(SHOWN, now)
            .map_err(|error| Failure::usage(format!("{}: {error}", line.name)))?;
        shown.push(Shown {
            name: &line.name,
            expression: &line.expression,
            zone: line.zone.as_deref().unwrap_or("UTC"),
            next,
            command: line.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
        });
    }
    let document = serde_json::json!({ "items": shown, "refused": [], "more": false });
    out::print(common, &document, || {
        let mut table = Table::new(["NAME", "EXPRESSION", "ZONE", "NEXT", "COMMAND"]);
        for line in &shown {
            let next: Vec<_> = line.next.iter().map(|time| times::local(*time)).collect();
            table.row([
                line.name.to_owned(),
                line.expression.to_owned(),
                line.zone.to_owned(),
                next.join(", "),
                line.command.join(" "),
            ]);
        }
        table.render()
    })?;
    Ok(0)
}

impl Line {
    fn has_times_of(&self, other: &Self) -> bool {
        (&self.expression, &self.zone) == (&other.expression, &other.zone)
    }

    fn timing(&self) -> Timing {
        let timing = Timing::new(&self.expression).named(&self.name);
        match &self.zone {
            Some(zone) => timing.zone(zone),
            None => timing,
        }
    }
}

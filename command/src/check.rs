//! `tenure check`: one line and an exit code, as monitors want it.

mod judge;

use std::time::Duration;

use clap::Args;
use tenure::{
    model::{Key, Kind, LockId, ScheduleId, ScheduleName, SpreadName},
    store::{LockSeen, ScheduleSeen},
};
use tenure_look::{Limits, Subject, Trouble};

pub(crate) use self::judge::State;
use self::judge::{Finding, Leader, Verdict};
use crate::{common::Common, exit::Failure, out, see::look::OpenNamespace, times};

#[derive(Args, Debug)]
#[command(after_help = "\
All of the namespace is checked, as by `tenure status`, unless schedules are named; with --leader,
--spread or --instances, only if --overdue or --failures is given too.
The line begins with OK (exit code 0), WARNING (1), CRITICAL (2), or UNKNOWN (3) if the check could
not be made, or not all of a given spread be read.
WARNING: something has lasted for longer than its longest pause, or concerns more than 1 % of the
tasks: tasks run nowhere, fail or rest; instances look dead, die again and again, fail, or do not
fit together; a schedule is paused, was never run, failed, lost a run, or has no living owner.
CRITICAL: a key has no leader, or its leader looks dead; tasks of the given spread run nowhere; a
schedule is overdue, failed too often in a row, or is unknown; too few instances are alive, or none
of several; a record cannot be used.")]
pub(crate) struct Check {
    /// Schedules to check
    schedules: Vec<String>,

    /// A key that a living instance must hold; may be given several times
    #[arg(long, value_name = "KEY")]
    leader: Vec<String>,

    /// A spread whose tasks must run; may be given several times
    #[arg(long, value_name = "NAME")]
    spread: Vec<String>,

    /// Time for which a tick may be due [default: 10m]
    #[arg(long, value_name = "TIME")]
    overdue: Option<String>,

    /// Failed runs in a row that are critical [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    failures: Option<u32>,

    /// Minimum number of living instances
    #[arg(long, value_name = "MIN")]
    instances: Option<usize>,

    /// Longest time that the check may take
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: String,
}

/// The checks to run, with their limits.
struct Wanted {
    schedules: Vec<ScheduleName>,
    /// All of the namespace.
    all: bool,
    leaders: Vec<Key>,
    limits: Limits,
    instances: Option<usize>,
    timeout: Duration,
}

pub(crate) async fn run(common: &Common, check: Check) -> Result<u8, Failure> {
    let verdict = match make(common, &check).await {
        Ok(verdict) => verdict,
        // A monitor has no other word for it.
        Err(failure) => return unknown(common, &failure),
    };
    print(common, &verdict)
}

/// Prints a verdict. One that nobody can read is none.
fn print(common: &Common, verdict: &Verdict) -> Result<u8, Failure> {
    match out::print(common, verdict, || format!("{}\n", verdict.line)) {
        Ok(()) => Ok(verdict.code),
        Err(failure) => Err(Failure::new(State::Unknown.code(), failure.message)),
    }
}

async fn make(common: &Common, check: &Check) -> Result<Verdict, Failure> {
    let wanted = Wanted::of(check)?;
    let made = tokio::time::timeout(wanted.timeout, async {
        let look = OpenNamespace::open(common).await?;
        let verdict = look_at(&look, &wanted).await;
        look.close().await;
        verdict
    });
    made.await.unwrap_or_else(|_| {
        let within = times::length(wanted.timeout);
        Err(Failure::store(format!("the store did not answer within {within}")))
    })
}

impl Wanted {
    fn of(check: &Check) -> Result<Self, Failure> {
        let named =
            |name: &String| ScheduleName::new(name).map_err(|error| Failure::usage(error.to_string()));
        let schedules: Vec<_> = check.schedules.iter().map(named).collect::<Result<_, _>>()?;
        let key = |key: &String| Key::new(key).map_err(|error| Failure::usage(format!("--leader: {error}")));
        let leaders: Vec<_> = check.leader.iter().map(key).collect::<Result<_, _>>()?;
        let spread = |name: &String| {
            SpreadName::new(name).map_err(|error| Failure::usage(format!("--spread: {error}")))
        };
        let spreads = check.spread.iter().map(spread).collect::<Result<_, _>>()?;
        let mut limits = Limits { spreads, ..Limits::default() };
        let is_of_others = !leaders.is_empty() || !limits.spreads.is_empty() || check.instances.is_some();
        let is_limited = check.overdue.is_some() || check.failures.is_some();
        let all = schedules.is_empty() && (is_limited || !is_of_others);
        if let Some(overdue) = &check.overdue {
            limits.overdue = times::duration("--overdue", overdue)?;
        }
        limits.failures = check.failures.unwrap_or(limits.failures);
        let timeout = times::duration("--timeout", &check.timeout)?;
        Ok(Self { schedules, all, leaders, limits, instances: check.instances, timeout })
    }
}

/// Tells that nothing could be read, and why.
pub(crate) fn unknown(common: &Common, failure: &Failure) -> Result<u8, Failure> {
    print(common, &Verdict::unknown(&failure.message))
}

async fn look_at(look: &OpenNamespace, wanted: &Wanted) -> Result<Verdict, Failure> {
    let mut verdict = Judged::default();
    verdict.schedules(look, wanted).await?;
    verdict.leaders(look, wanted).await?;
    verdict.namespace(look, wanted).await?;
    Ok(Verdict::of(verdict.findings, &verdict.well))
}

/// Findings, and sentences about all that is well.
#[derive(Default)]
struct Judged {
    findings: Vec<Finding>,
    well: Vec<String>,
}

impl Judged {
    async fn schedules(&mut self, look: &OpenNamespace, wanted: &Wanted) -> Result<(), Failure> {
        if wanted.schedules.is_empty() {
            return Ok(());
        }
        let id = |name: &ScheduleName| ScheduleId { namespace: look.namespace().clone(), name: name.clone() };
        let ids: Vec<_> = wanted.schedules.iter().map(id).collect();
        let mut records = Vec::new();
        for (name, seen) in wanted.schedules.iter().zip(look.seen_schedules(&ids).await?) {
            match seen {
                ScheduleSeen::Found(record) => records.push(record),
                ScheduleSeen::Absent => self.findings.push(Finding::unknown_schedule(name)),
                ScheduleSeen::Refused(refusal) => {
                    self.findings.push(Finding::refused(&format!("schedule {name}"), &refusal));
                }
            }
        }
        self.well.push(out::count(records.len(), "schedule"));
        let (looks, now) = look.schedules_of(records).await?;
        let of = |one| Trouble::of_schedule(one, &wanted.limits, look.ttl, now);
        self.findings.extend(looks.iter().flat_map(of).filter_map(Finding::of));
        Ok(())
    }

    async fn leaders(&mut self, look: &OpenNamespace, wanted: &Wanted) -> Result<(), Failure> {
        if wanted.leaders.is_empty() {
            return Ok(());
        }
        let id =
            |key: &Key| LockId { namespace: look.namespace().clone(), kind: Kind::Lock, key: key.clone() };
        let ids: Vec<_> = wanted.leaders.iter().map(id).collect();
        let seen = look.seen_locks(&ids).await?;
        let holders = seen.iter().filter_map(|seen| match seen {
            LockSeen::Found(record) => record.holding.as_ref().map(|held| held.by.session),
            LockSeen::Absent | LockSeen::Refused(_) => None,
        });
        let lives = look.observe(holders).await?;
        let now = look.now();
        for (key, seen) in wanted.leaders.iter().zip(seen) {
            let leader = match seen {
                LockSeen::Refused(refusal) => {
                    self.findings.push(Finding::refused(&format!("key {key}"), &refusal));
                    continue;
                }
                LockSeen::Absent => Leader::Never,
                LockSeen::Found(record) => match record.holding {
                    None => Leader::Nobody,
                    Some(held) => {
                        let life = lives.life(held.by.session, now);
                        let beat = lives.record(held.by.session).map(|session| now.since(session.beat_at));
                        Leader::Holder { name: held.by.holder.to_string(), life, beat }
                    }
                },
            };
            match judge::leader(key, &leader) {
                Ok(well) => self.well.push(well),
                Err(finding) => self.findings.push(finding),
            }
        }
        Ok(())
    }

    /// Judges all of the namespace, or of its spreads and instances what is asked for.
    async fn namespace(&mut self, look: &OpenNamespace, wanted: &Wanted) -> Result<(), Failure> {
        let Wanted { all, limits, instances, .. } = wanted;
        if !all && limits.spreads.is_empty() && instances.is_none() {
            return Ok(());
        }
        let picture = look.picture().await?;
        let verdict = picture.verdict_by(limits);
        // A spread without members and tasks is told as unknown.
        let known = picture.spread_names();
        for spread in limits.spreads.intersection(&known) {
            self.findings.extend(picture.unread(spread).map(|why| Finding::unread(spread, &why)));
        }
        let is_wanted = |trouble: &Trouble| match &trouble.about {
            Subject::Spread { spread } => limits.spreads.contains(spread),
            Subject::Key { lock } => {
                lock.kind.spread().is_some_and(|spread| limits.spreads.contains(&spread))
            }
            Subject::Instance { .. } => instances.is_some() && trouble.sort == "failing",
            Subject::Store => trouble.sort == "all_silent",
            _ => false,
        };
        if *all {
            self.well.push(verdict.sums());
            self.well.extend(verdict.unread);
        } else {
            self.well.extend(limits.spreads.iter().map(|spread| format!("{spread} runs")));
        }
        let troubles = verdict.troubles.into_iter().filter(|trouble| *all || is_wanted(trouble));
        self.findings.extend(troubles.filter_map(Finding::of));
        match instances {
            Some(least) if verdict.alive < *least => {
                self.findings.push(Finding::few_instances(verdict.alive, *least));
            }
            Some(_) if !all => self.well.push(out::count(verdict.alive, "instance")),
            _ => {}
        }
        Ok(())
    }
}

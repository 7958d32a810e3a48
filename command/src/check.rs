//! `tenure check`: one line and an exit code, as monitors want it.

mod judge;

use std::{collections::BTreeSet, time::Duration};

use clap::Args;
use tenure::{
    model::{Key, Kind, LockId, ScheduleId, ScheduleName},
    spread::SpreadStatus,
    store::{LockSeen, ScheduleSeen},
};
use tenure_look::Liveness;

use self::judge::{Finding, Leader, Limits, Verdict};
use crate::{common::Common, exit::Failure, out, see::look::OpenNamespace, times};

const OVERDUE: &str = "10m";
const FAILURES: u32 = 3;

#[derive(Args, Debug)]
#[command(after_help = "\
All schedules of the namespace are checked, unless some are named; with --leader or --instances, only if
--overdue or --failures is given too. Failing instances are found when all schedules are checked, and with --instances.
The line begins with OK (exit code 0), WARNING (1), CRITICAL (2), or UNKNOWN (3) if the check could not be made.
WARNING: a schedule is paused, was never run, or failed in its last runs; tasks of a spread that an instance gave
up run well elsewhere.
CRITICAL: a key has no leader, or its leader looks dead; a schedule is overdue, failed too often in a row, or is
unknown; too few instances are alive; a record cannot be used.")]
pub(crate) struct Check {
    /// Schedules to check
    schedules: Vec<String>,

    /// A key that a living instance must hold; may be given several times
    #[arg(long, value_name = "KEY")]
    leader: Vec<String>,

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
    /// `None` for all.
    schedules: Option<Vec<ScheduleName>>,
    leaders: Vec<Key>,
    limits: Limits,
    timeout: Duration,
}

pub(crate) async fn run(common: &Common, check: Check) -> Result<u8, Failure> {
    let verdict = match make(common, &check).await {
        Ok(verdict) => verdict,
        // A monitor has no other word for it.
        Err(failure) => Verdict::unknown(&failure.message),
    };
    out::print(common, &verdict, || format!("{}\n", verdict.line))?;
    Ok(verdict.code)
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
        let is_of_others = !leaders.is_empty() || check.instances.is_some();
        let is_of_schedules = check.overdue.is_some() || check.failures.is_some();
        let all = schedules.is_empty() && (is_of_schedules || !is_of_others);
        Ok(Self {
            schedules: (!all).then_some(schedules),
            leaders,
            limits: Limits {
                overdue: times::duration("--overdue", check.overdue.as_deref().unwrap_or(OVERDUE))?,
                failures: check.failures.unwrap_or(FAILURES),
                instances: check.instances,
            },
            timeout: times::duration("--timeout", &check.timeout)?,
        })
    }
}

async fn look_at(look: &OpenNamespace, wanted: &Wanted) -> Result<Verdict, Failure> {
    let mut verdict = Judged::default();
    verdict.schedules(look, wanted).await?;
    verdict.leaders(look, wanted).await?;
    verdict.instances(look, wanted).await?;
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
        let mut records = Vec::new();
        match &wanted.schedules {
            None => {
                let found = look.all_schedules().await?;
                let refused = found.refused.iter();
                self.findings.extend(refused.map(|one| Finding::refused(&one.record, &one.refusal)));
                records = found.items;
            }
            Some(names) => {
                let id = |name: &ScheduleName| ScheduleId {
                    namespace: look.namespace().clone(),
                    name: name.clone(),
                };
                let ids: Vec<_> = names.iter().map(id).collect();
                for (name, seen) in names.iter().zip(look.seen_schedules(&ids).await?) {
                    match seen {
                        ScheduleSeen::Found(record) => records.push(record),
                        ScheduleSeen::Absent => self.findings.push(Finding::unknown_schedule(name)),
                        ScheduleSeen::Refused(refusal) => {
                            self.findings.push(Finding::refused(&format!("schedule {name}"), &refusal));
                        }
                    }
                }
            }
        }
        let checked = records.len();
        let (looks, now) = look.schedules_of(records).await?;
        for one in &looks {
            self.findings.extend(judge::schedule(one, wanted.limits, now));
        }
        if checked > 0 || wanted.schedules.is_none() {
            self.well.push(out::count(checked, "schedule"));
        }
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

    async fn instances(&mut self, look: &OpenNamespace, wanted: &Wanted) -> Result<(), Failure> {
        if wanted.limits.instances.is_none() && wanted.schedules.is_some() {
            return Ok(());
        }
        let sessions = look.all_sessions().await?.items;
        let now = look.now();
        let alive: Vec<_> = sessions
            .iter()
            .filter(|session| Liveness::of(session, now) == Liveness::Alive)
            .cloned()
            .collect();
        let shares = alive.iter().flat_map(|session| &session.shares);
        let spreads: BTreeSet<_> = shares.map(|share| share.spread.clone()).collect();
        for spread in spreads {
            let locks = look.all_locks(Some(Kind::of_tasks(&spread)), usize::MAX, |_| true).await?.items;
            let status = SpreadStatus::of_records(spread, &alive, &locks, now);
            self.findings.extend(judge::failing(&status));
        }
        let Some(least) = wanted.limits.instances else { return Ok(()) };
        let alive = alive.len();
        if alive < least {
            self.findings.push(Finding::few_instances(alive, least));
        } else {
            self.well.push(out::count(alive, "instance"));
        }
        Ok(())
    }
}

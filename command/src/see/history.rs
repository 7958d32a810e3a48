//! `tenure history`: the ledger of a schedule, or what people did.

use std::collections::BTreeSet;

use clap::Args;
use serde::Serialize;
use tenure::{
    StoreError,
    model::{Entry, RunRecord, ScheduleId, ScheduleName, SessionId, StoreTime},
    store::ScheduleSeen,
};
use tenure_look::{Change, Reader, ended};

use super::look::{Found, OpenNamespace, PAGE, said};
use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table, one_line},
    times,
};

/// There is no such schedule.
const NOT_FOUND: u8 = 1;

#[derive(Args, Debug)]
#[command(after_help = "Exits with 1 and a sentence if there is no such schedule.")]
pub(crate) struct History {
    /// Name of the schedule
    #[arg(required_unless_present = "actions")]
    name: Option<String>,

    /// Show what people did to instances, keys and schedules, as far as records remember it
    #[arg(long, conflicts_with_all = ["name", "limit"])]
    actions: bool,

    /// Of what people did, the time that is shown
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "actions")]
    since: String,

    /// The most entries that are shown, the last ones
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,
}

/// A ledger, as far as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct Ledger {
    schedule: ScheduleId,
    #[serde(flatten)]
    runs: Found<RunRecord>,
    /// Runs up to this instant may have been removed.
    mark: Option<StoreTime>,
    /// Runners of runs without an end that are there.
    #[serde(skip)]
    alive: BTreeSet<SessionId>,
}

pub(crate) async fn run(common: &Common, history: History) -> Result<u8, Failure> {
    let Some(name) = &history.name else { return acts(common, &history.since).await };
    let name = ScheduleName::new(name).map_err(|error| Failure::usage(error.to_string()))?;
    let look = OpenNamespace::open(common).await?;
    let id = ScheduleId { namespace: look.namespace().clone(), name };
    let ledger = read(&look, id, history.limit).await?;
    let seen = look.seen_schedules(std::slice::from_ref(&ledger.schedule)).await?.pop();
    let is_known = !ledger.runs.items.is_empty() || !matches!(seen, Some(ScheduleSeen::Absent) | None);
    out::print(common, &ledger, || if is_known { table(&ledger) } else { unknown(&ledger.schedule) })?;
    look.close().await;
    Ok(if is_known { 0 } else { NOT_FOUND })
}

async fn acts(common: &Common, since: &str) -> Result<u8, Failure> {
    let since = times::duration("--since", since)?;
    let look = OpenNamespace::open(common).await?;
    let picture = look.picture().await?;
    let mut items = picture.changes_since(picture.now().minus(since));
    items.retain(Change::is_action);
    let found = Found { items, ..Found::default() };
    out::print(common, &found, || {
        let mut table = Table::new(["WHEN", "WHAT", "ON, BY, WHY"]);
        for change in &found.items {
            let (word, sentence) = change.describe();
            table.row([times::local(change.at), word.to_owned(), one_line(&sentence)]);
        }
        if found.items.is_empty() {
            "Records remember no action of that time.\n".to_owned()
        } else {
            table.render()
        }
    })?;
    look.close().await;
    Ok(0)
}

/// Reads the last entries of a ledger, up to so many.
pub(super) async fn read(look: &Reader, schedule: ScheduleId, at_most: usize) -> Result<Ledger, StoreError> {
    let (mut runs, mut mark, mut after) = (Found::default(), None, None);
    loop {
        let wanted = (at_most + 1).saturating_sub(runs.items.len()).clamp(1, PAGE);
        let page = look.history(schedule.clone(), after, wanted).await?;
        mark = mark.max(page.mark);
        runs.items.extend(page.items);
        runs.refuse(page.refused);
        after = page.next;
        if runs.items.len() > at_most {
            runs.items.truncate(at_most);
            runs.more = true;
        }
        if runs.more || after.is_none() {
            let on = runs.items.iter().filter(|run| run.finish.is_none()).map(|run| run.session);
            let on: BTreeSet<_> = on.collect();
            let (lives, now) = (look.observe_if_allowed(on.iter().copied()).await?, look.now());
            let alive = on.into_iter().filter(|one| !lives.life(*one, now).looks_dead()).collect();
            return Ok(Ledger { schedule, runs, mark, alive });
        }
    }
}

fn unknown(schedule: &ScheduleId) -> String {
    let namespace = one_line(schedule.namespace.as_str());
    format!(
        "There is no schedule {:?} in namespace {namespace}: `tenure schedules` lists them.\n",
        schedule.name.as_str()
    )
}

/// The entries of a ledger, the last one first.
pub(super) fn table(ledger: &Ledger) -> String {
    if ledger.runs.items.is_empty() {
        return format!("{:?} has not run yet.\n{}", ledger.schedule.name.as_str(), ledger.runs.notes());
    }
    let mut table = Table::new(["INSTANT", "WHAT", "LATE", "TOOK", "ENDED", "HOLDER", "ATTEMPT", "NOTE"]);
    for run in &ledger.runs.items {
        table.row(row(run, ledger.alive.contains(&run.session)));
    }
    table.render() + &ledger.runs.notes()
}

fn row(run: &RunRecord, is_on: bool) -> [String; 8] {
    let none = || "-".to_owned();
    let instant = times::local(run.id.instant);
    if let Some(skipped) = &run.skipped {
        let note = format!("since {}: {}", times::local(skipped.from), skipped.why);
        return [
            instant,
            format!("{} not run", skipped.ticks()),
            none(),
            none(),
            none(),
            run.holder.to_string(),
            none(),
            note,
        ];
    }
    let what = if run.id.entry == Entry::Order { "order" } else { "tick" };
    let finish = run.finish.as_ref();
    [
        instant,
        what.to_owned(),
        times::length(run.lateness()),
        finish.map_or_else(none, |finish| times::length(finish.at.since(run.started))),
        ended(run, is_on).to_owned(),
        run.holder.to_string(),
        run.attempt.to_string(),
        said(finish.and_then(|finish| finish.error.as_ref())),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::model::{Finish, Outcome, RunId, Skipped, Term, Why};

    use super::*;

    #[test]
    fn an_entry_tells_how_late_how_long_and_how_it_ended() {
        let at = StoreTime::from_millis(1_767_225_600_000);
        let schedule = ScheduleId { namespace: "n".parse().unwrap(), name: "s".parse().unwrap() };
        let started = at.plus(Duration::from_secs(3));
        let tick = RunId::tick(schedule, at);
        let mut run =
            RunRecord::new(tick, SessionId::from_u128(1), "pod-1".parse().unwrap(), Term::new(5), started);
        assert_eq!(row(&run, true)[1..], ["tick", "3 s", "-", "is on", "pod-1", "1", "-"]);
        assert_eq!(row(&run, false)[4], "its runner died");
        let mut finish = Finish::new(started.plus(Duration::from_secs(61)), Outcome::Failed);
        finish.error = Some(Why::shortened("disk full"));
        run.finish = Some(finish);
        assert_eq!(row(&run, true)[1..], ["tick", "3 s", "61 s", "failed", "pod-1", "1", "disk full"]);
        run.skipped = Some(Skipped { from: at, count: 2, why: Why::shortened("late") });
        assert_eq!(row(&run, true)[1], "2 ticks not run");
        assert!(row(&run, true)[7].ends_with(": late"));
    }
}

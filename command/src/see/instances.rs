//! `tenure instances`: who is there, who beats, and what each holds.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;
use tenure::model::{Kind, LockRecord, SessionId, SessionRecord, Share, StoreTime};

use super::look::{Found, Life, Look, now_beside};
use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table},
    times,
};

#[derive(Args, Debug)]
pub(crate) struct Instances {
    /// Also those that are dead, and why
    #[arg(long)]
    all: bool,
}

/// An instance, how it looks, and what it holds.
#[derive(Debug, Serialize)]
struct Item {
    #[serde(flatten)]
    record: SessionRecord,
    life: Life,
    looks_dead: bool,
    held: Held,
}

/// Numbers of what a session holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Held {
    pub(super) locks: usize,
    pub(super) tasks: usize,
    pub(super) schedules: usize,
}

pub(crate) async fn run(common: &Common, instances: Instances) -> Result<u8, Failure> {
    let look = Look::open(common).await?;
    let mut found = look.sessions().await?;
    let now = now_beside(&found.items);
    if !instances.all {
        found.items.retain(SessionRecord::is_alive);
    }
    found.items.sort_by(|a, b| (&a.about.holder, a.started, a.id).cmp(&(&b.about.holder, b.started, b.id)));
    let held = look.locks(None, usize::MAX, |record| record.holding.is_some()).await?;
    let held = count(&held.items);
    let found = found.map(|record| {
        let life = Life::of(&record, now);
        let held = held.get(&record.id).copied().unwrap_or_default();
        Item { record, life, looks_dead: life.looks_dead(), held }
    });
    out::print(common, &found, || table(&found, &look, instances.all, now))?;
    look.close().await;
    Ok(0)
}

fn count(held: &[LockRecord]) -> BTreeMap<SessionId, Held> {
    let mut counts: BTreeMap<SessionId, Held> = BTreeMap::new();
    for record in held {
        let Some(holding) = &record.holding else { continue };
        let count = counts.entry(holding.by.session).or_default();
        match record.id.kind {
            Kind::Schedule => count.schedules += 1,
            Kind::Task(_) => count.tasks += 1,
            _ => count.locks += 1,
        }
    }
    counts
}

fn table(found: &Found<Item>, look: &Look, all: bool, now: StoreTime) -> String {
    if found.items.is_empty() {
        let (namespace, place) = (out::one_line(look.namespace.as_str()), &look.place.name);
        return format!("No instance is in namespace {namespace} of {place}.\n{}", found.notes());
    }
    let mut headings = vec![
        "HOLDER",
        "PLACE",
        "PROGRAM",
        "STARTED",
        "LAST BEAT",
        "TTL",
        "STATE",
        "LOCKS",
        "TASKS",
        "SCHEDULES",
        "SPREADS",
    ];
    if all {
        headings.push("WHY DEAD");
    }
    let mut table = Table::new(headings);
    for Item { record, life, held, .. } in &found.items {
        let about = &record.about;
        let mut cells = vec![
            about.holder.to_string(),
            format!("{}:{}", about.host, about.pid),
            if about.program.is_empty() { "-".to_owned() } else { about.program.clone() },
            times::ago(record.started, now),
            times::ago(record.beat_at, now),
            times::length(record.ttl),
            state(*life).to_owned(),
            held.locks.to_string(),
            held.tasks.to_string(),
            held.schedules.to_string(),
            shares(&record.shares),
        ];
        if all {
            cells.push(record.death.as_ref().map_or_else(
                || "-".to_owned(),
                |death| format!("{}, by {}: {}", times::ago(death.at, now), death.by, death.why),
            ));
        }
        table.row(cells);
    }
    table.render() + &found.notes()
}

pub(super) const fn state(life: Life) -> &'static str {
    match life {
        Life::Alive => "alive",
        Life::Silent => "looks dead",
        Life::Dead => "dead",
        Life::Missing => "missing",
        Life::Unreadable => "unreadable",
    }
}

fn shares(shares: &[Share]) -> String {
    if shares.is_empty() {
        return "-".to_owned();
    }
    let one = |share: &Share| match terms(share) {
        terms if terms.is_empty() => share.spread.to_string(),
        terms => format!("{} ({terms})", share.spread),
    };
    shares.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What a share says beyond the usual.
pub(super) fn terms(share: &Share) -> String {
    let mut terms = Vec::new();
    if share.cap < u32::MAX {
        terms.push(format!("cap {}", share.cap));
    }
    if share.weight != 1 {
        terms.push(format!("weight {}", share.weight));
    }
    if share.draining {
        terms.push("draining".to_owned());
    }
    if share.paused {
        terms.push("paused".to_owned());
    }
    if !share.reserved.is_zero() {
        terms.push(format!("reserved for {}", times::length(share.reserved)));
    }
    terms.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_share_is_told_where_it_is_not_the_usual_one() {
        let mut share = Share::new("topics".parse().unwrap());
        assert_eq!(shares(&[]), "-");
        assert_eq!(shares(&[share.clone()]), "topics");
        share.cap = 5;
        share.weight = 2;
        share.draining = true;
        share.paused = true;
        share.reserved = Duration::from_secs(90);
        assert_eq!(shares(&[share]), "topics (cap 5, weight 2, draining, paused, reserved for 90 s)");
    }
}

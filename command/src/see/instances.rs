//! `tenure instances`: the instances, their beats, and the keys that each holds.

use clap::Args;
use tenure::{
    model::StoreTime,
    store::{Drained, Share},
};
use tenure_look::{Instance, terms};

use super::look::{Found, OpenNamespace};
use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table},
    times,
};

#[derive(Args, Debug)]
pub(crate) struct Instances {
    /// Include dead instances, with the cause
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(common: &Common, instances: Instances) -> Result<u8, Failure> {
    let look = OpenNamespace::open(common).await?;
    let (page, now) = look.all_instances().await?;
    let mut found = Found::of(page);
    if !instances.all {
        found.items.retain(|one| one.record.is_alive());
    }
    let table = |items: &[Instance]| Table::of(items.iter().map(|one| row(one, instances.all, now))).render();
    out::print(common, &found, || found.text(&look, "No instance is", table))?;
    look.close().await;
    Ok(0)
}

/// An instance as a row; with `all`, why it is dead.
pub(super) fn row(one: &Instance, all: bool, now: StoreTime) -> Vec<(&'static str, String)> {
    let Instance { record, held, .. } = one;
    let about = &record.about;
    let mut row = vec![
        ("HOLDER", about.holder.to_string()),
        ("PLACE", format!("{}:{}", about.host, about.pid)),
        ("PROGRAM", if about.program.is_empty() { "-".to_owned() } else { about.program.clone() }),
        ("STARTED", times::ago(record.started, now)),
        ("LAST BEAT", times::ago(record.beat_at, now)),
        ("TTL", times::length(record.ttl)),
        ("STATE", one.word().to_owned()),
        ("LOCKS", held.locks.to_string()),
        ("TASKS", held.tasks.to_string()),
        ("SCHEDULES", held.schedules.to_string()),
        ("SPREADS", shares(&record.shares, record.drained.as_ref())),
    ];
    if all {
        let why = record
            .death
            .as_ref()
            .map(|death| format!("{}, by {}: {}", times::ago(death.at, now), death.by, death.why));
        row.push(("WHY DEAD", why.unwrap_or_else(|| "-".to_owned())));
    }
    row
}

fn shares(shares: &[Share], drained: Option<&Drained>) -> String {
    if shares.is_empty() {
        return "-".to_owned();
    }
    let one = |share: &Share| match terms(share, drained) {
        terms if terms.is_empty() => share.spread.to_string(),
        terms => format!("{} ({terms})", share.spread),
    };
    shares.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_share_is_told_where_it_is_not_the_usual_one() {
        let mut share = Share::new("topics".parse().unwrap());
        assert_eq!(shares(&[], None), "-");
        assert_eq!(shares(&[share.clone()], None), "topics");
        share.cap = 5;
        share.weight = 2;
        share.draining = true;
        share.paused = true;
        share.reserved = Duration::from_secs(90);
        assert_eq!(shares(&[share], None), "topics (cap 5, weight 2, draining, paused, reserved for 90 s)");
    }
}

//! `tenure ls`: the keys that are held, and their holders; or the keys without a holder.

use std::str::FromStr;

use clap::Args;
use tenure::{
    model::{Holder, Kind, SpreadName, StoreTime},
    store::LockRecord,
};
use tenure_look::{Liveness, Lock};

use super::look::{OpenNamespace, said};
use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table},
    times,
};

#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Only keys of this kind: lock, task, task:SPREAD or schedule
    #[arg(long, value_name = "KIND")]
    kind: Option<Wanted>,

    /// Only keys of this holder (--holder is the name of this instance itself)
    #[arg(long, value_name = "NAME")]
    held_by: Option<String>,

    /// List known keys without a holder instead of held keys
    #[arg(long, conflicts_with = "held_by")]
    free: bool,

    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,
}

/// Kinds of keys that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Locks,
    Tasks,
    TasksOf(SpreadName),
    Schedules,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lock" => Ok(Self::Locks),
            "task" => Ok(Self::Tasks),
            "schedule" => Ok(Self::Schedules),
            _ => match text.strip_prefix("task:") {
                Some(spread) => SpreadName::new(spread).map(Self::TasksOf).map_err(|error| error.to_string()),
                None => Err("kinds are lock, task, task:SPREAD and schedule".to_owned()),
            },
        }
    }
}

impl Wanted {
    /// The kind to list; nothing if all have to be listed and some left out.
    fn kind(&self) -> Option<Kind> {
        match self {
            Self::Locks => Some(Kind::Lock),
            Self::Tasks => None,
            Self::TasksOf(spread) => Some(Kind::of_tasks(spread)),
            Self::Schedules => Some(Kind::Schedule),
        }
    }

    fn is_of(&self, kind: &Kind) -> bool {
        match self {
            Self::Tasks => matches!(kind, Kind::Task(_)),
            _ => self.kind().as_ref() == Some(kind),
        }
    }
}

pub(crate) async fn run(common: &Common, ls: Ls) -> Result<u8, Failure> {
    let held_by = ls.held_by.as_ref().map(Holder::new).transpose();
    let held_by = held_by.map_err(|error| Failure::usage(format!("--held-by: {error}")))?;
    let look = OpenNamespace::open(common).await?;
    let is_wanted = |record: &LockRecord| {
        ls.kind.as_ref().is_none_or(|wanted| wanted.is_of(&record.id.kind))
            && is_listed(record, held_by.as_ref(), ls.free)
    };
    let kind = ls.kind.as_ref().and_then(Wanted::kind);
    let found = look.all_locks(kind, ls.limit, is_wanted).await?;
    let holders = found.items.iter().filter_map(|record| record.holding.as_ref());
    let lives = look.observe(holders.map(|held| held.by.session)).await?;
    let now = look.now();
    let found = found.map(|record| Lock::of(record, &lives, now));
    let nothing = if ls.free { "No known key is free" } else { "No key is held" };
    out::print(common, &found, || found.text(&look, nothing, |locks| table(locks, ls.free, now)))?;
    look.close().await;
    Ok(0)
}

fn is_listed(record: &LockRecord, held_by: Option<&Holder>, free: bool) -> bool {
    match &record.holding {
        None => free,
        Some(held) => !free && held_by.is_none_or(|holder| held.by.holder == *holder),
    }
}

/// Keys that are held, or else free.
pub(super) fn table(locks: &[Lock], free: bool, now: StoreTime) -> String {
    let mut table = if free {
        Table::new(["KEY", "KIND", "CLOSED", "LAST HOLDER", "UNTIL", "TERM", "HOW"])
    } else {
        Table::new(["KEY", "KIND", "HOLDER", "SINCE", "TERM", "WHY"])
    };
    for Lock { record, life, .. } in locks {
        let (key, kind, term) =
            (record.id.key.to_string(), record.id.kind.to_string(), record.term.to_string());
        if let Some(held) = &record.holding {
            let holder = format!("{}{}", held.by.holder, life.map_or("", Liveness::mark));
            let since = times::ago(held.acquired_at, now);
            table.row([key, kind, holder, since, term, said(held.by.why.as_ref())]);
        } else {
            let last = record.past.first();
            table.row([
                key,
                kind,
                closed(record, now),
                said(last.map(|last| &last.holder)),
                last.map_or_else(|| "-".to_owned(), |last| times::ago(last.to, now)),
                term,
                said(last.map(|last| last.how.as_str()).as_ref()),
            ]);
        }
    }
    table.render()
}

/// For how long it is kept closed.
fn closed(record: &LockRecord, now: StoreTime) -> String {
    let left = record.closed.map(|closed| closed.left(now)).filter(|left| !left.is_zero());
    left.map_or_else(|| "-".to_owned(), |left| format!("for {}", times::length(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_a_word_or_a_spread() {
        let of = |text: &str| text.parse::<Wanted>();
        assert_eq!(of("lock").unwrap().kind(), Some(Kind::Lock));
        let topics = Kind::Task(SpreadName::new("topics").unwrap());
        assert_eq!(of("task:topics").unwrap().kind(), Some(topics.clone()));
        assert!(of("task").unwrap().is_of(&topics) && !of("task").unwrap().is_of(&Kind::Schedule));
        assert!(of("schedule").unwrap().is_of(&Kind::Schedule));
        assert!(of("task:").is_err() && of("locks").unwrap_err().contains("task:SPREAD"));
    }
}

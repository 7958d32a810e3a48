//! A schedule with everything that is judged by: record, ledger, owner.

use std::{fmt, time::Duration};

use serde::Serialize;

use crate::{Liveness, Refused, SessionStates, length};
use tenure::{
    model::{Entry, Holder, Key, Kind, LockId, RunRecord, ScheduleId, SessionId, StoreTime, Term},
    schedule::{Overdue, ScheduleStatus},
    store::{LockRecord, Page, Pause, ScheduleRecord},
};

/// A schedule as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduleView {
    /// Record of the schedule, its last run, and its failures in a row.
    #[serde(flatten)]
    pub status: ScheduleStatus,
    /// Expression in words; none if it has none, or one of a version that is not known here.
    pub in_words: Option<String>,
    /// The zone by whose clocks it goes.
    pub zone: Option<String>,
    /// The pause goes on.
    pub paused: bool,
    /// The last run is on: it has no end yet, and its runner looks alive.
    pub running: bool,
    /// Next three ticks; none while it is paused.
    pub next: Vec<StoreTime>,
    /// Owner of the schedule.
    pub owner: Option<Owner>,
    /// Time until which an instance had it for certain; none if its lock is not known.
    #[serde(skip)]
    pub(crate) had: Option<StoreTime>,
    /// First tick that is due, is not in the ledger, and that no run holds up.
    pub due: Option<StoreTime>,
    /// Time for which that tick is due.
    #[serde(rename = "overdue_ms", serialize_with = "crate::serial::ms_if_any")]
    pub overdue: Option<Duration>,
    /// The end of its ledger.
    #[serde(flatten)]
    pub ledger: Ledger,
}

/// The end of a ledger, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Last entries of the ledger, the last one first.
    pub runs: Vec<RunRecord>,
    /// True if the ledger has no other entries.
    #[serde(rename = "runs_whole")]
    pub is_all: bool,
    /// Entries among the last ones that cannot be used.
    #[serde(rename = "runs_refused", skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Time of the read: ticks that were due later are not in it. None if it was not read yet.
    pub read_at: Option<StoreTime>,
}

impl Ledger {
    pub(crate) fn of(page: Page<RunRecord>, read_at: StoreTime) -> Self {
        let refused = page.refused.into_iter().map(Refused::from).collect();
        Self { runs: page.items, is_all: page.next.is_none(), refused, read_at: Some(read_at) }
    }
}

/// Owner of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Owner {
    /// Name of the owner.
    pub holder: Holder,
    /// Session of the owner.
    pub session: SessionId,
    /// Term of its lock on the schedule.
    pub term: Term,
    /// Liveness of the owner.
    pub life: Liveness,
    /// True if nothing is to be expected of the owner any more.
    pub looks_dead: bool,
    /// The ttl of the owner.
    #[serde(skip)]
    pub(crate) ttl: Duration,
}

/// Main state of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ScheduleState {
    /// The ledger was not read yet.
    Unread,
    /// Never run, so not defined yet.
    Undefined,
    /// Held back.
    Paused,
    /// A tick has long been due, and is not run.
    Overdue {
        /// Time since it was due.
        #[serde(rename = "by_ms", serialize_with = "crate::serial::ms")]
        by: Duration,
    },
    /// A tick is due.
    Due,
    /// A run is on.
    Running,
    /// Waits for its next tick.
    Waiting,
}

impl fmt::Display for ScheduleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread => f.write_str("not read yet"),
            Self::Undefined => f.write_str("not run yet"),
            Self::Paused => f.write_str("paused"),
            Self::Overdue { by } => write!(f, "overdue by {}", length(*by)),
            Self::Due => f.write_str("due"),
            Self::Running => f.write_str("running"),
            Self::Waiting => f.write_str("waiting"),
        }
    }
}

/// The longest pause: a ttl until a death is noticed, another one for the takeover, and a minute.
pub(crate) fn patience(ttl: Duration) -> Duration {
    ttl * 2 + Duration::from_secs(60)
}

impl ScheduleView {
    /// Entries of the ledger that are looked at.
    pub const RUNS: usize = ScheduleStatus::LOOKED_AT;
    const NEXT: usize = 3;

    /// A schedule as its records tell: its own, the end of its ledger, and its owner's lock.
    #[must_use]
    pub fn of(
        record: ScheduleRecord,
        ledger: Ledger,
        lock: Option<&LockRecord>,
        lives: &SessionStates,
        now: StoreTime,
    ) -> Self {
        let owner = lock.and_then(|lock| Owner::of(lock, lives, now));
        let had = lock.and_then(|lock| match &lock.holding {
            Some(held) => Some(lives.record(held.by.session).map_or(held.acquired_at, |one| one.beat_at)),
            None => lock.past.first().map(|past| past.to),
        });
        let Ledger { runs, is_all, refused, read_at } = &ledger;
        let running = on(runs).is_some_and(|run| !lives.life(run.session, now).looks_dead());
        let due = read_at.and_then(|at| Overdue::of(&record, runs, *is_all, now.min(at), Duration::ZERO));
        let due = due.filter(|_| !running && refused.is_empty());
        let paused = record.pause.as_ref().is_some_and(Pause::is_on);
        let status = ScheduleStatus::of(record, runs.clone());
        let rules = status.rules(if paused { 0 } else { Self::NEXT }, now);
        let (in_words, zone, next) =
            rules.map_or_else(Default::default, |rules| (Some(rules.in_words), rules.zone, rules.next));
        Self {
            in_words,
            zone,
            paused,
            running,
            next,
            owner,
            had,
            due: due.as_ref().map(|due| due.due),
            overdue: due.map(|due| now.since(due.due)),
            status,
            ledger,
        }
    }

    /// Returns whether that run is on: the last one, if it has no end and its runner is there.
    #[must_use]
    pub fn is_on(&self, run: &RunRecord) -> bool {
        self.running && on(&self.ledger.runs).is_some_and(|last| last.id == run.id)
    }

    /// Returns the longest pause before its owner or the next one runs a tick. `ttl` is that of its fleet.
    pub(crate) fn patience(&self, ttl: Duration) -> Duration {
        patience(self.owner.as_ref().map_or(ttl, |owner| owner.ttl))
    }

    /// Returns its main state. `ttl` is that of its fleet.
    #[must_use]
    pub fn state(&self, ttl: Duration) -> ScheduleState {
        match self.overdue {
            _ if self.ledger.read_at.is_none() => ScheduleState::Unread,
            _ if self.paused => ScheduleState::Paused,
            _ if self.status.record.definition.is_none() => ScheduleState::Undefined,
            Some(by) if by > self.patience(ttl) => ScheduleState::Overdue { by },
            Some(_) => ScheduleState::Due,
            None if self.running => ScheduleState::Running,
            None => ScheduleState::Waiting,
        }
    }
}

impl Owner {
    fn of(lock: &LockRecord, lives: &SessionStates, now: StoreTime) -> Option<Self> {
        let by = &lock.holding.as_ref()?.by;
        let life = lives.life(by.session, now);
        let (holder, session) = (by.holder.clone(), by.session);
        Some(Self { holder, session, term: lock.term, life, looks_dead: life.looks_dead(), ttl: by.ttl })
    }
}

/// The lock that the owner of a schedule holds.
pub(crate) fn lock_of(id: &ScheduleId) -> LockId {
    let key = Key::new(&id.name).expect("a schedule's name is shorter than a key");
    LockId { namespace: id.namespace.clone(), kind: Kind::Schedule, key }
}

/// The run that is on, if the last one has no end.
pub(crate) fn on(runs: &[RunRecord]) -> Option<&RunRecord> {
    runs.iter().find(|run| run.id.entry != Entry::Skipped).filter(|run| run.finish.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grade, Limits, Trouble};
    use tenure::{
        model::{Rules, RunId, Why},
        store::{About, Candidate, Definition, Holding, Nonce, Refusal, SessionRecord, Ticket},
    };

    const TTL: Duration = Duration::from_secs(30);

    fn at(minutes: i64) -> StoreTime {
        StoreTime::from_millis(1_767_225_600_000 + minutes * 60_000)
    }

    fn hourly() -> ScheduleRecord {
        let id = ScheduleId { namespace: "n".parse().unwrap(), name: "s".parse().unwrap() };
        let mut record = ScheduleRecord::new(id);
        let (timing, policies) = (Rules::new("0 * * * * in UTC").unwrap(), Rules::new("p").unwrap());
        record.definition = Some(Definition::new(timing, policies, at(0), Term::new(1)));
        record
    }

    fn lives(beat_at: StoreTime) -> SessionStates {
        let about = About::new("n".parse().unwrap(), "pod-1".parse().unwrap());
        [SessionRecord::opened(SessionId::from_u128(1), about, Nonce::new(1), TTL, beat_at)]
            .into_iter()
            .collect()
    }

    fn run(minutes: i64) -> RunRecord {
        let id = RunId::tick(hourly().id, at(minutes));
        RunRecord::new(id, SessionId::from_u128(1), "pod-1".parse().unwrap(), Term::new(5), at(minutes))
    }

    fn owned() -> LockRecord {
        let by = Candidate::new(SessionId::from_u128(1), Ticket::new(1), TTL, "pod-1".parse().unwrap());
        let mut lock = LockRecord::new(lock_of(&hourly().id), Term::new(5));
        lock.holding = Some(Holding::new(by, at(0)));
        lock
    }

    fn looked(runs: Vec<RunRecord>, beat_at: StoreTime, now: StoreTime) -> ScheduleView {
        let ledger = Ledger { runs, is_all: true, read_at: Some(now), ..Ledger::default() };
        ScheduleView::of(hourly(), ledger, Some(&owned()), &lives(beat_at), now)
    }

    #[test]
    fn a_due_tick_that_no_instance_runs_is_overdue() {
        let seen = looked(Vec::new(), at(70), at(70));
        assert_eq!((seen.due, seen.running), (Some(at(60)), false));
        assert_eq!(seen.state(TTL), ScheduleState::Overdue { by: Duration::from_secs(600) });
        assert_eq!(looked(Vec::new(), at(61), at(61)).state(TTL), ScheduleState::Due);
        assert_eq!((&seen.next[..], seen.zone.as_deref()), (&[at(120), at(180), at(240)][..], Some("UTC")));
        assert_eq!(seen.in_words.as_deref(), Some("At minute 0 past every hour"));
        assert!(seen.owner.is_some_and(|owner| !owner.looks_dead && owner.holder.as_str() == "pod-1"));
        assert_eq!(looked(vec![run(60)], at(70), at(70)).due, None);
    }

    #[test]
    fn of_what_was_due_after_it_was_read_a_ledger_does_not_tell() {
        let of = |read_at| {
            let runs = vec![run(60)];
            let ledger = Ledger { runs, is_all: true, read_at: Some(read_at), ..Ledger::default() };
            ScheduleView::of(hourly(), ledger, Some(&owned()), &lives(at(61)), at(190)).due
        };
        assert_eq!((of(at(119)), of(at(121))), (None, Some(at(120))));
    }

    #[test]
    fn of_a_ledger_with_entries_that_cannot_be_used_these_are_told_and_no_tick_is_called_overdue() {
        let refused = |number: i64| {
            let refusal = Refusal::Damaged { field: "started".to_owned(), problem: "no time".to_owned() };
            (format!("run {number}"), refusal)
        };
        let mut page = Page::new(Vec::new(), None);
        page.refused = (0..3).map(refused).collect();
        let view =
            ScheduleView::of(hourly(), Ledger::of(page, at(70)), Some(&owned()), &lives(at(70)), at(70));
        let told = Trouble::of_schedule(&view, &Limits::default(), TTL, at(70)).remove(0);
        assert_eq!((view.due, told.grade, told.sort, told.number), (None, Grade::Critical, "refused", 3));
        let (says, command) = (told.says.as_str(), told.command.as_str());
        assert!(
            says.starts_with("s has entries that cannot be read: ") && says.contains("started"),
            "{says}"
        );
        assert_eq!((says.ends_with("; so with 2 more"), command), (true, "tenure history s"), "{says}");
    }

    #[test]
    fn a_run_that_is_on_holds_up_the_next_ticks_unless_its_runner_looks_dead() {
        let on = looked(vec![run(60)], at(190), at(190));
        assert_eq!((on.running, on.due, on.state(TTL)), (true, None, ScheduleState::Running));
        let died = looked(vec![run(60)], at(61), at(190));
        assert_eq!((died.running, died.due), (false, Some(at(120))));
        assert!(died.owner.is_some_and(|owner| owner.looks_dead));
    }

    #[test]
    fn a_schedule_that_is_paused_has_no_next_tick() {
        let mut record = hourly();
        record.pause = Some(Pause::new(at(10), "ops".parse().unwrap(), Why::shortened("repairs")));
        let ledger = Ledger { is_all: true, read_at: Some(at(70)), ..Ledger::default() };
        let seen = ScheduleView::of(record, ledger, None, &lives(at(70)), at(70));
        assert_eq!((seen.paused, &seen.next[..], seen.due, &seen.owner), (true, &[][..], None, &None));
        assert_eq!(seen.state(TTL), ScheduleState::Paused);
    }
}

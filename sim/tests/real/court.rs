//! Brings what the store has applied and what the processes said into one order, and has it judged.
//!
//! The exact time at which something was applied is not seen; only when it was known to be. A grant stands
//! in the history where it was first known for certain: where its instance was told of it, or where it was
//! read in the stream of changes, and never behind what was committed later. A beat stands where it was sent.
//! So every verdict holds whatever the true moments were.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tenure::{
    clock::Moment,
    model::{SessionId, Term},
};
use tenure_sim::{Durations, EventKind, History, Life, Reported, Violation};

use crate::{
    holder::{Pace, config},
    ledger::Applied,
    lines::{Line, start},
    ticks::{Entry as Tick, Ticks},
};

/// No entry is too late here, on whichever machine: that is judged where time is simulated, by the same checkers.
const SLACK: Duration = Duration::from_secs(24 * 60 * 60);

/// The ground of a death that the store has proven.
pub(crate) const PROVEN: &str = "proven";

/// Message of a process, or something done to it.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) at: Moment,
    pub(crate) life: Option<Life>,
    pub(crate) line: Line,
}

/// An entry of the history to be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) at: Moment,
    pub(crate) life: Option<Life>,
    pub(crate) what: EventKind,
}

/// Judge of the history.
pub(crate) struct Court {
    history: History,
    ttl: Duration,
    heard: Vec<Heard>,
    applied: Vec<(Moment, Applied)>,
    lives: BTreeMap<SessionId, Life>,
    /// Time of the first attempt to open each session. Whichever attempt was first applied, no later one is a beat.
    opened: BTreeMap<SessionId, Moment>,
    /// Time since which the process of each life may be gone.
    killed: BTreeMap<Life, Moment>,
    /// Sessions that their own instances have given up.
    given_up: BTreeSet<SessionId>,
    /// The ground of each death on record.
    deaths: BTreeMap<SessionId, &'static str>,
    /// Versions of each resource that were committed, and under which term.
    committed: BTreeSet<(usize, u64, Term)>,
    /// Versions whose commit was acknowledged to a process.
    claimed: Vec<(usize, u64, Term)>,
    /// The ticks of the schedule.
    ticks: Ticks,
    /// Number of acknowledged versions that were kept, as they had to be.
    pub(crate) kept: u64,
}

impl Court {
    pub(crate) fn new(seed: u64, members: usize, pace: Pace) -> Self {
        let durations = |member| Durations { slack: SLACK, ..Durations::of(&config(member, pace)) };
        Self {
            history: History::from_outside(seed, (0..members).map(durations).collect(), Vec::new()),
            ttl: config(0, pace).ttl(),
            heard: Vec::new(),
            applied: Vec::new(),
            lives: BTreeMap::new(),
            opened: BTreeMap::new(),
            killed: BTreeMap::new(),
            given_up: BTreeSet::new(),
            deaths: BTreeMap::new(),
            committed: BTreeSet::new(),
            claimed: Vec::new(),
            ticks: Ticks::default(),
            kept: 0,
        }
    }

    pub(crate) fn hear(&mut self, heard: impl IntoIterator<Item = Heard>) {
        for heard in heard {
            match (heard.life, &heard.line) {
                (Some(life), Line::Seen(EventKind::Opens { session })) => {
                    self.lives.insert(*session, life);
                    let first = self.opened.entry(*session).or_insert(heard.at);
                    *first = (*first).min(heard.at);
                }
                // Then it ends, whether its session is closed or something still runs under it.
                (Some(life), Line::Seen(EventKind::Closed { .. })) => self.kills(life, heard.at),
                (_, Line::Seen(EventKind::Reported(Reported::SessionLost { session, .. }))) => {
                    self.given_up.insert(*session);
                }
                _ => {}
            }
            self.heard.push(heard);
        }
    }

    pub(crate) fn apply(&mut self, applied: impl IntoIterator<Item = (Moment, Applied)>) {
        for (at, applied) in applied {
            if let Applied::Died { session, ground, .. } = applied {
                self.deaths.entry(session).or_insert(ground);
            }
            self.applied.push((at, applied));
        }
    }

    /// The ground on which a session is dead on record.
    pub(crate) fn ground(&self, session: SessionId) -> Option<&'static str> {
        self.deaths.get(&session).copied()
    }

    /// Returns whether its own instance has given a session up.
    pub(crate) fn is_given_up(&self, session: SessionId) -> bool {
        self.given_up.contains(&session)
    }

    /// A process is killed after that moment.
    pub(crate) fn kills(&mut self, life: Life, at: Moment) {
        self.killed.insert(life, at);
    }

    /// A session that is proven dead was killed before, or given up. Of later ones this may not be heard yet.
    fn judge_proofs(&self, bounds: &[Moment], until: Moment) {
        for ((at, applied), bound) in self.applied.iter().zip(bounds) {
            let Applied::Died { session, ground: PROVEN, .. } = applied else { continue };
            if *bound > until {
                continue;
            }
            let was_killed = self
                .lives
                .get(session)
                .and_then(|life| self.killed.get(life))
                .is_some_and(|killed| killed <= at);
            if !was_killed && !self.given_up.contains(session) {
                self.history.violate(
                    "proof",
                    format!("session {session} was proven dead, and its process was not killed"),
                );
            }
        }
    }

    pub(crate) fn violate(&self, invariant: &'static str, says: String) {
        self.history.violate(invariant, says);
    }

    pub(crate) fn entries(&self) -> u64 {
        self.history.entries()
    }

    /// Judges all that happened up to then. By then everything must have been heard.
    pub(crate) fn judge_until(&mut self, until: Moment) -> Option<Violation> {
        let bounds = applied_by(&self.heard, &self.applied);
        self.judge_proofs(&bounds, until);
        // Entries that the store has applied stand before those that were heard at the same moment.
        let mut entries = stored(&self.applied, &bounds, &self.lives);
        entries.extend(said(&self.heard, self.ttl, &self.opened));
        entries.sort_by_key(|entry| entry.at);
        // Later ones are judged the next time, then with all that belongs to them.
        let later = entries.partition_point(|entry| entry.at <= until);
        for entry in entries.drain(..later) {
            if let EventKind::Wrote { key, term, over } = &entry.what {
                self.committed.insert((*key, *over + 1, *term));
            }
            let since = entry.at.since(start());
            self.history.enter_at(since, entry.life, entry.at, entry.what);
        }
        let mut due: Vec<_> = self.heard.extract_if(.., |heard| heard.at <= until).collect();
        due.sort_by_key(|heard| heard.at);
        for heard in due {
            match heard.line {
                Line::Committed { key, term, version } => self.claimed.push((key, version, term)),
                Line::Ticked { instant, attempt } => {
                    if let Some(wrong) = self.ticks.begins(instant, attempt) {
                        self.history.violate("ticks", wrong);
                    }
                }
                Line::Seen(_) | Line::Echo(_) => {}
            }
        }
        let mut bounds = bounds.into_iter();
        self.applied.retain(|_| bounds.next().is_some_and(|bound| bound > until));
        self.judge_commits();
        self.history.violation()
    }

    /// Judges the whole ledger of the schedule. Answers with how many of its ticks were run.
    pub(crate) fn judge_ledger(&mut self, ledger: Vec<Tick>, one_time: bool) -> (usize, Option<Violation>) {
        if let Some(wrong) = self.ticks.judge(ledger, one_time) {
            self.history.violate("ticks", wrong);
        }
        (self.ticks.begun(), self.history.violation())
    }

    /// A transaction that was acknowledged is there: no update is lost.
    fn judge_commits(&mut self) {
        for claim in self.claimed.drain(..) {
            if self.committed.contains(&claim) {
                self.kept += 1;
            } else {
                let (key, version, term) = claim;
                self.history.violate(
                    "acknowledged is kept",
                    format!("version {version} of key {key}, written under term {term}, was acknowledged, and is not there"),
                );
            }
        }
    }
}

/// Messages of the processes, as entries.
fn said(heard: &[Heard], ttl: Duration, opened: &BTreeMap<SessionId, Moment>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for Heard { at, life, line } in heard {
        let Line::Seen(what) = line else { continue };
        entries.push(Entry { at: *at, life: *life, what: what.clone() });
        // A session may have been there, and a beat on record, since they were sent.
        match what {
            EventKind::Opens { session } if opened.get(session) == Some(at) => {
                entries.push(Entry {
                    at: *at,
                    life: None,
                    what: EventKind::Opened { session: *session, ttl },
                });
            }
            EventKind::Confirmed { session, sent } => {
                entries.push(Entry { at: *sent, life: None, what: EventKind::Beaten { session: *session } });
            }
            _ => {}
        }
    }
    entries
}

/// Changes that the store has applied, as entries.
fn stored(applied: &[(Moment, Applied)], bounds: &[Moment], lives: &BTreeMap<SessionId, Life>) -> Vec<Entry> {
    let entry = |((_, applied), at): (&(Moment, Applied), &Moment)| {
        let what = match applied {
            Applied::Seen(what) => what.clone(),
            Applied::Died { session, by_itself, ground } => {
                let by = lives.get(session).copied().filter(|_| *by_itself);
                EventKind::Died { session: *session, ground, by }
            }
            Applied::Mark(_) => return None,
        };
        Some(Entry { at: *at, life: None, what })
    };
    applied.iter().zip(bounds).filter_map(entry).collect()
}

/// By when each change had been applied for certain: when it was read, or a process knew of it, or
/// something had been applied that was committed later.
fn applied_by(heard: &[Heard], applied: &[(Moment, Applied)]) -> Vec<Moment> {
    let mut known = BTreeMap::<(usize, Term), Moment>::new();
    let mut written = BTreeMap::<(usize, u64), Moment>::new();
    for Heard { at, line, .. } in heard {
        match line {
            Line::Seen(
                EventKind::Noticed { key, term, .. }
                | EventKind::Began { key, term, .. }
                | EventKind::Reported(Reported::Acquired { key, term }),
            ) => {
                let first = known.entry((*key, *term)).or_insert(*at);
                *first = (*first).min(*at);
            }
            Line::Committed { key, version, .. } => {
                written.insert((*key, *version), *at);
            }
            _ => {}
        }
    }
    let mut next = None;
    let mut bounds: Vec<_> = applied
        .iter()
        .rev()
        .map(|(read, applied)| {
            let told = match applied {
                Applied::Seen(EventKind::Granted { key, term, .. }) => known.get(&(*key, *term)),
                Applied::Seen(EventKind::Wrote { key, over, .. }) => written.get(&(*key, *over + 1)),
                _ => None,
            };
            let bound = [Some(*read), told.copied(), next].into_iter().flatten().min().unwrap_or(*read);
            next = Some(bound);
            bound
        })
        .collect();
    bounds.reverse();
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::store::Ticket;

    fn at(millis: u64) -> Moment {
        start() + Duration::from_millis(millis)
    }

    fn heard(millis: u64, what: EventKind) -> Heard {
        Heard { at: at(millis), life: Some(Life { member: 0, number: 1 }), line: Line::Seen(what) }
    }

    fn granted(key: usize, term: u64) -> Applied {
        let session = SessionId::from_u128(0);
        let (term, ticket, tag) = (Term::new(term), Ticket::new(1), String::new());
        Applied::Seen(EventKind::Granted { key, term, session, ticket, tag })
    }

    #[test]
    fn a_grant_stands_where_it_was_known_first_and_never_behind_a_later_one() {
        let noticed = EventKind::Noticed {
            key: 1,
            term: Term::new(5),
            session: SessionId::from_u128(0),
            ticket: Ticket::new(1),
        };
        let heard = [heard(30, noticed)];
        let applied = [
            (at(20), granted(0, 1)),
            (at(40), granted(0, 2)),
            (at(50), granted(1, 5)),
            (at(60), granted(0, 3)),
        ];
        assert_eq!(applied_by(&heard, &applied), [at(20), at(30), at(30), at(60)]);
    }

    #[test]
    fn entries_after_the_judged_time_are_kept_and_judged_later() {
        let mut court = Court::new(1, 1, Pace::Quick);
        let polled = |term| EventKind::Polled { key: 0, term: Term::new(term) };
        court.hear([heard(10, polled(1)), heard(50, polled(1))]);
        court.apply([(at(40), granted(0, 2))]);
        assert!(court.judge_until(at(45)).is_none());
        assert_eq!(court.entries(), 2);
        assert_eq!((court.heard.len(), court.applied.len()), (1, 0));
    }

    #[test]
    fn a_poll_under_a_term_that_was_over_for_certain_is_noticed() {
        let mut court = Court::new(1, 1, Pace::Quick);
        let polled = |term| EventKind::Polled { key: 0, term: Term::new(term) };
        court.apply([(at(5), granted(0, 1)), (at(40), granted(0, 2))]);
        court.hear([heard(10, polled(1)), heard(50, polled(1))]);
        let violation = court.judge_until(at(60)).unwrap();
        assert_eq!(violation.invariant, "exclusion");
    }

    #[test]
    fn a_session_that_was_tried_to_be_opened_twice_is_as_old_as_the_first_attempt() {
        let session = SessionId::from_u128(7);
        let died = |millis| (at(millis), Applied::Died { session, by_itself: false, ground: "by another" });
        let judge = |died| {
            let mut court = Court::new(1, 1, Pace::Quick);
            court.hear([heard(10, EventKind::Opens { session }), heard(2000, EventKind::Opens { session })]);
            court.apply([died]);
            court.judge_until(at(4000)).map(|violation| violation.invariant)
        };
        assert_eq!(judge(died(3020)), None);
        assert_eq!(judge(died(2900)), Some("no theft"));
    }

    #[test]
    fn a_session_that_is_proven_dead_must_have_been_killed_or_given_up_before() {
        let session = SessionId::from_u128(7);
        let life = Life { member: 0, number: 1 };
        let died = || (at(50), Applied::Died { session, by_itself: false, ground: PROVEN });
        let lost = EventKind::Reported(Reported::SessionLost { session, why: "expired" });
        let judge = |killed: Option<u64>, lost: Option<EventKind>| {
            let mut court = Court::new(1, 1, Pace::Quick);
            court.hear([heard(10, EventKind::Opens { session })]);
            court.hear(lost.map(|lost| heard(40, lost)));
            if let Some(millis) = killed {
                court.kills(life, at(millis));
            }
            court.apply([died()]);
            court.judge_until(at(60)).map(|violation| violation.invariant)
        };
        assert_eq!(judge(None, None), Some("proof"));
        assert_eq!(judge(Some(51), None), Some("proof"), "it was killed later");
        assert_eq!(judge(Some(49), None), None);
        assert_eq!(judge(None, Some(lost)), None);
    }

    #[test]
    fn writes_of_a_key_are_followed_after_its_lock_was_deleted() {
        let mut court = Court::new(1, 1, Pace::Quick);
        let wrote = |term, over| Applied::Seen(EventKind::Wrote { key: 0, term: Term::new(term), over });
        court.apply([
            (at(5), granted(0, 1)),
            (at(6), wrote(1, 0)),
            (at(7), Applied::Seen(EventKind::LockDeleted { key: 0 })),
            (at(8), wrote(1, 1)),
            (at(9), granted(0, 2)),
            (at(10), wrote(2, 2)),
        ]);
        assert!(court.judge_until(at(20)).is_none());
        court.apply([(at(30), wrote(2, 2))]);
        assert_eq!(court.judge_until(at(40)).unwrap().invariant, "fence");
    }

    #[test]
    fn a_commit_that_was_acknowledged_and_is_missing_is_noticed() {
        let mut court = Court::new(1, 1, Pace::Quick);
        let (key, term) = (0, Term::new(1));
        court.apply([(at(5), Applied::Seen(EventKind::Wrote { key, term, over: 0 }))]);
        let committed = |millis, version| Heard {
            at: at(millis),
            life: None,
            line: Line::Committed { key, term, version },
        };
        court.hear([committed(6, 1)]);
        assert!(court.judge_until(at(10)).is_none());
        court.hear([committed(16, 2)]);
        assert_eq!(court.judge_until(at(20)).unwrap().invariant, "acknowledged is kept");
    }
}

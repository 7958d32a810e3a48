//! Locks: taken, released, read, listed; and their values.

use super::{State, page};
use crate::{
    model::{
        Candidate, Closed, Ended, Holding, Kind, LockId, LockRecord, Namespace, SessionId, StoreTime, Term,
    },
    store::{
        Bell, Cursor, Held, LockSeen, Page, Release, ReleaseAnswer, ReleaseTo, SetAnswer, SetValue, Take,
        TakeAnswer,
        rules::{TakeVerdict, verdict},
    },
};

impl State {
    /// Each lock by itself, as the contract has it.
    pub(super) fn take(&self, takes: Vec<Take>, dead: Vec<SessionId>) -> Vec<TakeAnswer> {
        takes.into_iter().map(|take| self.take_one(take, &dead)).collect()
    }

    fn take_one(&self, take: Take, dead: &[SessionId]) -> TakeAnswer {
        let now = self.clock.wall();
        let mut records = self.records();
        let Take { lock, by } = take;
        let (session, ticket) = (by.session, by.ticket);
        let Some(record) = records.locks.get_mut(&lock) else {
            let mut record = LockRecord::new(lock.clone(), Term::first(now));
            record.holding = Some(Holding::new(by, now));
            self.ring(Bell::changed(&lock));
            records.locks.insert(lock, record.clone());
            return TakeAnswer::of(record, session, ticket);
        };
        match verdict(record, &by, dead, now) {
            TakeVerdict::Keep => {}
            TakeVerdict::Grant { term, ended } => {
                if let Some(how) = ended {
                    record.end(now, how, None);
                }
                self.grant(record, by, term, now);
            }
            TakeVerdict::Delay(delay) => {
                record.end(now, Ended::Died, None);
                record.closed = Some(Closed::for_length(now, delay));
                self.ring(Bell::changed(&record.id));
            }
        }
        TakeAnswer::of(record.clone(), session, ticket)
    }

    fn grant(&self, record: &mut LockRecord, by: Candidate, term: Term, now: StoreTime) {
        record.term = term;
        record.holding = Some(Holding::new(by, now));
        record.closed = None;
        self.ring(Bell::changed(&record.id));
    }

    pub(super) fn release(&self, releases: Vec<Release>) -> Vec<ReleaseAnswer> {
        releases.into_iter().map(|release| self.release_one(release)).collect()
    }

    fn release_one(&self, release: Release) -> ReleaseAnswer {
        let now = self.clock.wall();
        let mut records = self.records();
        let held = records.locks.get_mut(&release.lock).filter(|record| {
            record.term == release.term
                && record.holding.as_ref().is_some_and(|held| held.by.session == release.session)
        });
        if let Some(record) = held {
            if release.then == ReleaseTo::FreeUnlessWanted && record.wanted {
                return ReleaseAnswer::Wanted;
            }
            let bells = Bell::released(&release);
            match release.then {
                ReleaseTo::Free | ReleaseTo::FreeUnlessWanted => {
                    record.end(now, Ended::Released, release.note);
                    record.wanted = false;
                }
                ReleaseTo::FreeFor(_) => record.end(now, Ended::Released, release.note),
                ReleaseTo::ClosedFor(length) => {
                    record.end(now, Ended::Released, release.note);
                    record.closed = Some(Closed::for_length(now, length));
                }
                ReleaseTo::HandTo(next) => match record.term.next(now) {
                    Some(term) => {
                        record.end(now, Ended::HandedOver, release.note);
                        record.term = term;
                        record.holding = Some(Holding::new(*next, now));
                    }
                    None => record.end(now, Ended::Released, release.note),
                },
            }
            self.ring(bells);
        }
        ReleaseAnswer::Released
    }

    pub(super) fn set_value(&self, set: SetValue) -> SetAnswer {
        let mut records = self.records();
        let Some(record) = records.locks.get_mut(&set.lock) else { return SetAnswer::NotHeld };
        match &mut record.holding {
            Some(held) if held.by.session == set.session && record.term == set.term => {
                if set.number > held.value_set {
                    held.by.value = set.value;
                    held.value_set = set.number;
                    if set.lock.kind == Kind::Schedule {
                        self.ring(Bell::changed(&set.lock));
                    }
                }
                SetAnswer::Set
            }
            _ => SetAnswer::NotHeld,
        }
    }

    pub(super) fn locks(&self, locks: Vec<LockId>) -> Vec<LockSeen> {
        let records = self.records();
        let seen = |id| records.locks.get(id).cloned().map_or(LockSeen::Absent, LockSeen::Found);
        locks.iter().map(seen).collect()
    }

    pub(super) fn list_locks(
        &self,
        namespace: Namespace,
        kind: Option<Kind>,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Page<LockRecord> {
        let records = self.records();
        let all = records.locks.values().filter(|lock| lock.id.namespace == namespace);
        let wanted = all.filter(|lock| kind.as_ref().is_none_or(|kind| lock.id.kind == *kind));
        page(wanted.map(|lock| (place(&lock.id), lock.clone())), after.as_ref(), at_most)
    }

    pub(super) fn held_by(&self, session: SessionId, after: Option<Cursor>, at_most: usize) -> Page<Held> {
        let records = self.records();
        let mut held: Vec<_> = records.locks.values().filter(|lock| lock.is_held_by(session)).collect();
        held.sort_by_key(|lock| audit_place(lock));
        let entries = held.into_iter().filter_map(|lock| {
            let ticket = lock.holding.as_ref()?.by.ticket;
            Some((audit_place(lock), Held { lock: lock.id.clone(), term: lock.term, ticket }))
        });
        page(entries, after.as_ref(), at_most)
    }
}

/// Returns the place of a lock in a listing. The zero byte is in no name, and sorts before all that are.
fn place(id: &LockId) -> Vec<u8> {
    format!("{}\0{}\0{}", id.namespace, id.kind, id.key).into_bytes()
}

/// Returns the place of a lock in the audit: latest term first.
fn audit_place(lock: &LockRecord) -> Vec<u8> {
    let mut place = (u64::MAX - lock.term.get()).to_be_bytes().to_vec();
    place.extend(self::place(&lock.id));
    place
}

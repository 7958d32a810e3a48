//! Locks: taken, released, read, listed; and their values.

use std::collections::BTreeSet;

use super::{Change, Rows, Step, and_one, each, kept, kept_candidate, page};
use crate::{
    model::{Kind, LockId, Namespace, SessionId, Term},
    store::{
        Bell, Closed, Cursor, Ended, Held, Holding, LockRecord, LockSeen, MOST_TOLD, Page, Release,
        ReleaseAnswer, ReleaseTo, SetAnswer, SetValue, Take, TakeAnswer,
        rules::{TakeVerdict, verdict},
    },
};

impl<R: Rows> Step<'_, R> {
    /// Each lock by itself, as the contract has it.
    pub(in crate::store) fn take(
        &mut self,
        takes: Vec<Take>,
        dead: Vec<SessionId>,
    ) -> Result<Vec<TakeAnswer>, R::Failure> {
        each(takes, |take| self.take_one(take, &dead))
    }

    fn take_one(&mut self, take: Take, dead: &[SessionId]) -> Result<TakeAnswer, R::Failure> {
        let (now, Take { lock, by }) = (self.now, take);
        let by = kept_candidate(by);
        let (session, ticket) = (by.session, by.ticket);
        let taken = self.rows.change_lock(&lock, |record| {
            match verdict(record, &by, dead, now) {
                TakeVerdict::Keep => return Change::Keep((record.clone(), false)),
                TakeVerdict::Grant { term, ended } => {
                    if let Some(how) = ended {
                        record.end(now, how, None);
                    }
                    record.term = term;
                    record.closed = None;
                    record.holding = Some(Holding::new(by.clone(), now));
                }
                TakeVerdict::Delay(length) => {
                    record.end(now, Ended::Died, None);
                    record.closed = Some(Closed::for_length(now, length));
                }
            }
            Change::Put((record.clone(), true))
        })?;
        let (record, has_changed) = match taken {
            Err(refusal) => return Ok(TakeAnswer::Refused(refusal)),
            Ok(Some(taken)) => taken,
            Ok(None) => {
                let mut record = LockRecord::new(lock, Term::first(now).max(self.rows.least_term()?));
                record.holding = Some(Holding::new(by, now));
                self.rows.insert_lock(&record)?;
                (record, true)
            }
        };
        if has_changed {
            self.ring(Bell::changed(&record.id));
        }
        Ok(TakeAnswer::of(record, session, ticket))
    }

    pub(in crate::store) fn release(
        &mut self,
        releases: Vec<Release>,
    ) -> Result<Vec<ReleaseAnswer>, R::Failure> {
        each(releases, |release| self.release_one(release))
    }

    fn release_one(&mut self, release: Release) -> Result<ReleaseAnswer, R::Failure> {
        let now = self.now;
        let mut bells = Bell::released(&release);
        let tells_all = release.then == ReleaseTo::Free && release.lock.kind.spread().is_none();
        let Release { lock, session, term, note, then } = release;
        let released = self.rows.change_lock(&lock, |record| {
            if record.term != term || !record.is_held_by(session) {
                return Change::Keep((ReleaseAnswer::Released, false));
            }
            if then == ReleaseTo::FreeUnlessWanted && record.wanted {
                return Change::Keep((ReleaseAnswer::Wanted, false));
            }
            match then {
                ReleaseTo::Free | ReleaseTo::FreeUnlessWanted => {
                    record.end(now, Ended::Released, note);
                    record.wanted = false;
                }
                ReleaseTo::ClosedFor(length) => {
                    record.end(now, Ended::Released, note);
                    record.closed = Some(Closed::for_length(now, kept(length)));
                }
                ReleaseTo::HandTo(next) => match record.term.next(now) {
                    Some(term) => {
                        record.end(now, Ended::HandedOver, note);
                        record.term = term;
                        record.holding = Some(Holding::new(kept_candidate(*next), now));
                    }
                    None => record.end(now, Ended::Released, note),
                },
            }
            Change::Put((ReleaseAnswer::Released, true))
        })?;
        Ok(match released {
            Err(refusal) => ReleaseAnswer::Refused(refusal),
            Ok(None) => ReleaseAnswer::Released,
            Ok(Some((answer, has_changed))) => {
                if has_changed {
                    if tells_all {
                        let queue = self.rows.queue(&lock, MOST_TOLD)?.waiters;
                        bells = Bell::freed(queue.iter().filter(|waiter| waiter.by.session != session));
                    }
                    self.ring(bells);
                }
                answer
            }
        })
    }

    pub(in crate::store) fn set_value(&mut self, set: SetValue) -> Result<SetAnswer, R::Failure> {
        let SetValue { lock, session, term, number, value } = set;
        let set = self.rows.change_lock(&lock, |record| match &mut record.holding {
            Some(held) if held.by.session == session && record.term == term => {
                if number <= held.value_set {
                    return Change::Keep((SetAnswer::Set, false));
                }
                held.by.value = value;
                held.value_set = number;
                Change::Put((SetAnswer::Set, true))
            }
            _ => Change::Keep((SetAnswer::NotHeld, false)),
        })?;
        let (answer, has_changed) = match set {
            Err(refusal) => return Ok(SetAnswer::Refused(refusal)),
            Ok(set) => set.unwrap_or((SetAnswer::NotHeld, false)),
        };
        if has_changed && lock.kind == Kind::Schedule {
            self.ring(Bell::changed(&lock));
        }
        Ok(answer)
    }

    pub(in crate::store) fn locks(&mut self, locks: Vec<LockId>) -> Result<Vec<LockSeen>, R::Failure> {
        each(locks, |id| {
            Ok(match self.rows.lock(&id)? {
                Ok(found) => found.map_or(LockSeen::Absent, LockSeen::Found),
                Err(refusal) => LockSeen::Refused(refusal),
            })
        })
    }

    pub(in crate::store) fn list_locks(
        &mut self,
        namespace: Namespace,
        kind: Option<Kind>,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<LockRecord>, R::Failure> {
        let after = after.as_ref().map(Cursor::place);
        Ok(page(self.rows.locks(&namespace, kind.as_ref(), after, and_one(at_most))?, at_most))
    }

    pub(in crate::store) fn held_by(
        &mut self,
        session: SessionId,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<Held>, R::Failure> {
        let after = after.as_ref().map(Cursor::place);
        let page = page(self.rows.held_by(session, after, and_one(at_most))?, at_most);
        // A record that makes no sense is found by its own name; the audit only compares.
        Ok(Page { refused: Vec::new(), ..page })
    }

    pub(in crate::store) fn latest_grants(
        &mut self,
        sessions: Vec<SessionId>,
        at_most: usize,
    ) -> Result<Vec<LockRecord>, R::Failure> {
        let mut latest: Vec<Held> = Vec::new();
        for session in BTreeSet::from_iter(sessions) {
            let held = self.rows.held_by(session, None, at_most)?;
            latest.extend(held.into_iter().filter_map(|held| held.record.ok()));
            latest.sort_by(|one, other| (other.term, &one.lock).cmp(&(one.term, &other.lock)));
            latest.truncate(at_most);
        }
        let mut records = Vec::with_capacity(latest.len());
        for held in latest {
            records.extend(self.rows.lock(&held.lock)?.ok().flatten());
        }
        Ok(records)
    }
}

use tenure::{
    model::{LockId, SessionId, StoreTime, Term},
    store::{
        Candidate, Ended, Held, LockRecord, LockSeen, MAX_REQUESTS, Note, PAST_HOLDERS, Refusal, Release,
        ReleaseAnswer, ReleaseTo, Request, Revocation, RevokeAnswer, SetAnswer, SetValue, Take, TakeAnswer,
    },
};

use super::{Check, Life, Model, Once, ensure};
use crate::reference::runner::LONG;

/// All that ever happened to a lock.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    pub(crate) grants: Vec<Grant>,
    /// Number of the grants that the record has forgotten, because it was purged.
    forgotten: usize,
    closed: Option<Closing>,
    /// True if a session joined its queue while it was held, and it was not released as `Free` since.
    pub(super) wanted: bool,
    /// The clock's weeks when it was last granted.
    weeks: u64,
}

#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) by: Candidate,
    /// The number of the last change of its value.
    sets: u64,
    /// None until it is read: a hand-over does not answer with it.
    pub(crate) term: Option<Term>,
    since: Once<StoreTime>,
    end: Option<(Ended, Option<Note>)>,
    until: Once<StoreTime>,
}

#[derive(Debug)]
struct Closing {
    length: std::time::Duration,
    until: Once<StoreTime>,
    turns: u64,
}

impl Lock {
    fn current(&mut self) -> Option<&mut Grant> {
        self.grants.last_mut().filter(|grant| grant.end.is_none())
    }

    pub(crate) fn holder(&self) -> Option<&Candidate> {
        self.grants.last().filter(|grant| grant.end.is_none()).map(|grant| &grant.by)
    }

    /// Returns the last term.
    pub(crate) fn term(&self) -> Option<Term> {
        self.grants.last().and_then(|grant| grant.term)
    }

    pub(crate) fn is_held(&self, session: SessionId, term: Term) -> bool {
        self.holder().is_some_and(|by| by.session == session) && self.term() == Some(term)
    }

    fn grant(&mut self, by: Candidate, weeks: u64) {
        let grant =
            Grant { by, sets: 0, term: None, since: Once::default(), end: None, until: Once::default() };
        self.grants.push(grant);
        self.closed = None;
        self.weeks = weeks;
    }

    fn end(&mut self, how: Ended, note: Option<Note>) {
        self.current().expect("only what is held is ended").end = Some((how, note));
    }

    fn close(&mut self, length: std::time::Duration, turns: u64) {
        self.closed = Some(Closing { length, until: Once::default(), turns });
    }

    fn ends(&self) -> impl Iterator<Item = Ended> {
        self.grants.iter().filter_map(|grant| grant.end.as_ref().map(|(how, _)| *how))
    }

    fn has_record(&self) -> bool {
        self.grants.len() > self.forgotten
    }

    /// Checks that the record tells this history.
    fn meet(&mut self, id: &LockId, seen: &LockRecord) -> Check {
        ensure!(seen.id == *id, "the record of {id} is that of {}", seen.id);
        ensure!(self.has_record(), "{id} was never taken, and has {seen:?}");
        let last = self.grants.len() - 1;
        let before = self.grants[..last].last().and_then(|grant| grant.term);
        let grant = &mut self.grants[last];
        let term = *grant.term.get_or_insert(seen.term);
        ensure!(term == seen.term, "the term of {id} is {term} while nobody took it, not {}", seen.term);
        ensure!(Some(term) > before, "the term of {id} must rise from {before:?}, and is {term}");

        let held = seen.holding.as_ref();
        let holder = grant.end.is_none().then_some(&grant.by);
        let found = held.map(|held| &held.by);
        ensure!(holder == found, "{id} must be held by {holder:?}, and is by {found:?}");
        if let Some(held) = held {
            grant.since.meet("the time of a grant", &held.acquired_at)?;
        }
        // A mark may be seen a moment later: it decides nothing, and whoever releases the lock meets it.
        ensure!(self.wanted || !seen.wanted, "nobody waits for {id}, and it is marked as wanted");
        let length = self.closed.as_ref().map(|closed| closed.length);
        let found = seen.closed.map(|closed| closed.length);
        ensure!(length == found, "{id} must be closed for {length:?}, and is for {found:?}");
        if let (Some(closed), Some(seen)) = (&mut self.closed, seen.closed) {
            closed.until.meet("the end of a closing", &seen.until)?;
        }
        self.meet_past(id, seen)
    }

    fn meet_past(&mut self, id: &LockId, seen: &LockRecord) -> Check {
        let remembered = self.grants[self.forgotten..].iter_mut().filter(|grant| grant.end.is_some());
        let mut past: Vec<_> = remembered.collect();
        past.reverse();
        past.truncate(PAST_HOLDERS);
        let found = &seen.past;
        ensure!(past.len() == found.len(), "{id} has had {} holders lately, not {found:?}", past.len());
        for (grant, found) in past.into_iter().zip(found) {
            let Some((how, note)) = &grant.end else { continue };
            let expected = (&grant.by.holder, Some(grant.by.session), &grant.by.who, grant.term, *how, note);
            let told = (&found.holder, found.session, &found.who, Some(found.term), found.how, &found.note);
            ensure!(expected == told, "{id} was held by {expected:?}, not by {told:?}");
            grant.since.meet("the time of a past grant", &found.from)?;
            grant.until.meet("the end of a past grant", &found.to)?;
        }
        Ok(())
    }
}

impl Model {
    /// Counts the ends of the grants, each kind by itself.
    pub(crate) fn meet_ends(&mut self) {
        let ended: Vec<_> = self.locks.values().flat_map(Lock::ends).collect();
        for how in ended {
            self.meet("grant", &how);
        }
    }

    pub(crate) fn lock_seen(&mut self, id: &LockId, seen: &LockSeen) -> Check {
        let lock = self.locks.entry(id.clone()).or_default();
        match seen {
            LockSeen::Found(record) => lock.meet(id, record),
            LockSeen::Absent => {
                ensure!(!lock.has_record(), "{id} was taken once, and its record is gone");
                Ok(())
            }
            other @ LockSeen::Refused(_) => Err(format!("nobody damaged {id}, and it is {other:?}")),
        }
    }

    /// After a purge that keeps nothing: whatever is gone was free, and of a term of days ago.
    pub(crate) fn purged_lock(&mut self, id: &LockId, seen: &LockSeen) -> Check {
        let (turns, weeks) = (self.turns, self.weeks);
        let lock = self.locks.entry(id.clone()).or_default();
        if let (LockSeen::Found(record), Some(by)) = (seen, lock.holder().cloned())
            && record.holding.is_none()
        {
            let died = self.lives.get(&by.session).is_some_and(Life::is_dead);
            ensure!(died, "{id} was freed by a purge, and its holder has not died");
            lock.end(Ended::Died, None);
            if !by.lock_delay.is_zero() {
                lock.close(by.lock_delay, turns);
            }
            *self.met.entry("purge: freed".to_owned()).or_default() += 1;
        }
        if *seen == LockSeen::Absent && lock.has_record() {
            ensure!(lock.holder().is_none(), "{id} was purged while it was held");
            ensure!(lock.weeks < weeks, "{id} was purged, and its term is young");
            lock.forgotten = lock.grants.len();
            lock.wanted = false;
            lock.closed = None;
            *self.met.entry("purge: lock".to_owned()).or_default() += 1;
        }
        self.lock_seen(id, seen)
    }

    pub(crate) fn take(&mut self, take: &Take, dead: &[SessionId], answer: &TakeAnswer) -> Check {
        #[derive(Debug, PartialEq)]
        enum Is {
            Taken,
            Held,
            Closed,
        }
        let Take { lock: id, by } = take;
        let (turns, weeks) = (self.turns, self.weeks);
        let lock = self.locks.entry(id.clone()).or_default();
        let expected = match (lock.holder().cloned(), &lock.closed) {
            (None, Some(closed)) => {
                let surely = closed.length == LONG && closed.turns == turns;
                if surely || matches!(answer, TakeAnswer::Closed(_)) {
                    Is::Closed
                } else {
                    lock.grant(by.clone(), weeks);
                    Is::Taken
                }
            }
            (None, None) => {
                lock.grant(by.clone(), weeks);
                Is::Taken
            }
            (Some(held), _) if held.session == by.session => match by.ticket.cmp(&held.ticket) {
                std::cmp::Ordering::Less => Is::Held,
                std::cmp::Ordering::Equal => Is::Taken,
                std::cmp::Ordering::Greater => {
                    lock.end(Ended::Superseded, None);
                    lock.grant(by.clone(), weeks);
                    Is::Taken
                }
            },
            (Some(held), _) if dead.contains(&held.session) => {
                lock.end(Ended::Died, None);
                if held.lock_delay.is_zero() {
                    lock.grant(by.clone(), weeks);
                    Is::Taken
                } else {
                    lock.close(held.lock_delay, turns);
                    Is::Closed
                }
            }
            (Some(_), _) => Is::Held,
        };
        let (is, record) = match answer {
            TakeAnswer::Taken(record) => (Is::Taken, record),
            TakeAnswer::Held(record) => (Is::Held, record),
            TakeAnswer::Closed(record) => (Is::Closed, record),
            TakeAnswer::Refused(why) => return Err(format!("nobody damaged {id}, and it is refused: {why}")),
        };
        ensure!(is == expected, "a take of {id} must be {expected:?}, and is {answer:?}");
        lock.meet(id, record)
    }

    /// Releases it. Answers with what the store must answer.
    pub(crate) fn release(&mut self, release: &Release) -> ReleaseAnswer {
        let Release { lock: id, session, term, note, then } = release;
        let (turns, weeks) = (self.turns, self.weeks);
        let lock = self.locks.entry(id.clone()).or_default();
        if !lock.is_held(*session, *term) {
            return ReleaseAnswer::Released;
        }
        match then {
            ReleaseTo::FreeUnlessWanted if lock.wanted => return ReleaseAnswer::Wanted,
            ReleaseTo::Free | ReleaseTo::FreeUnlessWanted => {
                lock.end(Ended::Released, note.clone());
                lock.wanted = false;
            }
            ReleaseTo::ClosedFor(length) => {
                lock.end(Ended::Released, note.clone());
                lock.close(*length, turns);
            }
            ReleaseTo::HandTo(next) => {
                lock.end(Ended::HandedOver, note.clone());
                lock.grant((**next).clone(), weeks);
            }
        }
        ReleaseAnswer::Released
    }

    pub(crate) fn set_value(&mut self, set: &SetValue, answer: &SetAnswer) -> Check {
        let lock = self.locks.entry(set.lock.clone()).or_default();
        let mut expected = SetAnswer::NotHeld;
        if lock.is_held(set.session, set.term)
            && let Some(grant) = lock.current()
        {
            if set.number > grant.sets {
                grant.by.value.clone_from(&set.value);
                grant.sets = set.number;
            }
            expected = SetAnswer::Set;
        }
        ensure!(*answer == expected, "setting a value must be {expected:?}, and is {answer:?}");
        Ok(())
    }

    pub(crate) fn revoke(&mut self, revocation: &Revocation, answer: &RevokeAnswer) -> Check {
        match revocation {
            Revocation::Ask { session, request } => {
                let lock = self.locks.entry(request.lock.clone()).or_default();
                let holds = lock.is_held(*session, request.term);
                let mut expected = RevokeAnswer::NotHeld;
                if let Some(life) = self.lives.get_mut(session).filter(|life| !life.is_dead()) {
                    let known = life
                        .requests
                        .iter()
                        .any(|known| known.lock == request.lock && known.term == request.term);
                    // Whether a living session that does not hold the lock is asked in vain or not
                    // at all is the store's to choose.
                    let may_ask = holds || *answer != RevokeAnswer::NotHeld;
                    if may_ask && !known && life.requests.len() >= MAX_REQUESTS {
                        expected =
                            RevokeAnswer::Refused(Refusal::Full { what: "requests", most: MAX_REQUESTS });
                    } else if may_ask {
                        expected = RevokeAnswer::Asked;
                        if !known {
                            life.requests.push(request.clone());
                        }
                    }
                }
                ensure!(*answer == expected, "asking must be {expected:?}, and is {answer:?}");
                Ok(())
            }
            Revocation::Drain { session, order, .. } => {
                let life = self.lives.get_mut(session).filter(|life| !life.is_dead());
                let expected = if life.is_some() { RevokeAnswer::Asked } else { RevokeAnswer::NotHeld };
                if let Some(life) = life {
                    life.drained.clone_from(order);
                }
                ensure!(*answer == expected, "an order must be {expected:?}, and is {answer:?}");
                Ok(())
            }
            Revocation::Reopen(request) => self.reopen(request, answer),
            Revocation::Force(request) => {
                let id = &request.lock;
                let lock = self.locks.entry(id.clone()).or_default();
                if lock.has_record() && lock.term() == Some(request.term) && lock.holder().is_some() {
                    lock.end(Ended::Forced, Some(request.note()));
                }
                let last = lock.grants[lock.forgotten..].last();
                let forced = last.is_some_and(|grant| {
                    grant.term == Some(request.term)
                        && grant.end.as_ref().is_some_and(|(how, _)| *how == Ended::Forced)
                });
                match answer {
                    RevokeAnswer::Freed(record) if forced => lock.meet(id, record),
                    RevokeAnswer::NotHeld if !forced => Ok(()),
                    other => Err(format!("forcing {id} (done: {forced}) was answered {other:?}")),
                }
            }
        }
    }

    /// Opens what nobody has held since that term.
    fn reopen(&mut self, request: &Request, answer: &RevokeAnswer) -> Check {
        let id = &request.lock;
        let lock = self.locks.entry(id.clone()).or_default();
        let meant = lock.has_record() && lock.term() == Some(request.term) && lock.holder().is_none();
        match answer {
            RevokeAnswer::Freed(record) if meant => {
                lock.closed = None;
                lock.meet(id, record)
            }
            RevokeAnswer::NotHeld if !meant => Ok(()),
            other => Err(format!("opening {id} (meant: {meant}) was answered {other:?}")),
        }
    }

    /// The audit of a session, all pages.
    pub(crate) fn held_by(&self, session: SessionId, mut seen: Vec<Held>) -> Check {
        let falling = seen.is_sorted_by(|one, next| one.term >= next.term);
        ensure!(falling, "the audit must list the latest term first: {seen:?}");
        let mut expected: Vec<_> = self
            .locks
            .iter()
            .filter_map(|(id, lock)| {
                let by = lock.holder().filter(|by| by.session == session)?;
                Some(Held { lock: id.clone(), term: lock.term()?, ticket: by.ticket })
            })
            .collect();
        expected.sort_by_key(|held| held.lock.clone());
        seen.sort_by_key(|held| held.lock.clone());
        ensure!(expected == seen, "session {session} holds {expected:?}, not {seen:?}");
        Ok(())
    }

    /// The latest grants of several sessions.
    pub(crate) fn latest_grants(&self, sessions: &[SessionId], at_most: usize, seen: &[LockRecord]) -> Check {
        let mut expected: Vec<_> = self
            .locks
            .iter()
            .filter_map(|(id, lock)| {
                lock.holder().filter(|by| sessions.contains(&by.session))?;
                Some((std::cmp::Reverse(lock.term()?), id))
            })
            .collect();
        expected.sort_unstable();
        expected.truncate(at_most);
        let found: Vec<_> = seen.iter().map(|record| (std::cmp::Reverse(record.term), &record.id)).collect();
        ensure!(expected == found, "the latest grants are {expected:?}, not {found:?}");
        Ok(())
    }

    /// A listing of locks, all pages.
    pub(crate) fn listed(&mut self, wanted: impl Fn(&LockId) -> bool, seen: &[LockRecord]) -> Check {
        let all = self.locks.iter().filter(|(id, lock)| wanted(id) && lock.has_record());
        let mut expected: Vec<_> = all.map(|(id, _)| id.clone()).collect();
        expected.sort_by_key(|id| (id.kind.to_string(), id.key.clone()));
        let listed: Vec<_> = seen.iter().map(|record| &record.id).collect();
        ensure!(expected.iter().eq(listed.iter().copied()), "there are {expected:?}, not {listed:?}");
        for record in seen {
            self.lock_seen(&record.id, &LockSeen::Found(record.clone()))?;
        }
        Ok(())
    }
}

//! The steps of the contract, over rows that a store keeps in its own way. There is one definition of them: the memory
//! store has its rows in maps, the SQLite store in the tables of a transaction.

#![allow(clippy::needless_pass_by_value, reason = "the arguments are those of the contract")]

mod locks;
mod purge;
mod queue;
mod revoke;
mod rows;
mod runs;
mod schedules;
mod sessions;

use std::time::Duration;

pub(super) use rows::{Change, Listed, Row, Rows};

use super::{Bell, Cursor, Op, Page, Reply};
use crate::{
    model::{MAX_NUMBER, StoreTime},
    store::{Candidate, SessionRecord, Share},
};

/// A step, or several that share an instant: all of it is done, or nothing.
#[derive(Debug)]
pub(super) struct Step<'a, R> {
    rows: &'a mut R,
    /// The time by the store's clock, read once, when no other caller could write any more.
    now: StoreTime,
    /// The bells that the changes ring.
    bells: Vec<Bell>,
}

impl<'a, R: Rows> Step<'a, R> {
    pub(super) const fn new(rows: &'a mut R, now: StoreTime) -> Self {
        Self { rows, now, bells: Vec::new() }
    }

    /// Carries out an operation of the contract.
    pub(super) fn carry_out(&mut self, op: Op) -> Result<Reply, R::Failure> {
        match op {
            Op::Open(open) => self.open(open).map(Reply::Open),
            Op::Beat(beat) => self.beat(beat).map(Reply::Beat),
            Op::Observe(sessions) => self.observe(sessions).map(Reply::Observe),
            Op::Declare(declaration) => self.declare(declaration).map(Reply::Declare),
            Op::Sessions(namespace, after, at_most) => {
                self.sessions(namespace, after, at_most).map(Reply::Sessions)
            }
            Op::Take(takes, dead) => self.take(takes, dead).map(Reply::Take),
            Op::Release(releases) => self.release(releases).map(Reply::Release),
            Op::Wait(waits) => self.wait(waits).map(Reply::Wait),
            Op::StopWaiting(waits) => self.stop_waiting(waits).map(Reply::StopWaiting),
            Op::Waiters(lock, at_most) => self.waiters(lock, at_most).map(Reply::Waiters),
            Op::Peek(locks) => self.locks(locks).map(Reply::Peek),
            Op::Places(places) => self.places(places).map(Reply::Places),
            Op::SetValue(set) => self.set_value(set).map(Reply::SetValue),
            Op::Locks(locks) => self.locks(locks).map(Reply::Locks),
            Op::ListLocks(namespace, kind, after, at_most) => {
                self.list_locks(namespace, kind, after, at_most).map(Reply::ListLocks)
            }
            Op::HeldBy(session, after, at_most) => self.held_by(session, after, at_most).map(Reply::HeldBy),
            Op::LatestGrants(sessions, at_most) => {
                self.latest_grants(sessions, at_most).map(Reply::LatestGrants)
            }
            Op::Revoke(revocation) => self.revoke(revocation).map(Reply::Revoke),
            Op::Define(define) => self.define(define).map(Reply::Define),
            Op::Instruct(schedule, instruction) => self.instruct(schedule, instruction).map(Reply::Instruct),
            Op::Schedules(schedules) => self.schedules(schedules).map(Reply::Schedules),
            Op::ListSchedules(namespace, after, at_most) => {
                self.list_schedules(namespace, after, at_most).map(Reply::ListSchedules)
            }
            Op::DeleteSchedule(schedule) => self.delete_schedule(schedule).map(Reply::DeleteSchedule),
            Op::Claim(claim) => self.claim(claim).map(Reply::Claim),
            Op::Finish(finish) => self.finish(finish).map(Reply::Finish),
            Op::History(schedule, after, at_most) => {
                self.history(schedule, after, at_most).map(Reply::History)
            }
            Op::LastRuns(schedules, at_most) => self.last_runs(schedules, at_most).map(Reply::LastRuns),
            Op::PurgeRuns(schedule, older_than, keep) => {
                self.purge_runs(schedule, older_than, keep).map(Reply::PurgeRuns)
            }
            Op::Purge(namespace, retention, after) => {
                self.purge(namespace, retention, after).map(Reply::Purge)
            }
        }
    }

    /// The bells that were rung.
    pub(super) fn into_bells(self) -> Vec<Bell> {
        self.bells
    }

    #[cfg(feature = "sqlite")]
    pub(super) const fn rows(&mut self) -> &mut R {
        self.rows
    }

    fn ring(&mut self, bells: impl IntoIterator<Item = Bell>) {
        self.bells.extend(bells);
    }

    /// Tells the members of its spreads of a session.
    fn ring_of_member(&mut self, record: &SessionRecord) {
        let spreads = record.shares.iter().map(|share| &share.spread);
        self.bells.extend(Bell::member(&record.about.namespace, record.id, spreads));
    }
}

/// Answers for each part of a batch, in memory for just so many.
fn each<T, A, F>(parts: Vec<T>, mut step: impl FnMut(T) -> Result<A, F>) -> Result<Vec<A>, F> {
    let mut answers = Vec::with_capacity(parts.len());
    for part in parts {
        answers.push(step(part)?);
    }
    Ok(answers)
}

/// A duration as it is kept: in whole milliseconds, and no more of them than a record may say.
fn kept(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).map_or(MAX_NUMBER, |millis| millis.min(MAX_NUMBER)))
}

fn kept_candidate(by: Candidate) -> Candidate {
    Candidate { ttl: kept(by.ttl), lock_delay: kept(by.lock_delay), ..by }
}

fn kept_shares(shares: Vec<Share>) -> Vec<Share> {
    shares.into_iter().map(|share| Share { reserved: kept(share.reserved), ..share }).collect()
}

/// The number of rows to read for a page: one more tells whether there is another page.
const fn and_one(at_most: usize) -> usize {
    let at_most = if at_most == 0 { 1 } else { at_most };
    at_most.saturating_add(1)
}

/// Makes a page of the rows that were [read for it](and_one).
fn page<T>(mut rows: Vec<Listed<T>>, at_most: usize) -> Page<T> {
    let at_most = at_most.max(1);
    let has_more = rows.len() > at_most;
    rows.truncate(at_most);
    let last = if has_more { rows.last_mut().map(|row| std::mem::take(&mut row.place)) } else { None };
    let mut page = Page::new(Vec::with_capacity(rows.len()), last.map(Cursor::new));
    for row in rows {
        match row.record {
            Ok(record) => page.items.push(record),
            Err(refused) => page.refused.push(refused),
        }
    }
    page
}

//! Operations as they are sent, so that one can be sent again.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tenure::{
    StoreError,
    model::{LockId, Namespace, Retention, ScheduleId, SessionId, StoreTime, Why},
    store::{
        About, BeatWrite, Claim, Declaration, Define, Evidence, FinishRun, Instruction, Nonce, Open, Page,
        Release, Revocation, SessionSeen, SetValue, Store, StoreExt, Take, Ticket, Wait,
    },
};
use tenure_conformance::LIMIT;

use super::model::{Check, Model};

/// A write, in all detail.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Open(Open),
    Beat(BeatWrite),
    Declare(Declaration),
    Take(Vec<Take>, Vec<SessionId>),
    Release(Vec<Release>),
    Wait(Vec<Wait>),
    StopWaiting(Vec<(LockId, SessionId, Ticket)>),
    SetValue(SetValue),
    Revoke(Revocation),
    Define(Define),
    Instruct(ScheduleId, Instruction),
    Claim(Claim),
    Finish(FinishRun),
    PurgeRuns(ScheduleId, Duration, usize),
    Purge(Retention),
}

/// Answer of a store's operation, with the name of the error if it failed.
pub(crate) fn came<T>(answer: Result<T, StoreError>) -> Result<T, String> {
    answer.map_err(|error| format!("the store failed: {error}"))
}

/// Reads see a release only once it is kept, which any write that decides something sees to.
async fn settle(store: &dyn Store) -> Check {
    let nobody = Declaration {
        session: SessionId::from_u128(0),
        ground: Evidence::Operator,
        by: "nobody".parse().expect("a short name"),
        why: Why::shortened("reads are to see what was released"),
        tell: Vec::new(),
    };
    came(store.declare(nobody, LIMIT).await).map(drop)
}

/// Reading of the store's clock: a session of nobody's opens.
async fn time(store: &dyn Store) -> Result<StoreTime, String> {
    let namespace = Namespace::new("the time").expect("a short name");
    let about = About::new(namespace, "nobody".parse().expect("a short name"));
    let session = SessionId::from_u128(RandomState::new().hash_one("a session").into());
    let (nonce, ttl) = (Nonce::new(1), LIMIT);
    let open = Open { session, nonce, about, ttl, shares: Vec::new(), drained: None };
    match came(store.open(open, LIMIT).await)? {
        SessionSeen::Alive(record) => Ok(record.started),
        other => Err(format!("a fresh session must be alive, not {other:?}")),
    }
}

impl Op {
    /// Sends it, and holds the answer against the model.
    pub(crate) async fn perform(&self, store: &dyn Store, model: &mut Model, namespace: &LockId) -> Check {
        match self.clone() {
            Self::Open(open) => {
                let answer = came(store.open(open.clone(), LIMIT).await)?;
                model.meet("open", &answer);
                model.open(&open, &answer)
            }
            Self::Beat(beat) => {
                let answer = came(store.beat(beat.clone(), LIMIT).await)?;
                model.meet("beat", &answer);
                model.beat(&beat, &answer)
            }
            Self::Declare(declaration) => {
                let answer = came(store.declare(declaration.clone(), LIMIT).await)?;
                model.meet("declare", &answer);
                model.declare(&declaration, &answer)
            }
            Self::Take(takes, dead) => {
                let answers = came(store.take(takes.clone(), dead.clone(), LIMIT).await)?;
                if answers.len() != takes.len() {
                    return Err(format!("{} takes were answered {answers:?}", takes.len()));
                }
                for answer in &answers {
                    model.meet("take", answer);
                }
                let mut all = takes.iter().zip(&answers);
                all.try_for_each(|(take, answer)| model.take(take, &dead, answer))
            }
            Self::Release(releases) => {
                let answers = came(store.release(releases.clone(), LIMIT).await)?;
                settle(store).await?;
                let expected: Vec<_> = releases.iter().map(|release| model.release(release)).collect();
                if answers == expected {
                    Ok(())
                } else {
                    Err(format!("releases were answered {answers:?}, not {expected:?}"))
                }
            }
            Self::Wait(waits) => {
                came(store.wait(waits.clone(), LIMIT).await)?;
                for wait in &waits {
                    model.wait(wait);
                }
                Ok(())
            }
            Self::StopWaiting(places) => {
                came(store.stop_waiting(places.clone(), LIMIT).await)?;
                for place in &places {
                    model.stop_waiting(place);
                }
                Ok(())
            }
            Self::SetValue(set) => {
                let answer = came(store.set_value(set.clone(), LIMIT).await)?;
                model.meet("set value", &answer);
                model.set_value(&set, &answer)
            }
            Self::Revoke(revocation) => {
                let answer = came(store.revoke(revocation.clone(), LIMIT).await)?;
                model.meet("revoke", &answer);
                model.revoke(&revocation, &answer)
            }
            Self::Define(define) => {
                let before = time(store).await?;
                let answer = came(store.define(define.clone(), LIMIT).await)?;
                model.meet("define", &answer);
                model.define(&define, &(before..=time(store).await?), &answer)
            }
            Self::Instruct(schedule, instruction) => {
                let before = time(store).await?;
                let answer = came(store.instruct(schedule.clone(), instruction.clone(), LIMIT).await)?;
                model.meet("instruct", &answer);
                model.instruct(&schedule, &instruction, &(before..=time(store).await?), &answer)
            }
            Self::Claim(claim) => {
                let answer = came(store.claim(claim.clone(), LIMIT).await)?;
                model.meet("claim", &answer);
                model.claim(&claim, &answer)
            }
            Self::Finish(finish) => {
                let answer = came(store.finish(finish.clone(), LIMIT).await)?;
                model.meet("finish", &answer);
                model.finish(&finish, &answer)
            }
            Self::PurgeRuns(schedule, older_than, keep) => {
                let answer = came(store.purge_runs(schedule.clone(), older_than, keep, LIMIT).await)?;
                let left = all_runs(store, &schedule, 100).await?;
                model.purged_runs(&schedule, older_than.is_zero(), keep, &left, answer.mark)
            }
            Self::Purge(retention) => purge(store, model, namespace, retention).await,
        }
    }

    /// The locks it names.
    pub(crate) fn locks(&self) -> BTreeSet<LockId> {
        match self {
            Self::Take(takes, _) => takes.iter().map(|take| take.lock.clone()).collect(),
            Self::Release(releases) => releases.iter().map(|release| release.lock.clone()).collect(),
            Self::Wait(waits) => waits.iter().map(|wait| wait.lock.clone()).collect(),
            Self::StopWaiting(places) => places.iter().map(|(lock, ..)| lock.clone()).collect(),
            Self::SetValue(set) => [set.lock.clone()].into(),
            Self::Revoke(
                Revocation::Ask { request, .. } | Revocation::Force(request) | Revocation::Reopen(request),
            ) => [request.lock.clone()].into(),
            _ => BTreeSet::new(),
        }
    }

    /// The session whose record it may change.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Open(open) => Some(open.session),
            Self::Beat(beat) => Some(beat.session),
            Self::Declare(declaration) => Some(declaration.session),
            Self::Revoke(Revocation::Ask { session, .. } | Revocation::Drain { session, .. }) => {
                Some(*session)
            }
            _ => None,
        }
    }

    /// Returns whether it may change a schedule's own record.
    pub(crate) fn is_of_a_schedule(&self) -> bool {
        matches!(self, Self::Define(_) | Self::Instruct(..) | Self::PurgeRuns(..))
    }

    /// Returns whether it may change a queue.
    pub(crate) fn is_of_the_queue(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::StopWaiting(_))
    }
}

/// The whole history of a schedule.
pub(crate) async fn all_runs(
    store: &dyn Store,
    schedule: &ScheduleId,
    at_most: usize,
) -> Result<Vec<tenure::model::RunRecord>, String> {
    all_pages(async |after| {
        let page = came(store.history(schedule.clone(), after, at_most, LIMIT).await)?;
        if page.items.len() <= at_most {
            Ok(page.into())
        } else {
            Err(format!("{at_most} were wanted of {page:?}"))
        }
    })
    .await
}

/// All pages of a listing.
pub(crate) async fn all_pages<T: std::fmt::Debug>(
    mut fetch: impl AsyncFnMut(Option<tenure::store::Cursor>) -> Result<Page<T>, String>,
) -> Result<Vec<T>, String> {
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let Page { items: more, refused, next, .. } = fetch(after).await?;
        if !refused.is_empty() || (more.is_empty() && next.is_some()) {
            return Err(format!("a page of {more:?} refused {refused:?}"));
        }
        items.extend(more);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(items),
        }
    }
}

async fn purge(store: &dyn Store, model: &mut Model, namespace: &LockId, retention: Retention) -> Check {
    let (mut removed, mut after) = (0, None);
    loop {
        let purged = came(store.purge(namespace.namespace.clone(), retention, after, LIMIT).await)?;
        removed += purged.locks + purged.freed + purged.sessions;
        after = purged.next;
        if after.is_none() {
            break;
        }
    }
    model.leave_the_dead();
    if !retention.sessions.is_zero() {
        // Kept for years: nothing may go but the places of the dead.
        return if removed == 0 { Ok(()) } else { Err(format!("{removed} were too young to be purged")) };
    }
    let locks: Vec<_> = model.locks.keys().cloned().collect();
    for (lock, seen) in locks.iter().zip(came(store.locks(locks.clone(), LIMIT).await)?) {
        model.purged_lock(lock, &seen)?;
    }
    let sessions: Vec<_> = model.lives.keys().copied().collect();
    for (session, seen) in sessions.iter().zip(came(store.observe(sessions.clone(), LIMIT).await)?) {
        model.purged_session(*session, &seen)?;
    }
    Ok(())
}

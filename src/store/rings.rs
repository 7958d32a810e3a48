//! Bells that a write rings: what was asked for says which, and what was answered whether.
//!
//! A bell may be rung for nothing, since hints decide nothing (R12): for a write that was repeated, or whose outcome
//! is unknown.

use super::{
    BeatWrite, Bell, Declaration, Define, Instruction, Op, Open, Release, ReleaseAnswer, Reply, Revocation,
    RevokeAnswer, ScheduleRecord, ScheduleSeen, SessionSeen, SetAnswer, SetValue, Take, TakeAnswer, Wait,
};
use crate::{
    model::{Kind, ScheduleId, SessionId},
    store::Pause,
};

/// The bells of a write, by its answer; without one if its outcome is unknown. `None` if it rings none.
pub(crate) type Ringing = Option<Box<dyn FnOnce(Option<&Reply>) -> Vec<Bell> + Send>>;

/// Returns the bells of an operation.
pub(crate) fn of(op: &Op) -> Ringing {
    match op {
        Op::Open(write) => open(write),
        Op::Beat(write) => beat(write),
        Op::Declare(declaration) => declare(declaration),
        Op::Take(takes, dead) => take(takes, dead),
        Op::Release(releases) => release(releases),
        Op::Wait(waits) => wait(waits),
        Op::SetValue(set) => set_value(set),
        Op::Revoke(revocation) => revoke(revocation),
        Op::Define(definition) => define(definition),
        Op::Instruct(schedule, instruction) => instruct(schedule, instruction),
        _ => None,
    }
}

/// Returns these bells, unless the answer says that there is no change.
fn rung(bells: Vec<Bell>, is_change: impl FnOnce(&Reply) -> bool + Send + 'static) -> Ringing {
    if bells.is_empty() {
        return None;
    }
    Some(Box::new(|answer| if answer.is_none_or(is_change) { bells } else { Vec::new() }))
}

/// For each part of a batch these bells, unless the answer says that there is no change at its place.
fn batch(bells: Vec<Vec<Bell>>, is_change: impl Fn(&Reply, usize) -> bool + Send + 'static) -> Ringing {
    if bells.iter().all(Vec::is_empty) {
        return None;
    }
    Some(Box::new(move |answer: Option<&Reply>| {
        let is_change = |place| answer.is_none_or(|answer| is_change(answer, place));
        let rung = bells.into_iter().enumerate().filter(|(place, _)| is_change(*place));
        rung.flat_map(|(_, bells)| bells).collect()
    }))
}

fn open(open: &Open) -> Ringing {
    let spreads = open.shares.iter().map(|share| &share.spread);
    let nonce = open.nonce;
    let bells = Bell::member(&open.about.namespace, open.session, spreads);
    rung(bells, move |reply| matches!(reply, Reply::Open(seen) if seen.bears(nonce)))
}

/// Without an answer the namespace is unknown. The shares are said again with the next beat.
fn beat(beat: &BeatWrite) -> Ringing {
    let shares = beat.shares.as_ref()?;
    let mut spreads = beat.left.clone();
    spreads.extend(shares.iter().map(|share| share.spread.clone()));
    let nonce = beat.nonce;
    Some(Box::new(move |seen| match seen {
        Some(Reply::Beat(SessionSeen::Alive(record))) if record.nonce == nonce => {
            Bell::member(&record.about.namespace, record.id, &spreads)
        }
        _ => Vec::new(),
    }))
}

/// Without an answer its spreads are unknown: the instance that declared it does so again.
#[allow(clippy::unnecessary_wraps, reason = "all of these have one form")]
fn declare(declaration: &Declaration) -> Ringing {
    let Declaration { by, why, tell, .. } = declaration.clone();
    Some(Box::new(move |seen| match seen {
        // Only the first declaration is kept.
        Some(Reply::Declare(SessionSeen::Dead(record)))
            if record.death.as_ref().is_some_and(|death| death.by == by && death.why == why) =>
        {
            Bell::died(record, &tell)
        }
        _ => Vec::new(),
    }))
}

fn take(takes: &[Take], dead: &[SessionId]) -> Ringing {
    let bells = takes.iter().map(|take| Bell::changed(&take.lock).into_iter().collect()).collect();
    let may_close = !dead.is_empty();
    batch(bells, move |reply, place| match reply {
        Reply::Take(answers) => answers.get(place).is_none_or(|answer| match answer {
            TakeAnswer::Taken(_) => true,
            // Perhaps by this take, after the death of its holder.
            TakeAnswer::Closed(_) => may_close,
            TakeAnswer::Held(_) | TakeAnswer::Refused(_) => false,
        }),
        _ => false,
    })
}

fn release(releases: &[Release]) -> Ringing {
    let bells = releases.iter().map(Bell::released).collect();
    batch(bells, |reply, place| match reply {
        Reply::Release(answers) => answers.get(place).is_none_or(|answer| *answer == ReleaseAnswer::Released),
        _ => false,
    })
}

fn wait(waits: &[Wait]) -> Ringing {
    rung(waits.iter().filter_map(|wait| Bell::queue(&wait.lock)).collect(), |_| true)
}

/// All plan by the values of schedules. Those of other locks are their programs' own.
fn set_value(set: &SetValue) -> Ringing {
    let lock = Some(&set.lock).filter(|lock| lock.kind == Kind::Schedule);
    rung(lock.and_then(Bell::changed).into_iter().collect(), |reply| {
        *reply == Reply::SetValue(SetAnswer::Set)
    })
}

fn revoke(revocation: &Revocation) -> Ringing {
    let bell = match revocation {
        Revocation::Ask { session, request } => Some(Bell::asked(*session, &request.lock)),
        Revocation::Drain { session, tell, .. } => Some(Bell::ordered(*session, tell)),
        Revocation::Force(request) => Bell::revoked(&request.lock),
        Revocation::Reopen(request) => Bell::changed(&request.lock),
    };
    let is_change = |reply: &_| matches!(reply, Reply::Revoke(RevokeAnswer::Asked | RevokeAnswer::Freed(_)));
    rung(bell.into_iter().collect(), is_change)
}

fn define(define: &Define) -> Ringing {
    let (term, timing, policies) = (define.term, define.timing.clone(), define.policies.clone());
    // A definition that was known already stands under the term of the instance that said it first.
    of_schedule(&define.schedule, move |record| {
        let known = record.definition.as_ref();
        known.is_some_and(|it| it.term == term && it.timing == timing && it.policies == policies)
    })
}

fn instruct(schedule: &ScheduleId, instruction: &Instruction) -> Ringing {
    let instruction = instruction.clone();
    of_schedule(schedule, move |record| {
        let pause = record.pause.as_ref();
        match instruction {
            Instruction::Pause { by, why } => {
                pause.is_some_and(|pause| pause.is_on() && pause.by == by && pause.why == why)
            }
            Instruction::Resume => pause.is_some_and(|pause| !Pause::is_on(pause)),
            Instruction::Run(order) => record.orders.contains(&order),
            Instruction::Ran { .. } => true,
        }
    })
}

fn of_schedule(
    schedule: &ScheduleId,
    is_change: impl FnOnce(&ScheduleRecord) -> bool + Send + 'static,
) -> Ringing {
    rung(vec![Bell::schedule(schedule)], |reply| match reply {
        Reply::Define(ScheduleSeen::Found(record)) | Reply::Instruct(ScheduleSeen::Found(record)) => {
            is_change(record)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Key, LockId, StoreTime, Term},
        store::{Candidate, LockRecord, News, Refusal, ReleaseTo, Ticket},
    };

    fn task(key: &str) -> LockId {
        let kind = Kind::Task("import".parse().unwrap());
        LockId { namespace: "shop".parse().unwrap(), kind, key: Key::new(key).unwrap() }
    }

    fn news(rung: Ringing, answer: Option<&Reply>) -> Vec<News> {
        let bells = rung.map(|rung| rung(answer)).unwrap_or_default();
        bells.into_iter().map(|bell| bell.news).collect()
    }

    fn candidate() -> Candidate {
        let holder = "pod".parse().unwrap();
        Candidate::new(SessionId::from_u128(1), Ticket::new(1), std::time::Duration::MAX, holder)
    }

    fn take_of(lock: LockId) -> Take {
        Take { lock, by: candidate() }
    }

    #[test]
    fn of_a_batch_those_ring_that_changed_something() {
        let takes = ["a", "b", "c", "d"].map(|key| take_of(task(key)));
        let record = |key| LockRecord::new(task(key), Term::first(StoreTime::from_millis(5)));
        let answers = Reply::Take(vec![
            TakeAnswer::Taken(record("a")),
            TakeAnswer::Held(record("b")),
            TakeAnswer::Closed(record("c")),
            TakeAnswer::Refused(Refusal::Foreign),
        ]);
        let of = |keys: &[&str]| keys.iter().map(|key| News::Lock(task(key))).collect::<Vec<_>>();
        assert_eq!(news(take(&takes, &[]), Some(&answers)), of(&["a"]));
        let dead = [SessionId::from_u128(2)];
        assert_eq!(news(take(&takes, &dead), Some(&answers)), of(&["a", "c"]), "it may have closed it");
        assert_eq!(news(take(&takes, &[]), None), of(&["a", "b", "c", "d"]), "nobody knows which");
    }

    #[test]
    fn a_key_of_one_user_rings_nothing_until_somebody_waits() {
        let lock = LockId { kind: Kind::Lock, ..task("report") };
        assert!(take(&[take_of(lock.clone())], &[]).is_none());
        let release_to = |then| Release {
            lock: lock.clone(),
            session: SessionId::from_u128(1),
            term: Term::new(5),
            note: None,
            then,
        };
        assert!(release(&[release_to(ReleaseTo::FreeUnlessWanted), release_to(ReleaseTo::Free)]).is_none());
        let told = [release_to(ReleaseTo::HandTo(Box::new(candidate())))];
        assert_eq!(
            news(release(&told), Some(&Reply::Release(vec![ReleaseAnswer::Released]))),
            [News::Handed(lock.clone())]
        );
        assert_eq!(news(release(&told), None), [News::Handed(lock.clone())]);
        assert_eq!(
            news(release(&told), Some(&Reply::Release(vec![ReleaseAnswer::Refused(Refusal::Foreign)]))),
            []
        );
    }
}

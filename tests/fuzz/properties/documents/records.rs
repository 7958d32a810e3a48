//! Records of every sort, made of bytes. Each is written, and read back as it was.

use std::{fmt::Debug, time::Duration};

use tenure::{
    model::{
        About, Beat, Buckets, Candidate, Closed, Death, Definition, Ended, Entry, Finish, Holder, Holding,
        Key, Kind, LockId, LockRecord, MAX_NUMBER, Namespace, Nonce, Outcome, PAST_HOLDERS, Past, Pause,
        PauseBefore, Request, Rules, RunId, RunNow, RunRecord, ScheduleId, ScheduleName, ScheduleRecord,
        SessionId, SessionRecord, Share, Skipped, SpreadName, StoreTime, Term, Ticket, Trial, Value, Waiter,
        Who, Why,
    },
    store::{
        Refusal,
        mongo::{bare, driver::bson::Document},
    },
};

use super::{super::source::Source, written};

/// The document of one of them.
pub(super) fn written_and_read(source: &mut Source<'_>) -> Document {
    match source.below(5) {
        0 => back(&lock(source), written::lock, bare::read_lock),
        1 => back(&session(source), written::session, bare::read_session),
        2 => back(&waiter(source), written::waiter, bare::read_waiter),
        3 => back(&schedule(source), written::schedule, bare::read_schedule),
        _ => back(&run(source), written::run, bare::read_run),
    }
}

fn back<T: Debug + PartialEq>(
    record: &T,
    write: fn(&T) -> Document,
    read: fn(&Document) -> Result<T, Refusal>,
) -> Document {
    let document = write(record);
    assert_eq!(read(&document).as_ref(), Ok(record), "{document}");
    document
}

fn name<T>(source: &mut Source<'_>, new: fn(String) -> Result<T, tenure::model::LimitError>) -> T {
    new(source.text(12)).or_else(|_| new("$a.b".to_owned())).unwrap()
}

fn number(source: &mut Source<'_>) -> u64 {
    source.number().min(MAX_NUMBER)
}

fn small(source: &mut Source<'_>) -> u32 {
    u32::try_from(source.number()).unwrap_or(u32::MAX)
}

fn time(source: &mut Source<'_>) -> Duration {
    Duration::from_millis(number(source))
}

fn at(source: &mut Source<'_>) -> StoreTime {
    StoreTime::from_millis(source.number().cast_signed())
}

fn id(source: &mut Source<'_>) -> SessionId {
    SessionId::from_u128(u128::from(source.number()) << 64 | u128::from(source.number()))
}

fn maybe<T>(source: &mut Source<'_>, make: impl Fn(&mut Source<'_>) -> T) -> Option<T> {
    source.one_in(2).then(|| make(source))
}

fn some<T>(source: &mut Source<'_>, most: usize, make: impl Fn(&mut Source<'_>) -> T) -> Vec<T> {
    (0..source.below(most + 1)).map(|_| make(source)).collect()
}

fn why(source: &mut Source<'_>) -> Why {
    Why::shortened(&source.text(20))
}

fn kind(source: &mut Source<'_>) -> Kind {
    match source.below(3) {
        0 => Kind::Lock,
        1 => Kind::Schedule,
        _ => Kind::Task(name(source, SpreadName::new)),
    }
}

fn lock_id(source: &mut Source<'_>) -> LockId {
    LockId { namespace: name(source, Namespace::new), kind: kind(source), key: name(source, Key::new) }
}

fn candidate(source: &mut Source<'_>) -> Candidate {
    Candidate {
        session: id(source),
        ticket: Ticket::new(number(source)),
        ttl: time(source),
        holder: name(source, Holder::new),
        who: maybe(source, |source| name(source, Who::new)),
        why: maybe(source, why),
        value: maybe(source, |source| Value::new(source.text(20)).unwrap()),
        lock_delay: time(source),
    }
}

fn past(source: &mut Source<'_>) -> Past {
    let ways = [Ended::Released, Ended::HandedOver, Ended::Died, Ended::Superseded, Ended::Forced];
    Past {
        holder: name(source, Holder::new),
        who: maybe(source, |source| name(source, Who::new)),
        term: Term::new(number(source)),
        from: at(source),
        to: at(source),
        how: source.pick(&ways),
        note: maybe(source, why),
    }
}

fn lock(source: &mut Source<'_>) -> LockRecord {
    LockRecord {
        id: lock_id(source),
        term: Term::new(number(source)),
        holding: maybe(source, |source| Holding {
            by: candidate(source),
            value_set: number(source),
            acquired_at: at(source),
        }),
        closed: maybe(source, |source| Closed { until: at(source), length: time(source) }),
        past: some(source, PAST_HOLDERS, past),
    }
}

fn waiter(source: &mut Source<'_>) -> Waiter {
    Waiter { lock: lock_id(source), by: candidate(source), since: at(source) }
}

fn session(source: &mut Source<'_>) -> SessionRecord {
    let about = About {
        namespace: name(source, Namespace::new),
        holder: name(source, Holder::new),
        host: source.text(10),
        pid: small(source),
        program: source.text(10),
        plan_version: small(source),
    };
    SessionRecord {
        id: id(source),
        started: at(source),
        beat: Beat::new(number(source)),
        nonce: Nonce::new(number(source)),
        beat_at: at(source),
        ttl: time(source),
        death: maybe(source, |source| Death {
            at: at(source),
            by: name(source, Holder::new),
            why: why(source),
        }),
        shares: some(source, 2, |source| Share {
            spread: name(source, SpreadName::new),
            cap: small(source),
            weight: small(source),
            draining: source.one_in(2),
            paused: source.one_in(2),
            reserved: time(source),
            digest: source.number(),
            buckets: maybe(source, |source| Buckets::new([small(source); Buckets::COUNT])),
            trial: maybe(source, |source| {
                let digits = u8::try_from(source.below(17)).unwrap_or(16);
                Trial::of(&name(source, Key::new)).group(digits)
            }),
        }),
        requests: some(source, 2, |source| Request {
            lock: LockId {
                namespace: about.namespace.clone(),
                kind: kind(source),
                key: name(source, Key::new),
            },
            term: Term::new(number(source)),
            by: name(source, Holder::new),
            why: why(source),
        }),
        about,
    }
}

fn schedule_id(source: &mut Source<'_>) -> ScheduleId {
    ScheduleId { namespace: name(source, Namespace::new), name: name(source, ScheduleName::new) }
}

fn order(source: &mut Source<'_>) -> RunNow {
    RunNow { at: at(source), by: name(source, Holder::new), why: why(source) }
}

fn schedule(source: &mut Source<'_>) -> ScheduleRecord {
    ScheduleRecord {
        id: schedule_id(source),
        definition: maybe(source, |source| Definition {
            timing: name(source, Rules::new),
            policies: name(source, Rules::new),
            since: at(source),
            term: Term::new(number(source)),
        }),
        pause: maybe(source, |source| Pause {
            since: at(source),
            until: maybe(source, at),
            by: name(source, Holder::new),
            why: why(source),
        }),
        pauses_before: some(source, 2, |source| PauseBefore { since: at(source), until: at(source) }),
        orders: some(source, 2, order),
        mark: maybe(source, at),
    }
}

fn run(source: &mut Source<'_>) -> RunRecord {
    let entry = source.pick(&[Entry::Tick, Entry::Order, Entry::Skipped]);
    RunRecord {
        id: RunId { entry, ..RunId::tick(schedule_id(source), at(source)) },
        session: id(source),
        holder: name(source, Holder::new),
        term: Term::new(number(source)),
        attempt: small(source),
        started: at(source),
        finish: maybe(source, |source| Finish {
            at: at(source),
            outcome: source.pick(&Outcome::ALL),
            error: maybe(source, why),
            last: source.pick(&[false, true]),
        }),
        skipped: maybe(source, |source| Skipped {
            from: at(source),
            count: number(source),
            why: why(source),
        }),
    }
}

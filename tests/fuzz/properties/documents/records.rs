//! Records of every sort, made of bytes. Each is written, and read back as it was.

use std::{fmt::Debug, time::Duration};

use tenure::{
    model::{
        Entry, Finish, Holder, Key, Kind, LockId, MAX_NUMBER, Namespace, Outcome, Rules, RunId, RunRecord,
        ScheduleId, ScheduleName, SessionId, Skipped, SpreadName, StoreTime, Term, Value, Who, Why,
    },
    store::{
        About, Beat, Buckets, Candidate, Closed, Death, DeathRow, Definition, Drained, Ended, FailureRow,
        Holding, LockRecord, Nonce, Note, PAST_HOLDERS, Past, Pause, PauseBefore, Refusal, Request, RunNow,
        ScheduleRecord, SessionRecord, Share, Ticket, Waiter,
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
    let (session, ticket) = (id(source), Ticket::new(number(source)));
    let mut candidate = Candidate::new(session, ticket, time(source), name(source, Holder::new));
    candidate.who = maybe(source, |source| name(source, Who::new));
    candidate.why = maybe(source, why);
    candidate.value = maybe(source, |source| Value::new(source.text(20)).unwrap());
    candidate.lock_delay = time(source);
    candidate
}

fn past(source: &mut Source<'_>) -> Past {
    let ways = [Ended::Released, Ended::HandedOver, Ended::Died, Ended::Superseded, Ended::Forced];
    let (holder, who) = (name(source, Holder::new), maybe(source, |source| name(source, Who::new)));
    let term = Term::new(number(source));
    let mut past = Past::new(holder, term, at(source), at(source), source.pick(&ways));
    past.session = maybe(source, id);
    (past.who, past.note) = (who, maybe(source, note));
    past
}

fn note(source: &mut Source<'_>) -> Note {
    match small(source) % 4 {
        0 => Note::Done,
        1 => {
            let by = some(source, 8, |source| name(source, Holder::new));
            Note::Failing(FailureRow { since: at(source), tries: small(source), by, error: why(source) })
        }
        2 => Note::Dying(DeathRow { deaths: small(source), since: at(source) }),
        _ => Note::Revoked { by: name(source, Holder::new), why: why(source) },
    }
}

fn lock(source: &mut Source<'_>) -> LockRecord {
    let mut record = LockRecord::new(lock_id(source), Term::new(number(source)));
    record.holding = maybe(source, |source| {
        let (by, value_set) = (candidate(source), number(source));
        let mut holding = Holding::new(by, at(source));
        holding.value_set = value_set;
        holding
    });
    record.closed = maybe(source, |source| Closed { until: at(source), length: time(source) });
    record.past = some(source, PAST_HOLDERS, past);
    record
}

fn waiter(source: &mut Source<'_>) -> Waiter {
    Waiter { lock: lock_id(source), by: candidate(source), since: at(source) }
}

fn session(source: &mut Source<'_>) -> SessionRecord {
    let mut about = About::new(name(source, Namespace::new), name(source, Holder::new));
    about.host = source.text(10);
    about.pid = small(source);
    about.program = source.text(10);
    about.plan_version = small(source);
    let (namespace, id, started) = (about.namespace.clone(), id(source), at(source));
    let (beat, nonce, beat_at) = (Beat::new(number(source)), Nonce::new(number(source)), at(source));
    let mut record = SessionRecord::opened(id, about, nonce, time(source), started);
    (record.beat, record.beat_at) = (beat, beat_at);
    record.stalled_since = maybe(source, at);
    record.death =
        maybe(source, |source| Death { at: at(source), by: name(source, Holder::new), why: why(source) });
    record.shares = some(source, 2, share);
    record.drained = maybe(source, |source| {
        let RunNow { at, by, why } = order(source);
        Drained { by, since: at, why }
    });
    record.requests = some(source, 2, |source| Request {
        lock: LockId { namespace: namespace.clone(), kind: kind(source), key: name(source, Key::new) },
        term: Term::new(number(source)),
        by: name(source, Holder::new),
        why: why(source),
    });
    record
}

fn share(source: &mut Source<'_>) -> Share {
    let mut share = Share::new(name(source, SpreadName::new));
    share.cap = small(source);
    share.weight = small(source);
    share.draining = source.one_in(2);
    share.paused = source.one_in(2);
    share.reserved = time(source);
    share.digest = source.number();
    share.buckets = maybe(source, |source| Buckets::new([small(source).to_be_bytes()[3]; Buckets::COUNT]));
    share.known = maybe(source, small);
    share.known_since = maybe(source, at);
    share
}

fn schedule_id(source: &mut Source<'_>) -> ScheduleId {
    ScheduleId { namespace: name(source, Namespace::new), name: name(source, ScheduleName::new) }
}

fn order(source: &mut Source<'_>) -> RunNow {
    RunNow { at: at(source), by: name(source, Holder::new), why: why(source) }
}

fn schedule(source: &mut Source<'_>) -> ScheduleRecord {
    let mut record = ScheduleRecord::new(schedule_id(source));
    record.definition = maybe(source, |source| {
        let (timing, policies) = (name(source, Rules::new), name(source, Rules::new));
        Definition::new(timing, policies, at(source), Term::new(number(source)))
    });
    record.pause = maybe(source, |source| {
        let (since, until) = (at(source), maybe(source, at));
        let mut pause = Pause::new(since, name(source, Holder::new), why(source));
        pause.until = until;
        pause
    });
    record.pauses_before = some(source, 2, |source| PauseBefore { since: at(source), until: at(source) });
    record.orders = some(source, 2, order);
    record.mark = maybe(source, at);
    record
}

fn run(source: &mut Source<'_>) -> RunRecord {
    let entry = source.pick(&[Entry::Tick, Entry::Order, Entry::Skipped]);
    let run = RunId { entry, ..RunId::tick(schedule_id(source), at(source)) };
    let (session, holder, term) = (id(source), name(source, Holder::new), Term::new(number(source)));
    let attempt = small(source);
    let mut record = RunRecord::new(run, session, holder, term, at(source));
    record.attempt = attempt;
    record.finish = maybe(source, |source| {
        let mut finish = Finish::new(at(source), source.pick(&Outcome::ALL));
        finish.error = maybe(source, why);
        finish.last = source.pick(&[false, true]);
        finish
    });
    record.skipped =
        maybe(source, |source| Skipped { from: at(source), count: number(source), why: why(source) });
    record
}

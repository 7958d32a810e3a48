//! Takes: one lock by one conditional upsert, many by a read and one update of the locks that are still as they were
//! read. Both make the same decisions (R4, R7).

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use bson::{Bson, Document, doc};

use super::{
    batch::{BATCH, by_key, in_batch, side_by_side},
    locks::{
        closed_for, ended, granted, is_closed, is_sane_lock, next_term, past_entry, past_with, read_lock,
    },
    steps::left,
};
use crate::{
    model::{MAX_NUMBER, SessionId, StoreTime, Term},
    store::{
        Closed, Ended, Holding, LockRecord, PAST_HOLDERS, Refusal, Take, TakeAnswer,
        mongo::{
            MongoStore,
            client::{
                command::{find, run, write},
                error::{CommandFailure, CommandResult},
            },
            documents::{
                fields::{LEASE_LAYOUT, date, lock_id, long, millis},
                pipeline::{is_new, literal, literal_text, merged, overlaid},
                queries::{self, KeptRecords, Statement},
            },
        },
        rules::{TakeVerdict, verdict},
    },
};

/// The most often that a batch looks again at locks that changed between its read and its update. The
/// caller has given up long before.
const MOST_ROUNDS: usize = 100;

/// The step by which it waits longer before each look.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) async fn take(
    store: MongoStore,
    takes: Vec<Take>,
    dead: Vec<SessionId>,
    limit: Duration,
) -> CommandResult<Vec<TakeAnswer>> {
    if let [one] = &*takes {
        let afterwards = store.modify(&store.names().locks, take_statement(one, &dead), limit).await?;
        return Ok(vec![take_answer(&left(afterwards)?, one)]);
    }
    side_by_side(takes.chunks(BATCH).map(|batch| take_batch(&store, batch, &dead, limit)).collect()).await
}

fn take_answer(document: &Document, take: &Take) -> TakeAnswer {
    match read_lock(document) {
        Ok(record) => TakeAnswer::of(record, take.by.session, take.by.ticket),
        Err(refusal) => TakeAnswer::Refused(refusal),
    }
}

// ----- one lock: the server decides

/// A conditional upsert (R4): every decision of a take, in the order in which they are made.
pub(crate) fn take_statement(take: &Take, dead: &[SessionId]) -> Statement {
    let id = lock_id(&take.lock);
    let dead: Vec<_> = dead.iter().map(ToString::to_string).collect();
    let names_dead = !dead.is_empty();
    // At its limit there is no larger term to grant.
    let may_change = doc! { "$and": [is_sane_lock(), { "$lt": ["$term", long(MAX_NUMBER)] }] };
    let grant_if_older = doc! { "$lt": ["$ticket", long(take.by.ticket.get())] };
    // Each verdict is a word: two of them are what the past says of the holder that goes.
    let mut verdicts = vec![
        doc! { "case": is_new(id.clone()), "then": "new" },
        doc! { "case": { "$not": may_change }, "then": "keep" },
        doc! {
            "case": { "$eq": ["$session", literal_text(&take.by.session)] },
            "then": { "$cond": [grant_if_older, Ended::Superseded.as_str(), "keep"] },
        },
    ];
    if names_dead {
        verdicts.push(doc! {
            "case": { "$in": ["$session", literal(dead)] },
            "then": { "$cond": [{ "$gt": ["$lock_delay", 0] }, "delay", Ended::Died.as_str()] },
        });
    }
    verdicts.push(doc! { "case": { "$ne": ["$session", null] }, "then": "keep" });
    verdicts.push(doc! {
        "case": is_closed(),
        "then": "keep",
    });
    let mut outcomes = vec![doc! { "case": { "$eq": ["$$verdict", "keep"] }, "then": "$$ROOT" }];
    if names_dead {
        let closed = merged([doc! { "ended_at": "$$NOW" }, closed_for("$lock_delay")]);
        let delayed = overlaid(ended(Ended::Died, None), closed);
        outcomes.push(doc! { "case": { "$eq": ["$$verdict", "delay"] }, "then": delayed });
    }
    let past = doc! { "$cond": [{ "$eq": ["$$verdict", "new"] }, [], past_with("$$verdict", "$note")] };
    let taken =
        overlaid(granted(&take.by), doc! { "term": next_term(), "acquired_at": "$$NOW", "past": past });
    let decided = doc! { "$let": {
        "vars": { "verdict": { "$switch": { "branches": verdicts, "default": "free" } } },
        "in": { "$switch": { "branches": outcomes, "default": taken } },
    } };
    Statement::pipeline(doc! { "_id": id }, vec![doc! { "$replaceWith": decided }]).or_insert()
}

// ----- many locks: decided here, from a read

/// A read of how the locks stand, and one update that changes those that still stand so.
///
/// The read is of what the primary has now: a majority may still see a lock in the hands of the session that released
/// it a moment ago. The update is conditional, and kept by a majority with all that came before it: so takes that
/// lost beside it are answered from the same read. Where there is nothing to update, and where the lock seems to be
/// the caller's already, the answer comes from another read, of what a majority has (R11).
///
/// Locks that changed in between are looked at again: that takes another round only where there
/// was a race.
async fn take_batch(
    store: &MongoStore,
    takes: &[Take],
    dead: &[SessionId],
    limit: Duration,
) -> CommandResult<Vec<TakeAnswer>> {
    let (database, names) = store.place();
    let mut answers: Vec<Option<TakeAnswer>> = vec![None; takes.len()];
    let mut pause = Duration::ZERO;
    for _ in 0..MOST_ROUNDS {
        let open: Vec<usize> = (0..takes.len()).filter(|place| answers[*place].is_none()).collect();
        let (mut unwritten, mut changes, mut statements) = (Vec::new(), Vec::new(), Vec::new());
        for (place, change) in look(store, takes, open, dead, true, limit).await? {
            match change {
                LockUpdate::None(answer) => unwritten.push((place, answer)),
                LockUpdate::Write { statement, afterwards, inserts } => {
                    statements.push(statement);
                    changes.push((place, afterwards, inserts));
                }
            }
        }
        let wrote = !statements.is_empty();
        if wrote {
            let update = queries::update(&names.locks, statements, KeptRecords::Majority, limit);
            let written = write(&database, update).await?;
            let updates = changes.iter().filter(|(_, _, inserts)| !inserts).count();
            let all_updated = written.modified == updates as u64;
            let inserted: HashSet<usize> = written.inserted.into_iter().collect();
            let refused: HashMap<usize, Refusal> = written.refused.into_iter().collect();
            for (statement, (place, afterwards, inserts)) in changes.into_iter().enumerate() {
                let done = if inserts { inserted.contains(&statement) } else { all_updated };
                let by = &takes[place].by;
                answers[place] = match refused.get(&statement) {
                    Some(refusal) => Some(TakeAnswer::Refused(refusal.clone())),
                    None => done.then(|| TakeAnswer::of(afterwards, by.session, by.ticket)),
                };
            }
        }
        let mut unsettled = Vec::new();
        for (place, answer) in unwritten {
            if wrote && answer.taken().is_none() {
                answers[place] = Some(answer);
            } else {
                unsettled.push(place);
            }
        }
        if !unsettled.is_empty() {
            for (place, change) in look(store, takes, unsettled, dead, false, limit).await? {
                if let LockUpdate::None(answer) = change {
                    answers[place] = Some(answer);
                }
            }
        }
        if answers.iter().all(Option::is_some) {
            return Ok(answers.into_iter().flatten().collect());
        }
        tokio::time::sleep(pause).await;
        pause += PAUSE;
    }
    Err(CommandFailure::unknown("the locks changed hands faster than they could be taken"))
}

/// Reads the locks of these takes, and decides what each take does to its lock as it stands.
async fn look(
    store: &MongoStore,
    takes: &[Take],
    places: Vec<usize>,
    dead: &[SessionId],
    local: bool,
    limit: Duration,
) -> CommandResult<Vec<(usize, LockUpdate)>> {
    let (database, names) = store.place();
    let ids = places.iter().map(|place| lock_id(&takes[*place].lock).into()).collect();
    let read = find(&database, queries::locks_and_time(&names.locks, ids, local, limit)).await?;
    let now = match read.last().and_then(|clock| clock.get_datetime("now").ok().copied()) {
        Some(now) => now,
        // There is no lock yet.
        None => run(&database, doc! { "hello": 1 })
            .await?
            .get_datetime("localTime")
            .copied()
            .map_err(|_| CommandFailure::unknown("the server did not report its time"))?,
    };
    let now = StoreTime::from_millis(now.timestamp_millis());
    let found = by_key(read);
    let change =
        |place: usize| (place, change(&takes[place], in_batch(&found, &takes[place].lock), dead, now));
    Ok(places.into_iter().map(change).collect())
}

/// The change that a take of a batch makes to a lock.
enum LockUpdate {
    None(TakeAnswer),
    Write {
        statement: Statement,
        /// The lock as it stands if the statement changed it.
        afterwards: LockRecord,
        inserts: bool,
    },
}

fn change(take: &Take, document: Option<&Document>, dead: &[SessionId], now: StoreTime) -> LockUpdate {
    let held = || Some(Holding::new(take.by.clone(), now));
    let Some(document) = document else {
        let free = LockRecord::new(take.lock.clone(), Term::first(now));
        let afterwards = LockRecord { holding: held(), ..free };
        return LockUpdate::Write { statement: grant_new(take, now), afterwards, inserts: true };
    };
    let record = match read_lock(document) {
        Ok(record) => record,
        Err(refusal) => return LockUpdate::None(TakeAnswer::Refused(refusal)),
    };
    match verdict(&record, &take.by, dead, now) {
        TakeVerdict::Keep => LockUpdate::None(TakeAnswer::of(record, take.by.session, take.by.ticket)),
        TakeVerdict::Grant { term, ended } => {
            let statement = grant_read(take, &record, document, ended, term, now);
            let mut afterwards = record;
            if let Some(how) = ended {
                afterwards.end(now, how, None);
            }
            afterwards.term = term;
            afterwards.holding = held();
            afterwards.closed = None;
            LockUpdate::Write { statement, afterwards, inserts: false }
        }
        TakeVerdict::Delay(delay) => {
            let statement = close_read(&record, delay, now);
            let mut afterwards = record;
            afterwards.end(now, Ended::Died, None);
            afterwards.closed = Some(Closed::for_length(now, delay));
            LockUpdate::Write { statement, afterwards, inserts: false }
        }
    }
}

/// Grants a lock that has no record, if it still has none.
///
/// This function and the two below carry out the decisions of [`take_statement`], made by the caller from a read of
/// many locks and carried out only if nothing has changed since. Evaluating a pipeline costs the
/// server more than the write itself, which is what counts in a large batch.
pub(crate) fn grant_new(take: &Take, now: StoreTime) -> Statement {
    let times = doc! { "term": long(Term::first(now).get()), "acquired_at": date(now), "past": [] };
    let lock = merged([granted(&take.by), times]);
    Statement::plain(doc! { "_id": lock_id(&take.lock) }, doc! { "$setOnInsert": lock }).or_insert()
}

/// Grants a lock under that term, if it still stands as it was read. `ends` is how its holder goes, if it has
/// one.
pub(crate) fn grant_read(
    take: &Take,
    read: &LockRecord,
    document: &Document,
    ends: Option<Ended>,
    term: Term,
    now: StoreTime,
) -> Statement {
    let mut entry = past_entry(document);
    if let Some(how) = ends {
        entry.insert("to", date(now));
        entry.insert("how", how.as_str());
    }
    let times = doc! { "term": long(term.get()), "acquired_at": date(now) };
    let past = doc! { "$each": [entry], "$position": 0, "$slice": PAST_HOLDERS as i64 };
    let operators = doc! { "$set": merged([granted(&take.by), times]), "$push": { "past": past } };
    Statement::plain(as_read(read), operators)
}

/// Closes a lock whose holder is dead, if it still stands as it was read.
pub(crate) fn close_read(read: &LockRecord, delay: Duration, now: StoreTime) -> Statement {
    let times =
        doc! { "ended_at": date(now), "not_before": date(now.plus(delay)), "closed_for": millis(delay) };
    Statement::plain(as_read(read), doc! { "$set": merged([ended(Ended::Died, None), times]) })
}

/// The term changes with every grant, and the session with every end.
fn as_read(read: &LockRecord) -> Document {
    let session = read.holding.as_ref().map_or(Bson::Null, |held| held.by.session.to_string().into());
    doc! { "_id": lock_id(&read.id), "v": LEASE_LAYOUT, "term": long(read.term.get()), "session": session }
}

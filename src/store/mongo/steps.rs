//! Each method of the contract as commands: which are sent, and what their answers mean.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use bson::{Bson, Document, doc};
use futures::{StreamExt, stream};

use super::{
    MongoStore,
    command::{CommandFailure, CommandResult, find, modify, within, write},
    documents::{
        lock_id, read_held, read_lock, read_mark, read_run, read_schedule, read_session, read_waiter, run_id,
        schedule_id, waiter_id,
    },
    queries::{self, Find, KeptRecords, Statement},
};
use crate::{
    model::{
        Closed, Ended, Holding, Kind, LockId, LockRecord, Namespace, RunRecord, ScheduleId, SessionId,
        SessionRecord, StoreTime, Term, Ticket,
    },
    store::{
        Answer, BeatWrite, Claim, ClaimAnswer, Cursor, Declaration, Define, FinishRun, Held, Instruction,
        Line, LockSeen, MAX_ORDERS, MAX_REQUESTS, Open, Page, Refusal, Release, ReleaseAnswer, Revocation,
        RevokeAnswer, RunPage, ScheduleSeen, SessionSeen, SetAnswer, SetValue, Take, TakeAnswer, Wait,
        rules::{TakeVerdict, verdict},
    },
};

/// How many statements go in one command: well below every limit of the server's, also with the
/// largest values in them.
const BATCH: usize = 1000;
/// How many such commands are under way at once: while the server works on one, the next is made ready.
const AT_ONCE: usize = 3;
/// How often a batch looks again at locks that changed between its read and its update. The caller
/// has given up long before.
const MOST_ROUNDS: usize = 100;
/// How long it waits before that, and longer every time.
const PAUSE: Duration = Duration::from_millis(1);
/// How many records one purge of runs removes.
pub(super) const PURGE: usize = 1000;

impl MongoStore {
    pub(super) fn step<T: Send + 'static, F: Future<Output = CommandResult<T>> + Send + 'static>(
        &self,
        limit: Duration,
        doing: &'static str,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Answer<'_, T> {
        let (connection, work) = (Arc::clone(&self.inner.connection), work(self.clone()));
        Box::pin(within(limit, doing, async move {
            let used = connection.current();
            // What has not begun when the caller gives up never begins.
            let permit = tokio::time::timeout(limit, Arc::clone(&used.permits).acquire_owned());
            let _permit =
                permit.await.map_err(CommandFailure::not_begun)?.map_err(CommandFailure::not_begun)?;
            connection.watched(&used, work).await
        }))
    }

    async fn modify(
        &self,
        collection: &str,
        statement: Statement,
        limit: Duration,
    ) -> CommandResult<Option<Document>> {
        modify(&self.database(), queries::modify(collection, statement, limit)).await
    }

    pub(super) async fn find(
        &self,
        collection: &str,
        wanted: Find,
        limit: Duration,
    ) -> CommandResult<Vec<Document>> {
        find(&self.database(), queries::find(collection, wanted, limit)).await
    }

    /// A page of what matches, by the order of the ids: 1 for first to last, -1 for last to first.
    async fn page_by_id<T>(
        &self,
        collection: &str,
        filter: Document,
        order: i32,
        at_most: usize,
        read: impl Fn(&Document) -> Result<T, Refusal>,
        limit: Duration,
    ) -> CommandResult<Page<T>> {
        let at_most = at_most.max(1);
        let sort = Some(doc! { "_id": order });
        let wanted = Find { filter, sort, at_most: Some(at_most.saturating_add(1)), ..Find::default() };
        page(self.find(collection, wanted, limit).await?, at_most, read, by_id)
    }

    async fn find_by_id(
        &self,
        collection: &str,
        ids: impl IntoIterator<Item = Bson>,
        limit: Duration,
    ) -> CommandResult<Vec<Document>> {
        let ids: Vec<_> = ids.into_iter().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.find(collection, Find { filter: queries::by_ids(ids), ..Find::default() }, limit).await
    }
}

/// An upsert always leaves a document behind.
fn left(document: Option<Document>) -> CommandResult<Document> {
    document.ok_or_else(|| CommandFailure::unknown("an upsert answered without a document"))
}

/// Reads the documents of a page. One more than wanted was asked for, to know whether there is more.
pub(super) fn page<T>(
    mut documents: Vec<Document>,
    at_most: usize,
    read: impl Fn(&Document) -> Result<T, Refusal>,
    place: impl Fn(&Document) -> Document,
) -> CommandResult<Page<T>> {
    let more = documents.len() > at_most;
    documents.truncate(at_most);
    let next = match documents.last().filter(|_| more) {
        Some(last) => Some(Cursor::new(place(last).to_vec().map_err(CommandFailure::unknown)?)),
        None => None,
    };
    let mut page = Page { items: Vec::new(), refused: Vec::new(), next };
    for document in &documents {
        match read(document) {
            Ok(item) => page.items.push(item),
            Err(refusal) => {
                page.refused.push((document.get("_id").map_or_else(String::new, Bson::to_string), refusal));
            }
        }
    }
    Ok(page)
}

pub(super) fn by_id(document: &Document) -> Document {
    doc! { "id": document.get("_id").cloned() }
}

/// Where to go on, as [`by_id`] or [`by_term`] wrote it.
pub(super) fn place(after: Option<Cursor>) -> CommandResult<Option<Document>> {
    after
        .map(|cursor| Document::from_reader(cursor.place()))
        .transpose()
        .map_err(|_| CommandFailure::unknown("the cursor was not made by this store"))
}

pub(super) fn id_of(place: Option<Document>) -> Option<Bson> {
    place?.remove("id")
}

// ----- sessions

fn sighting(document: Option<&Document>) -> SessionSeen {
    match document.map(read_session) {
        None => SessionSeen::Missing,
        Some(Ok(record)) => SessionSeen::of(record),
        Some(Err(refusal)) => SessionSeen::Refused(refusal),
    }
}

pub(super) async fn open(store: MongoStore, open: Open, limit: Duration) -> CommandResult<SessionSeen> {
    let sessions = &store.names().sessions;
    left(store.modify(sessions, queries::open(&open), limit).await?).map(|document| sighting(Some(&document)))
}

pub(super) async fn beat(store: MongoStore, beat: BeatWrite, limit: Duration) -> CommandResult<SessionSeen> {
    let sessions = &store.names().sessions;
    store.modify(sessions, queries::beat(&beat), limit).await.map(|found| sighting(found.as_ref()))
}

pub(super) async fn observe(
    store: MongoStore,
    sessions: Vec<SessionId>,
    limit: Duration,
) -> CommandResult<Vec<SessionSeen>> {
    let ids = sessions.iter().map(|session| session.to_string().into());
    let found = store.find_by_id(&store.names().sessions, ids, limit).await?;
    let found: HashMap<String, Document> = found
        .into_iter()
        .filter_map(|session| Some((session.get_str("_id").ok()?.to_owned(), session)))
        .collect();
    Ok(sessions.iter().map(|session| sighting(found.get(&session.to_string()))).collect())
}

pub(super) async fn declare(
    store: MongoStore,
    declaration: Declaration,
    limit: Duration,
) -> CommandResult<SessionSeen> {
    let sessions = &store.names().sessions;
    store.modify(sessions, queries::declare(&declaration), limit).await.map(|found| sighting(found.as_ref()))
}

pub(super) async fn sessions(
    store: MongoStore,
    namespace: Namespace,
    after: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Page<SessionRecord>> {
    let mut filter = doc! { "ns": namespace.as_str() };
    if let Some(after) = id_of(place(after)?) {
        filter.insert("_id", doc! { "$gt": after });
    }
    store.page_by_id(&store.names().sessions, filter, 1, at_most, read_session, limit).await
}

// ----- locks

/// The records of a batch, by their ids.
fn by_key(found: Vec<Document>) -> HashMap<Vec<u8>, Document> {
    let key = |record: &Document| record.get_document("_id").ok()?.to_vec().ok();
    found.into_iter().filter_map(|record| Some((key(&record)?, record))).collect()
}

fn in_batch<'a>(found: &'a HashMap<Vec<u8>, Document>, lock: &LockId) -> Option<&'a Document> {
    found.get(&lock_id(lock).to_vec().ok()?)
}

async fn read_batch(
    store: &MongoStore,
    locks: &[LockId],
    limit: Duration,
) -> CommandResult<HashMap<Vec<u8>, Document>> {
    let ids = locks.iter().map(|lock| lock_id(lock).into());
    store.find_by_id(&store.names().locks, ids, limit).await.map(by_key)
}

fn take_answer(document: &Document, take: &Take) -> TakeAnswer {
    match read_lock(document) {
        Ok(record) => TakeAnswer::of(record, take.by.session, take.by.ticket),
        Err(refusal) => TakeAnswer::Refused(refusal),
    }
}

pub(super) async fn take(
    store: MongoStore,
    takes: Vec<Take>,
    dead: Vec<SessionId>,
    limit: Duration,
) -> CommandResult<Vec<TakeAnswer>> {
    if let [one] = &*takes {
        let afterwards = store.modify(&store.names().locks, queries::take(one, &dead), limit).await?;
        return Ok(vec![take_answer(&left(afterwards)?, one)]);
    }
    side_by_side(takes.chunks(BATCH).map(|batch| take_batch(&store, batch, &dead, limit)).collect()).await
}

/// A read of how the locks stand, and one update that changes those that still stand so.
///
/// The read is of what the primary has now: a majority may still see a lock in the hands of whoever
/// released it a moment ago. The update is conditional, and kept by a majority with all that came
/// before it: so those who lost beside it are answered from the same read. Where there is nothing to
/// update, and where the lock seems to be the caller's already, the answer comes from another read, of
/// what a majority has (R11).
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
        let mut doubtful = Vec::new();
        for (place, answer) in unwritten {
            if wrote && answer.taken().is_none() {
                answers[place] = Some(answer);
            } else {
                doubtful.push(place);
            }
        }
        if !doubtful.is_empty() {
            for (place, change) in look(store, takes, doubtful, dead, false, limit).await? {
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

/// What each of these takes would do to its lock as it stands.
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
    let now = read.last().and_then(|clock| clock.get_datetime("now").ok());
    let now = now.ok_or_else(|| CommandFailure::unknown("the server did not tell its time"))?;
    let now = StoreTime::from_millis(now.timestamp_millis());
    let found = by_key(read);
    let change =
        |place: usize| (place, change(&takes[place], in_batch(&found, &takes[place].lock), dead, now));
    Ok(places.into_iter().map(change).collect())
}

/// Runs the parts of a large batch, a few at once, each to its end. If one of several fails, nobody
/// knows what the others did.
async fn side_by_side<T>(parts: Vec<impl Future<Output = CommandResult<Vec<T>>>>) -> CommandResult<Vec<T>> {
    let several = parts.len() > 1;
    let done: Vec<_> = stream::iter(parts).buffered(AT_ONCE).collect().await;
    let done: CommandResult<Vec<_>> = done.into_iter().collect();
    match done {
        Ok(parts) => Ok(parts.into_iter().flatten().collect()),
        Err(failure) if several => Err(failure.half_way()),
        Err(failure) => Err(failure),
    }
}

/// What a take of a batch does to a lock.
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
    let held = || Some(Holding { by: take.by.clone(), value_set: 0, acquired_at: now });
    let Some(document) = document else {
        let afterwards = LockRecord {
            id: take.lock.clone(),
            term: Term::first(now),
            holding: held(),
            closed: None,
            past: Vec::new(),
        };
        return LockUpdate::Write { statement: queries::grant_new(take, now), afterwards, inserts: true };
    };
    let record = match read_lock(document) {
        Ok(record) => record,
        Err(refusal) => return LockUpdate::None(TakeAnswer::Refused(refusal)),
    };
    match verdict(&record, &take.by, dead, now) {
        TakeVerdict::Keep => LockUpdate::None(TakeAnswer::of(record, take.by.session, take.by.ticket)),
        TakeVerdict::Grant { term, ended } => {
            let statement = queries::grant_read(take, &record, document, ended, term, now);
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
            let statement = queries::close_read(&record, delay, now);
            let mut afterwards = record;
            afterwards.end(now, Ended::Died, None);
            afterwards.closed = Some(Closed::from(now, delay));
            LockUpdate::Write { statement, afterwards, inserts: false }
        }
    }
}

pub(super) async fn release(
    store: MongoStore,
    releases: Vec<Release>,
    limit: Duration,
) -> CommandResult<Vec<ReleaseAnswer>> {
    side_by_side(releases.chunks(BATCH).map(|batch| release_batch(&store, batch, limit)).collect()).await
}

async fn release_batch(
    store: &MongoStore,
    releases: &[Release],
    limit: Duration,
) -> CommandResult<Vec<ReleaseAnswer>> {
    let (database, names) = store.place();
    let statements = queries::releases(releases);
    // Takes are majority writes and the log is in order, so nobody builds on a release that is
    // rolled back: then the lock is merely still held, and the audit gives it back.
    let written =
        write(&database, queries::update(&names.locks, statements, KeptRecords::Primary, limit)).await?;
    if written.matched == releases.len() as u64 {
        return Ok(vec![ReleaseAnswer::Released; releases.len()]);
    }
    // Some were not ours any more, or cannot be written: only a look tells which.
    let locks: Vec<_> = releases.iter().map(|release| release.lock.clone()).collect();
    let ids = locks.iter().map(|lock| lock_id(lock).into());
    let look = Find { filter: queries::by_ids(ids), local: true, ..Find::default() };
    let found = by_key(store.find(&names.locks, look, limit).await?);
    // Statements stand for several releases: the server's reason is the same for all of them.
    let reason = written.refused.into_iter().next().map(|(_, refusal)| refusal);
    let answer = |release: &Release| match in_batch(&found, &release.lock).map(read_lock) {
        Some(Err(refusal)) => Ok(ReleaseAnswer::Refused(refusal)),
        Some(Ok(record)) if record.term == release.term && record.is_held_by(release.session) => {
            let reason = reason.clone().map(ReleaseAnswer::Refused);
            reason.ok_or_else(|| CommandFailure::unknown("a lock is still held after its release"))
        }
        _ => Ok(ReleaseAnswer::Released),
    };
    releases.iter().map(answer).collect()
}

pub(super) async fn set_value(store: MongoStore, set: SetValue, limit: Duration) -> CommandResult<SetAnswer> {
    let (database, names) = store.place();
    let update = queries::update(&names.locks, vec![queries::set_value(&set)], KeptRecords::Majority, limit);
    let written = write(&database, update).await?;
    if written.matched == 1 {
        return Ok(SetAnswer::Set);
    }
    if let Some((_, refusal)) = written.refused.into_iter().next() {
        return Ok(SetAnswer::Refused(refusal));
    }
    let found = read_batch(&store, std::slice::from_ref(&set.lock), limit).await?;
    Ok(match in_batch(&found, &set.lock).map(read_lock) {
        Some(Err(refusal)) => SetAnswer::Refused(refusal),
        // This change stands, or one that was made after it.
        Some(Ok(record)) if record.term == set.term && record.is_held_by(set.session) => SetAnswer::Set,
        _ => SetAnswer::NotHeld,
    })
}

pub(super) async fn locks(
    store: MongoStore,
    locks: Vec<LockId>,
    limit: Duration,
) -> CommandResult<Vec<LockSeen>> {
    let mut seen = Vec::with_capacity(locks.len());
    for batch in locks.chunks(BATCH) {
        let found = read_batch(&store, batch, limit).await?;
        seen.extend(batch.iter().map(|lock| match in_batch(&found, lock).map(read_lock) {
            None => LockSeen::Absent,
            Some(Ok(record)) => LockSeen::Found(record),
            Some(Err(refusal)) => LockSeen::Refused(refusal),
        }));
    }
    Ok(seen)
}

pub(super) async fn list_locks(
    store: MongoStore,
    namespace: Namespace,
    kind: Option<Kind>,
    after: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Page<LockRecord>> {
    let filter = queries::locks_of(&namespace, kind.as_ref(), id_of(place(after)?));
    store.page_by_id(&store.names().locks, filter, 1, at_most, read_lock, limit).await
}

pub(super) async fn held_by(
    store: MongoStore,
    session: SessionId,
    after: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Page<Held>> {
    let at_most = at_most.max(1);
    let after = place(after)?.and_then(|mut after| {
        let term = u64::try_from(after.get_i64("term").ok()?).ok().and_then(Term::try_new)?;
        Some((term, after.remove("id")?))
    });
    let parts =
        after.map_or_else(|| vec![Document::new()], |(term, id)| queries::held_after(term, id).to_vec());
    let mut found = Vec::new();
    for part in parts {
        let wanted = queries::held_by(session, part, at_most.saturating_add(1) - found.len());
        found.extend(store.find(&store.names().locks, wanted, limit).await?);
        if found.len() > at_most {
            break;
        }
    }
    let by_term = |document: &Document| {
        doc! { "id": document.get("_id").cloned(), "term": document.get("term").cloned() }
    };
    page(found, at_most, read_held, by_term)
}

pub(super) async fn revoke(
    store: MongoStore,
    revocation: Revocation,
    limit: Duration,
) -> CommandResult<RevokeAnswer> {
    let names = store.names();
    Ok(match revocation {
        Revocation::Ask { session, request } => {
            let asked = store.modify(&names.sessions, queries::ask(session, &request), limit).await?;
            match sighting(asked.as_ref()) {
                SessionSeen::Alive(record) if record.has_request(&request) => RevokeAnswer::Asked,
                SessionSeen::Alive(_) => {
                    RevokeAnswer::Refused(Refusal::Full { what: "requests", most: MAX_REQUESTS })
                }
                SessionSeen::Dead(_) | SessionSeen::Missing => RevokeAnswer::NotHeld,
                SessionSeen::Refused(refusal) => RevokeAnswer::Refused(refusal),
            }
        }
        Revocation::Force(request) => {
            let forced = store.modify(&names.locks, queries::force(&request), limit).await?;
            match forced.as_ref().map(read_lock) {
                Some(Err(refusal)) => RevokeAnswer::Refused(refusal),
                Some(Ok(record)) if record.was_forced_from(request.term) => RevokeAnswer::Freed(record),
                _ => RevokeAnswer::NotHeld,
            }
        }
        Revocation::Reopen(request) => {
            let opened = store.modify(&names.locks, queries::reopen(&request), limit).await?;
            match opened.as_ref().map(read_lock) {
                Some(Err(refusal)) => RevokeAnswer::Refused(refusal),
                Some(Ok(record)) if record.was_left_by(request.term) => RevokeAnswer::Freed(record),
                _ => RevokeAnswer::NotHeld,
            }
        }
    })
}

// ----- the line

/// Writes that only the primary has to keep. Two that insert the same place meet as one.
async fn write_places(store: &MongoStore, statements: Vec<Statement>, limit: Duration) -> CommandResult<()> {
    let (database, names) = store.place();
    let mut statements = statements.into_iter().peekable();
    while statements.peek().is_some() {
        let batch = statements.by_ref().take(BATCH).collect();
        let written =
            write(&database, queries::update(&names.waiters, batch, KeptRecords::Primary, limit)).await?;
        if let Some((_, refusal)) = written.refused.first() {
            return Err(CommandFailure::unknown(refusal.to_string()));
        }
    }
    Ok(())
}

pub(super) async fn wait(store: MongoStore, waits: Vec<Wait>, limit: Duration) -> CommandResult<()> {
    write_places(&store, waits.iter().map(queries::wait).collect(), limit).await
}

pub(super) async fn stop_waiting(
    store: MongoStore,
    waits: Vec<(LockId, SessionId, Ticket)>,
    limit: Duration,
) -> CommandResult<()> {
    let (database, names) = store.place();
    if waits.is_empty() {
        return Ok(());
    }
    let places = waits.chunks(BATCH).map(queries::stop_waiting).collect();
    write(&database, queries::delete(&names.waiters, places, KeptRecords::Primary, limit)).await.map(drop)
}

pub(super) async fn waiters(
    store: MongoStore,
    lock: LockId,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Line> {
    let found = store.find(&store.names().waiters, queries::waiters(&lock, at_most), limit).await?;
    let waiters = found.iter().filter_map(|waiter| read_waiter(waiter).ok()).collect();
    Ok(Line { waiters, whole: found.len() < at_most })
}

pub(super) async fn places(
    store: MongoStore,
    places: Vec<(LockId, SessionId, Ticket)>,
    limit: Duration,
) -> CommandResult<Vec<bool>> {
    let mut stand = Vec::with_capacity(places.len());
    for batch in places.chunks(BATCH) {
        let ids: Vec<_> =
            batch.iter().map(|(lock, session, ticket)| waiter_id(lock, *session, *ticket)).collect();
        let found = store.find(&store.names().waiters, queries::places(&ids), limit).await?;
        let found = by_key(found);
        for id in ids {
            stand.push(found.contains_key(&id.to_vec().map_err(CommandFailure::unknown)?));
        }
    }
    Ok(stand)
}

// ----- schedules

fn schedule_seen(document: Option<&Document>) -> ScheduleSeen {
    match document.map(read_schedule) {
        None => ScheduleSeen::Absent,
        Some(Ok(record)) => ScheduleSeen::Found(record),
        Some(Err(refusal)) => ScheduleSeen::Refused(refusal),
    }
}

pub(super) async fn define(
    store: MongoStore,
    define: Define,
    limit: Duration,
) -> CommandResult<ScheduleSeen> {
    let found = left(store.modify(&store.names().runs, queries::define(&define), limit).await?)?;
    Ok(schedule_seen(Some(&found)))
}

pub(super) async fn instruct(
    store: MongoStore,
    schedule: ScheduleId,
    instruction: Instruction,
    limit: Duration,
) -> CommandResult<ScheduleSeen> {
    let runs = &store.names().runs;
    let found = left(store.modify(runs, queries::instruct(&schedule, &instruction), limit).await?)?;
    Ok(match (schedule_seen(Some(&found)), instruction) {
        (ScheduleSeen::Found(record), Instruction::Run(order))
            if !record.orders.iter().any(|known| known.at == order.at) =>
        {
            ScheduleSeen::Refused(Refusal::Full { what: "orders", most: MAX_ORDERS })
        }
        (seen, _) => seen,
    })
}

pub(super) async fn schedules(
    store: MongoStore,
    schedules: Vec<ScheduleId>,
    limit: Duration,
) -> CommandResult<Vec<ScheduleSeen>> {
    let mut seen = Vec::with_capacity(schedules.len());
    for batch in schedules.chunks(BATCH) {
        let ids: Vec<_> = batch.iter().map(schedule_id).collect();
        let wanted = ids.iter().cloned().map(Bson::Document);
        let found = by_key(store.find_by_id(&store.names().runs, wanted, limit).await?);
        for id in ids {
            seen.push(schedule_seen(found.get(&id.to_vec().map_err(CommandFailure::unknown)?)));
        }
    }
    Ok(seen)
}

// ----- runs

fn claim_answer(document: Option<&Document>, session: SessionId, term: Term, attempt: u32) -> ClaimAnswer {
    match document.map(read_run) {
        None => ClaimAnswer::Absent,
        Some(Ok(record)) => ClaimAnswer::of(record, session, term, attempt),
        Some(Err(refusal)) => ClaimAnswer::Refused(refusal),
    }
}

pub(super) async fn claim(store: MongoStore, claim: Claim, limit: Duration) -> CommandResult<ClaimAnswer> {
    let found = left(store.modify(&store.names().runs, queries::claim(&claim), limit).await?)?;
    Ok(claim_answer(Some(&found), claim.session, claim.term, claim.attempt))
}

pub(super) async fn finish(
    store: MongoStore,
    finish: FinishRun,
    limit: Duration,
) -> CommandResult<ClaimAnswer> {
    let found = store.modify(&store.names().runs, queries::finish(&finish), limit).await?;
    Ok(claim_answer(found.as_ref(), finish.session, finish.term, finish.attempt))
}

/// Without its mark nobody knows which ticks have run: one that cannot be read must not look like none.
fn unreadable(schedule: &ScheduleId, refusal: &Refusal) -> CommandFailure {
    CommandFailure::unknown(format!("the mark of the {schedule} cannot be read: {refusal}"))
}

async fn mark(
    store: &MongoStore,
    schedule: &ScheduleId,
    limit: Duration,
) -> CommandResult<Option<StoreTime>> {
    let found = store.find_by_id(&store.names().runs, [schedule_id(schedule).into()], limit).await?;
    let mark = found.first().map_or(Ok(None), read_mark);
    mark.map_err(|refusal| unreadable(schedule, &refusal))
}

/// Nothing may be purged unless the mark stands above it.
async fn raise_mark(
    store: &MongoStore,
    schedule: &ScheduleId,
    to: &RunRecord,
    limit: Duration,
) -> CommandResult<Option<StoreTime>> {
    let raised = queries::raise_mark(schedule, &to.id);
    let found = left(store.modify(&store.names().runs, raised, limit).await?)?;
    let mark = read_schedule(&found).map_err(|refusal| unreadable(schedule, &refusal))?.mark;
    if mark < Some(to.id.instant) {
        return Err(CommandFailure::unknown(format!("the mark of the {schedule} was not raised")));
    }
    Ok(mark)
}

pub(super) async fn history(
    store: MongoStore,
    schedule: ScheduleId,
    after: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<RunPage> {
    let filter = queries::runs_of(&schedule, id_of(place(after)?));
    let page = store.page_by_id(&store.names().runs, filter, -1, at_most, read_run, limit).await?;
    // After the runs: a purge between the two raises the mark over what it removes.
    Ok(RunPage { page, mark: mark(&store, &schedule, limit).await? })
}

pub(super) async fn purge_runs(
    store: MongoStore,
    schedule: ScheduleId,
    older_than: Duration,
    keep: usize,
    limit: Duration,
) -> CommandResult<RunPage> {
    let (database, names) = store.place();
    // The first of those that go, latest instant first.
    let latest = Find {
        filter: queries::runs_of(&schedule, None),
        sort: Some(doc! { "_id": -1 }),
        projection: Some(doc! { "_id": 1 }),
        skip: keep,
        at_most: Some(1),
        ..Find::default()
    };
    let latest = store.find(&names.runs, latest, limit).await?;
    let Some(latest) = latest.first().and_then(|run| run.get("_id").cloned()) else {
        let page = Page { items: Vec::new(), refused: Vec::new(), next: None };
        return Ok(RunPage { page, mark: mark(&store, &schedule, limit).await? });
    };
    let mut filter = queries::runs_up_to(&schedule, latest);
    filter.extend(queries::started_before(older_than));
    let old = Find { filter, sort: Some(doc! { "_id": 1 }), at_most: Some(PURGE), ..Find::default() };
    let mut gone: Page<RunRecord> = page(store.find(&names.runs, old, limit).await?, PURGE, read_run, by_id)?;
    gone.refused.clear();
    let Some(last) = gone.items.last() else {
        return Ok(RunPage { page: gone, mark: mark(&store, &schedule, limit).await? });
    };
    let mark = raise_mark(&store, &schedule, last, limit).await?;
    let ids = gone.items.iter().map(|run| run_id(&run.id).into());
    write(&database, queries::delete(&names.runs, vec![queries::by_ids(ids)], KeptRecords::Majority, limit))
        .await?;
    Ok(RunPage { page: gone, mark })
}

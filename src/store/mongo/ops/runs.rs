//! The ledger of a schedule: claims, how attempts end, the history with its mark, and what goes of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bson::{Bson, Document, doc};

use super::{
    batch::BATCH,
    pages::{by_id, id_of, page, place},
    schedules::{change_schedule, read_schedule, schedule_id, schedule_part},
    steps::left,
};
use crate::{
    model::{
        Entry, Finish, Holder, MAX_NUMBER, Outcome, RunId, RunRecord, ScheduleId, SessionId, Skipped,
        StoreTime, Term,
    },
    store::{
        Claim, ClaimAnswer, Cursor, FinishRun, Page, Refusal, RunPage,
        mongo::{
            MongoStore,
            client::{
                command::write,
                error::{CommandFailure, CommandResult},
            },
            documents::{
                fields::{Fields, LAYOUT, Read, damaged, date, long, quoted},
                pipeline::{
                    ago, are, are_numbers, changed_if, is_new, is_nothing_or, is_of_layout, is_one_of,
                    is_small, is_type, literal_text, merged, overlaid,
                },
                queries::{self, Find, KeptRecords, Statement},
            },
        },
    },
};

/// The most records that one purge of runs removes.
const PURGE: usize = 1000;
/// Pipelines that are united at a time: whatever one finds passes through all that come after it.
const UNITED: usize = 16;

pub(crate) async fn claim(store: MongoStore, claim: Claim, limit: Duration) -> CommandResult<ClaimAnswer> {
    let found = left(store.modify(&store.names().runs, claim_statement(&claim), limit).await?)?;
    Ok(claim_answer(Some(&found), claim.session, claim.term, claim.attempt))
}

pub(crate) fn claim_statement(claim: &Claim) -> Statement {
    let id = run_id(&claim.run);
    let mut fixed = doc! {
        "v": LAYOUT,
        "session": claim.session.to_string(),
        "holder": claim.holder.as_str(),
        "term": long(claim.term.get()),
        "attempt": i64::from(claim.attempt),
        "finish": null,
        "skipped": skipped(claim.skipped.as_ref()),
    };
    let mut evaluated = doc! { "started": "$$NOW" };
    if claim.skipped.is_some() {
        fixed.remove("finish");
        evaluated.insert("finish", ended_now(Outcome::Skipped, Bson::Null, true));
    }
    let mut free = vec![is_new(id.clone())];
    if let Some((term, attempt)) = claim.instead_of {
        free.push(doc! { "$and": [
            is_sane_run(),
            { "$eq": ["$term", long(term.get())] },
            { "$eq": ["$attempt", i64::from(attempt)] },
            { "$ne": ["$finish.outcome", Outcome::Succeeded.as_str()] },
            { "$ne": ["$finish.last", true] },
            { "$not": is_attempt(claim.session, claim.term, claim.attempt) },
        ] });
    }
    Statement::pipeline(doc! { "_id": id }, changed_if(doc! { "$or": free }, overlaid(fixed, evaluated)))
        .or_insert()
}

pub(crate) async fn finish(
    store: MongoStore,
    finish: FinishRun,
    limit: Duration,
) -> CommandResult<ClaimAnswer> {
    let found = store.modify(&store.names().runs, finish_statement(&finish), limit).await?;
    Ok(claim_answer(found.as_ref(), finish.session, finish.term, finish.attempt))
}

pub(crate) fn finish_statement(finish: &FinishRun) -> Statement {
    let error: Bson = finish.error.as_ref().map_or(Bson::Null, |error| literal_text(&error).into());
    let (mut end, mut may_end) =
        (ended_now(finish.outcome, error, finish.last), doc! { "$eq": ["$finish", null] });
    if finish.last {
        // No attempt follows an end that one might have followed.
        let might_go_on = doc! { "$and": [
            { "$eq": ["$finish.outcome", finish.outcome.as_str()] },
            { "$ne": ["$finish.last", true] },
        ] };
        may_end = doc! { "$or": [may_end, might_go_on] };
        end = doc! { "$mergeObjects": [end, "$finish", { "last": true }] };
    }
    let condition = doc! { "$and": [
        is_sane_run(),
        is_attempt(finish.session, finish.term, finish.attempt),
        may_end,
    ] };
    let end = doc! { "finish": end };
    Statement::pipeline(doc! { "_id": run_id(&finish.run) }, changed_if(condition, overlaid(doc! {}, end)))
}

fn claim_answer(document: Option<&Document>, session: SessionId, term: Term, attempt: u32) -> ClaimAnswer {
    match document.map(read_run) {
        None => ClaimAnswer::Absent,
        Some(Ok(record)) => ClaimAnswer::of(record, session, term, attempt),
        Some(Err(refusal)) => ClaimAnswer::Refused(refusal),
    }
}

fn is_attempt(session: SessionId, term: Term, attempt: u32) -> Document {
    doc! { "$and": [
        { "$eq": ["$session", literal_text(&session)] },
        { "$eq": ["$term", long(term.get())] },
        { "$eq": ["$attempt", i64::from(attempt)] },
    ] }
}

fn ended_now(outcome: Outcome, error: Bson, last: bool) -> Document {
    doc! { "at": "$$NOW", "outcome": outcome.as_str(), "error": error, "last": last }
}

pub(crate) async fn history(
    store: MongoStore,
    schedule: ScheduleId,
    after: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<RunPage> {
    let filter = runs_of(&schedule, id_of(place(after)?));
    let page = store.page_by_id(&store.names().runs, filter, -1, at_most, read_run, limit).await?;
    // After the runs: a purge between the two raises the mark over what it removes.
    Ok(RunPage::new(page, mark(&store, &schedule, limit).await?))
}

pub(crate) async fn last_runs(
    store: MongoStore,
    schedules: Vec<ScheduleId>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Vec<Page<RunRecord>>> {
    let at_most = at_most.max(1);
    let mut pages = Vec::with_capacity(schedules.len());
    for batch in schedules.chunks(BATCH) {
        let runs = &store.names().runs;
        let pipeline = last_entries(runs, &BTreeSet::from_iter(batch), at_most.saturating_add(1));
        let found = store.read(queries::aggregate(runs, pipeline, false, limit), limit).await?;
        let mut read = BTreeMap::new();
        for (schedule, runs) in by_ledger(found) {
            read.insert(schedule, page(runs, at_most, read_run, by_id)?);
        }
        let none = Page::new(Vec::new(), None);
        pages.extend(batch.iter().map(|schedule| read.get(schedule).unwrap_or(&none).clone()));
    }
    Ok(pages)
}

/// Reads each ledger from its end, over a range of ids that the server knows before it begins.
pub(crate) fn last_entries(
    collection: &str,
    schedules: &BTreeSet<&ScheduleId>,
    at_most: usize,
) -> Vec<Document> {
    let last = |schedule: &&ScheduleId| {
        vec![
            doc! { "$match": runs_of(schedule, None) },
            doc! { "$sort": { "_id": -1 } },
            doc! { "$limit": long(at_most as u64) },
        ]
    };
    let schedules: Vec<_> = schedules.iter().copied().collect();
    let groups = schedules.chunks(UNITED).map(|group| united(collection, group.iter().map(last)));
    let mut all = united(collection, groups);
    // Results of several pipelines come in no order.
    all.push(doc! { "$sort": { "_id": -1 } });
    all
}

/// Unites the results of these pipelines over a collection.
fn united(collection: &str, mut pipelines: impl Iterator<Item = Vec<Document>>) -> Vec<Document> {
    let mut all = pipelines.next().unwrap_or_default();
    all.extend(pipelines.map(|pipeline| doc! { "$unionWith": { "coll": collection, "pipeline": pipeline } }));
    all
}

fn by_ledger(found: Vec<Document>) -> BTreeMap<ScheduleId, Vec<Document>> {
    let mut ledgers: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for run in found {
        // All of them are in a range that names the schedule.
        let schedule = run.get_document("_id").ok().and_then(|id| Fields(id).schedule().ok());
        if let Some(schedule) = schedule {
            ledgers.entry(schedule).or_default().push(run);
        }
    }
    ledgers
}

/// The runs of a schedule, but not its own record. What they come before may be forged, so it only narrows the range.
pub(crate) fn runs_of(schedule: &ScheduleId, before: Option<Bson>) -> Document {
    let first = schedule_part(schedule, date(StoreTime::from_millis(i64::MIN)));
    let mut last = schedule_part(schedule, date(StoreTime::from_millis(i64::MAX)));
    // After every entry of that instant.
    last.insert("entry", Bson::MaxKey);
    let before = before.map(|before| doc! { "$lt": before }).unwrap_or_default();
    doc! { "_id": merged([doc! { "$gte": first }, before, doc! { "$lte": last }]) }
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

/// Without its mark it is unknown which ticks have run: one that cannot be read must not look like none.
fn unreadable(schedule: &ScheduleId, refusal: &Refusal) -> CommandFailure {
    CommandFailure::unknown(format!("the mark of the {schedule} cannot be read: {refusal}"))
}

// ----- what goes

pub(crate) async fn purge_runs(
    store: MongoStore,
    schedule: ScheduleId,
    older_than: Duration,
    keep: usize,
    limit: Duration,
) -> CommandResult<RunPage> {
    let (database, names) = store.place();
    // The first of those that go, latest instant first.
    let latest = Find {
        filter: runs_of(&schedule, None),
        sort: Some(doc! { "_id": -1 }),
        projection: Some(doc! { "_id": 1 }),
        skip: keep,
        at_most: Some(1),
        ..Find::default()
    };
    let latest = store.find(&names.runs, latest, limit).await?;
    let Some(latest) = latest.first().and_then(|run| run.get("_id").cloned()) else {
        let page = Page { items: Vec::new(), refused: Vec::new(), next: None };
        return Ok(RunPage::new(page, mark(&store, &schedule, limit).await?));
    };
    let mut filter = runs_up_to(&schedule, latest);
    filter.extend(started_before(older_than));
    let old = Find { filter, sort: Some(doc! { "_id": 1 }), at_most: Some(PURGE), ..Find::default() };
    let mut gone: Page<RunRecord> = page(store.find(&names.runs, old, limit).await?, PURGE, read_run, by_id)?;
    gone.refused.clear();
    let Some(last) = gone.items.last() else {
        return Ok(RunPage::new(gone, mark(&store, &schedule, limit).await?));
    };
    let mark = raise_mark(&store, &schedule, last, limit).await?;
    let ids = gone.items.iter().map(|run| run_id(&run.id).into());
    write(&database, queries::delete(&names.runs, vec![queries::by_ids(ids)], KeptRecords::Majority, limit))
        .await?;
    Ok(RunPage::new(gone, mark))
}

/// Raises the mark: no run may be purged unless the mark stands above it.
async fn raise_mark(
    store: &MongoStore,
    schedule: &ScheduleId,
    to: &RunRecord,
    limit: Duration,
) -> CommandResult<Option<StoreTime>> {
    let raised = raise_mark_statement(schedule, &to.id);
    let found = left(store.modify(&store.names().runs, raised, limit).await?)?;
    let mark = read_schedule(&found).map_err(|refusal| unreadable(schedule, &refusal))?.mark;
    if mark < Some(to.id.instant) {
        return Err(CommandFailure::unknown(format!("the mark of the {schedule} was not raised")));
    }
    Ok(mark)
}

pub(crate) fn raise_mark_statement(schedule: &ScheduleId, to: &RunId) -> Statement {
    let lower = doc! { "$not": { "$gte": ["$mark", date(to.instant)] } };
    change_schedule(schedule, lower, doc! { "mark": date(to.instant) })
}

/// The runs of a schedule up to one of them.
pub(crate) fn runs_up_to(schedule: &ScheduleId, last: Bson) -> Document {
    let first = schedule_part(schedule, date(StoreTime::from_millis(i64::MIN)));
    doc! { "_id": { "$gte": first, "$lte": last } }
}

/// Filter: the runs that started longer ago than that.
pub(crate) fn started_before(age: Duration) -> Document {
    doc! { "$expr": { "$and": [
        { "$eq": [{ "$type": "$started" }, "date"] },
        { "$lt": ["$started", ago(age)] },
    ] } }
}

/// The record first: an instance that reads it afterwards begins anew, and makes up for nothing that the ledger does
/// not tell any more.
pub(crate) async fn delete_schedule(
    store: MongoStore,
    schedule: ScheduleId,
    limit: Duration,
) -> CommandResult<bool> {
    let (database, names) = store.place();
    let delete = |ids: Vec<Bson>| {
        queries::delete(&names.runs, vec![queries::by_ids(ids)], KeptRecords::Majority, limit)
    };
    write(&database, delete(vec![schedule_id(&schedule).into()])).await?;
    let some = Find {
        filter: runs_of(&schedule, None),
        sort: Some(doc! { "_id": 1 }),
        projection: Some(doc! { "_id": 1 }),
        at_most: Some(PURGE),
        ..Find::default()
    };
    let found = store.find(&names.runs, some, limit).await?;
    let ids: Vec<_> = found.iter().filter_map(|run| run.get("_id").cloned()).collect();
    let is_all = ids.len() < PURGE;
    if !ids.is_empty() {
        write(&database, delete(ids)).await?;
    }
    Ok(is_all)
}

// ----- the record in a pipeline

/// Condition: a run's document can be read, but for the lengths of its texts.
fn is_sane_run() -> Document {
    let outcomes: Vec<_> = Outcome::ALL.into_iter().map(Outcome::as_str).collect();
    let finish = [
        are("object", &["$finish"]),
        are("date", &["$finish.at"]),
        vec![doc! { "$in": ["$finish.outcome", outcomes] }, is_type("$finish.error", &["null", "string"])],
        vec![is_type("$finish.last", &["bool", "null", "missing"])],
    ];
    let skipped = [
        are("object", &["$skipped"]),
        are("date", &["$skipped.from"]),
        are_numbers(&["$skipped.count"]),
        are("string", &["$skipped.why"]),
    ];
    let all = [
        vec![is_of_layout(LAYOUT)],
        are("string", &["$session", "$holder"]),
        are("date", &["$started"]),
        are_numbers(&["$term"]),
        is_one_of(&["$attempt"], is_small),
        vec![
            doc! { "$or": [{ "$eq": ["$finish", null] }, { "$and": finish.concat() }] },
            is_nothing_or("$skipped", doc! { "$and": skipped.concat() }),
        ],
    ];
    doc! { "$and": all.concat() }
}

// ----- the record as a document

/// A tick has no entry: that makes it the first of those at its instant.
pub(crate) fn run_id(id: &RunId) -> Document {
    let mut document = schedule_part(&id.schedule, date(id.instant));
    if id.entry != Entry::Tick {
        document.insert("entry", id.entry.as_str());
    }
    document
}

pub(crate) fn skipped(skipped: Option<&Skipped>) -> Bson {
    skipped.map_or(Bson::Null, |skipped| {
        let count = long(skipped.count.min(MAX_NUMBER));
        doc! { "from": date(skipped.from), "count": count, "why": skipped.why.as_str() }.into()
    })
}

impl Fields<'_> {
    fn run_id(&self) -> Read<RunId> {
        let entry = match self.0.get("entry") {
            None => Entry::Tick,
            Some(_) => entry(self.string("entry")?)?,
        };
        self.has_only(if entry == Entry::Tick { 3 } else { 4 })?;
        Ok(RunId { schedule: self.schedule()?, instant: self.at("at")?, entry })
    }
}

pub(crate) fn read_run(document: &Document) -> Read<RunRecord> {
    let fields = Fields::of(document, LAYOUT)?;
    let finish = match fields.optional("finish", Fields::inner)? {
        Some(finish) => Some(Finish {
            at: finish.at("at")?,
            outcome: outcome(finish.string("outcome")?)?,
            error: finish.optional("error", Fields::why)?,
            last: finish.later("last", Fields::bool)?.unwrap_or_default(),
        }),
        None => None,
    };
    let skipped = match fields.later("skipped", Fields::inner)? {
        Some(skipped) => Some(Skipped {
            from: skipped.at("from")?,
            count: skipped.number("count")?,
            why: skipped.why("why")?,
        }),
        None => None,
    };
    Ok(RunRecord {
        id: fields.inner("_id")?.run_id()?,
        session: fields.session("session")?,
        holder: fields.name("holder", Holder::new)?,
        term: Term::new(fields.number("term")?),
        attempt: fields.small("attempt")?,
        started: fields.at("started")?,
        finish,
        skipped,
    })
}

/// Reads the word for an entry. A tick has none.
fn entry(word: &str) -> Read<Entry> {
    [Entry::Order, Entry::Skipped]
        .into_iter()
        .find(|entry| entry.as_str() == word)
        .ok_or_else(|| damaged("entry", format!("is {}, which is no entry", quoted(word))))
}

fn outcome(word: &str) -> Read<Outcome> {
    Outcome::ALL
        .into_iter()
        .find(|outcome| outcome.as_str() == word)
        .ok_or_else(|| damaged("outcome", format!("is {}, which is no outcome", quoted(word))))
}

/// The mark alone: a history needs nothing else of the record.
pub(crate) fn read_mark(document: &Document) -> Read<Option<StoreTime>> {
    Fields::of(document, LAYOUT)?.later("mark", Fields::at)
}

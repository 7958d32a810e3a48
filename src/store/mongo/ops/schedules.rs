//! Schedules: what they go by, what is wanted of them, and the schedules of a namespace.

use std::time::Duration;

use bson::{Bson, Document, doc};

use super::{
    batch::{BATCH, by_key},
    pages::{by_id, id_of, page, place},
    steps::left,
};
use crate::{
    model::{Holder, MAX_NUMBER, Namespace, Rules, ScheduleId, Term},
    store::{
        Cursor, Define, Definition, Instruction, MAX_ORDERS, MAX_PAUSES_BEFORE, Page, Pause, PauseBefore,
        Refusal, RunNow, ScheduleRecord, ScheduleSeen,
        mongo::{
            MongoStore,
            client::error::{CommandFailure, CommandResult},
            documents::{
                fields::{Fields, LAYOUT, Read, date, long, read_schedule_id},
                pipeline::{
                    changed_if, is_new, is_nothing_or, is_of_layout, is_type, literal, literal_text, merged,
                    overlaid,
                },
                queries::{Find, Statement},
            },
        },
    },
};

/// The most schedules on one page: each is a command of its own.
const AT_MOST: usize = 100;

pub(crate) async fn define(
    store: MongoStore,
    define: Define,
    limit: Duration,
) -> CommandResult<ScheduleSeen> {
    let found = left(store.modify(&store.names().runs, define_statement(&define), limit).await?)?;
    Ok(schedule_seen(Some(&found)))
}

pub(crate) fn define_statement(define: &Define) -> Statement {
    let same_timing = doc! { "$eq": ["$definition.timing", literal_text(&define.timing)] };
    let same_policies = doc! { "$eq": ["$definition.policies", literal_text(&define.policies)] };
    let needed = doc! { "$and": [
        { "$not": { "$gt": ["$definition.term", long(define.term.get())] } },
        { "$not": { "$and": [same_timing.clone(), same_policies] } },
    ] };
    let keeps = match &define.instead_of {
        Some(known) => doc! { "$or": [same_timing, { "$eq": ["$definition.timing", literal_text(known)] }] },
        None => same_timing,
    };
    let definition = doc! {
        "timing": literal_text(&define.timing),
        "policies": literal_text(&define.policies),
        "since": { "$cond": [keeps, "$definition.since", "$$NOW"] },
        "term": long(define.term.get()),
    };
    change_schedule(&define.schedule, needed, doc! { "definition": definition })
}

pub(crate) async fn instruct(
    store: MongoStore,
    schedule: ScheduleId,
    instruction: Instruction,
    limit: Duration,
) -> CommandResult<ScheduleSeen> {
    let runs = &store.names().runs;
    let found = left(store.modify(runs, instruct_statement(&schedule, &instruction), limit).await?)?;
    Ok(match (schedule_seen(Some(&found)), instruction) {
        (ScheduleSeen::Found(record), Instruction::Run(order))
            if !record.orders.iter().any(|known| known.at == order.at) =>
        {
            ScheduleSeen::Refused(Refusal::Full { what: "orders", most: MAX_ORDERS })
        }
        (seen, _) => seen,
    })
}

pub(crate) fn instruct_statement(schedule: &ScheduleId, instruction: &Instruction) -> Statement {
    let is_on = doc! { "$and": [
        is_type("$pause", &["object"]),
        { "$eq": [{ "$ifNull": ["$pause.until", null] }, null] },
    ] };
    let has_order = |at| doc! { "$in": [date(at), { "$ifNull": ["$orders.at", []] }] };
    let orders = doc! { "$ifNull": ["$orders", []] };
    let orders_that = |are: &str, at| {
        let condition = doc! { are: ["$$order.at", date(at)] };
        doc! { "$filter": { "input": orders.clone(), "as": "order", "cond": condition } }
    };
    let (needed, change) = match instruction {
        Instruction::Pause { by, why } => {
            let pause =
                doc! { "since": "$$NOW", "until": null, "by": literal_text(by), "why": literal_text(why) };
            let last = doc! { "since": "$pause.since", "until": "$pause.until" };
            let known = doc! { "$ifNull": ["$pauses_before", []] };
            let all = doc! { "$concatArrays": [known.clone(), [last]] };
            let before = doc! { "$cond": [
                is_type("$pause", &["object"]),
                { "$slice": [all, -(MAX_PAUSES_BEFORE as i64)] },
                known,
            ] };
            (doc! { "$not": is_on }, doc! { "pause": pause, "pauses_before": before })
        }
        Instruction::Resume => {
            (is_on, doc! { "pause": { "$mergeObjects": ["$pause", { "until": "$$NOW" }] } })
        }
        Instruction::Run(new) => {
            let has_room = doc! { "$lt": [{ "$size": orders.clone() }, MAX_ORDERS as i64] };
            let needed = doc! { "$and": [{ "$not": has_order(new.at) }, has_room] };
            let all: [Bson; 3] = [
                orders_that("$lt", new.at).into(),
                vec![literal(order(new))].into(),
                orders_that("$gt", new.at).into(),
            ];
            (needed, doc! { "orders": { "$concatArrays": all.to_vec() } })
        }
        Instruction::Ran { at } => (has_order(*at), doc! { "orders": orders_that("$ne", *at) }),
    };
    change_schedule(schedule, needed, change)
}

pub(crate) async fn schedules(
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

fn schedule_seen(document: Option<&Document>) -> ScheduleSeen {
    match document.map(read_schedule) {
        None => ScheduleSeen::Absent,
        Some(Ok(record)) => ScheduleSeen::Found(record),
        Some(Err(refusal)) => ScheduleSeen::Refused(refusal),
    }
}

/// From one schedule to the next over the primary index, past their ledgers: an index of the records alone would
/// have every deployment grant one more right.
pub(crate) async fn list_schedules(
    store: MongoStore,
    namespace: Namespace,
    last: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Page<ScheduleRecord>> {
    let (mut last, at_most) = (id_of(place(last)?), at_most.clamp(1, AT_MOST));
    let mut found: Vec<Document> = Vec::new();
    // One more than the page tells whether it is the last.
    while found.len() <= at_most {
        let name = last.as_ref().and_then(|id| id.as_document()?.get_str("schedule").ok());
        let sort = Some(doc! { "_id": 1 });
        let next = Find { filter: after(&namespace, name), sort, at_most: Some(1), ..Find::default() };
        let Some(next) = store.find(&store.names().runs, next, limit).await?.pop() else { break };
        let Some(id) = next.get("_id").cloned() else { break };
        let is_record = id.as_document().is_some_and(|id| matches!(id.get("at"), Some(Bson::Null)));
        // An id that names no schedule is not tenure's, and would be found for ever.
        let names_one = id.as_document().is_some_and(|id| id.get_str("schedule").is_ok());
        if is_record {
            found.push(next);
        }
        if !names_one {
            break;
        }
        last = Some(id);
    }
    page(found, at_most, read_schedule, by_id)
}

/// Returns the filter for everything in `runs` of the schedules of a namespace that come after one of them by name. The
/// first match is the record of the next one, or an entry of its ledger where there is no record.
fn after(namespace: &Namespace, schedule: Option<&str>) -> Document {
    let ns = namespace.as_str();
    let last = |schedule| doc! { "ns": ns, "schedule": schedule, "at": Bson::MaxKey };
    let from = doc! { "$gt": schedule.map_or_else(|| doc! { "ns": ns }, last) };
    doc! { "_id": merged([from, doc! { "$lt": { "ns": ns, "schedule": Bson::MaxKey } }]) }
}

// ----- the record in a pipeline

/// A record that says nothing, if there is none; and then the change, if the record is whole and has need of
/// it.
pub(crate) fn change_schedule(schedule: &ScheduleId, needed: Document, change: Document) -> Statement {
    let id = schedule_id(schedule);
    let mut stages = changed_if(is_new(id.clone()), overlaid(doc! { "v": LAYOUT }, doc! {}));
    stages.extend(changed_if(doc! { "$and": [is_sane_schedule(), needed] }, overlaid(doc! {}, change)));
    Statement::pipeline(doc! { "_id": id }, stages).or_insert()
}

/// Condition: a schedule's document can be read, but for the lengths of its texts.
fn is_sane_schedule() -> Document {
    let definition = doc! { "$and": [
        is_type("$definition", &["object"]),
        is_type("$definition.timing", &["string"]),
        is_type("$definition.policies", &["string"]),
        is_type("$definition.since", &["date"]),
        is_type("$definition.term", &["long", "int"]),
        { "$gte": ["$definition.term", 0] },
        { "$lte": ["$definition.term", long(MAX_NUMBER)] },
    ] };
    let pause = doc! { "$and": [
        is_type("$pause", &["object"]),
        is_type("$pause.since", &["date"]),
        is_type("$pause.until", &["date", "null", "missing"]),
        is_type("$pause.by", &["string"]),
        is_type("$pause.why", &["string"]),
    ] };
    let sane = doc! { "$map": { "input": "$orders", "as": "order", "in": is_sane_order("$$order") } };
    let orders = doc! { "$and": [{ "$isArray": "$orders" }, { "$allElementsTrue": [sane] }] };
    let sane = doc! { "$map": { "input": "$pauses_before", "as": "pause", "in": { "$and": [
        is_type("$$pause.since", &["date"]),
        is_type("$$pause.until", &["date"]),
    ] } } };
    let before = doc! { "$and": [{ "$isArray": "$pauses_before" }, { "$allElementsTrue": [sane] }] };
    doc! { "$and": [
        is_of_layout(LAYOUT),
        is_nothing_or("$definition", definition),
        is_nothing_or("$pause", pause),
        is_nothing_or("$pauses_before", before),
        is_nothing_or("$orders", orders),
        is_type("$mark", &["date", "null", "missing"]),
    ] }
}

fn is_sane_order(order: &str) -> Document {
    doc! { "$and": [
        is_type(&format!("{order}.at"), &["date"]),
        is_type(&format!("{order}.by"), &["string"]),
        is_type(&format!("{order}.why"), &["string"]),
    ] }
}

// ----- the record as a document

/// The id of a schedule's own record stands where no run's can: before every date.
pub(crate) fn schedule_id(id: &ScheduleId) -> Document {
    schedule_part(id, Bson::Null)
}

pub(crate) fn schedule_part(id: &ScheduleId, at: Bson) -> Document {
    doc! { "ns": id.namespace.as_str(), "schedule": id.name.as_str(), "at": at }
}

pub(crate) fn order(order: &RunNow) -> Document {
    doc! { "at": date(order.at), "by": order.by.as_str(), "why": order.why.as_str() }
}

/// Every field but the id and the version may be absent: the versions before schedules were defined wrote the
/// mark alone.
pub(crate) fn read_schedule(document: &Document) -> Read<ScheduleRecord> {
    let fields = Fields::of(document, LAYOUT)?;
    let definition = match fields.later("definition", Fields::inner)? {
        Some(definition) => Some(Definition {
            timing: definition.name("timing", Rules::new)?,
            policies: definition.name("policies", Rules::new)?,
            since: definition.at("since")?,
            term: Term::new(definition.number("term")?),
        }),
        None => None,
    };
    let pause = match fields.later("pause", Fields::inner)? {
        Some(pause) => Some(Pause {
            since: pause.at("since")?,
            until: pause.later("until", Fields::at)?,
            by: pause.name("by", Holder::new)?,
            why: pause.why("why")?,
        }),
        None => None,
    };
    Ok(ScheduleRecord {
        id: read_schedule_id(fields.get("_id")?)?,
        definition,
        pause,
        pauses_before: fields
            .later("pauses_before", |fields, field| fields.list(field, read_pause_before))?
            .unwrap_or_default(),
        orders: fields.later("orders", |fields, field| fields.list(field, read_order))?.unwrap_or_default(),
        mark: fields.later("mark", Fields::at)?,
    })
}

fn read_pause_before(fields: &Fields<'_>) -> Read<PauseBefore> {
    Ok(PauseBefore { since: fields.at("since")?, until: fields.at("until")? })
}

fn read_order(fields: &Fields<'_>) -> Read<RunNow> {
    Ok(RunNow { at: fields.at("at")?, by: fields.name("by", Holder::new)?, why: fields.why("why")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_after_a_schedule_begins_past_its_ledger() {
        let namespace = Namespace::new("shop").unwrap();
        let end = doc! { "ns": "shop", "schedule": Bson::MaxKey };
        let all = doc! { "_id": { "$gt": { "ns": "shop" }, "$lt": end.clone() } };
        assert_eq!(after(&namespace, None), all);
        let last = doc! { "ns": "shop", "schedule": "$a", "at": Bson::MaxKey };
        assert_eq!(after(&namespace, Some("$a")), doc! { "_id": { "$gt": last, "$lt": end } });
    }
}

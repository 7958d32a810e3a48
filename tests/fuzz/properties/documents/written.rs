//! Records as documents, made by the store's own writes: of the pipeline that is sent the part that makes a
//! new document, carried out here as a server would.

use std::time::Duration;

use tenure::{
    model::{LockId, RunRecord, StoreTime},
    store::{
        Candidate, Claim, Define, Instruction, LockRecord, Open, PauseBefore, ScheduleRecord, SessionRecord,
        Take, Wait, Waiter,
        mongo::{
            bare::{self, Write},
            driver::bson::{Bson, DateTime, Document, doc},
        },
    },
};

pub(super) fn date(at: StoreTime) -> Bson {
    Bson::DateTime(DateTime::from_millis(at.as_millis()))
}

pub(super) fn number(number: u64) -> Bson {
    Bson::Int64(i64::try_from(number).unwrap())
}

/// Document in the database when the write has met none at that time.
fn applied((filter, update): Write, now: StoreTime) -> Document {
    let mut document = filter;
    let [literal, evaluated] = new_document(&update).expect("it writes a document");
    document.extend(literal.get_document("$literal").unwrap().clone());
    for (field, value) in evaluated {
        // What else is evaluated stands in locks alone, and is written there.
        if let Some(value) = of_a_new_document(&value, now) {
            document.insert(field, value);
        }
    }
    document
}

/// Value of an expression where there was no document; nothing if it is none of these.
fn of_a_new_document(expression: &Bson, now: StoreTime) -> Option<Bson> {
    let Bson::Document(document) = expression else {
        let is_constant = expression.as_str().is_none_or(|text| !text.starts_with('$'));
        let constant = is_constant.then(|| expression.clone());
        return if *expression == "$$NOW".into() { Some(date(now)) } else { constant };
    };
    match (document.keys().next().map(String::as_str), document.values().next()) {
        (Some("$literal"), Some(value)) => Some(value.clone()),
        (Some("$cond"), Some(Bson::Array(parts))) => of_a_new_document(parts.last()?, now),
        (Some("$filter"), _) => Some(Bson::Array(Vec::new())),
        (Some("$concatArrays"), Some(Bson::Array(lists))) => {
            let lists = lists.iter().map(|list| match list {
                Bson::Array(items) => items.iter().map(|item| of_a_new_document(item, now)).collect(),
                list => of_a_new_document(list, now)?.as_array().cloned(),
            });
            lists.collect::<Option<Vec<_>>>().map(|lists| Bson::Array(lists.concat()))
        }
        (Some(operator), _) if operator.starts_with('$') => None,
        _ => {
            let fields =
                document.iter().map(|(field, value)| Some((field.clone(), of_a_new_document(value, now)?)));
            fields.collect::<Option<Document>>().map(Bson::Document)
        }
    }
}

/// The last of the documents that a pipeline makes: `$mergeObjects` of the old, a literal and what is
/// evaluated.
fn new_document(pipeline: &Bson) -> Option<[Document; 2]> {
    match pipeline {
        Bson::Document(document) => match document.get("$mergeObjects") {
            Some(Bson::Array(parts)) => {
                let [_, literal, evaluated] = &parts[..] else { return None };
                Some([literal, evaluated].map(|part| part.as_document().unwrap().clone()))
            }
            _ => document.values().filter_map(new_document).last(),
        },
        Bson::Array(values) => values.iter().rev().find_map(new_document),
        _ => None,
    }
}

pub(super) fn lock_id(lock: &LockId) -> Document {
    waiting(lock, candidate()).get_document("lock").unwrap().clone()
}

fn waiting(lock: &LockId, by: Candidate) -> Document {
    applied(bare::wait(&Wait { lock: lock.clone(), by }), StoreTime::from_millis(0))
}

fn candidate() -> Candidate {
    let (session, ticket) = (tenure::model::SessionId::from_u128(1), tenure::store::Ticket::new(1));
    Candidate::new(session, ticket, Duration::ZERO, "nobody".parse().unwrap())
}

pub(super) fn waiter(waiter: &Waiter) -> Document {
    applied(bare::wait(&Wait { lock: waiter.lock.clone(), by: waiter.by.clone() }), waiter.since)
}

pub(super) fn session(record: &SessionRecord) -> Document {
    let mut document = applied(
        bare::open(&Open {
            session: record.id,
            nonce: record.nonce,
            about: record.about.clone(),
            ttl: record.ttl,
            shares: record.shares.clone(),
            drained: record.drained.clone(),
        }),
        record.started,
    );
    document.insert("beat", number(record.beat.get()));
    document.insert("beat_at", date(record.beat_at));
    if let Some(since) = record.stalled_since {
        document.insert("stalled_since", date(since));
    }
    if let Some(death) = &record.death {
        let death = doc! { "at": date(death.at), "by": death.by.as_str(), "why": death.why.as_str() };
        document.insert("death", death);
    }
    let requests = record.requests.iter().map(|request| {
        doc! {
            "kind": request.lock.kind.to_string(), "key": request.lock.key.as_str(),
            "term": number(request.term.get()), "by": request.by.as_str(), "why": request.why.as_str(),
        }
    });
    document.insert("requests", requests.collect::<Vec<_>>());
    document
}

pub(super) fn run(record: &RunRecord) -> Document {
    let claim = Claim {
        run: record.id.clone(),
        session: record.session,
        holder: record.holder.clone(),
        term: record.term,
        attempt: record.attempt,
        instead_of: None,
        skipped: record.skipped.clone(),
    };
    let mut document = applied(bare::claim(&claim), record.started);
    let finish = record.finish.as_ref().map_or(Bson::Null, |finish| {
        let error = finish.error.as_ref().map_or(Bson::Null, |error| error.as_str().into());
        doc! { "at": date(finish.at), "outcome": finish.outcome.as_str(), "error": error, "last": finish.last }.into()
    });
    document.insert("finish", finish);
    if record.skipped.is_none() {
        // As it was before there were such entries.
        document.remove("skipped");
    }
    document
}

/// The version, and what is said: the rest may be absent.
pub(super) fn schedule(record: &ScheduleRecord) -> Document {
    let new = |instruction| bare::instruct(&record.id, &instruction);
    let nothing = StoreTime::from_millis(0);
    let mut document = new(Instruction::Resume).0;
    document.insert("v", 2_i64);
    if let Some(definition) = record.definition.clone() {
        let (timing, policies, term) = (definition.timing, definition.policies, definition.term);
        let define = Define { schedule: record.id.clone(), term, timing, policies, instead_of: None };
        document.extend(applied(bare::define(&define), definition.since));
    }
    if let Some(pause) = record.pause.clone() {
        let (by, why) = (pause.by, pause.why);
        let mut written = applied(new(Instruction::Pause { by, why }), pause.since);
        if let Some(until) = pause.until {
            written.get_document_mut("pause").unwrap().insert("until", date(until));
        } else {
            written.get_document_mut("pause").unwrap().remove("until");
        }
        document.extend(written);
    }
    let before = |pause: &PauseBefore| doc! { "since": date(pause.since), "until": date(pause.until) };
    let before: Vec<_> = record.pauses_before.iter().map(before).collect();
    document.remove("pauses_before");
    if !before.is_empty() {
        document.insert("pauses_before", before);
    }
    let orders = record.orders.iter().flat_map(|order| {
        let written = applied(new(Instruction::Run(order.clone())), nothing);
        written.get_array("orders").unwrap().clone()
    });
    let orders: Vec<_> = orders.collect();
    if !orders.is_empty() {
        document.insert("orders", orders);
    }
    if let Some(mark) = record.mark {
        document.insert("mark", date(mark));
    }
    document
}

pub(super) fn lock(record: &LockRecord) -> Document {
    let (by, at) = match &record.holding {
        Some(held) => (held.by.clone(), held.acquired_at),
        None => (candidate(), StoreTime::from_millis(0)),
    };
    let mut document = applied(bare::take(&Take { lock: record.id.clone(), by }), at);
    // What a holder has not, and a server works out.
    for field in ["granted_to", "ended", "ended_at", "note", "not_before", "closed_for"] {
        document.remove(field);
    }
    match &record.holding {
        Some(held) => drop(document.insert("value_set", number(held.value_set))),
        // Nothing of a holder is left: all of them are in the past.
        None => document = doc! { "v": 3_i64, "_id": lock_id(&record.id), "session": null },
    }
    document.insert("term", number(record.term.get()));
    document.insert("not_before", record.closed.map_or(Bson::Null, |closed| date(closed.until)));
    if let Some(closed) = record.closed {
        document.insert("closed_for", number(u64::try_from(closed.length.as_millis()).unwrap()));
    }
    let past = record.past.iter().map(|past| {
        let text = |text: Option<&str>| text.map_or(Bson::Null, Bson::from);
        doc! {
            "holder": past.holder.as_str(), "session": text(past.session.map(|id| id.to_string()).as_deref()),
            "who": text(past.who.as_ref().map(AsRef::as_ref)),
            "term": number(past.term.get()), "from": date(past.from), "to": date(past.to),
            "how": past.how.as_str(), "note": past.note.as_ref().map_or(Bson::Null, bare::note),
        }
    });
    document.insert("past", past.collect::<Vec<_>>());
    document
}

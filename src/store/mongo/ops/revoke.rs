//! Revocations: what an operator wants of a session, or of a lock.

use std::time::Duration;

use bson::{Bson, doc};

use super::{
    locks::{ended, is_sane_lock, not_closed, read_lock},
    sessions::{is_alive_session, request, request_key, request_key_of, sighting},
};
use crate::{
    model::{Holder, SessionId, Why},
    store::{
        Ended, MAX_REQUESTS, Refusal, Request, Revocation, RevokeAnswer, SessionSeen,
        mongo::{
            MongoStore,
            client::error::CommandResult,
            documents::{
                fields::{lock_id, long},
                pipeline::{changed_if, literal, literal_text, overlaid},
                queries::Statement,
            },
        },
    },
};

pub(crate) async fn revoke(
    store: MongoStore,
    revocation: Revocation,
    limit: Duration,
) -> CommandResult<RevokeAnswer> {
    let names = store.names();
    Ok(match revocation {
        Revocation::Ask { session, request } => {
            let asked = store.modify(&names.sessions, ask_statement(session, &request), limit).await?;
            match sighting(asked.as_ref()) {
                SessionSeen::Alive(record) if record.has_request(&request) => RevokeAnswer::Asked,
                SessionSeen::Alive(_) => {
                    RevokeAnswer::Refused(Refusal::Full { what: "requests", most: MAX_REQUESTS })
                }
                SessionSeen::Dead(_) | SessionSeen::Missing => RevokeAnswer::NotHeld,
                SessionSeen::Refused(refusal) => RevokeAnswer::Refused(refusal),
            }
        }
        Revocation::Drain { session, order, .. } => {
            let drained = store.modify(&names.sessions, drain_statement(session, order), limit).await?;
            match sighting(drained.as_ref()) {
                SessionSeen::Alive(_) => RevokeAnswer::Asked,
                SessionSeen::Dead(_) | SessionSeen::Missing => RevokeAnswer::NotHeld,
                SessionSeen::Refused(refusal) => RevokeAnswer::Refused(refusal),
            }
        }
        Revocation::Force(request) => {
            let forced = store.modify(&names.locks, force_statement(&request), limit).await?;
            match forced.as_ref().map(read_lock) {
                Some(Err(refusal)) => RevokeAnswer::Refused(refusal),
                Some(Ok(record)) if record.was_forced_from(request.term) => RevokeAnswer::Freed(record),
                _ => RevokeAnswer::NotHeld,
            }
        }
        Revocation::Reopen(request) => {
            let opened = store.modify(&names.locks, reopen_statement(&request), limit).await?;
            match opened.as_ref().map(read_lock) {
                Some(Err(refusal)) => RevokeAnswer::Refused(refusal),
                Some(Ok(record)) if record.was_left_by(request.term) => RevokeAnswer::Freed(record),
                _ => RevokeAnswer::NotHeld,
            }
        }
    })
}

fn ask_statement(session: SessionId, asked: &Request) -> Statement {
    let same = doc! { "$eq": [request_key_of("$$known"), literal(request_key(&asked.lock, asked.term))] };
    let known = doc! { "$anyElementTrue": [{ "$map": { "input": "$requests", "as": "known", "in": same } }] };
    let condition = doc! { "$and": [
        is_alive_session(),
        { "$lt": [{ "$size": "$requests" }, MAX_REQUESTS as i64] },
        { "$not": known },
    ] };
    let added = doc! { "requests": { "$concatArrays": ["$requests", [literal(request(asked))]] } };
    Statement::pipeline(doc! { "_id": session.to_string() }, changed_if(condition, overlaid(doc! {}, added)))
}

fn drain_statement(session: SessionId, order: Option<(Holder, Why)>) -> Statement {
    let drained = order.map_or(Bson::Null, |(by, why)| {
        Bson::Document(doc! { "since": "$$NOW", "by": literal_text(&by), "why": literal_text(&why) })
    });
    let changed = changed_if(is_alive_session(), overlaid(doc! {}, doc! { "drained": drained }));
    Statement::pipeline(doc! { "_id": session.to_string() }, changed)
}

fn force_statement(request: &Request) -> Statement {
    let condition = doc! { "$and": [
        is_sane_lock(),
        { "$eq": ["$term", long(request.term.get())] },
        { "$ne": ["$session", null] },
    ] };
    let end = overlaid(ended(Ended::Forced, Some(&request.note())), doc! { "ended_at": "$$NOW" });
    Statement::pipeline(doc! { "_id": lock_id(&request.lock) }, changed_if(condition, end))
}

/// Opens a lock that no session has held since that term.
fn reopen_statement(request: &Request) -> Statement {
    let condition = doc! { "$and": [
        is_sane_lock(),
        { "$eq": ["$term", long(request.term.get())] },
        { "$eq": ["$session", null] },
    ] };
    let opened = overlaid(not_closed(), doc! {});
    Statement::pipeline(doc! { "_id": lock_id(&request.lock) }, changed_if(condition, opened))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Kind, LockId, Term};

    #[test]
    fn a_reopening_changes_no_other_field_and_inserts_no_record() {
        let lock =
            LockId { namespace: "shop".parse().unwrap(), kind: Kind::Lock, key: "$report".parse().unwrap() };
        let by = "$admin".parse().unwrap();
        let request = Request { lock, term: Term::new(5), by, why: Why::new("$mended").unwrap() };
        let statement = reopen_statement(&request);
        assert_eq!(statement.filter, doc! { "_id": { "ns": "shop", "kind": "lock", "key": "$report" } });
        assert!(!statement.upsert);
        let [Bson::Document(stage)] = &statement.update.as_array().unwrap()[..] else { panic!("one stage") };
        let change = stage.get_document("$replaceWith").unwrap().get_array("$cond").unwrap();
        let needed = &change[0].as_document().unwrap().get_array("$and").unwrap()[1..];
        assert_eq!(
            needed,
            [doc! { "$eq": ["$term", 5_i64] }.into(), Bson::Document(doc! { "$eq": ["$session", null] })]
        );
        let opened = doc! { "$mergeObjects": [
            "$$ROOT", { "$literal": { "not_before": null, "closed_for": null } }, {},
        ] };
        assert_eq!(change[1..], [Bson::Document(opened), "$$ROOT".into()]);
    }
}

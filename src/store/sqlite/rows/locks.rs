//! The rows of locks.

use rusqlite::params;

use super::{Failure, Outcome, SqlRows, bytes, rows, shown};
use super::{
    fields::{Fields, Raw, Read, long, millis, parts, place},
    json,
};
use crate::{
    model::{Kind, LockId, Namespace, SessionId, Term, Value},
    store::{
        Closed, Held, Holding, LockRecord, Ticket,
        sqlite::file::tables::LAYOUT,
        steps::{Listed, Row},
    },
};

macro_rules! columns {
    () => {
        "v, ns, kind, key, term, session, ticket, ttl_ms, holder, who, why, value, lock_delay_ms, value_set, \
         acquired_at, closed_until, closed_ms, wanted, past"
    };
}

fn read_lock(fields: &mut Fields<'_>) -> Read<LockRecord> {
    let id = fields.lock()?;
    let term = Term::new(fields.number()?);
    let holding = if fields.is_null() {
        // The other nine columns of a holder.
        fields.skip(9);
        None
    } else {
        let by = fields.candidate()?;
        Some(Holding { by, value_set: fields.number()?, acquired_at: fields.at()? })
    };
    let closed = if fields.is_null() {
        fields.skip(1);
        None
    } else {
        Some(Closed { until: fields.at()?, length: fields.time()? })
    };
    Ok(LockRecord {
        id,
        term,
        holding,
        closed,
        // The mark decides nothing: any other value means that no session waits.
        wanted: fields.bool().unwrap_or(false),
        past: fields.list(json::read_past)?,
    })
}

pub(super) fn read(sql: &SqlRows<'_>, id: &LockId) -> Outcome<Row<LockRecord>> {
    let by_key = concat!("SELECT ", columns!(), " FROM locks WHERE ns = ?1 AND kind = ?2 AND key = ?3");
    sql.one(by_key, params![id.namespace.as_str(), id.kind.to_string(), id.key.as_str()], read_lock)
}

/// Writes the whole record with a statement over these parameters.
fn write(sql: &SqlRows<'_>, statement: &str, record: &LockRecord) -> Outcome<()> {
    let id = &record.id;
    let held = record.holding.as_ref();
    let by = held.map(|held| &held.by);
    let written = sql.write(
        statement,
        params![
            id.namespace.as_str(),
            id.kind.to_string(),
            id.key.as_str(),
            LAYOUT,
            long(record.term.get()),
            by.map(|by| by.session.to_string()),
            by.map(|by| long(by.ticket.get())),
            by.map(|by| millis(by.ttl)),
            by.map(|by| by.holder.as_str()),
            by.and_then(|by| by.who.as_ref()).map(AsRef::<str>::as_ref),
            by.and_then(|by| by.why.as_ref()).map(AsRef::<str>::as_ref),
            by.and_then(|by| by.value.as_ref()).map(Value::as_bytes),
            by.map(|by| millis(by.lock_delay)),
            held.map(|held| long(held.value_set)),
            held.map(|held| held.acquired_at.as_millis()),
            record.closed.map(|closed| closed.until.as_millis()),
            record.closed.map(|closed| millis(closed.length)),
            record.wanted,
            json::past(&record.past),
        ],
    );
    written.map(drop)
}

pub(super) fn insert(sql: &SqlRows<'_>, record: &LockRecord) -> Outcome<()> {
    let insert = "INSERT INTO locks (ns, kind, key, v, term, session, ticket, ttl_ms, holder, who, why, value, \
         lock_delay_ms, value_set, acquired_at, closed_until, closed_ms, wanted, past) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
    write(sql, insert, record)
}

pub(super) fn update(sql: &SqlRows<'_>, record: &LockRecord) -> Outcome<()> {
    const UPDATE: &str = "UPDATE locks SET v = ?4, term = ?5, session = ?6, ticket = ?7, ttl_ms = ?8, holder = ?9, \
         who = ?10, why = ?11, value = ?12, lock_delay_ms = ?13, value_set = ?14, acquired_at = ?15, \
         closed_until = ?16, closed_ms = ?17, wanted = ?18, past = ?19 WHERE ns = ?1 AND kind = ?2 AND key = ?3";
    write(sql, UPDATE, record)
}

pub(super) fn delete(sql: &SqlRows<'_>, id: &LockId) -> Outcome<()> {
    let key = params![id.namespace.as_str(), id.kind.to_string(), id.key.as_str()];
    sql.write("DELETE FROM locks WHERE ns = ?1 AND kind = ?2 AND key = ?3", key).map(drop)
}

fn name(fields: &mut Fields<'_>) -> (Vec<u8>, String) {
    let [ns, kind, key] = [bytes(fields), bytes(fields), bytes(fields)];
    (place(&[kind, key]), format!("{} {:?} of {}", shown(kind), shown(key), shown(ns)))
}

pub(super) fn list(
    sql: &SqlRows<'_>,
    namespace: &Namespace,
    kind: Option<&Kind>,
    after: Option<&[u8]>,
    at_most: usize,
) -> Outcome<Vec<Listed<LockRecord>>> {
    let ns = namespace.as_str();
    let after = after.map(|after| parts::<2>(after).ok_or(Failure::NoPlace)).transpose()?;
    let [after_kind, after_key] = after.unwrap_or_default();
    let (after_kind, after_key, rows) = (Raw(after_kind), Raw(after_key), rows(at_most));
    let all = concat!(
        "SELECT ",
        columns!(),
        " FROM locks WHERE ns = ?1 AND (kind, key) > (?2, ?3) ORDER BY kind, key LIMIT ?4"
    );
    let of_kind = concat!(
        "SELECT ",
        columns!(),
        " FROM locks WHERE ns = ?1 AND kind = ?2 AND key > ?3 ORDER BY key LIMIT ?4"
    );
    match kind {
        None => sql.listed(all, params![ns, after_kind, after_key, rows], read_lock, name),
        Some(kind) => sql.listed(of_kind, params![ns, kind.to_string(), after_key, rows], read_lock, name),
    }
}

fn read_held(fields: &mut Fields<'_>) -> Read<Held> {
    let lock = fields.lock()?;
    Ok(Held { lock, term: Term::new(fields.number()?), ticket: Ticket::new(fields.number()?) })
}

fn held_name(fields: &mut Fields<'_>) -> (Vec<u8>, String) {
    let [ns, kind, key] = [bytes(fields), bytes(fields), bytes(fields)];
    let term = match fields.take() {
        rusqlite::types::ValueRef::Integer(term) => term,
        _ => 0,
    };
    (place(&[&term.to_be_bytes(), ns, kind, key]), shown(key))
}

/// From the index alone, which has no `v`: what the audit finds is compared, never written.
pub(super) fn held_by(
    sql: &SqlRows<'_>,
    session: SessionId,
    after: Option<&[u8]>,
    at_most: usize,
) -> Outcome<Vec<Listed<Held>>> {
    let session = session.to_string();
    let Some(after) = after else {
        let first = "SELECT ?3, ns, kind, key, term, ticket FROM locks INDEXED BY locks_of_session \
             WHERE session = ?1 ORDER BY term DESC, ns, kind, key LIMIT ?2";
        return sql.listed(first, params![session, rows(at_most), LAYOUT], read_held, held_name);
    };
    let [term, ns, kind, key] = parts::<4>(after).ok_or(Failure::NoPlace)?;
    let term = i64::from_be_bytes(term.try_into().map_err(|_| Failure::NoPlace)?);
    // In two parts: as one condition SQLite would read its index from the beginning.
    let same = "SELECT ?7, ns, kind, key, term, ticket FROM locks INDEXED BY locks_of_session \
         WHERE session = ?1 AND term = ?2 AND (ns, kind, key) > (?3, ?4, ?5) ORDER BY ns, kind, key LIMIT ?6";
    let params = params![session, term, Raw(ns), Raw(kind), Raw(key), rows(at_most), LAYOUT];
    let mut held = sql.listed(same, params, read_held, held_name)?;
    if held.len() < at_most {
        let earlier = "SELECT ?4, ns, kind, key, term, ticket FROM locks INDEXED BY locks_of_session \
             WHERE session = ?1 AND term < ?2 ORDER BY term DESC, ns, kind, key LIMIT ?3";
        let rows = rows(at_most - held.len());
        held.extend(sql.listed(earlier, params![session, term, rows, LAYOUT], read_held, held_name)?);
    }
    Ok(held)
}

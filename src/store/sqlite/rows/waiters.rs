//! The rows of places in the queue.

use rusqlite::params;

use super::fields::{Fields, Read, long, millis};
use super::{Outcome, SqlRows, rows};
use crate::{
    model::{LockId, SessionId, Value, Who, Why},
    store::{Queue, Ticket, Waiter, sqlite::file::tables::LAYOUT},
};

pub(super) fn has(sql: &SqlRows<'_>, (lock, session, ticket): &(LockId, SessionId, Ticket)) -> Outcome<bool> {
    sql.exists(
        "SELECT 1 FROM waiters WHERE ns = ?1 AND kind = ?2 AND key = ?3 AND session = ?4 AND ticket = ?5",
        params![
            lock.namespace.as_str(),
            lock.kind.to_string(),
            lock.key.as_str(),
            session.to_string(),
            long(ticket.get())
        ],
    )
}

pub(super) fn put(sql: &SqlRows<'_>, waiter: &Waiter) -> Outcome<()> {
    let Waiter { lock, by, since } = waiter;
    let put = "INSERT INTO waiters (ns, kind, key, session, ticket, v, since, ttl_ms, holder, who, why, value, \
         lock_delay_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let written = sql.write(
        put,
        params![
            lock.namespace.as_str(),
            lock.kind.to_string(),
            lock.key.as_str(),
            by.session.to_string(),
            long(by.ticket.get()),
            LAYOUT,
            since.as_millis(),
            millis(by.ttl),
            by.holder.as_str(),
            by.who.as_ref().map(Who::as_str),
            by.why.as_ref().map(Why::as_str),
            by.value.as_ref().map(Value::as_bytes),
            millis(by.lock_delay),
        ],
    );
    written.map(drop)
}

pub(super) fn delete(
    sql: &SqlRows<'_>,
    (lock, session, ticket): &(LockId, SessionId, Ticket),
) -> Outcome<()> {
    let gone = sql.write(
        "DELETE FROM waiters WHERE ns = ?1 AND kind = ?2 AND key = ?3 AND session = ?4 AND ticket = ?5",
        params![
            lock.namespace.as_str(),
            lock.kind.to_string(),
            lock.key.as_str(),
            session.to_string(),
            long(ticket.get())
        ],
    );
    gone.map(drop)
}

/// Columns: `v`, `since`, and those of a candidate.
fn read_waiter(fields: &mut Fields<'_>, lock: &LockId) -> Read<Waiter> {
    let since = fields.at()?;
    Ok(Waiter { lock: lock.clone(), by: fields.candidate()?, since })
}

pub(super) fn queue(sql: &SqlRows<'_>, lock: &LockId, at_most: usize) -> Outcome<Queue> {
    let queue = "SELECT v, since, session, ticket, ttl_ms, holder, who, why, value, lock_delay_ms FROM waiters \
         WHERE ns = ?1 AND kind = ?2 AND key = ?3 ORDER BY since, session, ticket LIMIT ?4";
    let mut waiters = Vec::new();
    let mut found = 0;
    let params = params![lock.namespace.as_str(), lock.kind.to_string(), lock.key.as_str(), rows(at_most)];
    sql.each(queue, params, |row| {
        found += 1;
        waiters.extend(Fields::of(row).and_then(|mut fields| read_waiter(&mut fields, lock)).ok());
        Ok(())
    })?;
    Ok(Queue { waiters, whole: found < at_most })
}

pub(super) fn delete_of(sql: &SqlRows<'_>, session: SessionId, at_most: usize) -> Outcome<u64> {
    let gone = sql.write(
        "DELETE FROM waiters WHERE rowid IN \
         (SELECT rowid FROM waiters WHERE session = ?1 AND v = ?2 LIMIT ?3)",
        params![session.to_string(), LAYOUT, rows(at_most)],
    )?;
    Ok(gone as u64)
}

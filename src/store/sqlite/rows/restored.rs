//! The changes that a file needs after it was restored from a backup.

use rusqlite::{Connection, Result, TransactionBehavior, params};

use super::fields::long;
use crate::{
    model::{MAX_NUMBER, StoreTime, Term},
    store::{TERM_KEPT, sqlite::file::tables::LAYOUT},
};

/// Raises the terms of all locks beyond any that were granted, also of those that are not in the file, and ends all
/// sessions.
///
/// A term is never smaller than the clock was when it was granted; so the clock, and as much as it may have been
/// wrong, is larger than all of them.
///
/// Changes nothing while a session was renewed within its ttl and its end could not be proven: it has no file, or files
/// prove nothing here. Returns none then.
pub(crate) fn raise_terms(
    connection: &mut Connection,
    now: StoreTime,
    files_prove: bool,
) -> Result<Option<u64>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_alive: bool = transaction.query_row(
        "SELECT EXISTS (SELECT 1 FROM sessions WHERE died_at IS NULL AND abs(?1 - beat_at) < ttl_ms \
         AND NOT (?2 AND file_inode IS NOT NULL))",
        params![now.as_millis(), files_prove],
        |row| row.get(0),
    )?;
    if is_alive {
        return Ok(None);
    }
    let beyond = long(Term::first(now.plus(TERM_KEPT)).get());
    let raised = transaction.execute(
        "UPDATE locks SET term = min(max(term + 1, ?1), ?2) WHERE v = ?3 AND term BETWEEN 0 AND ?2",
        params![beyond, long(MAX_NUMBER), LAYOUT],
    )?;
    // Of locks that the backup does not know.
    transaction.execute(
        "INSERT OR REPLACE INTO least_term VALUES (1, min(?1, ?2))",
        params![beyond, long(MAX_NUMBER)],
    )?;
    transaction.execute(
        "UPDATE sessions SET died_at = ?1, died_by = 'raise_terms', died_why = 'the database was restored from a backup' \
         WHERE v = ?2 AND died_at IS NULL",
        params![now.as_millis(), LAYOUT],
    )?;
    transaction.commit()?;
    Ok(Some(raised as u64))
}

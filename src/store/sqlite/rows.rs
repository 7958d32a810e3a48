//! Rows in tables: what the steps of the contract read and write, within a transaction.

mod fields;
mod json;
mod locks;
pub(super) mod restored;
mod runs;
mod schedules;
mod sessions;
mod waiters;

use rusqlite::{Connection, Params, Row as SqlRow};

use self::fields::{Fields, Read};
use super::proof::{Identity, SessionFiles};
use crate::{
    model::{Kind, LockId, MAX_NUMBER, Namespace, RunId, RunRecord, ScheduleId, SessionId, StoreTime, Term},
    store::{
        Held, LockRecord, Queue, Refusal, ScheduleRecord, SessionRecord, Ticket, Waiter,
        steps::{Change, Listed, Row, Rows},
    },
};

/// A transaction cannot go on.
#[derive(Debug)]
pub(super) enum Failure {
    /// SQLite failed.
    Sqlite(rusqlite::Error),
    /// A listing was to go on from a place that this store did not make.
    NoPlace,
}

impl Failure {
    /// Returns SQLite's general error code, if it gave one.
    pub(super) fn code(&self) -> Option<rusqlite::ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            Self::NoPlace => None,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

pub(super) type Outcome<T> = Result<T, Failure>;

/// The tables, within a transaction.
#[derive(Clone, Copy)]
pub(super) struct SqlRows<'a> {
    pub(super) connection: &'a Connection,
    /// The session files, which prove that sessions are gone, where that can be.
    pub(super) files: Option<&'a SessionFiles>,
}

impl SqlRows<'_> {
    /// The record of a session, if there is one that can be read.
    pub(super) fn record(&self, id: SessionId) -> Outcome<Option<SessionRecord>> {
        Ok(sessions::read(self, id)?.ok().flatten())
    }

    /// Returns whether a session has a record, also one that cannot be read.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn has_session(&self, id: SessionId) -> Outcome<bool> {
        self.exists("SELECT 1 FROM sessions WHERE id = ?1", [id.to_string()])
    }

    /// Removes the files of sessions that have no record, within a transaction that writes.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn remove_strays(&self) -> Outcome<()> {
        let Some(files) = self.files else { return Ok(()) };
        // Files that cannot be listed stay, and nothing else is worse for it.
        for session in files.sessions().unwrap_or_default() {
            if !self.has_session(session)? {
                files.remove_stray(session);
            }
        }
        files.remove_unfinished();
        Ok(())
    }

    /// There are none.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere there is something to do")]
    pub(super) const fn remove_strays(&self) -> Outcome<()> {
        Ok(())
    }

    /// The file that a session keeps locked, as its record has it.
    pub(super) fn identity(&self, id: SessionId) -> Outcome<Option<Identity>> {
        sessions::identity(self, id)
    }

    /// Writes, with a statement that is prepared once for each connection. Says how many rows there were.
    fn write(&self, sql: &str, params: impl Params) -> Outcome<usize> {
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    /// Reads the one row that there may be.
    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&mut Fields<'_>) -> Read<T>,
    ) -> Outcome<Row<T>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        Ok(match rows.next()? {
            None => Ok(None),
            Some(row) => Fields::of(row).and_then(|mut fields| read(&mut fields)).map(Some),
        })
    }

    fn exists(&self, sql: &str, params: impl Params) -> Outcome<bool> {
        Ok(self.connection.prepare_cached(sql)?.exists(params)?)
    }

    /// Reads rows one by one.
    fn each(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&SqlRow<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            read(row)?;
        }
        Ok(())
    }

    /// Reads the rows of a listing. `id` tells of a row its place, and what it calls itself.
    fn listed<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&mut Fields<'_>) -> Read<T>,
        id: impl Fn(&mut Fields<'_>) -> (Vec<u8>, String),
    ) -> Outcome<Vec<Listed<T>>> {
        let mut all = Vec::new();
        self.each(sql, params, |row| {
            let record = Fields::of(row).and_then(|mut fields| read(&mut fields));
            let mut fields = Fields::plain(row);
            fields.skip(1);
            let (place, name) = id(&mut fields);
            all.push(Listed { place, record: record.map_err(|refusal: Refusal| (name, refusal)) });
            Ok(())
        })?;
        Ok(all)
    }
}

/// The bytes of the next field, whatever they are: the ids of rows are texts.
fn bytes<'a>(fields: &mut Fields<'a>) -> &'a [u8] {
    match fields.take() {
        rusqlite::types::ValueRef::Text(text) => text,
        _ => &[],
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A number of rows, as SQLite has it.
fn rows(at_most: usize) -> i64 {
    i64::try_from(at_most).unwrap_or(i64::MAX)
}

impl Rows for SqlRows<'_> {
    type Failure = Failure;

    /// A few milliseconds, in which no other writer can write.
    const AT_ONCE: usize = 500;

    fn session(&mut self, id: SessionId) -> Outcome<Row<SessionRecord>> {
        sessions::read(self, id)
    }

    fn put_session(&mut self, record: &SessionRecord) -> Outcome<()> {
        sessions::put(self, record)
    }

    fn delete_session(&mut self, id: SessionId) -> Outcome<()> {
        self.write("DELETE FROM sessions WHERE id = ?1", [id.to_string()]).map(drop)
    }

    fn is_gone(&mut self, id: SessionId) -> Outcome<bool> {
        let Some(files) = self.files else { return Ok(false) };
        let identity = self.identity(id)?;
        Ok(identity.is_some_and(|identity| files.prove(id, &identity).is_ok()))
    }

    fn sessions(
        &mut self,
        namespace: &Namespace,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Outcome<Vec<Listed<SessionRecord>>> {
        sessions::list(self, namespace, after, at_most)
    }

    fn the_dead(
        &mut self,
        namespace: &Namespace,
        after: Option<SessionId>,
        at_most: usize,
    ) -> Outcome<Vec<(SessionId, StoreTime)>> {
        sessions::the_dead(self, namespace, after, at_most)
    }

    fn lock(&mut self, id: &LockId) -> Outcome<Row<LockRecord>> {
        locks::read(self, id)
    }

    fn insert_lock(&mut self, record: &LockRecord) -> Outcome<()> {
        locks::insert(self, record)
    }

    fn change_lock<T>(
        &mut self,
        id: &LockId,
        change: impl FnOnce(&mut LockRecord) -> Change<T>,
    ) -> Outcome<Row<T>> {
        let mut record = match locks::read(self, id)? {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(None) => return Ok(Ok(None)),
            Ok(Some(record)) => record,
        };
        Ok(Ok(Some(match change(&mut record) {
            Change::Keep(answer) => answer,
            Change::Put(answer) => {
                locks::update(self, &record)?;
                answer
            }
        })))
    }

    fn delete_lock(&mut self, id: &LockId) -> Outcome<()> {
        locks::delete(self, id)
    }

    fn locks(
        &mut self,
        namespace: &Namespace,
        kind: Option<&Kind>,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Outcome<Vec<Listed<LockRecord>>> {
        locks::list(self, namespace, kind, after, at_most)
    }

    fn held_by(
        &mut self,
        session: SessionId,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Outcome<Vec<Listed<Held>>> {
        locks::held_by(self, session, after, at_most)
    }

    fn has_waiter(&mut self, place: &(LockId, SessionId, Ticket)) -> Outcome<bool> {
        waiters::has(self, place)
    }

    fn put_waiter(&mut self, waiter: &Waiter) -> Outcome<()> {
        waiters::put(self, waiter)
    }

    fn delete_waiter(&mut self, place: &(LockId, SessionId, Ticket)) -> Outcome<()> {
        waiters::delete(self, place)
    }

    fn queue(&mut self, lock: &LockId, at_most: usize) -> Outcome<Queue> {
        waiters::queue(self, lock, at_most)
    }

    fn delete_waiters_of(&mut self, session: SessionId, at_most: usize) -> Outcome<u64> {
        waiters::delete_of(self, session, at_most)
    }

    fn least_term(&mut self) -> Outcome<Term> {
        // An absurd one, written by hand, is none.
        let least = "SELECT max(term) FROM least_term WHERE term BETWEEN 1 AND ?1";
        let mut statement = self.connection.prepare_cached(least)?;
        let least: Option<i64> = statement.query_row([fields::long(MAX_NUMBER)], |row| row.get(0))?;
        Ok(Term::new(least.and_then(|least| u64::try_from(least).ok()).unwrap_or(1)))
    }

    fn run(&mut self, id: &RunId) -> Outcome<Row<RunRecord>> {
        runs::read(self, id)
    }

    fn put_run(&mut self, record: &RunRecord) -> Outcome<()> {
        runs::put(self, record)
    }

    fn delete_run(&mut self, id: &RunId) -> Outcome<()> {
        runs::delete(self, id)
    }

    fn runs(
        &mut self,
        schedule: &ScheduleId,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Outcome<Vec<Listed<RunRecord>>> {
        runs::list(self, schedule, after, at_most)
    }

    fn old_runs(
        &mut self,
        schedule: &ScheduleId,
        before: StoreTime,
        keep: usize,
        at_most: usize,
    ) -> Outcome<Vec<RunRecord>> {
        runs::old(self, schedule, before, keep, at_most)
    }

    fn delete_runs_of(&mut self, schedule: &ScheduleId, at_most: usize) -> Outcome<bool> {
        runs::delete_of(self, schedule, at_most)
    }

    fn schedule(&mut self, id: &ScheduleId) -> Outcome<Row<ScheduleRecord>> {
        schedules::read(self, id)
    }

    fn put_schedule(&mut self, record: &ScheduleRecord) -> Outcome<()> {
        schedules::put(self, record)
    }

    fn delete_schedule(&mut self, id: &ScheduleId) -> Outcome<()> {
        let key = [id.namespace.as_str(), id.name.as_str()];
        self.write("DELETE FROM schedules WHERE ns = ?1 AND name = ?2", key).map(drop)
    }

    fn schedules(
        &mut self,
        namespace: &Namespace,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Outcome<Vec<Listed<ScheduleRecord>>> {
        schedules::list(self, namespace, after, at_most)
    }
}

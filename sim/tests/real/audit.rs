//! Changes that a SQLite store has applied, in the order in which they were committed: triggers in its file note them.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use rusqlite::{Connection, Row, params};
use tenure::{
    Clock, SystemClock,
    clock::Moment,
    model::{SessionId, Term},
    store::{Ticket, sqlite::SqliteStore},
};
use tenure_sim::{EventKind, number_of};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    court::PROVEN,
    ledger::Applied,
    record::{Lock, Locks},
    ticks::{Entry as Tick, PULSE},
};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(5);
/// For a file that others write all the time.
const BUSY: Duration = Duration::from_secs(10);
/// A file that cannot be written for so long is locked by a process that stands still.
const LOCKED: Duration = Duration::from_millis(500);

const NOTES: &str = "
    CREATE TABLE audit (number INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL, name, term, ticket, text);
    CREATE TRIGGER audit_granted_first AFTER INSERT ON locks BEGIN
        INSERT INTO audit (what, name, term, ticket, text)
        VALUES ('lock', new.key, new.term, new.ticket, coalesce(new.session, '') || ' ' || coalesce(new.who, ''));
    END;
    CREATE TRIGGER audit_granted AFTER UPDATE ON locks
    WHEN new.term IS NOT old.term OR new.session IS NOT old.session OR new.ticket IS NOT old.ticket BEGIN
        INSERT INTO audit (what, name, term, ticket, text)
        VALUES ('lock', new.key, new.term, new.ticket, coalesce(new.session, '') || ' ' || coalesce(new.who, ''));
    END;
    CREATE TRIGGER audit_deleted AFTER DELETE ON locks BEGIN
        INSERT INTO audit (what, name) VALUES ('deleted', old.key);
    END;
    CREATE TRIGGER audit_died AFTER UPDATE ON sessions WHEN old.died_at IS NULL AND new.died_at IS NOT NULL BEGIN
        INSERT INTO audit (what, name, text) VALUES ('died', new.id, new.died_by || ': ' || new.died_why);
    END;
    CREATE TRIGGER audit_died_first AFTER INSERT ON sessions WHEN new.died_at IS NOT NULL BEGIN
        INSERT INTO audit (what, name, text) VALUES ('died', new.id, new.died_by || ': ' || new.died_why);
    END;
    CREATE TRIGGER audit_session_deleted AFTER DELETE ON sessions BEGIN
        INSERT INTO audit (what, name) VALUES ('session deleted', old.id);
    END;";

const LOCKS: &str = "SELECT key, term, \
    EXISTS (SELECT 1 FROM sessions WHERE id = locks.session AND died_at IS NULL), closed_until IS NOT NULL, session FROM locks";

/// A folder that goes with what is in it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tenure-{name}-{}", std::process::id()));
        // Of a process of that number that was killed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Audit {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Audit {
    /// Makes the file, and the table of notes in it.
    pub(crate) async fn new(path: &Path) -> Self {
        SqliteStore::open(path).unwrap().close().await;
        let connection = connect(path);
        connection.execute_batch(NOTES).unwrap();
        Self { path: path.to_owned(), connection: Mutex::new(connection) }
    }

    pub(crate) fn follow(&self, to: mpsc::UnboundedSender<(Moment, Applied)>) -> JoinHandle<()> {
        let connection = connect(&self.path);
        tokio::task::spawn_blocking(move || {
            let mut last = 0;
            while !to.is_closed() {
                let mut notes = connection
                    .prepare_cached(
                        "SELECT number, what, name, term, ticket, text FROM audit WHERE number > ? ORDER BY number",
                    )
                    .unwrap();
                let mut rows = notes.query([last]).unwrap();
                while let Some(row) = rows.next().unwrap() {
                    last = row.get(0).unwrap();
                    // Read now, and committed some time before.
                    if let Some(applied) = applied(row)
                        && to.send((SystemClock::new().now(), applied)).is_err()
                    {
                        return;
                    }
                }
                drop(rows);
                std::thread::sleep(LOOK);
            }
        })
    }

    pub(crate) fn mark(&self, number: i64) {
        let mark = "INSERT INTO audit (what, name) VALUES ('mark', ?)";
        self.connection().execute(mark, params![number]).unwrap();
    }

    /// Returns whether it can be written before others have waited for long.
    pub(crate) fn is_writable(&self) -> bool {
        let connection = self.connection();
        connection.busy_timeout(LOCKED).unwrap();
        let is_writable = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK;").is_ok();
        connection.busy_timeout(BUSY).unwrap();
        is_writable
    }

    pub(crate) fn locks(&self) -> Locks {
        let connection = self.connection();
        let mut locks = connection.prepare_cached(LOCKS).unwrap();
        let read = |row: &Row<'_>| {
            let (key, term, is_held, rests) =
                (row.get::<_, String>(0)?, number(row, 1)?, row.get(2)?, row.get(3)?);
            let session = row.get::<_, Option<String>>(4)?.and_then(|session| session.parse().ok());
            let lock = |term| Lock { term: Term::new(term), is_held, session, rests };
            Ok(number_of(&key).zip(term).map(|(key, term)| (key, lock(term))))
        };
        locks.query_map([], read).unwrap().filter_map(Result::unwrap).collect()
    }

    pub(crate) fn waited_for(&self) -> Vec<usize> {
        let connection = self.connection();
        let mut waiters = connection.prepare_cached("SELECT key FROM waiters").unwrap();
        let read = |row: &Row<'_>| Ok(number_of(&row.get::<_, String>(0)?));
        waiters.query_map([], read).unwrap().filter_map(Result::unwrap).collect()
    }

    pub(crate) fn ledger(&self) -> Vec<Tick> {
        let connection = self.connection();
        let runs = "SELECT at, skipped_from, attempt FROM runs WHERE schedule = ?";
        let mut runs = connection.prepare_cached(runs).unwrap();
        let read = |row: &Row<'_>| Ok(Tick::new(row.get(0)?, row.get(1)?, row.get(2)?));
        runs.query_map([PULSE], read).unwrap().map(Result::unwrap).collect()
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection.lock().unwrap()
    }
}

fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(BUSY).unwrap();
    connection
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.and_then(|number| u64::try_from(number).ok()))
}

/// Returns the change that a note records.
fn applied(row: &Row<'_>) -> Option<Applied> {
    let text = |column: usize| row.get::<_, Option<String>>(column).unwrap().unwrap_or_default();
    let session = || text(2).parse::<SessionId>().ok();
    let what = match text(1).as_str() {
        "mark" => return row.get(2).ok().map(Applied::Mark),
        "died" => {
            let said = text(5);
            let by_itself = said.contains("closed by its own instance");
            let ground = match (by_itself, said.starts_with("the SQLite store: ")) {
                (true, _) => "closed",
                (_, true) => PROVEN,
                _ => "by another",
            };
            return Some(Applied::Died { session: session()?, by_itself, ground });
        }
        "deleted" => EventKind::LockDeleted { key: number_of(&text(2))? },
        "session deleted" => EventKind::SessionDeleted { session: session()? },
        _ => {
            let (key, term) = (number_of(&text(2))?, Term::new(number(row, 3).unwrap()?));
            let said = text(5);
            let (session, tag) = said.split_once(' ')?;
            let ticket = number(row, 4).unwrap().and_then(Ticket::try_new);
            match session.parse().ok().zip(ticket) {
                Some((session, ticket)) => {
                    EventKind::Granted { key, term, session, ticket, tag: tag.to_owned() }
                }
                None => EventKind::Freed { key, term },
            }
        }
    };
    Some(Applied::Seen(what))
}

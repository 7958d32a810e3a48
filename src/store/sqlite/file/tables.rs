//! The tables, and how they came to be: created as a whole, or changed from an earlier layout in one transaction.

use rusqlite::{Connection, Result};

/// Marks a file as one of tenure's: `tnre` in ASCII, in the place that SQLite keeps for this.
pub(crate) const APPLICATION: i32 = i32::from_be_bytes(*b"tnre");

/// The layout of the tables, `user_version` of the file.
pub(crate) const VERSION: i32 = 3;

/// The layout version of each record, its `v`. A record with another one is not touched.
pub(crate) const LAYOUT: i64 = 1;

/// The change that makes each layout of the one before: the first of these makes the second layout.
const MIGRATIONS: [&str; VERSION as usize - 1] = [
    "ALTER TABLE sessions ADD COLUMN stalled_since INTEGER",
    // In the third, notes in the past of a lock have fields: one of an earlier layout, a sentence, is left out.
    "ALTER TABLE sessions ADD COLUMN drained_at INTEGER;
     ALTER TABLE sessions ADD COLUMN drained_by TEXT;
     ALTER TABLE sessions ADD COLUMN drained_why TEXT",
];

/// As an operator reads it with `.schema`. Times are milliseconds since 1970, lengths are milliseconds.
const TABLES: &str = r"
CREATE TABLE sessions (           -- one start of one instance
    id TEXT NOT NULL PRIMARY KEY,
    v INTEGER,                    -- the layout of the record; one with another is not touched
    ns TEXT NOT NULL,
    holder TEXT, host TEXT, pid INTEGER, program TEXT, plan_version INTEGER,
    started INTEGER,
    beat INTEGER, nonce INTEGER, beat_at INTEGER,
    ttl_ms INTEGER,
    died_at INTEGER, died_by TEXT, died_why TEXT,  -- null while nobody has declared it dead
    shares TEXT, requests TEXT,   -- JSON
    file_dev INTEGER, file_inode INTEGER, boot_id TEXT,  -- the file that it keeps locked, if it has one
    stalled_since INTEGER,        -- null while the program's runtime runs tasks
    drained_at INTEGER, drained_by TEXT, drained_why TEXT  -- null unless an operator drains it
) STRICT;
CREATE INDEX sessions_of_namespace ON sessions (ns, id);
CREATE INDEX sessions_dead ON sessions (ns, id) WHERE died_at IS NOT NULL;

CREATE TABLE locks (
    ns TEXT NOT NULL,
    kind TEXT NOT NULL,           -- lock, schedule, or task:SPREAD
    key TEXT NOT NULL,
    v INTEGER,
    term INTEGER,
    session TEXT,                 -- null while nobody holds it
    ticket INTEGER, ttl_ms INTEGER, holder TEXT, who TEXT, why TEXT, value BLOB, lock_delay_ms INTEGER,
    value_set INTEGER, acquired_at INTEGER,
    closed_until INTEGER, closed_ms INTEGER,
    wanted INTEGER,
    past TEXT,                    -- JSON: the last holders, latest first
    PRIMARY KEY (ns, kind, key)
) STRICT;
CREATE INDEX locks_of_session ON locks (session, term DESC, ns, kind, key, ticket) WHERE session IS NOT NULL;

CREATE TABLE waiters (            -- places in line
    ns TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
    session TEXT NOT NULL,
    ticket INTEGER NOT NULL,
    v INTEGER,
    since INTEGER,
    ttl_ms INTEGER, holder TEXT, who TEXT, why TEXT, value BLOB, lock_delay_ms INTEGER,
    PRIMARY KEY (ns, kind, key, session, ticket)
) STRICT;
CREATE INDEX waiters_in_line ON waiters (ns, kind, key, since, session, ticket);
CREATE INDEX waiters_of_session ON waiters (session);

CREATE TABLE schedules (
    ns TEXT NOT NULL, name TEXT NOT NULL,
    v INTEGER,
    timing TEXT, policies TEXT, since INTEGER, term INTEGER,  -- null until somebody has defined it
    pause_since INTEGER, pause_until INTEGER, pause_by TEXT, pause_why TEXT,
    pauses_before TEXT, orders TEXT,  -- JSON
    mark INTEGER,                 -- runs up to this instant may have been purged
    PRIMARY KEY (ns, name)
) STRICT;

CREATE TABLE runs (               -- the ledgers of the schedules
    ns TEXT NOT NULL, schedule TEXT NOT NULL,
    at INTEGER NOT NULL,          -- the instant
    entry TEXT NOT NULL,          -- empty for a tick; order, or skipped
    v INTEGER,
    session TEXT, holder TEXT, term INTEGER, attempt INTEGER, started INTEGER,
    finished_at INTEGER, outcome TEXT, error TEXT, last INTEGER,  -- null while it runs
    skipped_from INTEGER, skipped_count INTEGER, skipped_why TEXT,
    PRIMARY KEY (ns, schedule, at, entry)
) STRICT;

CREATE TABLE least_term (         -- at most one row, of a file that was restored from a backup
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    term INTEGER NOT NULL
) STRICT;

CREATE TABLE rings (              -- who is to look where; the latest of them
    id INTEGER NOT NULL PRIMARY KEY,
    topic TEXT,                   -- who is told; null for all
    news TEXT NOT NULL,           -- what has changed, parted by tabs
    at INTEGER NOT NULL
) STRICT;
";

/// Makes the tables in an empty database.
pub(crate) fn create(connection: &Connection) -> Result<()> {
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT"
    ))
}

pub(crate) fn version(connection: &Connection) -> Result<i32> {
    connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}

pub(crate) fn application(connection: &Connection) -> Result<i32> {
    connection.query_row("PRAGMA application_id", [], |row| row.get(0))
}

/// Brings tables of an earlier layout up to this one, all at once. Answers with the layout that is found afterwards:
/// a newer one is left as it is.
pub(crate) fn migrate(connection: &Connection) -> Result<i32> {
    migrate_by(connection, &MIGRATIONS)
}

fn migrate_by(connection: &Connection, migrations: &[&str]) -> Result<i32> {
    let newest = i32::try_from(migrations.len()).unwrap_or(i32::MAX).saturating_add(1);
    if version(connection)? >= newest {
        return version(connection);
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let migrated = (|| {
        // Again, now that no other connection can do it.
        let known = version(connection)?;
        let missing = migrations.iter().skip(usize::try_from(known - 1).unwrap_or_default());
        for migration in missing {
            connection.execute_batch(migration)?;
        }
        connection.execute_batch(&format!("PRAGMA user_version = {}; COMMIT", known.max(newest)))
    })();
    if migrated.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    migrated?;
    version(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        create(&connection).unwrap();
        connection
            .execute_batch("PRAGMA user_version = 1; INSERT INTO rings VALUES (1, NULL, 'old', 5)")
            .unwrap();
        connection
    }

    /// Columns of the tables, in no order: a migration adds its own at the end.
    fn columns(connection: &Connection) -> Vec<(String, String, String)> {
        let columns = "SELECT m.name, c.name, c.type FROM sqlite_schema AS m, pragma_table_info(m.name) AS c \
            WHERE m.type = 'table' ORDER BY 1, 2";
        let mut columns = connection.prepare(columns).unwrap();
        let read = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        read.map(Result::unwrap).collect()
    }

    #[test]
    fn a_file_of_the_first_layout_gets_the_columns_of_this_one() {
        let connection = Connection::open_in_memory().unwrap();
        create(&connection).unwrap();
        let now = columns(&connection);
        connection
            .execute_batch(
                "ALTER TABLE sessions DROP COLUMN stalled_since; ALTER TABLE sessions DROP COLUMN drained_at;
                 ALTER TABLE sessions DROP COLUMN drained_by; ALTER TABLE sessions DROP COLUMN drained_why;
                 PRAGMA user_version = 1",
            )
            .unwrap();
        assert_ne!(columns(&connection), now);
        assert_eq!(migrate(&connection).unwrap(), VERSION);
        assert_eq!(columns(&connection), now);
    }

    #[test]
    fn an_earlier_layout_is_brought_up_by_each_missing_migration() {
        let connection = earlier();
        let migrations = [
            "ALTER TABLE rings ADD COLUMN loud INTEGER",
            "UPDATE rings SET loud = 1; UPDATE rings SET news = 'new'",
        ];
        assert_eq!(migrate_by(&connection, &migrations), Ok(3));
        let read = |connection: &Connection| {
            connection.query_row("SELECT news, loud FROM rings", [], |row| Ok((row.get(0)?, row.get(1)?)))
        };
        assert_eq!(read(&connection), Ok(("new".to_owned(), 1)));
        connection.execute_batch("UPDATE rings SET loud = 2").unwrap();
        assert_eq!(migrate_by(&connection, &migrations), Ok(3), "once");
        assert_eq!(migrate_by(&connection, &migrations[..1]), Ok(3), "a newer one is left as it is");
        assert_eq!(read(&connection), Ok(("new".to_owned(), 2)));
    }

    #[test]
    fn of_a_migration_that_fails_nothing_stays() {
        let connection = earlier();
        let migrations = ["ALTER TABLE rings ADD COLUMN loud INTEGER", "UPDATE nothing SET loud = 1"];
        migrate_by(&connection, &migrations).unwrap_err();
        assert_eq!(version(&connection), Ok(1));
        assert!(connection.prepare("SELECT loud FROM rings").is_err());
        assert!(connection.is_autocommit());
    }
}

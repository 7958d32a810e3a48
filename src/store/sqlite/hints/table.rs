//! The table of bells: rung in the transaction of the change, and read by the listeners. It has no `AUTOINCREMENT`,
//! which would write one page more with each ring: the last ring is never pruned, so no number comes twice all the same.

use rusqlite::{Connection, OptionalExtension, params};

use super::{Heard, text};
use crate::{model::StoreTime, store::Bell, words};

/// The rings that are kept at least. A listener further behind gets a resync.
const KEPT: i64 = 4096;
/// The number of rings between two prunings.
const PRUNED_EVERY: i64 = 256;

/// Rings these bells, in the transaction that is open on the connection: they are heard if it commits, once it is
/// [announced](super::Hints::announce).
pub(crate) fn ring(connection: &Connection, bells: &[Bell], at: StoreTime) -> rusqlite::Result<()> {
    if bells.is_empty() {
        return Ok(());
    }
    let mut insert = connection.prepare_cached("INSERT INTO rings (topic, news, at) VALUES (?1, ?2, ?3)")?;
    let mut prune = false;
    for (place, bell) in bells.iter().enumerate() {
        // A batch may say the same thing many times.
        if bells[..place].last() == Some(bell) {
            continue;
        }
        let topic = text::topic(&bell.to);
        let id = insert.insert(params![topic, text::news(&bell.news), at.as_millis()])?;
        prune |= id % PRUNED_EVERY == 0;
    }
    if prune {
        let last = connection.last_insert_rowid();
        let mut prune = connection.prepare_cached("DELETE FROM rings WHERE id <= ?1")?;
        prune.execute([last - KEPT])?;
    }
    Ok(())
}

/// A place in the table, up to which it was read.
#[derive(Debug)]
pub(super) struct Reader {
    connection: Connection,
    /// The state of the database that was read last.
    version: i64,
    last: i64,
}

impl Reader {
    /// Reads from now on.
    pub(super) fn new(connection: Connection) -> rusqlite::Result<Self> {
        let mut reader = Self { connection, version: 0, last: 0 };
        reader.version = reader.data_version()?;
        reader.last = reader.last_id()?;
        Ok(reader)
    }

    fn data_version(&self) -> rusqlite::Result<i64> {
        self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
    }

    fn last_id(&self) -> rusqlite::Result<i64> {
        let mut last = self.connection.prepare_cached("SELECT id FROM rings ORDER BY id DESC LIMIT 1")?;
        Ok(last.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
    }

    /// Returns the bells rung since the last call; a resync in place of those that are gone or cannot be read.
    pub(super) fn news(&mut self) -> Vec<Heard> {
        match self.read() {
            Ok(heard) => heard,
            Err(error) => {
                words::debug!(%error, "could not read the topics of listeners");
                // The place it stands at is read anew with the next change.
                (self.version, self.last) = (-1, -1);
                vec![Heard::Resync]
            }
        }
    }

    fn read(&mut self) -> rusqlite::Result<Vec<Heard>> {
        let version = self.data_version()?;
        if version == self.version {
            return Ok(Vec::new());
        }
        if self.last < 0 {
            self.last = self.last_id()?;
            self.version = version;
            return Ok(vec![Heard::Resync]);
        }
        let mut heard = Vec::new();
        let mut last = self.last;
        {
            let mut select = self
                .connection
                .prepare_cached("SELECT id, topic, news FROM rings WHERE id > ?1 ORDER BY id LIMIT ?2")?;
            let mut rows = select.query([self.last, KEPT + 1])?;
            while let Some(row) = rows.next()? {
                let id: i64 = row.get(0)?;
                if id != last + 1 {
                    heard.push(Heard::Resync);
                }
                last = id;
                let (topic, news): (Option<String>, String) = (row.get(1)?, row.get(2)?);
                // For a bell of a later version every listener looks.
                let bell = topic.and_then(|topic| text::bell(&topic, &news));
                heard.push(bell.map_or(Heard::Resync, Heard::Bell));
            }
        }
        if heard.is_empty() {
            // No bell was rung, or the table was emptied by hand.
            let there = self.last_id()?;
            if there < last {
                last = there;
                heard.push(Heard::Resync);
            }
        } else if i64::try_from(heard.len()).is_ok_and(|many| many > KEPT) {
            last = self.last_id()?;
            heard = vec![Heard::Resync];
        }
        (self.version, self.last) = (version, last);
        Ok(heard)
    }
}

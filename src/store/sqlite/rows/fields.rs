//! The fields of a row, read and written.
//!
//! A row may have been written by hand: whatever cannot be read becomes a [`Refusal`] that names the column.

use std::{fmt, time::Duration};

use rusqlite::{
    Row,
    types::{ToSql, ToSqlOutput, ValueRef},
};

use crate::{
    model::{
        Holder, Key, Kind, LimitError, LockId, MAX_NUMBER, Namespace, SessionId, StoreTime, Value, Who, Why,
    },
    store::{Candidate, Refusal, Ticket, sqlite::file::tables::LAYOUT},
};

pub(crate) type Read<T> = Result<T, Refusal>;

/// The most characters of what was found that are shown.
const MOST_TOLD: usize = 100;

pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MOST_TOLD) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

pub(crate) fn damaged(field: &str, problem: impl Into<String>) -> Refusal {
    Refusal::Damaged { field: field.to_owned(), problem: problem.into() }
}

/// Reads the fields of a row in the order of its columns.
pub(crate) struct Fields<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> Fields<'a> {
    /// Of a row whose columns begin with `v`, and whose layout is known.
    pub(crate) fn of(row: &'a Row<'a>) -> Read<Self> {
        let mut fields = Self::plain(row);
        match fields.take() {
            ValueRef::Integer(LAYOUT) => Ok(fields),
            ValueRef::Null => Err(Refusal::Foreign),
            ValueRef::Integer(found) => Err(Refusal::Layout { found: found.to_string() }),
            found => Err(Refusal::Layout { found: format!("of the type {}", found.data_type()) }),
        }
    }

    /// Of a row that has no `v`.
    pub(crate) const fn plain(row: &'a Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    /// The next field; null beyond the last.
    pub(crate) fn take(&mut self) -> ValueRef<'a> {
        let found = self.row.get_ref(self.next).unwrap_or(ValueRef::Null);
        self.next += 1;
        found
    }

    /// Leaves out so many fields.
    pub(crate) fn skip(&mut self, fields: usize) {
        self.next += fields;
    }

    /// The name of the field that was taken last.
    fn name(&self) -> &'a str {
        self.row.as_ref().column_name(self.next.saturating_sub(1)).unwrap_or("?")
    }

    pub(crate) fn wrong(&self, problem: impl fmt::Display) -> Refusal {
        damaged(self.name(), problem.to_string())
    }

    fn of_another_type(&self, found: ValueRef<'_>, wanted: &str) -> Refusal {
        self.wrong(format_args!("is of the type {}, not {wanted}", found.data_type()))
    }

    /// Returns whether the next field is null, and passes it if so.
    pub(crate) fn is_null(&mut self) -> bool {
        let is_null = self.take() == ValueRef::Null;
        if !is_null {
            self.next -= 1;
        }
        is_null
    }

    pub(crate) fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.is_null() { Ok(None) } else { read(self).map(Some) }
    }

    pub(crate) fn text(&mut self) -> Read<&'a str> {
        match self.take() {
            ValueRef::Text(text) => std::str::from_utf8(text).map_err(|_| self.wrong("is not UTF-8")),
            found => Err(self.of_another_type(found, "a text")),
        }
    }

    pub(crate) fn named<T>(&mut self, new: impl FnOnce(&'a str) -> Result<T, LimitError>) -> Read<T> {
        let text = self.text()?;
        new(text).map_err(|error| self.wrong(format_args!("breaks a limit: {error}")))
    }

    fn integer(&mut self) -> Read<i64> {
        match self.take() {
            ValueRef::Integer(number) => Ok(number),
            found => Err(self.of_another_type(found, "a whole number")),
        }
    }

    pub(crate) fn number(&mut self) -> Read<u64> {
        let number = self.integer()?;
        u64::try_from(number)
            .ok()
            .filter(|number| *number <= MAX_NUMBER)
            .ok_or_else(|| self.wrong(format_args!("is {number}, which is not between 0 and 2^53 - 1")))
    }

    pub(crate) fn small(&mut self) -> Read<u32> {
        let number = self.number()?;
        u32::try_from(number)
            .map_err(|_| self.wrong(format_args!("is {number}, which is more than 2^32 - 1")))
    }

    pub(crate) fn time(&mut self) -> Read<Duration> {
        self.number().map(Duration::from_millis)
    }

    pub(crate) fn at(&mut self) -> Read<StoreTime> {
        self.integer().map(StoreTime::from_millis)
    }

    pub(crate) fn bool(&mut self) -> Read<bool> {
        match self.integer()? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(self.wrong(format_args!("is {found}, not 0 or 1"))),
        }
    }

    pub(crate) fn session(&mut self) -> Read<SessionId> {
        let text = self.text()?;
        text.parse().map_err(|error| self.wrong(format_args!("is not a session: {error}")))
    }

    pub(crate) fn value(&mut self) -> Read<Value> {
        match self.take() {
            ValueRef::Blob(bytes) => {
                Value::new(bytes).map_err(|error| self.wrong(format_args!("breaks a limit: {error}")))
            }
            found => Err(self.of_another_type(found, "a blob")),
        }
    }

    /// A list in JSON.
    pub(crate) fn list<T>(&mut self, read: impl FnOnce(&'a str) -> Result<T, String>) -> Read<T> {
        let text = self.text()?;
        read(text).map_err(|problem| self.wrong(problem))
    }

    /// `ns`, `kind`, `key`.
    pub(crate) fn lock(&mut self) -> Read<LockId> {
        let namespace = self.named(Namespace::new)?;
        let kind = kind(self.text()?)?;
        Ok(LockId { namespace, kind, key: self.named(Key::new)? })
    }

    /// `session`, `ticket`, `ttl_ms`, `holder`, `who`, `why`, `value`, `lock_delay_ms`.
    pub(crate) fn candidate(&mut self) -> Read<Candidate> {
        Ok(Candidate {
            session: self.session()?,
            ticket: Ticket::new(self.number()?),
            ttl: self.time()?,
            holder: self.named(Holder::new)?,
            who: self.optional(|fields| fields.named(Who::new))?,
            why: self.optional(|fields| fields.named(Why::new))?,
            value: self.optional(Self::value)?,
            lock_delay: self.time()?,
        })
    }
}

pub(crate) fn kind(text: &str) -> Read<Kind> {
    Kind::of_text(text)
        .ok_or_else(|| damaged("kind", format!("is {}, which is no kind of key", quoted(text))))
}

// ----- writing

/// Numbers of the model stay below 2^53.
pub(crate) fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Durations that are kept are [cut](crate::store::steps) to what fits.
pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A text as it was found, whatever its bytes.
pub(crate) struct Raw<'a>(pub(crate) &'a [u8]);

impl ToSql for Raw<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

// ----- places in listings

/// A place of several parts, whatever their bytes.
pub(crate) fn place(parts: &[&[u8]]) -> Vec<u8> {
    let mut place = Vec::new();
    for part in parts {
        place.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        place.extend(*part);
    }
    place
}

/// The parts of a place; nothing if there are not so many.
pub(crate) fn parts<const N: usize>(mut place: &[u8]) -> Option<[&[u8]; N]> {
    let mut parts = [&[][..]; N];
    for part in &mut parts {
        let (length, rest) = place.split_first_chunk::<4>()?;
        let (found, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        (*part, place) = (found, rest);
    }
    place.is_empty().then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_no_other_way() {
        let parts_of = [&b"task:a\0b"[..], b"", b"\xff key"];
        let written = place(&parts_of);
        assert_eq!(parts(&written), Some(parts_of));
        assert_eq!(parts::<2>(&written), None);
        assert_eq!(parts::<4>(&written), None);
        assert_eq!(parts::<1>(b"\xff\xff\xff\xffabc"), None);
    }
}

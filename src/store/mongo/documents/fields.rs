//! The fields that documents are made of, written and read. Nothing here talks to a server.
//!
//! A document that was not written by tenure must not stop an instance: whatever cannot be read becomes
//! a [`Refusal`] that names the field.

use std::{fmt, time::Duration};

use bson::{Binary, Bson, DateTime, Document, doc, spec::BinarySubtype};

use crate::{
    model::{
        Holder, Key, Kind, LimitError, LockId, MAX_NUMBER, Namespace, ScheduleId, ScheduleName, SessionId,
        StoreTime, Value, Who, Why,
    },
    store::{Candidate, DeathRow, FailureRow, Note, Refusal, Ticket},
};

/// The layout version that a document carries as `v`. A document with another one is not touched.
pub(crate) const LAYOUT: i64 = 2;
/// The same of locks and sessions.
pub(crate) const LEASE_LAYOUT: i64 = 3;

pub(crate) type Read<T> = Result<T, Refusal>;

// ----- writing

pub(crate) fn date(at: StoreTime) -> Bson {
    Bson::DateTime(DateTime::from_millis(at.as_millis()))
}

/// Numbers of the model stay below 2^53, and durations below `i64::MAX` milliseconds: longer ones
/// are as good as the longest.
pub(crate) fn long(number: u64) -> Bson {
    Bson::Int64(i64::try_from(number).unwrap_or(i64::MAX))
}

pub(crate) fn millis(time: Duration) -> Bson {
    long(u64::try_from(time.as_millis()).map_or(MAX_NUMBER, |millis| millis.min(MAX_NUMBER)))
}

pub(crate) fn optional_text(text: Option<impl AsRef<str>>) -> Bson {
    text.map_or(Bson::Null, |text| Bson::String(text.as_ref().to_owned()))
}

pub(crate) fn bytes(value: Option<&Value>) -> Bson {
    value.map_or(Bson::Null, |value| {
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: value.as_bytes().to_vec() })
    })
}

/// A note on the end of a holding.
pub(crate) fn note(note: Option<&Note>) -> Bson {
    let document = match note {
        None => return Bson::Null,
        Some(Note::Done) => doc! { "kind": "done" },
        Some(Note::Failing(FailureRow { since, tries, by, error })) => {
            let by: Vec<_> = by.iter().map(Holder::as_str).collect();
            doc! {
                "kind": "failing", "since": date(*since), "tries": i64::from(*tries), "by": by, "error": error.as_str(),
            }
        }
        Some(Note::Dying(DeathRow { deaths, since })) => {
            doc! { "kind": "dying", "since": date(*since), "deaths": i64::from(*deaths) }
        }
        Some(Note::Revoked { by, why }) => {
            doc! { "kind": "revoked", "by": by.as_str(), "why": why.as_str() }
        }
    };
    Bson::Document(document)
}

/// None if it makes no sense: what it says of failures begins anew.
pub(crate) fn read_note(found: &Fields<'_>) -> Option<Note> {
    let read = |note: Fields<'_>| -> Read<Note> {
        Ok(match note.string("kind")? {
            "done" => Note::Done,
            "failing" => Note::Failing(FailureRow {
                since: note.at("since")?,
                tries: note.small("tries")?,
                by: note.names("by")?,
                error: note.why("error")?,
            }),
            "dying" => Note::Dying(DeathRow { since: note.at("since")?, deaths: note.small("deaths")? }),
            "revoked" => Note::Revoked { by: note.name("by", Holder::new)?, why: note.why("why")? },
            _ => return Err(damaged("note", "is of an unknown kind")),
        })
    };
    found.inner("note").and_then(read).ok()
}

pub(crate) fn lock_id(id: &LockId) -> Document {
    doc! { "ns": id.namespace.as_str(), "kind": id.kind.to_string(), "key": id.key.as_str() }
}

/// The fields of a lock that name its holder, but for those that only the server knows.
pub(crate) fn candidate(by: &Candidate) -> Document {
    doc! {
        "session": by.session.to_string(),
        "ticket": long(by.ticket.get()),
        "ttl": millis(by.ttl),
        "holder": by.holder.as_str(),
        "who": optional_text(by.who.as_ref()),
        "why": optional_text(by.why.as_ref().map(Why::as_str)),
        "value": bytes(by.value.as_ref()),
        "lock_delay": millis(by.lock_delay),
    }
}

// ----- reading

/// Reads the fields of one document.
pub(crate) struct Fields<'a>(pub(crate) &'a Document);

/// The most characters of what was found that are shown: it may be megabytes of anything, and what is shown
/// goes into logs and answers.
const MOST_TOLD: usize = 100;

fn shortened(found: impl fmt::Display) -> String {
    let found = found.to_string();
    match found.char_indices().nth(MOST_TOLD) {
        Some((end, _)) => format!("{}...", &found[..end]),
        None => found,
    }
}

pub(crate) fn quoted(text: &str) -> String {
    shortened(format_args!("{text:?}"))
}

pub(crate) fn damaged(field: &str, problem: impl Into<String>) -> Refusal {
    Refusal::Damaged { field: field.to_owned(), problem: problem.into() }
}

impl<'a> Fields<'a> {
    /// Only of a document whose layout is this.
    pub(crate) fn of(document: &'a Document, layout: i64) -> Read<Self> {
        match document.get("v") {
            None => Err(Refusal::Foreign),
            Some(Bson::Int64(found)) if *found == layout => Ok(Self(document)),
            // A shell writes the same number in another type, and the server compares across types.
            Some(Bson::Int32(found)) if i64::from(*found) == layout => Ok(Self(document)),
            Some(Bson::Double(found)) if found.to_bits() == (layout as f64).to_bits() => Ok(Self(document)),
            Some(found) => Err(Refusal::Layout { found: shortened(found) }),
        }
    }

    pub(crate) fn get(&self, field: &str) -> Read<&'a Bson> {
        self.0.get(field).ok_or_else(|| damaged(field, "is missing"))
    }

    pub(crate) fn wrong(field: &str, found: &Bson, wanted: &str) -> Refusal {
        damaged(field, format!("is of the type {:?}, not {wanted}", found.element_type()))
    }

    pub(crate) fn is_null(&self, field: &str) -> Read<bool> {
        self.get(field).map(|found| *found == Bson::Null)
    }

    /// Reads the field with `read`, unless it is null.
    pub(crate) fn optional<T>(&self, field: &str, read: impl Fn(&Self, &str) -> Read<T>) -> Read<Option<T>> {
        if self.is_null(field)? { Ok(None) } else { read(self, field).map(Some) }
    }

    /// The same of a field that not every version writes: absent is as good as null.
    pub(crate) fn later<T>(&self, field: &str, read: impl Fn(&Self, &str) -> Read<T>) -> Read<Option<T>> {
        if self.0.contains_key(field) { self.optional(field, read) } else { Ok(None) }
    }

    pub(crate) fn string(&self, field: &str) -> Read<&'a str> {
        match self.get(field)? {
            Bson::String(text) => Ok(text),
            found => Err(Self::wrong(field, found, "a string")),
        }
    }

    pub(crate) fn name<T>(&self, field: &str, new: impl FnOnce(&'a str) -> Result<T, LimitError>) -> Read<T> {
        new(self.string(field)?).map_err(|error| damaged(field, format!("breaks a limit: {error}")))
    }

    pub(crate) fn number(&self, field: &str) -> Read<u64> {
        let number = match self.get(field)? {
            Bson::Int64(number) => *number,
            Bson::Int32(number) => i64::from(*number),
            found => return Err(Self::wrong(field, found, "a whole number")),
        };
        u64::try_from(number)
            .ok()
            .filter(|number| *number <= MAX_NUMBER)
            .ok_or_else(|| damaged(field, format!("is {number}, which is not between 0 and 2^53 - 1")))
    }

    pub(crate) fn small(&self, field: &str) -> Read<u32> {
        let number = self.number(field)?;
        u32::try_from(number).map_err(|_| damaged(field, format!("is {number}, which is more than 2^32 - 1")))
    }

    pub(crate) fn time(&self, field: &str) -> Read<Duration> {
        self.number(field).map(Duration::from_millis)
    }

    pub(crate) fn at(&self, field: &str) -> Read<StoreTime> {
        match self.get(field)? {
            Bson::DateTime(at) => Ok(StoreTime::from_millis(at.timestamp_millis())),
            found => Err(Self::wrong(field, found, "a date")),
        }
    }

    pub(crate) fn bool(&self, field: &str) -> Read<bool> {
        match self.get(field)? {
            Bson::Boolean(yes) => Ok(*yes),
            found => Err(Self::wrong(field, found, "a boolean")),
        }
    }

    pub(crate) fn value(&self, field: &str) -> Read<Value> {
        match self.get(field)? {
            Bson::Binary(binary) => {
                Value::new(&binary.bytes).map_err(|error| damaged(field, format!("breaks a limit: {error}")))
            }
            found => Err(Self::wrong(field, found, "binary data")),
        }
    }

    pub(crate) fn session(&self, field: &str) -> Read<SessionId> {
        self.string(field)?.parse().map_err(|error| damaged(field, format!("is not a session: {error}")))
    }

    pub(crate) fn inner(&self, field: &str) -> Read<Fields<'a>> {
        match self.get(field)? {
            Bson::Document(document) => Ok(Fields(document)),
            found => Err(Self::wrong(field, found, "a document")),
        }
    }

    pub(crate) fn schedule(&self) -> Read<ScheduleId> {
        Ok(ScheduleId {
            namespace: self.name("ns", Namespace::new)?,
            name: self.name("schedule", ScheduleName::new)?,
        })
    }

    pub(crate) fn list<T>(&self, field: &str, read: impl Fn(&Fields<'a>) -> Read<T>) -> Read<Vec<T>> {
        let Bson::Array(entries) = self.get(field)? else {
            return Err(Self::wrong(field, self.get(field)?, "an array"));
        };
        let read = |entry: &'a Bson| match entry {
            Bson::Document(document) => read(&Fields(document)),
            found => Err(Self::wrong(field, found, "a document")),
        };
        entries.iter().map(read).collect()
    }

    /// Names of holders.
    fn names(&self, field: &str) -> Read<Vec<Holder>> {
        let Bson::Array(entries) = self.get(field)? else {
            return Err(Self::wrong(field, self.get(field)?, "an array"));
        };
        let name = |entry: &Bson| entry.as_str().and_then(|name| Holder::new(name).ok());
        entries.iter().map(|entry| name(entry).ok_or_else(|| Self::wrong(field, entry, "a name"))).collect()
    }

    pub(crate) fn why(&self, field: &str) -> Read<Why> {
        self.name(field, Why::new)
    }

    pub(crate) fn lock_id(&self, field: &str) -> Read<LockId> {
        self.inner(field)?.as_lock_id(3)
    }

    /// An id has exactly its fields: one with more is another document that looks alike.
    pub(crate) fn has_only(&self, fields: usize) -> Read<()> {
        let found = self.0.len();
        if found == fields {
            Ok(())
        } else {
            Err(damaged("_id", format!("has {found} fields, not {fields}")))
        }
    }

    pub(crate) fn as_lock_id(&self, fields: usize) -> Read<LockId> {
        self.has_only(fields)?;
        Ok(LockId {
            namespace: self.name("ns", Namespace::new)?,
            kind: kind(self.string("kind")?)?,
            key: self.name("key", Key::new)?,
        })
    }

    pub(crate) fn candidate(&self) -> Read<Candidate> {
        Ok(Candidate {
            session: self.session("session")?,
            ticket: Ticket::new(self.number("ticket")?),
            ttl: self.time("ttl")?,
            holder: self.name("holder", Holder::new)?,
            who: self.optional("who", |fields, field| fields.name(field, Who::new))?,
            why: self.optional("why", Self::why)?,
            value: self.optional("value", Self::value)?,
            lock_delay: self.time("lock_delay")?,
        })
    }
}

pub(crate) fn kind(text: &str) -> Read<Kind> {
    Kind::of_text(text)
        .ok_or_else(|| damaged("kind", format!("is {}, which is no kind of key", quoted(text))))
}

pub(crate) fn read_lock_id(id: &Bson) -> Read<LockId> {
    match id {
        Bson::Document(document) => Fields(document).as_lock_id(3),
        found => Err(Fields::wrong("_id", found, "a document")),
    }
}

pub(crate) fn read_schedule_id(id: &Bson) -> Read<ScheduleId> {
    let Bson::Document(document) = id else { return Err(Fields::wrong("_id", id, "a document")) };
    let fields = Fields(document);
    fields.has_only(3)?;
    if !fields.is_null("at")? {
        return Err(Fields::wrong("at", fields.get("at")?, "null"));
    }
    fields.schedule()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(of: &Document) -> String {
        Fields::of(of, LAYOUT).err().map_or_else(|| panic!("{of} is ours"), |refusal| refusal.to_string())
    }

    #[test]
    fn a_layout_that_is_nearly_ours_is_not() {
        assert!(Fields::of(&doc! { "v": 2.0 }, LAYOUT).is_ok());
        assert!(refusal(&doc! { "v": 2.0 - f64::EPSILON }).contains("1.99999"));
    }

    #[test]
    fn a_refusal_is_short_whatever_was_found() {
        let much = "é\n".repeat(1 << 20);
        let found = refusal(&doc! { "v": &much });
        assert!(found.len() < 400 && found.contains("..."), "{found}");
        let found = kind(&much).unwrap_err().to_string();
        assert!(found.len() < 400 && found.contains("..."), "{found}");
    }
}

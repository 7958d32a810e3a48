//! Stored documents: what is written is read back, and any document in the place of any record is refused, or
//! read as what it says and nothing else.

mod anything;
mod records;
mod written;

use std::fmt::Debug;

use tenure::{
    model::StoreTime,
    store::{
        LockRecord, Refusal, SessionRecord,
        mongo::{
            bare,
            driver::bson::{Bson, Document, doc},
        },
    },
};

use super::source::Source;

/// A message that goes into logs and answers.
const LONGEST_REFUSAL: usize = 400;

/// A document made of the bytes, one way or the other, in the place of every record. Says whether one
/// could be read.
pub(crate) fn documents(bytes: &[u8]) -> bool {
    let raw = Document::from_reader(bytes).is_ok_and(|document| in_every_place(&document));
    let mut source = Source::new(bytes);
    let mut document = records::written_and_read(&mut source);
    anything::damage(&mut document, &mut source);
    raw | in_every_place(&document)
}

fn in_every_place(document: &Document) -> bool {
    let known = [
        faithful(document, bare::read_lock, |lock: &LockRecord| written::lock(lock)),
        faithful(document, bare::read_session, |session: &SessionRecord| written::session(session)),
        faithful(document, bare::read_waiter, |waiter| {
            let mut document = written::waiter(waiter);
            // What stands in the queue is read from the fields.
            document.remove("_id");
            document
        }),
        faithful(document, bare::read_run, written::run),
        faithful(document, bare::read_schedule, written::schedule),
        faithful(document, bare::read_mark, |at: &Option<StoreTime>| {
            let mut document = doc! { "v": 2_i64 };
            document.extend(at.map(|at| ("mark".to_owned(), written::date(at))));
            document
        }),
        faithful(document, bare::read_slot, |term| doc! { "v": 2_i64, "term": written::number(term.get()) }),
        faithful(document, bare::read_held, |held| {
            doc! {
                "_id": written::lock_id(&held.lock),
                "term": written::number(held.term.get()), "ticket": written::number(held.ticket.get()),
            }
        }),
    ];
    known.contains(&true)
}

/// Checks that a reading says what the document says: written again it has the same fields, so that nobody is
/// made a holder or alive who is not. A refusal must be short.
fn faithful<T: Debug + PartialEq>(
    document: &Document,
    read: fn(&Document) -> Result<T, Refusal>,
    write: impl Fn(&T) -> Document,
) -> bool {
    let record = match read(document) {
        Ok(record) => record,
        Err(refusal) => {
            let words = refusal.to_string();
            assert!(words.len() <= LONGEST_REFUSAL, "{words}");
            return false;
        }
    };
    let again = write(&record);
    for (field, value) in &again {
        let found = document.get(field);
        let says = match (field.as_str(), value) {
            ("past", Bson::Array(past)) => past.iter().all(|entry| had(document, entry)),
            (field, value) if found.is_none() && without(field).as_ref() == Some(value) => true,
            _ => found.is_some_and(|found| same(found, value)),
        };
        assert!(says, "{field} is {found:?}, and was read as {value}\n{document}\n{record:?}");
    }
    assert_eq!(read(&again).as_ref(), Ok(&record), "{again}");
    true
}

/// Returns whether the lock had this holder: the last one, or one in the list.
fn had(lock: &Document, entry: &Bson) -> bool {
    let last = Bson::Document(bare::past_entry(lock));
    // For a session or a note that makes no sense there is none.
    let mut entry = entry.clone();
    if let Bson::Document(entry) = &mut entry {
        for field in ["session", "note"] {
            if entry.get(field) == Some(&Bson::Null) {
                entry.remove(field);
            }
        }
    }
    let listed = lock.get_array("past").is_ok_and(|past| past.iter().any(|found| same(found, &entry)));
    listed || lock.get("session") == Some(&Bson::Null) && same(&last, &entry)
}

/// Returns whether the one says all that the other says. A number may be of another type, as a shell writes it;
/// and there may be fields that are not known, but for an id.
fn same(found: &Bson, read: &Bson) -> bool {
    match (found, read) {
        (Bson::Int32(found), Bson::Int64(read)) => i64::from(*found) == *read,
        (Bson::Double(found), Bson::Int64(layout @ (2 | 3))) => found.to_bits() == (*layout as f64).to_bits(),
        (Bson::Binary(found), Bson::Binary(read)) => found.bytes == read.bytes,
        (Bson::Document(found), Bson::Document(read)) => {
            read.iter().all(|(field, read)| match found.get(field) {
                None | Some(Bson::Null) if without(field).as_ref() == Some(read) => true,
                found => found.is_some_and(|found| same(found, read)),
            })
        }
        (Bson::Array(found), Bson::Array(read)) => {
            found.len() == read.len() && found.iter().zip(read).all(|(found, read)| same(found, read))
        }
        (found, read) => found == read,
    }
}

/// Meaning of the absence of a field which an earlier version did not write.
fn without(field: &str) -> Option<Bson> {
    match field {
        "last" => Some(Bson::Boolean(false)),
        "buckets" | "drained" | "until" => Some(Bson::Null),
        _ => None,
    }
}

//! Names: what is accepted comes back as it was, through every form it is written in.

use std::{
    fmt::{Debug, Display},
    str::FromStr,
};

use serde::{Serialize, de::DeserializeOwned};
use tenure::{
    model::{
        Holder, Key, Kind, LimitError, LockId, Namespace, ScheduleName, SessionId, SpreadName, Value, Who,
        Why,
    },
    store::{
        Candidate, Ticket, Wait,
        mongo::{
            bare,
            driver::bson::{Bson, Document},
        },
    },
};

use super::source::Source;

/// Any text as a name, and the lock of that name as a document.
pub(crate) fn names(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    why_and_value(bytes, &text);
    session(&text);
    locks(bytes);
    // Most texts of random bytes have a control character.
    every_name(&text) | every_name(&text.replace(char::is_control, "$"))
}

fn every_name(text: &str) -> bool {
    let known = [
        name(text, Namespace::MAX_BYTES, |text| Namespace::new(text)),
        name(text, Key::MAX_BYTES, |text| Key::new(text)),
        name(text, Holder::MAX_BYTES, |text| Holder::new(text)),
        name(text, Who::MAX_BYTES, |text| Who::new(text)),
        name(text, SpreadName::MAX_BYTES, |text| SpreadName::new(text)),
        name(text, ScheduleName::MAX_BYTES, |text| ScheduleName::new(text)),
    ];
    known.contains(&true)
}

/// Returns whether it is accepted. It is if it keeps the limits, and then it stays as it is.
fn name<T>(text: &str, most: usize, new: impl Fn(&str) -> Result<T, LimitError>) -> bool
where
    T: Display + Debug + PartialEq + FromStr + Serialize + DeserializeOwned + AsRef<str>,
    T::Err: Debug,
{
    let allowed = !text.trim().is_empty() && text.len() <= most && !text.contains(char::is_control);
    let name = match new(text) {
        Ok(name) => name,
        Err(error) => {
            assert!(!allowed, "{text:?}: {error}");
            // With the beginning of the text, whose characters may each be written as an escape.
            assert!(error.to_string().len() < 500, "{error}");
            return false;
        }
    };
    assert!(allowed, "{text:?}");
    assert_eq!(name.as_ref(), text);
    assert_eq!(name.to_string().parse::<T>().unwrap(), name);
    assert_eq!(format!("{name:?}"), format!("{text:?}"));
    let json = serde_json::to_string(&name).unwrap();
    assert_eq!(serde_json::from_str::<T>(&json).unwrap(), name);
    true
}

fn why_and_value(bytes: &[u8], text: &str) {
    let short = Why::shortened(text);
    assert!(text.starts_with(short.as_str()) && short.as_str().len() <= Why::MAX_BYTES);
    match Why::new(text) {
        Ok(why) => assert_eq!(why, short),
        Err(_) => assert!(short.as_str().len() > Why::MAX_BYTES - 4 && text.len() > Why::MAX_BYTES),
    }
    match Value::new(bytes) {
        Ok(value) => assert_eq!(value.as_bytes(), bytes),
        Err(_) => assert!(bytes.len() > Value::MAX_BYTES),
    }
}

/// Checks that a session has one text, and a text one session.
fn session(text: &str) {
    if let Ok(session) = text.parse::<SessionId>() {
        assert_eq!(session.to_string(), text);
    }
}

/// Two locks are one document's `_id` only if they are one lock, and each is read back from it.
fn locks(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let (Some(one), Some(other)) = (lock(&mut source), lock(&mut source)) else { return };
    let ids = [&one, &other].map(|lock| {
        let (id, document) = in_queue(lock);
        assert_eq!(bare::read_lock_id(&document).as_ref(), Ok(lock));
        id
    });
    assert_eq!(ids[0] == ids[1], one == other, "{one:?} {other:?}");
}

fn lock(source: &mut Source<'_>) -> Option<LockId> {
    let kind = match source.below(3) {
        0 => Kind::Lock,
        1 => Kind::Schedule,
        _ => Kind::Task(SpreadName::new(source.text(20)).ok()?),
    };
    let namespace = Namespace::new(source.text(20)).ok()?;
    Some(LockId { namespace, kind, key: Key::new(source.text(40)).ok()? })
}

/// The `_id` of a waiter for this lock, and what its document says of the lock.
fn in_queue(lock: &LockId) -> (Document, Bson) {
    let (session, ticket, holder) = (SessionId::from_u128(1), Ticket::new(1), "pod".parse().unwrap());
    let by = Candidate::new(session, ticket, std::time::Duration::ZERO, holder);
    let (filter, _) = bare::wait(&Wait { lock: lock.clone(), by });
    let mut id = filter.get_document("_id").unwrap().clone();
    let whole = id.clone();
    id.remove("session");
    id.remove("ticket");
    (whole, Bson::Document(id))
}

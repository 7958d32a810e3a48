//! Lists within a row, as JSON: an operator reads them with SQLite's own functions.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::fields::{kind, millis};
use crate::{
    model::{Holder, Key, LockId, MAX_NUMBER, Namespace, SpreadName, StoreTime, Term, Who, Why, serial::Hex},
    store::{Buckets, Cursor, DeathRow, Ended, FailureRow, Note, Past, PauseBefore, Request, RunNow, Share},
};

type Problem = String;

fn problem(error: impl std::fmt::Display) -> Problem {
    format!("has an entry that breaks a limit: {error}")
}

fn written<T: Serialize>(list: impl Iterator<Item = T>) -> String {
    let list: Vec<T> = list.collect();
    // The common case costs nothing.
    if list.is_empty() { "[]".to_owned() } else { serde_json::to_string(&list).unwrap_or_default() }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Problem> {
    if text == "[]" {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(|error| format!("is not the list it should be: {error}"))
}

fn number(number: u64) -> Result<u64, Problem> {
    if number <= MAX_NUMBER {
        Ok(number)
    } else {
        Err(problem(format_args!("{number} is more than 2^53 - 1")))
    }
}

// ----- the past of a lock

#[derive(Serialize, Deserialize)]
struct PastEntry {
    holder: Holder,
    #[serde(default)]
    session: Option<ForPeople<String>>,
    who: Option<Who>,
    term: u64,
    from: i64,
    to: i64,
    how: String,
    note: Option<ForPeople<NoteEntry>>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum NoteEntry {
    Done,
    Failing { since: i64, tries: u32, by: Vec<Holder>, error: Why },
    Dying { since: i64, deaths: u32 },
    Revoked { by: Holder, why: Why },
}

fn note(note: &Note) -> NoteEntry {
    match note.clone() {
        Note::Done => NoteEntry::Done,
        Note::Failing(FailureRow { since, tries, by, error }) => {
            NoteEntry::Failing { since: since.as_millis(), tries, by, error }
        }
        Note::Dying(DeathRow { deaths, since }) => NoteEntry::Dying { since: since.as_millis(), deaths },
        Note::Revoked { by, why } => NoteEntry::Revoked { by, why },
    }
}

fn note_of(entry: NoteEntry) -> Note {
    match entry {
        NoteEntry::Done => Note::Done,
        NoteEntry::Failing { since, tries, by, error } => {
            Note::Failing(FailureRow { since: StoreTime::from_millis(since), tries, by, error })
        }
        NoteEntry::Dying { since, deaths } => {
            Note::Dying(DeathRow { deaths, since: StoreTime::from_millis(since) })
        }
        NoteEntry::Revoked { by, why } => Note::Revoked { by, why },
    }
}

pub(crate) fn past(past: &[Past]) -> String {
    written(past.iter().map(|past| PastEntry {
        holder: past.holder.clone(),
        session: past.session.map(|session| ForPeople::Sane(session.to_string())),
        who: past.who.clone(),
        term: past.term.get(),
        from: past.from.as_millis(),
        to: past.to.as_millis(),
        how: past.how.as_str().to_owned(),
        note: past.note.as_ref().map(|said| ForPeople::Sane(note(said))),
    }))
}

/// The past is for people: an entry that makes no sense is no reason to refuse the lock.
pub(crate) fn read_past(text: &str) -> Result<Vec<Past>, Problem> {
    if let Ok(entries) = read::<PastEntry>(text) {
        return Ok(entries.into_iter().filter_map(past_of).collect());
    }
    let entries: Vec<serde_json::Value> = read(text)?;
    let entries = entries.into_iter().map(|entry| entry.to_string());
    Ok(entries.filter_map(|entry| past_of(serde_json::from_str(&entry).ok()?)).collect())
}

fn past_of(entry: PastEntry) -> Option<Past> {
    Some(Past {
        holder: entry.holder,
        session: entry.session.and_then(ForPeople::sane).and_then(|session| session.parse().ok()),
        who: entry.who,
        term: Term::try_new(entry.term)?,
        from: StoreTime::from_millis(entry.from),
        to: StoreTime::from_millis(entry.to),
        how: Ended::of_word(&entry.how)?,
        note: entry.note.and_then(ForPeople::sane).map(note_of),
    })
}

// ----- the shares of a session

#[derive(Serialize, Deserialize)]
struct ShareEntry {
    spread: SpreadName,
    /// `None` if there is no limit.
    cap: Option<u32>,
    weight: u32,
    draining: bool,
    paused: bool,
    reserved_ms: i64,
    /// As text: not every tool reads numbers of 64 bits exactly.
    digest: String,
    buckets: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<ForPeople<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known_since: Option<ForPeople<i64>>,
}

/// For people, as the past of a lock is: damage to it is no reason to refuse the session.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ForPeople<T> {
    Sane(T),
    Damaged(serde_json::Value),
}

impl<T> ForPeople<T> {
    fn sane(self) -> Option<T> {
        match self {
            Self::Sane(value) => Some(value),
            Self::Damaged(_) => None,
        }
    }
}

pub(crate) fn shares(shares: &[Share]) -> String {
    written(shares.iter().map(|share| ShareEntry {
        spread: share.spread.clone(),
        cap: Some(share.cap).filter(|cap| *cap < u32::MAX),
        weight: share.weight,
        draining: share.draining,
        paused: share.paused,
        reserved_ms: millis(share.reserved),
        digest: format!("{:016x}", share.digest),
        buckets: share.buckets.as_ref().map(|buckets| Hex(&buckets.to_bytes()).to_string()),
        known: share.known.map(ForPeople::Sane),
        known_since: share.known_since.map(|since| ForPeople::Sane(since.as_millis())),
    }))
}

pub(crate) fn read_shares(text: &str) -> Result<Vec<Share>, Problem> {
    let share = |entry: ShareEntry| {
        let buckets = |text| Cursor::from_hex(text).and_then(|bytes| Buckets::from_bytes(bytes.place()));
        let buckets =
            entry.buckets.map(|text| buckets(text).ok_or_else(|| problem("buckets are no digests")));
        let reserved = u64::try_from(entry.reserved_ms).map_err(problem).and_then(number)?;
        Ok(Share {
            spread: entry.spread,
            cap: entry.cap.unwrap_or(u32::MAX),
            weight: entry.weight,
            draining: entry.draining,
            paused: entry.paused,
            reserved: Duration::from_millis(reserved),
            digest: u64::from_str_radix(&entry.digest, 16).map_err(problem)?,
            buckets: buckets.transpose()?,
            known: entry.known.and_then(ForPeople::sane),
            known_since: entry.known_since.and_then(ForPeople::sane).map(StoreTime::from_millis),
        })
    };
    read(text)?.into_iter().map(share).collect()
}

// ----- what operators ask of a session

#[derive(Serialize, Deserialize)]
struct RequestEntry {
    ns: Namespace,
    kind: String,
    key: Key,
    term: u64,
    by: Holder,
    why: Why,
}

pub(crate) fn requests(requests: &[Request]) -> String {
    written(requests.iter().map(|request| RequestEntry {
        ns: request.lock.namespace.clone(),
        kind: request.lock.kind.to_string(),
        key: request.lock.key.clone(),
        term: request.term.get(),
        by: request.by.clone(),
        why: request.why.clone(),
    }))
}

pub(crate) fn read_requests(text: &str) -> Result<Vec<Request>, Problem> {
    let request = |entry: RequestEntry| {
        let kind = kind(&entry.kind).map_err(problem)?;
        let lock = LockId { namespace: entry.ns, kind, key: entry.key };
        Ok(Request { lock, term: Term::new(number(entry.term)?), by: entry.by, why: entry.why })
    };
    read(text)?.into_iter().map(request).collect()
}

// ----- what is wanted of a schedule

#[derive(Serialize, Deserialize)]
struct OrderEntry {
    at: i64,
    by: Holder,
    why: Why,
}

pub(crate) fn orders(orders: &[RunNow]) -> String {
    written(orders.iter().map(|order| OrderEntry {
        at: order.at.as_millis(),
        by: order.by.clone(),
        why: order.why.clone(),
    }))
}

pub(crate) fn read_orders(text: &str) -> Result<Vec<RunNow>, Problem> {
    let order =
        |entry: OrderEntry| RunNow { at: StoreTime::from_millis(entry.at), by: entry.by, why: entry.why };
    let mut orders: Vec<RunNow> = read(text)?.into_iter().map(order).collect();
    // They are looked for by halves.
    orders.sort_by_key(|order| order.at);
    Ok(orders)
}

#[derive(Serialize, Deserialize)]
struct PauseEntry {
    since: i64,
    until: i64,
}

pub(crate) fn pauses(pauses: &[PauseBefore]) -> String {
    let entry =
        |pause: &PauseBefore| PauseEntry { since: pause.since.as_millis(), until: pause.until.as_millis() };
    written(pauses.iter().map(entry))
}

pub(crate) fn read_pauses(text: &str) -> Result<Vec<PauseBefore>, Problem> {
    let pause = |entry: PauseEntry| PauseBefore {
        since: StoreTime::from_millis(entry.since),
        until: StoreTime::from_millis(entry.until),
    };
    Ok(read(text)?.into_iter().map(pause).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_orders_are_read_as_they_were_written() {
        let mut share = Share::new("$spread 👑".parse().unwrap());
        share.digest = u64::MAX;
        share.buckets = Some(Buckets::new(std::array::from_fn(|part| u8::try_from(part / 4).unwrap())));
        share.reserved = Duration::from_millis(MAX_NUMBER);
        share.known = Some(u32::MAX);
        share.known_since = Some(StoreTime::from_millis(-7));
        let limited = Share { cap: 0, draining: true, ..Share::new("b".parse().unwrap()) };
        let all = [share, limited];
        assert_eq!(read_shares(&shares(&all)), Ok(all.to_vec()));
        assert_eq!(read_shares(&shares(&[])), Ok(vec![]));
        assert!(
            !shares(&[Share::new("b".parse().unwrap())]).contains("known"),
            "as an earlier version writes it"
        );
        let order = |at| RunNow {
            at: StoreTime::from_millis(at),
            by: "ops".parse().unwrap(),
            why: Why::new("because \"of\0 this\"\n").unwrap(),
        };
        assert_eq!(read_orders(&orders(&[order(-5), order(7)])), Ok(vec![order(-5), order(7)]));
    }

    #[test]
    fn a_damaged_part_of_a_share_that_is_for_people_is_left_out() {
        let mut share = Share::new("a".parse().unwrap());
        (share.known, share.known_since) = (Some(7), Some(StoreTime::from_millis(8)));
        let text = shares(&[share.clone()]);
        let read = |text: &str| read_shares(text).unwrap().remove(0);
        for damage in ["-1", "9e99", "[]", "{\"at\": 5}", "\"x\"", "null"] {
            let known = text.replace(":7", &format!(":{damage}"));
            assert_eq!(read(&known), Share { known: None, ..share.clone() }, "{known}");
        }
        let since = text.replace(":8", ":\"x\"");
        assert_eq!(read(&since), Share { known_since: None, ..share }, "{since}");
    }

    #[test]
    fn an_entry_of_the_past_that_makes_no_sense_is_left_out() {
        let text = r#"[5, {"holder": "a", "who": null, "term": 7, "from": 1, "to": 2, "how": "died", "note": "n"},
            {"holder": "", "term": 7, "from": 1, "to": 2, "how": "died"}]"#;
        let past = read_past(text).unwrap();
        assert_eq!(past.len(), 1, "{past:?}");
        assert_eq!((past[0].holder.as_str(), past[0].term), ("a", Term::new(7)));
        // An earlier layout has no session, and its note is a sentence.
        assert_eq!((past[0].session, &past[0].note), (None, &None));
        read_past("{}").unwrap_err();
        read_past("nothing").unwrap_err();
    }

    #[test]
    fn shares_and_requests_that_cannot_be_read_are_a_problem() {
        for text in ["", "{}", "[5]", r#"[{"spread": "a"}]"#] {
            read_shares(text).unwrap_err();
        }
        let large =
            r#"[{"ns": "n", "kind": "lock", "key": "k", "term": 9007199254740992, "by": "a", "why": ""}]"#;
        assert!(read_requests(large).unwrap_err().contains("2^53"));
        let nobody = large.replace("9007199254740992", "1").replace("\"a\"", "\" \"");
        assert!(read_requests(&nobody).unwrap_err().contains("blank"));
    }
}

//! Records as documents, both ways. Nothing here talks to a server.
//!
//! A document that was not written by tenure must not stop anybody: whatever cannot be read becomes
//! a [`Refusal`] that names the field.

use std::{fmt, time::Duration};

use bson::{Binary, Bson, DateTime, Document, doc, spec::BinarySubtype};

use crate::{
    model::{
        About, Beat, Buckets, Candidate, Closed, Death, Definition, Ended, Entry, Finish, Holder, Holding,
        Key, Kind, LimitError, LockId, LockRecord, MAX_NUMBER, Namespace, Nonce, Outcome, PAST_HOLDERS, Past,
        Pause, PauseBefore, Request, Rules, RunId, RunNow, RunRecord, ScheduleId, ScheduleName,
        ScheduleRecord, SessionId, SessionRecord, Share, Skipped, SpreadName, StoreTime, Term, Ticket, Trial,
        Value, Waiter, Who, Why,
    },
    store::{Held, Refusal},
};

/// The layout version every document carries as `v`. A document with another one is not touched.
pub(super) const LAYOUT: i64 = 2;

type Read<T> = Result<T, Refusal>;

// ----- writing

pub(super) fn date(at: StoreTime) -> Bson {
    Bson::DateTime(DateTime::from_millis(at.as_millis()))
}

/// Numbers of the model stay below 2^53, and durations below `i64::MAX` milliseconds: longer ones
/// are as good as the longest.
pub(super) fn long(number: u64) -> Bson {
    Bson::Int64(i64::try_from(number).unwrap_or(i64::MAX))
}

pub(super) fn millis(time: Duration) -> Bson {
    long(u64::try_from(time.as_millis()).map_or(MAX_NUMBER, |millis| millis.min(MAX_NUMBER)))
}

fn text(text: Option<impl AsRef<str>>) -> Bson {
    text.map_or(Bson::Null, |text| Bson::String(text.as_ref().to_owned()))
}

pub(super) fn bytes(value: Option<&Value>) -> Bson {
    value.map_or(Bson::Null, |value| {
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: value.as_bytes().to_vec() })
    })
}

pub(super) fn lock_id(id: &LockId) -> Document {
    doc! { "ns": id.namespace.as_str(), "kind": id.kind.to_string(), "key": id.key.as_str() }
}

pub(super) fn waiter_id(lock: &LockId, session: SessionId, ticket: Ticket) -> Document {
    let mut id = lock_id(lock);
    id.insert("session", session.to_string());
    id.insert("ticket", long(ticket.get()));
    id
}

/// A tick has no entry: that makes it the first of those at its instant.
pub(super) fn run_id(id: &RunId) -> Document {
    let mut document = schedule_part(&id.schedule, date(id.instant));
    if id.entry != Entry::Tick {
        document.insert("entry", id.entry.as_str());
    }
    document
}

/// The id of a schedule's own record stands where no run's can: before every date.
pub(super) fn schedule_id(id: &ScheduleId) -> Document {
    schedule_part(id, Bson::Null)
}

pub(super) fn schedule_part(id: &ScheduleId, at: Bson) -> Document {
    doc! { "ns": id.namespace.as_str(), "schedule": id.name.as_str(), "at": at }
}

/// The fields of a lock that say who holds it, but for those that only the server knows.
pub(super) fn candidate(by: &Candidate) -> Document {
    doc! {
        "session": by.session.to_string(),
        "ticket": long(by.ticket.get()),
        "ttl": millis(by.ttl),
        "holder": by.holder.as_str(),
        "who": text(by.who.as_ref()),
        "why": text(by.why.as_ref().map(Why::as_str)),
        "value": bytes(by.value.as_ref()),
        "lock_delay": millis(by.lock_delay),
    }
}

/// The fields that say how a holding ended, while it has not.
pub(super) fn not_ended() -> Document {
    doc! { "ended": null, "ended_at": null, "note": null }
}

/// What ends a holding, but for when.
///
/// The other fields of the holder stay where they are until the lock is granted again, and only then
/// move to the past: so a release is a plain update, which costs the server half of one that
/// evaluates anything.
pub(super) fn ended(how: Ended, note: Option<&Why>) -> Document {
    doc! { "session": null, "value": null, "ended": how.as_str(), "note": text(note.map(Why::as_str)) }
}

pub(super) fn share(share: &Share) -> Document {
    doc! {
        "spread": share.spread.as_str(),
        "cap": i64::from(share.cap),
        "weight": i64::from(share.weight),
        "draining": share.draining,
        "paused": share.paused,
        "reserved": millis(share.reserved),
        // The digest uses all 64 bits: as text it looks the same in every tool.
        "digest": format!("{:016x}", share.digest),
        "buckets": share.buckets.as_ref().map_or(Bson::Null, |buckets| {
            Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: buckets.to_bytes() })
        }),
        "trial": share.trial.map(|trial| trial.to_string()),
    }
}

pub(super) fn shares(shares: &[Share]) -> Bson {
    Bson::Array(shares.iter().map(|one| Bson::Document(share(one))).collect())
}

pub(super) fn request_key(lock: &LockId, term: Term) -> Document {
    doc! { "kind": lock.kind.to_string(), "key": lock.key.as_str(), "term": long(term.get()) }
}

pub(super) fn request(request: &Request) -> Document {
    let mut document = request_key(&request.lock, request.term);
    document.insert("by", request.by.as_str());
    document.insert("why", request.why.as_str());
    document
}

pub(super) fn order(order: &RunNow) -> Document {
    doc! { "at": date(order.at), "by": order.by.as_str(), "why": order.why.as_str() }
}

pub(super) fn skipped(skipped: Option<&Skipped>) -> Bson {
    skipped.map_or(Bson::Null, |skipped| {
        let count = long(skipped.count.min(MAX_NUMBER));
        doc! { "from": date(skipped.from), "count": count, "why": skipped.why.as_str() }.into()
    })
}

// ----- reading

/// Reads the fields of one document.
struct Fields<'a>(&'a Document);

/// The most characters of what was found that are told: it may be megabytes of anything, and what is told
/// goes into logs and answers.
const MOST_TOLD: usize = 100;

fn told(found: impl fmt::Display) -> String {
    let found = found.to_string();
    match found.char_indices().nth(MOST_TOLD) {
        Some((end, _)) => format!("{}...", &found[..end]),
        None => found,
    }
}

fn quoted(text: &str) -> String {
    told(format_args!("{text:?}"))
}

fn damaged(field: &str, problem: impl Into<String>) -> Refusal {
    Refusal::Damaged { field: field.to_owned(), problem: problem.into() }
}

impl<'a> Fields<'a> {
    /// Only of a document whose layout is known.
    fn of(document: &'a Document) -> Read<Self> {
        match document.get("v") {
            None => Err(Refusal::Foreign),
            Some(Bson::Int64(LAYOUT)) => Ok(Self(document)),
            // A shell writes the same number in another type, and the server compares across types.
            Some(Bson::Int32(found)) if i64::from(*found) == LAYOUT => Ok(Self(document)),
            Some(Bson::Double(found)) if found.to_bits() == (LAYOUT as f64).to_bits() => Ok(Self(document)),
            Some(found) => Err(Refusal::Layout { found: told(found) }),
        }
    }

    fn get(&self, field: &str) -> Read<&'a Bson> {
        self.0.get(field).ok_or_else(|| damaged(field, "is missing"))
    }

    fn wrong(field: &str, found: &Bson, wanted: &str) -> Refusal {
        damaged(field, format!("is of the type {:?}, not {wanted}", found.element_type()))
    }

    fn is_null(&self, field: &str) -> Read<bool> {
        self.get(field).map(|found| *found == Bson::Null)
    }

    /// What `read` makes of the field, unless it is null.
    fn optional<T>(&self, field: &str, read: impl Fn(&Self, &str) -> Read<T>) -> Read<Option<T>> {
        if self.is_null(field)? { Ok(None) } else { read(self, field).map(Some) }
    }

    /// The same of a field that not every version writes: absent is as good as null.
    fn later<T>(&self, field: &str, read: impl Fn(&Self, &str) -> Read<T>) -> Read<Option<T>> {
        if self.0.contains_key(field) { self.optional(field, read) } else { Ok(None) }
    }

    fn string(&self, field: &str) -> Read<&'a str> {
        match self.get(field)? {
            Bson::String(text) => Ok(text),
            found => Err(Self::wrong(field, found, "a string")),
        }
    }

    fn name<T>(&self, field: &str, new: impl FnOnce(&'a str) -> Result<T, LimitError>) -> Read<T> {
        new(self.string(field)?).map_err(|error| damaged(field, format!("breaks a limit: {error}")))
    }

    fn number(&self, field: &str) -> Read<u64> {
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

    fn small(&self, field: &str) -> Read<u32> {
        let number = self.number(field)?;
        u32::try_from(number).map_err(|_| damaged(field, format!("is {number}, which is more than 2^32 - 1")))
    }

    fn time(&self, field: &str) -> Read<Duration> {
        self.number(field).map(Duration::from_millis)
    }

    fn at(&self, field: &str) -> Read<StoreTime> {
        match self.get(field)? {
            Bson::DateTime(at) => Ok(StoreTime::from_millis(at.timestamp_millis())),
            found => Err(Self::wrong(field, found, "a date")),
        }
    }

    fn bool(&self, field: &str) -> Read<bool> {
        match self.get(field)? {
            Bson::Boolean(yes) => Ok(*yes),
            found => Err(Self::wrong(field, found, "a boolean")),
        }
    }

    fn value(&self, field: &str) -> Read<Value> {
        match self.get(field)? {
            Bson::Binary(binary) => {
                Value::new(&binary.bytes).map_err(|error| damaged(field, format!("breaks a limit: {error}")))
            }
            found => Err(Self::wrong(field, found, "binary data")),
        }
    }

    fn session(&self, field: &str) -> Read<SessionId> {
        self.string(field)?.parse().map_err(|error| damaged(field, format!("is not a session: {error}")))
    }

    fn inner(&self, field: &str) -> Read<Fields<'a>> {
        match self.get(field)? {
            Bson::Document(document) => Ok(Fields(document)),
            found => Err(Self::wrong(field, found, "a document")),
        }
    }

    fn list<T>(&self, field: &str, read: impl Fn(&Fields<'a>) -> Read<T>) -> Read<Vec<T>> {
        let Bson::Array(entries) = self.get(field)? else {
            return Err(Self::wrong(field, self.get(field)?, "an array"));
        };
        let read = |entry: &'a Bson| match entry {
            Bson::Document(document) => read(&Fields(document)),
            found => Err(Self::wrong(field, found, "a document")),
        };
        entries.iter().map(read).collect()
    }

    fn why(&self, field: &str) -> Read<Why> {
        self.name(field, Why::new)
    }

    fn lock_id(&self, field: &str) -> Read<LockId> {
        self.inner(field)?.as_lock_id(3)
    }

    /// An id has exactly its fields: one with more is another document that looks alike.
    fn has_only(&self, fields: usize) -> Read<()> {
        let found = self.0.len();
        if found == fields {
            Ok(())
        } else {
            Err(damaged("_id", format!("has {found} fields, not {fields}")))
        }
    }

    fn as_lock_id(&self, fields: usize) -> Read<LockId> {
        self.has_only(fields)?;
        Ok(LockId {
            namespace: self.name("ns", Namespace::new)?,
            kind: kind(self.string("kind")?)?,
            key: self.name("key", Key::new)?,
        })
    }

    fn schedule(&self) -> Read<ScheduleId> {
        Ok(ScheduleId {
            namespace: self.name("ns", Namespace::new)?,
            name: self.name("schedule", ScheduleName::new)?,
        })
    }

    fn run_id(&self) -> Read<RunId> {
        let entry = match self.0.get("entry") {
            None => Entry::Tick,
            Some(_) => entry(self.string("entry")?)?,
        };
        self.has_only(if entry == Entry::Tick { 3 } else { 4 })?;
        Ok(RunId { schedule: self.schedule()?, instant: self.at("at")?, entry })
    }

    fn candidate(&self) -> Read<Candidate> {
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

fn kind(text: &str) -> Read<Kind> {
    match text {
        "lock" => Ok(Kind::Lock),
        "schedule" => Ok(Kind::Schedule),
        _ => match text.strip_prefix("task:").map(SpreadName::new) {
            Some(Ok(spread)) => Ok(Kind::Task(spread)),
            _ => Err(damaged("kind", format!("is {}, which is no kind of key", quoted(text)))),
        },
    }
}

pub(super) fn read_lock_id(id: &Bson) -> Read<LockId> {
    match id {
        Bson::Document(document) => Fields(document).as_lock_id(3),
        found => Err(Fields::wrong("_id", found, "a document")),
    }
}

pub(super) fn read_lock(document: &Document) -> Read<LockRecord> {
    let fields = Fields::of(document)?;
    let free = fields.is_null("session")?;
    let holding = if free {
        None
    } else {
        Some(Holding {
            by: fields.candidate()?,
            value_set: fields.number("value_set")?,
            acquired_at: fields.at("acquired_at")?,
        })
    };
    let closed = match fields.optional("not_before", Fields::at)? {
        Some(until) => Some(Closed { until, length: fields.time("closed_for")? }),
        None => None,
    };
    let Bson::Array(stored) = fields.get("past")? else {
        return Err(Fields::wrong("past", fields.get("past")?, "an array"));
    };
    // The past is for people: an entry that makes no sense is no reason to refuse the lock.
    let last = free.then(|| read_past(&past_entry(document)).ok()).flatten();
    let earlier = stored.iter().filter_map(|entry| read_past(entry.as_document()?).ok());
    Ok(LockRecord {
        id: fields.lock_id("_id")?,
        term: Term::new(fields.number("term")?),
        holding,
        closed,
        past: last.into_iter().chain(earlier).take(PAST_HOLDERS).collect(),
    })
}

/// The entry of the past for the holder whose fields are still in place.
pub(super) fn past_entry(lock: &Document) -> Document {
    let field = |name| lock.get(name).cloned().unwrap_or(Bson::Null);
    doc! {
        "holder": field("holder"), "who": field("who"), "term": field("term"), "from": field("acquired_at"),
        "to": field("ended_at"), "how": field("ended"), "note": field("note"),
    }
}

fn read_past(entry: &Document) -> Read<Past> {
    let fields = Fields(entry);
    Ok(Past {
        holder: fields.name("holder", Holder::new)?,
        who: fields.optional("who", |fields, field| fields.name(field, Who::new))?,
        term: Term::new(fields.number("term")?),
        from: fields.at("from")?,
        to: fields.at("to")?,
        how: way_to_end(fields.string("how")?)?,
        note: fields.optional("note", Fields::why)?,
    })
}

fn way_to_end(word: &str) -> Read<Ended> {
    [Ended::Released, Ended::HandedOver, Ended::Died, Ended::Superseded, Ended::Forced]
        .into_iter()
        .find(|how| how.as_str() == word)
        .ok_or_else(|| damaged("how", format!("is {}, which is no way to end", quoted(word))))
}

/// The term a slot of a fence is armed for.
pub(super) fn read_slot(document: &Document) -> Read<Term> {
    Fields::of(document)?.number("term").map(Term::new)
}

pub(super) fn read_held(document: &Document) -> Read<Held> {
    // The audit reads its index alone, which has no `v`: what it finds is compared, never written.
    let fields = Fields(document);
    Ok(Held {
        lock: fields.lock_id("_id")?,
        term: Term::new(fields.number("term")?),
        ticket: Ticket::new(fields.number("ticket")?),
    })
}

pub(super) fn read_waiter(document: &Document) -> Read<Waiter> {
    let fields = Fields::of(document)?;
    Ok(Waiter { lock: fields.lock_id("lock")?, by: fields.candidate()?, since: fields.at("since")? })
}

pub(super) fn read_session(document: &Document) -> Read<SessionRecord> {
    let fields = Fields::of(document)?;
    let namespace = fields.name("ns", Namespace::new)?;
    let death = match fields.optional("death", Fields::inner)? {
        Some(death) => {
            Some(Death { at: death.at("at")?, by: death.name("by", Holder::new)?, why: death.why("why")? })
        }
        None => None,
    };
    Ok(SessionRecord {
        id: fields.session("_id")?,
        started: fields.at("started")?,
        beat: Beat::new(fields.number("beat")?),
        nonce: Nonce::new(fields.number("nonce")?),
        beat_at: fields.at("beat_at")?,
        ttl: fields.time("ttl")?,
        death,
        shares: fields.list("shares", read_share)?,
        requests: fields.list("requests", |request| read_request(request, &namespace))?,
        about: About {
            holder: fields.name("holder", Holder::new)?,
            host: fields.string("host")?.to_owned(),
            pid: fields.small("pid")?,
            program: fields.string("program")?.to_owned(),
            plan_version: fields.small("plan_version")?,
            namespace,
        },
    })
}

fn read_share(fields: &Fields<'_>) -> Read<Share> {
    Ok(Share {
        spread: fields.name("spread", SpreadName::new)?,
        cap: fields.small("cap")?,
        weight: fields.small("weight")?,
        draining: fields.bool("draining")?,
        paused: fields.bool("paused")?,
        reserved: fields.time("reserved")?,
        digest: digest(fields.string("digest")?)?,
        buckets: fields.later("buckets", buckets)?,
        trial: fields.later("trial", |fields, field| trial(fields.string(field)?))?,
    })
}

// Strict, like a session: what is read is written again by the next beat as it was.
fn digest(text: &str) -> Read<u64> {
    let digits = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let number = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    number.ok_or_else(|| {
        damaged("digest", format!("is {}, not 16 lower-case hexadecimal digits", quoted(text)))
    })
}

fn buckets(fields: &Fields<'_>, field: &str) -> Read<Buckets> {
    match fields.get(field)? {
        Bson::Binary(binary) => Buckets::from_bytes(&binary.bytes).ok_or_else(|| {
            damaged(field, format!("has {} bytes, not {}", binary.bytes.len(), Buckets::BYTES))
        }),
        found => Err(Fields::wrong(field, found, "binary data")),
    }
}

fn trial(text: &str) -> Read<Trial> {
    text.parse().map_err(|error| damaged("trial", format!("is {}, but {error}", quoted(text))))
}

fn read_request(fields: &Fields<'_>, namespace: &Namespace) -> Read<Request> {
    let lock = LockId {
        namespace: namespace.clone(),
        kind: kind(fields.string("kind")?)?,
        key: fields.name("key", Key::new)?,
    };
    Ok(Request {
        lock,
        term: Term::new(fields.number("term")?),
        by: fields.name("by", Holder::new)?,
        why: fields.why("why")?,
    })
}

pub(super) fn read_run(document: &Document) -> Read<RunRecord> {
    let fields = Fields::of(document)?;
    let finish = match fields.optional("finish", Fields::inner)? {
        Some(finish) => Some(Finish {
            at: finish.at("at")?,
            outcome: outcome(finish.string("outcome")?)?,
            error: finish.optional("error", Fields::why)?,
            last: finish.later("last", Fields::bool)?.unwrap_or_default(),
        }),
        None => None,
    };
    let skipped = match fields.later("skipped", Fields::inner)? {
        Some(skipped) => Some(Skipped {
            from: skipped.at("from")?,
            count: skipped.number("count")?,
            why: skipped.why("why")?,
        }),
        None => None,
    };
    Ok(RunRecord {
        id: fields.inner("_id")?.run_id()?,
        session: fields.session("session")?,
        holder: fields.name("holder", Holder::new)?,
        term: Term::new(fields.number("term")?),
        attempt: fields.small("attempt")?,
        started: fields.at("started")?,
        finish,
        skipped,
    })
}

/// A tick is never told by a word.
fn entry(word: &str) -> Read<Entry> {
    [Entry::Order, Entry::Skipped]
        .into_iter()
        .find(|entry| entry.as_str() == word)
        .ok_or_else(|| damaged("entry", format!("is {}, which is no entry", quoted(word))))
}

fn outcome(word: &str) -> Read<Outcome> {
    Outcome::ALL
        .into_iter()
        .find(|outcome| outcome.as_str() == word)
        .ok_or_else(|| damaged("outcome", format!("is {}, which is no outcome", quoted(word))))
}

pub(super) fn read_schedule_id(id: &Bson) -> Read<ScheduleId> {
    let Bson::Document(document) = id else { return Err(Fields::wrong("_id", id, "a document")) };
    let fields = Fields(document);
    fields.has_only(3)?;
    if !fields.is_null("at")? {
        return Err(Fields::wrong("at", fields.get("at")?, "null"));
    }
    fields.schedule()
}

/// Every field but the id and the version may be absent: the versions before schedules were defined wrote the
/// mark alone.
pub(super) fn read_schedule(document: &Document) -> Read<ScheduleRecord> {
    let fields = Fields::of(document)?;
    let definition = match fields.later("definition", Fields::inner)? {
        Some(definition) => Some(Definition {
            timing: definition.name("timing", Rules::new)?,
            policies: definition.name("policies", Rules::new)?,
            since: definition.at("since")?,
            term: Term::new(definition.number("term")?),
        }),
        None => None,
    };
    let pause = match fields.later("pause", Fields::inner)? {
        Some(pause) => Some(Pause {
            since: pause.at("since")?,
            until: pause.later("until", Fields::at)?,
            by: pause.name("by", Holder::new)?,
            why: pause.why("why")?,
        }),
        None => None,
    };
    Ok(ScheduleRecord {
        id: read_schedule_id(fields.get("_id")?)?,
        definition,
        pause,
        pauses_before: fields
            .later("pauses_before", |fields, field| fields.list(field, read_pause_before))?
            .unwrap_or_default(),
        orders: fields.later("orders", |fields, field| fields.list(field, read_order))?.unwrap_or_default(),
        mark: fields.later("mark", Fields::at)?,
    })
}

fn read_pause_before(fields: &Fields<'_>) -> Read<PauseBefore> {
    Ok(PauseBefore { since: fields.at("since")?, until: fields.at("until")? })
}

fn read_order(fields: &Fields<'_>) -> Read<RunNow> {
    Ok(RunNow { at: fields.at("at")?, by: fields.name("by", Holder::new)?, why: fields.why("why")? })
}

/// The mark alone: a history needs nothing else of the record.
pub(super) fn read_mark(document: &Document) -> Read<Option<StoreTime>> {
    Fields::of(document)?.later("mark", Fields::at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(of: &Document) -> String {
        Fields::of(of).err().map_or_else(|| panic!("{of} is ours"), |refusal| refusal.to_string())
    }

    #[test]
    fn a_layout_that_is_nearly_ours_is_not() {
        assert!(Fields::of(&doc! { "v": 2.0 }).is_ok());
        assert!(refusal(&doc! { "v": 2.0 - f64::EPSILON }).contains("1.99999"));
    }

    #[test]
    fn a_digest_is_written_in_one_way_only() {
        let mut written = share(&Share { digest: 0xabc, ..Share::new("s".parse().unwrap()) });
        for digest in ["abc", "+000000000000abc", "0000000000000ABC", "000000000000000abc", ""] {
            written.insert("digest", digest);
            let refusal = read_share(&Fields(&written)).unwrap_err().to_string();
            assert!(refusal.contains("not 16 lower-case hexadecimal digits"), "{digest}: {refusal}");
        }
        written.insert("digest", "0000000000000abc");
        assert_eq!(read_share(&Fields(&written)).unwrap().digest, 0xabc);
    }

    #[test]
    fn a_share_of_an_earlier_version_says_nothing_of_the_parts_of_its_set_and_a_damaged_one_is_refused() {
        let buckets = Buckets::new(std::array::from_fn(|at| u32::MAX - u32::try_from(at).unwrap()));
        let said = Share { buckets: Some(buckets), ..Share::new("s".parse().unwrap()) };
        let whole = share(&said);
        assert_eq!(read_share(&Fields(&whole)).unwrap(), said);
        let nothing = Share { buckets: None, ..said };
        for earlier in [share(&nothing), without(&whole, "buckets")] {
            assert_eq!(read_share(&Fields(&earlier)).unwrap(), nothing);
        }
        let binary = |bytes| Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes });
        for (damage, says) in [
            (binary(vec![0; 1023]), "`buckets` has 1023 bytes, not 1024"),
            (binary(Vec::new()), "`buckets` has 0 bytes, not 1024"),
            (Bson::Int64(1), "`buckets` is of the type Int64, not binary data"),
        ] {
            let mut damaged = whole.clone();
            damaged.insert("buckets", damage);
            let refusal = read_share(&Fields(&damaged)).unwrap_err().to_string();
            assert!(refusal.contains(says), "{refusal}");
        }
    }

    fn without(document: &Document, field: &str) -> Document {
        let mut document = document.clone();
        document.remove(field);
        document
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

//! Sessions: opened, beaten, observed, declared dead, listed.

use std::{collections::HashMap, time::Duration};

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};

use super::{
    pages::{id_of, place},
    steps::left,
};
use crate::{
    model::{Holder, Key, LockId, Namespace, SessionId, SpreadName, Term},
    store::{
        About, Beat, BeatWrite, Buckets, Cursor, Death, Declaration, Drained, Evidence, Nonce, Open, Page,
        Request, SessionRecord, SessionSeen, Share,
        mongo::{
            MongoStore,
            client::error::{CommandFailure, CommandResult},
            documents::{
                fields::{Fields, LEASE_LAYOUT, Read, damaged, date, kind, long, millis, quoted},
                pipeline::{
                    are, are_numbers, changed_if, is_list, is_new, is_nothing_or, is_number, is_of_layout,
                    is_one_of, is_small, is_type, literal, literal_text, merged, overlaid,
                },
                queries::Statement,
            },
        },
    },
};

pub(crate) async fn open(store: MongoStore, open: Open, limit: Duration) -> CommandResult<SessionSeen> {
    if store.inner.options.read_only {
        let problem = "the store was opened to read only (MongoOptions::read_only)".to_owned();
        return Err(CommandFailure::lasting(problem));
    }
    let sessions = &store.names().sessions;
    store.marks().opens(open.session, &open.about, open.nonce);
    let seen = left(store.modify(sessions, open_statement(&open), limit).await?)
        .map(|document| sighting(Some(&document)))?;
    store.marks().seen(open.session, &seen);
    Ok(seen)
}

pub(crate) fn open_statement(open: &Open) -> Statement {
    let id = open.session.to_string();
    let about = &open.about;
    let session = doc! {
        "v": LEASE_LAYOUT,
        "ns": about.namespace.as_str(),
        "holder": about.holder.as_str(),
        "host": &about.host,
        "pid": i64::from(about.pid),
        "program": &about.program,
        "plan_version": i64::from(about.plan_version),
        "beat": 0_i64,
        "nonce": long(open.nonce.get()),
        "ttl": millis(open.ttl),
        "death": null,
        "shares": shares(&open.shares),
        "drained": open.drained.as_ref().map_or(Bson::Null, |order| {
            Bson::Document(doc! { "since": date(order.since), "by": order.by.as_str(), "why": order.why.as_str() })
        }),
        "requests": [],
    };
    Statement::pipeline(
        doc! { "_id": &id },
        changed_if(is_new(id), overlaid(session, doc! { "started": "$$NOW", "beat_at": "$$NOW" })),
    )
    .or_insert()
}

pub(crate) async fn beat(store: MongoStore, beat: BeatWrite, limit: Duration) -> CommandResult<SessionSeen> {
    let sessions = &store.names().sessions;
    store.marks().beats(beat.session, beat.nonce);
    let seen = sighting(store.modify(sessions, beat_statement(&beat), limit).await?.as_ref());
    store.marks().seen(beat.session, &seen);
    Ok(seen)
}

pub(crate) fn beat_statement(write: &BeatWrite) -> Statement {
    let mut fixed = doc! {
        "beat": long(write.beat.get()),
        "nonce": long(write.nonce.get()),
        "stalled_since": write.stalled_since.map_or(Bson::Null, date),
    };
    if let Some(now) = &write.shares {
        fixed.insert("shares", shares(now));
    }
    let mut evaluated = doc! { "beat_at": "$$NOW" };
    if !write.heard.is_empty() {
        let heard: Vec<_> =
            write.heard.iter().map(|(lock, term)| Bson::Document(request_key(lock, *term))).collect();
        evaluated.insert(
            "requests",
            doc! { "$filter": {
                "input": "$requests",
                "as": "request",
                "cond": { "$not": { "$in": [request_key_of("$$request"), literal(heard)] } },
            } },
        );
    }
    let larger = doc! { "$and": [is_alive_session(), is_number("$beat"), { "$lt": ["$beat", long(write.beat.get())] }] };
    Statement::pipeline(
        doc! { "_id": write.session.to_string() },
        changed_if(larger, overlaid(fixed, evaluated)),
    )
}

pub(crate) async fn observe(
    store: MongoStore,
    sessions: Vec<SessionId>,
    limit: Duration,
) -> CommandResult<Vec<SessionSeen>> {
    let ids = sessions.iter().map(|session| session.to_string().into());
    let found = store.find_by_id(&store.names().sessions, ids, limit).await?;
    let found: HashMap<String, Document> = found
        .into_iter()
        .filter_map(|session| Some((session.get_str("_id").ok()?.to_owned(), session)))
        .collect();
    Ok(sessions.iter().map(|session| sighting(found.get(&session.to_string()))).collect())
}

pub(crate) async fn declare(
    store: MongoStore,
    declaration: Declaration,
    limit: Duration,
) -> CommandResult<SessionSeen> {
    let sessions = &store.names().sessions;
    let seen = sighting(store.modify(sessions, declare_statement(&declaration), limit).await?.as_ref());
    if let Evidence::Unbeaten { nonce } = declaration.ground
        && seen.is_dead()
    {
        store.marks().closed(declaration.session, nonce);
    }
    Ok(seen)
}

pub(crate) fn declare_statement(declaration: &Declaration) -> Statement {
    let id = declaration.session.to_string();
    let death = doc! { "death": {
        "at": "$$NOW", "by": literal_text(&declaration.by), "why": literal_text(&declaration.why),
    } };
    let ground = match &declaration.ground {
        Evidence::Missing { namespace, holder, ttl } => {
            let tombstone = doc! {
                "v": LEASE_LAYOUT, "ns": namespace.as_str(), "holder": holder.as_str(), "host": "", "pid": 0_i64,
                "program": "", "plan_version": 0_i64, "beat": 0_i64, "nonce": 0_i64, "ttl": millis(*ttl),
                "shares": [], "drained": null, "requests": [],
            };
            let evaluated = merged([death, doc! { "started": "$$NOW", "beat_at": "$$NOW" }]);
            return Statement::pipeline(
                doc! { "_id": &id },
                changed_if(is_new(id), overlaid(tombstone, evaluated)),
            )
            .or_insert();
        }
        Evidence::Unbeaten { nonce } => doc! { "$eq": ["$nonce", long(nonce.get())] },
        // No instance has proof: no presence is given here.
        Evidence::Gone => doc! { "$literal": false },
        Evidence::Operator => doc! { "$literal": true },
    };
    Statement::pipeline(
        doc! { "_id": id },
        changed_if(doc! { "$and": [is_alive_session(), ground] }, overlaid(doc! {}, death)),
    )
}

pub(crate) async fn sessions(
    store: MongoStore,
    namespace: Namespace,
    after: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Page<SessionRecord>> {
    let mut filter = doc! { "ns": namespace.as_str() };
    if let Some(after) = id_of(place(after)?) {
        filter.insert("_id", doc! { "$gt": after });
    }
    store.page_by_id(&store.names().sessions, filter, 1, at_most, read_session, limit).await
}

pub(crate) fn sighting(document: Option<&Document>) -> SessionSeen {
    match document.map(read_session) {
        None => SessionSeen::Missing,
        Some(Ok(record)) => SessionSeen::of(record),
        Some(Err(refusal)) => SessionSeen::Refused(refusal),
    }
}

// ----- the record in a pipeline

/// Condition: the field is what a share says of the parts of its task set. Earlier versions do not write it.
fn are_buckets(field: &str) -> Document {
    let size = doc! { "$eq": [{ "$binarySize": field }, Buckets::COUNT as i64] };
    doc! { "$cond": [is_type(field, &["binData"]), size, is_type(field, &["missing", "null"])] }
}

/// Conditions: a session's document can be read, but for the lengths of its texts and what `death` says.
fn is_sane_session() -> Vec<Document> {
    let share = [
        are("string", &["$$one.spread", "$$one.digest"]),
        are("bool", &["$$one.draining", "$$one.paused"]),
        is_one_of(&["$$one.cap", "$$one.weight"], is_small),
        are_numbers(&["$$one.reserved"]),
        vec![are_buckets("$$one.buckets")],
    ];
    let request =
        [are("string", &["$$one.kind", "$$one.key", "$$one.by", "$$one.why"]), are_numbers(&["$$one.term"])];
    let order = [are("date", &["$drained.since"]), are("string", &["$drained.by", "$drained.why"])];
    [
        vec![is_of_layout(LEASE_LAYOUT)],
        are("string", &["$ns", "$holder", "$host", "$program"]),
        are("date", &["$started", "$beat_at"]),
        // Not every version writes it.
        vec![is_type("$stalled_since", &["missing", "null", "date"])],
        are_numbers(&["$beat", "$nonce", "$ttl"]),
        is_one_of(&["$pid", "$plan_version"], is_small),
        vec![is_list("$shares", share.concat()), is_list("$requests", request.concat())],
        vec![is_nothing_or("$drained", doc! { "$and": order.concat() })],
    ]
    .concat()
}

pub(crate) fn is_alive_session() -> Document {
    let all = [vec![doc! { "$eq": ["$death", null] }], is_sane_session()].concat();
    doc! { "$and": all }
}

pub(crate) fn is_dead_session() -> Document {
    let death = [
        are("object", &["$death"]),
        are("date", &["$death.at"]),
        are("string", &["$death.by", "$death.why"]),
    ];
    let all = [death.concat(), is_sane_session()].concat();
    doc! { "$and": all }
}

/// The parts of a request in a document that make it the same as another.
pub(crate) fn request_key_of(request: &str) -> Document {
    doc! {
        "kind": format!("{request}.kind"),
        "key": format!("{request}.key"),
        "term": format!("{request}.term"),
    }
}

// ----- the record as a document

pub(crate) fn share(share: &Share) -> Document {
    let mut document = doc! {
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
    };
    if let Some(known) = share.known {
        document.insert("known", i64::from(known));
    }
    if let Some(since) = share.known_since {
        document.insert("known_since", date(since));
    }
    document
}

pub(crate) fn shares(shares: &[Share]) -> Bson {
    Bson::Array(shares.iter().map(|one| Bson::Document(share(one))).collect())
}

pub(crate) fn request_key(lock: &LockId, term: Term) -> Document {
    doc! { "kind": lock.kind.to_string(), "key": lock.key.as_str(), "term": long(term.get()) }
}

pub(crate) fn request(request: &Request) -> Document {
    let mut document = request_key(&request.lock, request.term);
    document.insert("by", request.by.as_str());
    document.insert("why", request.why.as_str());
    document
}

pub(crate) fn read_session(document: &Document) -> Read<SessionRecord> {
    let fields = Fields::of(document, LEASE_LAYOUT)?;
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
        stalled_since: fields.later("stalled_since", Fields::at)?,
        ttl: fields.time("ttl")?,
        death,
        shares: fields.list("shares", read_share)?,
        drained: fields.later("drained", Fields::inner)?.as_ref().map(read_drained).transpose()?,
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
        // For people, as the past of a lock is: damage is no reason to refuse the session.
        known: fields.small("known").ok(),
        known_since: fields.at("known_since").ok(),
    })
}

fn read_drained(order: &Fields<'_>) -> Read<Drained> {
    Ok(Drained { by: order.name("by", Holder::new)?, since: order.at("since")?, why: order.why("why")? })
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
            damaged(field, format!("has {} bytes, not {}", binary.bytes.len(), Buckets::COUNT))
        }),
        found => Err(Fields::wrong(field, found, "binary data")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let buckets = Buckets::new(std::array::from_fn(|at| u8::MAX - u8::try_from(at % 256).unwrap()));
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
}

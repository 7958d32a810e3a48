//! Changes that somebody may make to a document by hand.

use tenure::store::mongo::driver::bson::{
    Binary, Bson, DateTime, Decimal128, Document, Timestamp, doc, oid::ObjectId, spec::BinarySubtype,
};

use super::super::source::Source;

/// Every field that any record has, and some that none has.
const FIELDS: [&str; 57] = [
    "_id",
    "v",
    "ns",
    "kind",
    "key",
    "session",
    "ticket",
    "ttl",
    "holder",
    "who",
    "why",
    "value",
    "lock_delay",
    "term",
    "value_set",
    "acquired_at",
    "past",
    "not_before",
    "closed_for",
    "ended",
    "ended_at",
    "note",
    "lock",
    "since",
    "started",
    "beat",
    "nonce",
    "beat_at",
    "stalled_since",
    "death",
    "shares",
    "drained",
    "granted_to",
    "requests",
    "host",
    "pid",
    "program",
    "mark",
    "finish",
    "attempt",
    "schedule",
    "at",
    "entry",
    "definition",
    "timing",
    "policies",
    "pause",
    "until",
    "by",
    "orders",
    "skipped",
    "from",
    "count",
    "outcome",
    "error",
    "of_nobody",
    "$set",
];
const TEXTS: [&str; 11] = [
    "",
    "tick",
    "order",
    "skipped",
    "lock",
    "task:",
    "task:a",
    "released",
    "succeeded",
    "\u{0}",
    "000000000000000000000000000000ab",
];

/// A few changes, as many as there are bytes for.
pub(super) fn damage(document: &mut Document, source: &mut Source<'_>) {
    for _ in 0..4 {
        if source.is_empty() {
            return;
        }
        change(document, source);
    }
}

fn change(document: &mut Document, source: &mut Source<'_>) {
    let fields: Vec<_> = document.keys().cloned().collect();
    let known = if fields.is_empty() || source.one_in(4) {
        source.pick(&FIELDS).to_owned()
    } else {
        fields[source.below(fields.len())].clone()
    };
    match source.below(4) {
        0 => drop(document.remove(&known)),
        1 => match document.get_mut(&known) {
            Some(Bson::Document(inner)) => change(inner, source),
            Some(Bson::Array(list)) => match list.first_mut() {
                Some(Bson::Document(inner)) if source.one_in(2) => change(inner, source),
                _ => list.push(any(source, 2)),
            },
            _ => {}
        },
        2 => {
            // The same number in another type.
            if let Some(Bson::Int64(number)) = document.get(&known) {
                let small = i32::try_from(*number).unwrap_or(i32::MAX);
                let other =
                    if source.one_in(2) { Bson::Double(f64::from(small)) } else { Bson::Int32(small) };
                document.insert(known, other);
            }
        }
        _ => drop(document.insert(known, any(source, 3))),
    }
}

fn any(source: &mut Source<'_>, depth: usize) -> Bson {
    match source.below(18) {
        0 => Bson::Null,
        1 => Bson::Boolean(source.one_in(2)),
        2 => Bson::Int32(u32::try_from(source.number()).unwrap_or(u32::MAX).cast_signed()),
        3 | 4 => Bson::Int64(source.number().cast_signed()),
        5 => Bson::Double(f64::from_bits(source.number())),
        6 => Bson::Double(1.0 - f64::EPSILON / 2.0),
        7 => Bson::String(source.text(40)),
        8 => Bson::String(source.pick(&TEXTS).to_owned()),
        9 => Bson::String(source.text(2).repeat(1 + 16 * usize::from(source.byte()))),
        10 => Bson::DateTime(DateTime::from_millis(source.number().cast_signed())),
        11 => Bson::Binary(Binary {
            subtype: BinarySubtype::from(source.byte()),
            bytes: vec![7; usize::from(source.byte()) * 80],
        }),
        12 => Bson::Decimal128(Decimal128::from_bytes(std::array::from_fn(|_| source.byte()))),
        13 => Bson::Timestamp(Timestamp { time: u32::from(source.byte()), increment: 1 }),
        14 => Bson::ObjectId(ObjectId::from_bytes(std::array::from_fn(|_| source.byte()))),
        15 => {
            source.pick(&[Bson::MinKey, Bson::MaxKey, Bson::Undefined].map(Some).each_ref()).clone().unwrap()
        }
        16 if depth > 0 => Bson::Array((0..source.below(4)).map(|_| any(source, depth - 1)).collect()),
        17 if depth > 0 => {
            let mut document = doc! {};
            for _ in 0..source.below(4) {
                document.insert(source.pick(&FIELDS), any(source, depth - 1));
            }
            Bson::Document(document)
        }
        _ => Bson::Symbol(source.text(9)),
    }
}

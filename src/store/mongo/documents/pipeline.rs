//! The pieces that aggregation pipelines are made of.
//!
//! Decisions are made inside pipeline updates, so that each is one atomic step on one document. In a
//! pipeline every string that begins with `$` is evaluated, so whatever comes from outside goes in as
//! `$literal` (a holder named `$exp` once stored no holder at all).

use std::time::Duration;

use bson::{Bson, Document, doc};

use super::fields::{long, millis};
use crate::model::MAX_NUMBER;

pub(crate) fn literal(value: impl Into<Bson>) -> Document {
    doc! { "$literal": value.into() }
}

pub(crate) fn literal_text(value: &impl ToString) -> Document {
    literal(value.to_string())
}

/// Condition: this very command inserts the document. An upsert's pipeline starts from
/// the `_id` alone; a foreign document has something beside it. (One that has nothing beside it
/// says nothing, and nothing is lost with it.)
pub(crate) fn is_new(id: impl Into<Bson>) -> Document {
    doc! { "$eq": ["$$ROOT", { "_id": literal(id) }] }
}

pub(crate) fn is_of_layout(layout: i64) -> Document {
    doc! { "$eq": ["$v", layout] }
}

pub(crate) fn is_number(field: &str) -> Document {
    doc! { "$and": [
        { "$in": [{ "$type": field }, ["long", "int"]] },
        { "$gte": [field, 0] },
        { "$lte": [field, long(MAX_NUMBER)] },
    ] }
}

pub(crate) fn is_type(field: &str, types: &[&str]) -> Document {
    doc! { "$in": [{ "$type": field }, types] }
}

pub(crate) fn is_one_of(fields: &[&str], is: impl Fn(&str) -> Document) -> Vec<Document> {
    fields.iter().map(|field| is(field)).collect()
}

pub(crate) fn are_numbers(fields: &[&str]) -> Vec<Document> {
    is_one_of(fields, is_number)
}

pub(crate) fn are(wanted: &str, fields: &[&str]) -> Vec<Document> {
    is_one_of(fields, |field| is_type(field, &[wanted]))
}

pub(crate) fn is_small(field: &str) -> Document {
    doc! { "$and": [is_number(field), { "$lte": [field, i64::from(u32::MAX)] }] }
}

/// An array of documents that are each so.
pub(crate) fn is_list(field: &str, is: Vec<Document>) -> Document {
    let each = doc! { "$map": { "input": field, "as": "one", "in": { "$and": is } } };
    doc! { "$and": [{ "$isArray": field }, { "$allElementsTrue": [each] }] }
}

/// Condition: the field is absent or null, or the other condition holds.
pub(crate) fn is_nothing_or(field: &str, condition: Document) -> Document {
    doc! { "$or": [is_type(field, &["null", "missing"]), condition] }
}

/// The document with other fields laid over it. Those of the first are taken as they are, those of
/// the second are evaluated.
pub(crate) fn overlaid(fixed: Document, evaluated: Document) -> Document {
    doc! { "$mergeObjects": ["$$ROOT", literal(fixed), evaluated] }
}

/// The document, changed only if the condition holds.
pub(crate) fn changed_if(condition: impl Into<Bson>, changed: impl Into<Bson>) -> Vec<Document> {
    vec![doc! { "$replaceWith": { "$cond": [condition.into(), changed.into(), "$$ROOT"] } }]
}

pub(crate) fn merged(parts: impl IntoIterator<Item = Document>) -> Document {
    parts.into_iter().flatten().collect()
}

/// The time that long before now. Durations stay below 2^53 ms, so that this is a date.
pub(crate) fn ago(age: Duration) -> Document {
    doc! { "$subtract": ["$$NOW", millis(age)] }
}

//! Listings, page by page: where one ends, and where the next begins.

use std::time::Duration;

use bson::{Bson, Document, RawBsonRef, RawDocument, doc};

use crate::store::{
    Cursor, Page, Refusal,
    mongo::{
        MongoStore,
        client::error::{CommandFailure, CommandResult},
        documents::queries::Find,
    },
};

/// A place has an id, which is a document of values.
const DEEPEST: usize = 1;

impl MongoStore {
    /// A page of what matches, by the order of the ids: 1 for first to last, -1 for last to first.
    pub(crate) async fn page_by_id<T>(
        &self,
        collection: &str,
        filter: Document,
        order: i32,
        at_most: usize,
        read: impl Fn(&Document) -> Result<T, Refusal>,
        limit: Duration,
    ) -> CommandResult<Page<T>> {
        let at_most = at_most.max(1);
        let sort = Some(doc! { "_id": order });
        let wanted = Find { filter, sort, at_most: Some(at_most.saturating_add(1)), ..Find::default() };
        page(self.find(collection, wanted, limit).await?, at_most, read, by_id)
    }
}

/// Reads the documents of a page. One more than wanted was asked for, to know whether there is more.
pub(crate) fn page<T>(
    mut documents: Vec<Document>,
    at_most: usize,
    read: impl Fn(&Document) -> Result<T, Refusal>,
    place: impl Fn(&Document) -> Document,
) -> CommandResult<Page<T>> {
    let more = documents.len() > at_most;
    documents.truncate(at_most);
    let next = match documents.last().filter(|_| more) {
        Some(last) => Some(Cursor::new(place(last).to_vec().map_err(CommandFailure::unknown)?)),
        None => None,
    };
    let mut page = Page { items: Vec::new(), refused: Vec::new(), next };
    for document in &documents {
        match read(document) {
            Ok(item) => page.items.push(item),
            Err(refusal) => {
                page.refused.push((document.get("_id").map_or_else(String::new, Bson::to_string), refusal));
            }
        }
    }
    Ok(page)
}

pub(crate) fn by_id(document: &Document) -> Document {
    doc! { "id": document.get("_id").cloned() }
}

/// Reads the place to go on from, as [`by_id`] or the audit wrote it. The caller may have forged it.
pub(crate) fn place(after: Option<Cursor>) -> CommandResult<Option<Document>> {
    let Some(cursor) = after else { return Ok(None) };
    let place = RawDocument::from_bytes(cursor.place()).ok().filter(|place| is_shallow(place, DEEPEST));
    let place = place.and_then(|place| Document::try_from(place).ok());
    place.map(Some).ok_or_else(CommandFailure::foreign_cursor)
}

/// Returns whether documents stand so deep in it at most: to read one costs stack for each.
fn is_shallow(document: &RawDocument, deepest: usize) -> bool {
    document.iter().all(|element| match element {
        Ok((_, RawBsonRef::Document(inner))) => deepest > 0 && is_shallow(inner, deepest - 1),
        Ok((_, RawBsonRef::Array(_) | RawBsonRef::JavaScriptCodeWithScope(_))) | Err(_) => false,
        Ok(_) => true,
    })
}

pub(crate) fn id_of(place: Option<Document>) -> Option<Bson> {
    place?.remove("id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_place_is_refused() {
        let made = doc! { "id": { "ns": "n", "kind": "lock", "key": "leader" }, "term": 5_i64 };
        let read = |document: &Document| place(Some(Cursor::new(document.to_vec().unwrap())));
        assert_eq!(read(&made).unwrap(), Some(made));
        assert!(read(&doc! { "id": { "id": {} } }).is_err());
        // As deep as an address may say it: to read it whole would take all of a stack.
        let mut bytes = doc! {}.to_vec().unwrap();
        for _ in 0..9_000 {
            let length = i32::try_from(bytes.len() + 7).unwrap().to_le_bytes();
            bytes = [&length[..], &[3, 0], &bytes, &[0]].concat();
        }
        assert!(place(Some(Cursor::new(bytes))).is_err());
        assert!(read(&doc! { "id": [{ "a": 1 }] }).is_err());
        assert!(place(Some(Cursor::new(vec![1, 2, 3]))).is_err());
    }
}

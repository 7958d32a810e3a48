//! Listings, page by page: where one ends, and where the next begins.

use std::time::Duration;

use bson::{Bson, Document, doc};

use super::{
    MongoStore,
    error::{CommandFailure, CommandResult},
    queries::Find,
};
use crate::store::{Cursor, Page, Refusal};

impl MongoStore {
    /// A page of what matches, by the order of the ids: 1 for first to last, -1 for last to first.
    pub(super) async fn page_by_id<T>(
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
pub(super) fn page<T>(
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

pub(super) fn by_id(document: &Document) -> Document {
    doc! { "id": document.get("_id").cloned() }
}

/// Reads the place to go on from, as [`by_id`] or the audit wrote it.
pub(super) fn place(after: Option<Cursor>) -> CommandResult<Option<Document>> {
    after
        .map(|cursor| Document::from_reader(cursor.place()))
        .transpose()
        .map_err(|_| CommandFailure::unknown("the cursor was not made by this store"))
}

pub(super) fn id_of(place: Option<Document>) -> Option<Bson> {
    place?.remove("id")
}

//! A fence without a transaction: the term is a field of the user's own document, and a write with a smaller one
//! is refused.

use bson::{Bson, Document, doc};
use mongodb::{
    Collection,
    error::{Error as DriverError, ErrorKind, WriteFailure},
    options::ReadPreference,
};

use super::{Stale, client::codes::DUPLICATE_KEY, documents::fields::long};
use crate::model::{LockId, Term};

/// The number of attempts at a write that met another one of the same document.
const TRIES: u32 = 5;

/// Puts a holder's term on the documents that it writes, and refuses to overwrite what stands there under a
/// later term. For programs that have no transactions, or do not want one for each write.
///
/// Needs no record of its own and no arming: filter and stamp are part of the write.
///
/// ```no_run
/// # use bson::{Document, doc};
/// use tenure::{Lease, store::mongo::{Stale, Stamp, driver::{Collection, error::Error}}};
///
/// # async fn example(lease: &Lease, orders: &Collection<Document>) -> Result<(), Error> {
/// let stamp = Stamp::new(lease.lock(), lease.term());
/// match stamp.write(orders, 4711, doc! { "$set": { "state": "shipped" } }).await {
///     Ok(()) => println!("written"),
///     Err(error) => match Stale::in_error(&error) {
///         Some(stale) => println!("not written: {stale}"),
///         None => return Err(error),
///     },
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Limits
///
/// Protects each document from the moment on at which the next holder has written *that* document: until
/// then a late write of the former holder passes. So a new holder writes to what it is going to rely on before
/// it reads it; or uses a [`Fence`](super::Fence), which keeps the former holder out of everything at once. As any write, it
/// counts once a majority has it: leave the collection's write concern at the server's default.
#[derive(Clone, Debug)]
pub struct Stamp {
    lock: LockId,
    term: Term,
    field: String,
}

impl Stamp {
    /// The stamp of a holder, in the field `term`.
    #[must_use]
    pub fn new(lock: &LockId, term: Term) -> Self {
        Self { lock: lock.clone(), term, field: "term".to_owned() }
    }

    /// Another field, such as `held.term`. The same for all writers of the document.
    #[must_use]
    pub fn field(mut self, path: impl AsRef<str>) -> Self {
        path.as_ref().clone_into(&mut self.field);
        self
    }

    /// A filter for the same documents, but for those that bear a later term. For a write of your own, with
    /// [`update`](Self::update): if it matches nothing there is no such document, or this holder is late.
    #[must_use]
    pub fn filter(&self, filter: Document) -> Document {
        let not_later =
            doc! { "$or": [{ &self.field: { "$lte": self.term() } }, { &self.field: { "$exists": false } }] };
        doc! { "$and": [filter, not_later] }
    }

    /// An update, of operators such as `$set`, that puts the stamp on the document, too.
    #[must_use]
    pub fn update(&self, mut update: Document) -> Document {
        match update.get_document_mut("$set") {
            Ok(set) => drop(set.insert(&self.field, self.term())),
            Err(_) => drop(update.insert("$set", doc! { &self.field: self.term() })),
        }
        update
    }

    /// Writes a document, or inserts it, unless it bears a later term.
    ///
    /// # Errors
    /// The driver's error. If the document was written under a later term, the error carries
    /// [`Stale`] (see [`Stale::in_error`]), and nothing was written. A document whose field is no number is
    /// left as it is: the error says that its key is there already.
    ///
    /// # Cancel safety
    /// Dropping it is the same as an unknown outcome: write again.
    pub async fn write<T: Send + Sync>(
        &self,
        collection: &Collection<T>,
        id: impl Into<Bson>,
        update: Document,
    ) -> Result<(), DriverError> {
        let (id, collection) = (id.into(), collection.clone_with_type::<Document>());
        let (filter, update) = (self.filter(doc! { "_id": &id }), self.update(update));
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let answer = collection.update_one(filter.clone(), update.clone()).upsert(true).await;
            // It is there, and was not matched: it bears a later term, or came this very moment.
            let Err(error) = answer else { return Ok(()) };
            if !is_duplicate(&error) {
                return Err(error);
            }
            let later = doc! { "_id": &id, &self.field: { "$gt": self.term() } };
            let primary = ReadPreference::Primary;
            if collection.find_one(later).selection_criteria(primary.into()).await?.is_some() {
                return Err(DriverError::custom(Stale { lock: self.lock.clone(), term: self.term }));
            }
            if tries == 0 {
                return Err(error);
            }
        }
    }

    fn term(&self) -> Bson {
        long(self.term.get())
    }
}

fn is_duplicate(error: &DriverError) -> bool {
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(error)) if error.code == DUPLICATE_KEY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    fn stamp() -> Stamp {
        let lock = LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: "k".parse().unwrap() };
        Stamp::new(&lock, Term::new(7))
    }

    #[test]
    fn a_filter_matches_what_bears_no_later_term() {
        let filter = stamp().filter(doc! { "_id": 1, "$or": [{ "a": 1 }, { "b": 1 }] });
        let not_later = doc! { "$or": [{ "term": { "$lte": 7_i64 } }, { "term": { "$exists": false } }] };
        assert_eq!(filter, doc! { "$and": [{ "_id": 1, "$or": [{ "a": 1 }, { "b": 1 }] }, not_later] });
    }

    #[test]
    fn an_update_keeps_what_it_sets_and_sets_the_term() {
        let stamp = stamp().field("held.term");
        let term = doc! { "held.term": 7_i64 };
        assert_eq!(
            stamp.update(doc! { "$inc": { "n": 1 } }),
            doc! { "$inc": { "n": 1 }, "$set": term.clone() }
        );
        let set = stamp.update(doc! { "$set": { "state": "shipped" } });
        assert_eq!(set, doc! { "$set": { "state": "shipped", "held.term": 7_i64 } });
        assert_eq!(stamp.update(doc! {}), doc! { "$set": term });
    }
}

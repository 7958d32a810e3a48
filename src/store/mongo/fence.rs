//! A fence inside the user's own transactions: what a holder writes after it lost the lock aborts.

use std::{fmt, time::Duration};

use bson::{Document, doc};
use mongodb::{ClientSession, error::Error as DriverError};

use super::{
    MongoStore,
    client::{command::write, error::CommandFailure},
    documents::{
        fields::{Fields, LAYOUT, Read, lock_id, long},
        pipeline::{changed_if, is_new, is_number, is_of_layout, overlaid},
        queries::{self, KeptRecords, Statement},
    },
};
use crate::{
    error::StoreError,
    model::{LockId, Term},
};

/// The number of transactions of one holder that can pass its fence at the same time. Two that use one slot
/// conflict, and the server makes one of them try again.
///
/// The same for every key and every version of tenure: a new holder must arm every slot an earlier
/// one may use.
pub const FENCE_SLOTS: u32 = 16;

/// Keeps the writes of a holder that came too late out of the database. For programs without transactions there is
/// the [`Stamp`](super::Stamp).
///
/// A fence is armed once per term, before the first fenced work. In each transaction
/// [`pass`](Self::pass) writes to a record of the fence on the condition that it was not armed for a later term. A
/// holder that lost the lock and does not know it yet finds a later term, or conflicts with it: either way its
/// transaction aborts.
///
/// ```no_run
/// use std::time::Duration;
/// use tenure::{model::{LockId, Term}, store::mongo::{Armed, MongoStore}};
///
/// # type Done = Result<(), Box<dyn std::error::Error>>;
/// # async fn example(store: MongoStore, lock: LockId, term: Term, client: mongodb::Client) -> Done {
/// let limit = Duration::from_secs(2); // how long to wait for the answer; without one, arm again
/// let Armed::Yes(fence) = store.arm(&lock, term, limit).await? else {
///     return Ok(()); // somebody holds a later term: this one is over
/// };
/// let mut session = client.start_session().await?;
/// session.start_transaction().await?;
/// let slot = 0; // another one for each transaction that runs at the same time
/// fence.pass(slot, &mut session).await?;
/// let orders = client.database("shop").collection::<bson::Document>("orders");
/// orders.insert_one(bson::doc! { "n": 1 }).session(&mut session).await?;
/// session.commit_transaction().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Costs and limits
///
/// Arming is one command and a read, once per term; passing is one write within the transaction. The fence's
/// records are its own, so neither the lock nor a session that takes or waits for it is ever blocked by a
/// transaction. Only arming waits: for a transaction of the former holder that has passed and is not
/// over yet, which the server ends after a minute at the latest (`transactionLifetimeLimitSeconds`).
/// The fence guards what is written in the same deployment under the same transaction, nothing else;
/// and, as any write, only once a majority has it: commit with `w: "majority"`, the server's default.
#[derive(Clone, Debug)]
pub struct Fence {
    lock: LockId,
    term: Term,
    database: String,
    collection: String,
}

/// The result of arming a fence.
#[derive(Clone, Debug)]
pub enum Armed {
    /// The fence is armed for this term, in all of its slots.
    Yes(Fence),
    /// The fence was armed for a later term: the lock has another holder.
    Late(Stale),
}

/// The lock was given to another holder: what was to be done under this term must not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The lock.
    pub lock: LockId,
    /// The term that is over.
    pub term: Term,
}

impl Stale {
    /// Finds it in an error of the driver, where a transaction's callback has to put it.
    #[must_use]
    pub fn in_error(error: &DriverError) -> Option<&Self> {
        error.get_custom::<Self>()
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {} of the {} has ended, a later one was granted", self.term, self.lock)
    }
}

impl std::error::Error for Stale {}

impl MongoStore {
    /// Arms the fence of a lock for a term, in all of its slots. May be repeated.
    ///
    /// # Errors
    /// [`StoreError`] if the server did not answer in time; also while a transaction of the former
    /// holder is open, of which some slots may be armed by then. Until it has answered nothing fenced
    /// may be done. Not retryable if a record of the fence was not written by tenure.
    ///
    /// # Cancel safety
    /// Dropping it is the same as an unknown outcome: arm again.
    pub async fn arm(&self, lock: &LockId, term: Term, limit: Duration) -> Result<Armed, StoreError> {
        let lock = lock.clone();
        self.step(limit, "arm a fence", move |store| async move {
            let (database, names) = store.place();
            let statements = (0..FENCE_SLOTS).map(|slot| arm(&lock, slot, term)).collect();
            let armed =
                write(&database, queries::update(&names.fences, statements, KeptRecords::Majority, limit))
                    .await?;
            if let Some((_, refusal)) = armed.refused.first() {
                return Err(CommandFailure::unknown(refusal.to_string()));
            }
            // Two holders that arm for the first time may meet: what counts is what stands there afterwards.
            let ids = (0..FENCE_SLOTS).map(|slot| slot_id(&lock, slot).into());
            let find = queries::Find { filter: queries::by_ids(ids), ..Default::default() };
            let slots =
                super::client::command::find(&database, queries::find(&names.fences, find, limit)).await?;
            let ours = long(term.get());
            let armed = slots.iter().filter(|slot| slot.get("term") == Some(&ours)).count();
            if armed == FENCE_SLOTS as usize {
                let (database, collection) = (database.name().to_owned(), names.fences.clone());
                return Ok(Armed::Yes(Fence { lock, term, database, collection }));
            }
            if let Some(refusal) = slots.iter().find_map(|slot| read_slot(slot).err()) {
                return Err(CommandFailure::lasting(refusal.to_string()));
            }
            let later =
                slots.iter().any(|slot| slot.get_i64("term").is_ok_and(|found| found > term.get() as i64));
            if later {
                Ok(Armed::Late(Stale { lock, term }))
            } else {
                Err(CommandFailure::unknown("not every slot is armed yet"))
            }
        })
        .await
    }
}

fn slot_id(lock: &LockId, slot: u32) -> bson::Document {
    let mut id = lock_id(lock);
    id.insert("slot", i64::from(slot));
    id
}

/// Raises a slot's term, and never lowers it. A record that tenure did not write is left alone.
fn arm(lock: &LockId, slot: u32, term: Term) -> Statement {
    let id = slot_id(lock, slot);
    let ours = doc! { "$or": [is_new(id.clone()), { "$and": [is_of_layout(LAYOUT), is_number("$term")] }] };
    let raised = doc! {
        "term": { "$max": ["$term", long(term.get())] },
        "armed_at": { "$cond": [{ "$lt": ["$term", long(term.get())] }, "$$NOW", "$armed_at"] },
        "passed": { "$ifNull": ["$passed", 0_i64] },
    };
    let fixed = doc! { "v": LAYOUT, "lock": lock_id(lock) };
    Statement::pipeline(doc! { "_id": id }, changed_if(ours, overlaid(fixed, raised))).or_insert()
}

impl Fence {
    /// The term it is armed for.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Passes the fence within a transaction: a write that only the holder of this term can make.
    ///
    /// Best called first in the transaction, so that a holder that is too late does nothing at all.
    /// Transactions of one holder that run at the same time use different slots; the number is
    /// taken modulo [`FENCE_SLOTS`].
    ///
    /// # Errors
    /// The driver's error, with its labels, so that a transaction that may be tried again is. If
    /// the term is over it carries [`Stale`] (see [`Stale::in_error`]). On any error the transaction
    /// must be aborted.
    pub async fn pass(&self, slot: u32, session: &mut ClientSession) -> Result<(), DriverError> {
        // The session knows its client; one of another client would be refused.
        let client = session.client();
        let fences = client.database(&self.database).collection::<bson::Document>(&self.collection);
        let ours = doc! { "_id": slot_id(&self.lock, slot % FENCE_SLOTS), "v": LAYOUT, "term": long(self.term.get()) };
        // A write that changes nothing is none: it would commit beside a takeover.
        let changed = fences.update_one(ours, doc! { "$inc": { "passed": 1_i64 } }).session(session).await?;
        if changed.modified_count == 1 {
            return Ok(());
        }
        Err(DriverError::custom(Stale { lock: self.lock.clone(), term: self.term }))
    }
}

/// The term a slot of a fence is armed for.
pub(super) fn read_slot(document: &Document) -> Read<Term> {
    Fields::of(document, LAYOUT)?.number("term").map(Term::new)
}

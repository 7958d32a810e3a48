//! Documents without a server, for tests that put any document in the place of any record.

use bson::{Bson, Document};
use mongodb::change_stream::event::ChangeStreamEvent;

use super::{Collections, documents, hints, queries};
use crate::{
    model::{
        LockId, LockRecord, RunRecord, ScheduleId, ScheduleRecord, SessionRecord, StoreTime, Term, Waiter,
    },
    store::{Claim, Define, Held, Hint, Instruction, Open, Refusal, Take, Wait},
};

macro_rules! readers {
    ($($name:ident -> $record:ty;)+) => {
        $(
            #[doc = concat!("What the store makes of a document (`", stringify!($name), "`).")]
            pub fn $name(document: &Document) -> Result<$record, Refusal> {
                documents::$name(document)
            }
        )+
    };
}

readers! {
    read_lock -> LockRecord;
    read_session -> SessionRecord;
    read_waiter -> Waiter;
    read_run -> RunRecord;
    read_schedule -> ScheduleRecord;
    read_mark -> Option<StoreTime>;
    read_held -> Held;
    read_slot -> Term;
}

/// What the store makes of the `_id` of a lock.
pub fn read_lock_id(id: &Bson) -> Result<LockId, Refusal> {
    documents::read_lock_id(id)
}

/// What the store hears in an event of a change stream; nothing if the driver takes it for none.
#[must_use]
pub fn read_hint(event: Document) -> Option<Hint> {
    let event: ChangeStreamEvent<Document> = bson::deserialize_from_document(event).ok()?;
    hints::read(&event, &Collections::new("")).ok()?
}

/// A write as it is sent: which document, and what is done to it.
pub type Write = (Document, Bson);

macro_rules! writers {
    ($($name:ident($what:ty);)+) => {
        $(
            #[doc = concat!("How the store writes it (`", stringify!($name), "`).")]
            #[must_use]
            pub fn $name(what: &$what) -> Write {
                let statement = queries::$name(what);
                (statement.filter, statement.update)
            }
        )+
    };
}

writers! {
    open(Open);
    wait(Wait);
    claim(Claim);
    define(Define);
}

/// How the store writes what is wanted of a schedule.
#[must_use]
pub fn instruct(schedule: &ScheduleId, what: &Instruction) -> Write {
    let statement = queries::instruct(schedule, what);
    (statement.filter, statement.update)
}

/// How the store writes a lock that is taken.
#[must_use]
pub fn take(what: &Take) -> Write {
    let statement = queries::take(what, &[]);
    (statement.filter, statement.update)
}

/// The entry of the past that a lock's own fields make.
#[must_use]
pub fn past_entry(lock: &Document) -> Document {
    documents::past_entry(lock)
}

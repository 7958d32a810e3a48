//! Documents without a server, for tests that put any document in the place of any record.

use bson::{Bson, Document, Timestamp};

use super::{locks, queue, runs, schedules, sessions, take};
use crate::{
    model::{LockId, RunRecord, ScheduleId, StoreTime, Term},
    store::{
        Bell, Claim, Define, Held, Instruction, LockRecord, News, Note, Open, Refusal, ScheduleRecord,
        SessionRecord, Take, Topic, Wait, Waiter,
        mongo::{MongoStore, documents::fields, fence, hints::Bucket},
    },
};

macro_rules! readers {
    ($($module:ident::$name:ident -> $record:ty;)+) => {
        $(
            #[doc = concat!("Reads a document as the store does (`", stringify!($name), "`).")]
            pub fn $name(document: &Document) -> Result<$record, Refusal> {
                $module::$name(document)
            }
        )+
    };
}

readers! {
    locks::read_lock -> LockRecord;
    sessions::read_session -> SessionRecord;
    queue::read_waiter -> Waiter;
    runs::read_run -> RunRecord;
    schedules::read_schedule -> ScheduleRecord;
    runs::read_mark -> Option<StoreTime>;
    locks::read_held -> Held;
    fence::read_slot -> Term;
}

/// Reads the `_id` of a lock as the store does.
pub fn read_lock_id(id: &Bson) -> Result<LockId, Refusal> {
    fields::read_lock_id(id)
}

/// Returns a note as the store writes it.
#[must_use]
pub fn note(note: &Note) -> Bson {
    fields::note(Some(note))
}

/// Rings bells as the store does, of writes that were carried out at that time.
pub fn ring(store: &MongoStore, bells: impl IntoIterator<Item = (Topic, News)>, at: Option<Timestamp>) {
    let bells = bells.into_iter().map(|(to, news)| Bell { to, news });
    store.inner.ringer.ring(bells.collect(), at);
}

/// Returns the name of the collection in which the bells of a topic are rung, without a prefix.
#[must_use]
pub fn bells_of(topic: &Topic) -> String {
    format!("bells_{}", Bucket::of(topic))
}

/// A write as it is sent: which document, and what is done to it.
pub type Write = (Document, Bson);

macro_rules! writers {
    ($($name:ident($what:ty) by $module:ident::$statement:ident;)+) => {
        $(
            #[doc = concat!("Builds the write of `", stringify!($name), "`.")]
            #[must_use]
            pub fn $name(what: &$what) -> Write {
                let statement = $module::$statement(what);
                (statement.filter, statement.update)
            }
        )+
    };
}

writers! {
    open(Open) by sessions::open_statement;
    wait(Wait) by queue::wait_statement;
    claim(Claim) by runs::claim_statement;
    define(Define) by schedules::define_statement;
}

/// Builds the write of an instruction to a schedule.
#[must_use]
pub fn instruct(schedule: &ScheduleId, what: &Instruction) -> Write {
    let statement = schedules::instruct_statement(schedule, what);
    (statement.filter, statement.update)
}

/// Builds the write of a take.
#[must_use]
pub fn take(what: &Take) -> Write {
    let statement = take::take_statement(what, &[]);
    (statement.filter, statement.update)
}

/// The entry of the past that a lock's own fields make.
#[must_use]
pub fn past_entry(lock: &Document) -> Document {
    locks::past_entry(lock)
}

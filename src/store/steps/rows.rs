//! The rows that steps read and write.

use crate::{
    model::{Kind, LockId, Namespace, RunId, RunRecord, ScheduleId, SessionId, StoreTime, Term},
    store::{Held, LockRecord, Queue, Refusal, ScheduleRecord, SessionRecord, Ticket, Waiter},
};

/// A row that was looked for. One that cannot be used is a refusal, and is never written.
pub(in crate::store) type Row<T> = Result<Option<T>, Refusal>;

/// A row of a listing.
#[derive(Debug)]
pub(in crate::store) struct Listed<T> {
    /// The row's place, from which the rows can go on.
    pub(in crate::store) place: Vec<u8>,
    /// The record; or what it calls itself, and why it cannot be used.
    pub(in crate::store) record: Result<T, (String, Refusal)>,
}

/// The outcome for a row that a step was given to change, with the step's answer.
pub(in crate::store) enum Change<T> {
    /// The row was changed.
    Put(T),
    /// The row is as it was.
    Keep(T),
}

/// The rows of a store, in the hands of one step. Each can be found by its id, and listed in an order.
///
/// A row that is put replaces the row of the same id. A step puts nothing where it was refused a row. After a failure
/// nothing of the step counts.
pub(in crate::store) trait Rows {
    /// A failure of whatever keeps the rows. It ends the step.
    type Failure;

    /// The most rows that an upkeep looks at before it lets others in.
    const AT_ONCE: usize;

    fn session(&mut self, id: SessionId) -> Result<Row<SessionRecord>, Self::Failure>;
    fn put_session(&mut self, record: &SessionRecord) -> Result<(), Self::Failure>;
    fn delete_session(&mut self, id: SessionId) -> Result<(), Self::Failure>;

    /// Returns whether it is proven that a session's process is gone, and every job under the session with it.
    fn is_gone(&mut self, id: SessionId) -> Result<bool, Self::Failure>;

    /// Sessions in the order of their ids.
    fn sessions(
        &mut self,
        namespace: &Namespace,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<SessionRecord>>, Self::Failure>;

    /// The next of the dead, and when they died, in the order of their ids. Leaves out records that cannot be read.
    fn the_dead(
        &mut self,
        namespace: &Namespace,
        after: Option<SessionId>,
        at_most: usize,
    ) -> Result<Vec<(SessionId, StoreTime)>, Self::Failure>;

    fn lock(&mut self, id: &LockId) -> Result<Row<LockRecord>, Self::Failure>;

    /// Inserts a lock that has no row.
    fn insert_lock(&mut self, record: &LockRecord) -> Result<(), Self::Failure>;

    /// Changes a lock, if there is one that can be read.
    fn change_lock<T>(
        &mut self,
        id: &LockId,
        change: impl FnOnce(&mut LockRecord) -> Change<T>,
    ) -> Result<Row<T>, Self::Failure>;

    fn delete_lock(&mut self, id: &LockId) -> Result<(), Self::Failure>;

    /// Locks in the order of kind and key.
    fn locks(
        &mut self,
        namespace: &Namespace,
        kind: Option<&Kind>,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<LockRecord>>, Self::Failure>;

    /// Locks that a session holds, latest term first. Of a lock that cannot be read as much as this is found.
    fn held_by(
        &mut self,
        session: SessionId,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<Held>>, Self::Failure>;

    /// Returns whether there is a place in the queue, readable or not.
    fn has_waiter(&mut self, place: &(LockId, SessionId, Ticket)) -> Result<bool, Self::Failure>;
    fn put_waiter(&mut self, waiter: &Waiter) -> Result<(), Self::Failure>;
    fn delete_waiter(&mut self, place: &(LockId, SessionId, Ticket)) -> Result<(), Self::Failure>;

    /// The first in the queue.
    fn queue(&mut self, lock: &LockId, at_most: usize) -> Result<Queue, Self::Failure>;

    /// Deletes so many places of a session at most, and says how many.
    fn delete_waiters_of(&mut self, session: SessionId, at_most: usize) -> Result<u64, Self::Failure>;

    /// No lock that is taken for the first time gets a smaller term: the store was restored from a backup.
    fn least_term(&mut self) -> Result<Term, Self::Failure>;

    fn run(&mut self, id: &RunId) -> Result<Row<RunRecord>, Self::Failure>;
    fn put_run(&mut self, record: &RunRecord) -> Result<(), Self::Failure>;
    fn delete_run(&mut self, id: &RunId) -> Result<(), Self::Failure>;

    /// Entries of a ledger, the last in their order first.
    fn runs(
        &mut self,
        schedule: &ScheduleId,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<RunRecord>>, Self::Failure>;

    /// Entries that were started before that, the first in their order first, but for the last `keep` of all. Leaves
    /// out those that cannot be read.
    fn old_runs(
        &mut self,
        schedule: &ScheduleId,
        before: StoreTime,
        keep: usize,
        at_most: usize,
    ) -> Result<Vec<RunRecord>, Self::Failure>;

    /// Deletes so many entries of a ledger at most, also those that cannot be read, and says whether that was all.
    fn delete_runs_of(&mut self, schedule: &ScheduleId, at_most: usize) -> Result<bool, Self::Failure>;

    fn schedule(&mut self, id: &ScheduleId) -> Result<Row<ScheduleRecord>, Self::Failure>;
    fn put_schedule(&mut self, record: &ScheduleRecord) -> Result<(), Self::Failure>;
    fn delete_schedule(&mut self, id: &ScheduleId) -> Result<(), Self::Failure>;

    /// Schedules in the order of their names.
    fn schedules(
        &mut self,
        namespace: &Namespace,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<ScheduleRecord>>, Self::Failure>;
}

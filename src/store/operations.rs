//! The operations of the contract: each is spelled once, in the table below.

use std::{fmt, future::Future, time::Duration};

use futures::FutureExt;

use super::{
    BeatWrite, Claim, ClaimAnswer, Cursor, Declaration, Define, FinishRun, Held, Instruction, LockRecord,
    LockSeen, Open, Page, Purged, Queue, Release, ReleaseAnswer, Revocation, RevokeAnswer, RunPage,
    ScheduleRecord, ScheduleSeen, SessionRecord, SessionSeen, SetAnswer, SetValue, Store, Take, TakeAnswer,
    Ticket, Wait,
};
use crate::{
    error::{Applied, StoreError},
    model::{Kind, LockId, Namespace, Retention, RunRecord, ScheduleId, SessionId},
};

/// Makes of each row a call, its reply, its name, and the method that sends the one and answers with the other.
macro_rules! operations {
    ($(
        $(#[$contract:meta])+
        $name:ident, $is_write:ident $doing:literal: $method:ident($($argument:ident: $type:ty),+) -> $answer:ty;
    )+) => {
        /// A call of one operation, with its arguments.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Op {
            $(#[doc = concat!("[`", stringify!($method), "`](StoreExt::", stringify!($method), ")")]
            $name($($type),+),)+
        }

        /// The answer of a store to an [`Op`]: the variant of the same name.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Reply {
            $(#[doc = concat!("To [`", stringify!($method), "`](StoreExt::", stringify!($method), ")")]
            $name($answer),)+
        }

        /// The name of an operation, without its arguments.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $(#[doc = concat!("[`", stringify!($method), "`](StoreExt::", stringify!($method), ")")]
            $name,)+
        }

        impl Op {
            /// Returns which operation this is.
            #[must_use]
            pub const fn operation(&self) -> Operation {
                match self { $(Self::$name(..) => Operation::$name,)+ }
            }
        }

        impl Reply {
            /// Returns the operation that this is the reply to.
            #[must_use]
            pub const fn operation(&self) -> Operation {
                match self { $(Self::$name(_) => Operation::$name,)+ }
            }
        }

        impl Operation {
            /// All of them, in the order of the contract.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns whether it may change a record.
            #[must_use]
            pub const fn is_write(self) -> bool {
                match self { $(Self::$name => $is_write,)+ }
            }

            /// Words for an error: "memory could not ... ".
            #[must_use]
            pub const fn doing(self) -> &'static str {
                match self { $(Self::$name => $doing,)+ }
            }
        }

        /// The operations of a [`Store`], as methods that every store has. What holds for all of them is said
        /// [there](Store#rules-of-every-operation).
        pub trait StoreExt: Store {
            $($(#[$contract])+
            fn $method(
                &self,
                $($argument: $type,)+
                limit: Duration,
            ) -> impl Future<Output = Result<$answer, StoreError>> + Send + Unpin {
                self.call(Op::$name($($argument),+), limit).map(|reply| match reply? {
                    Reply::$name(answer) => Ok(answer),
                    other => Err(mistaken(self.capabilities().name, Operation::$name, &other)),
                })
            })+
        }
    };
}

const READ: bool = false;
const WRITE: bool = true;

operations! {
    // ----- sessions

    /// Opens a session. Inserts it only if there is none of that id, and answers with the one that
    /// is there afterwards.
    ///
    /// The session is the caller's if it bears the nonce of one of the caller's attempts; its time
    /// counts from the sending of *that* attempt. With any other nonce it belongs to a twin (a cloned
    /// machine), and the caller takes another id. [`SessionSeen::Dead`] means that it was declared dead
    /// before it opened.
    Open, WRITE "open a session": open(open: Open) -> SessionSeen;

    /// Beats: succeeds only on an alive session, and only if `beat` is larger than the number on
    /// record. Answers with the session as it is afterwards; it has beaten if it is alive and
    /// bears `nonce`. Never inserts: [`SessionSeen::Missing`] and [`SessionSeen::Dead`] end the session.
    ///
    /// The answer brings the requests of operators. They are brought again until a beat names them
    /// as [`heard`](BeatWrite::heard), so that a lost answer loses none.
    Beat, WRITE "renew a session": beat(beat: BeatWrite) -> SessionSeen;

    /// Reads sessions, in the order they were asked for. What is seen here, unchanged for the ttl
    /// it states by the caller's own clock from the *arrival* of this answer, may be declared dead
    /// by its nonce ([R3](crate::store#rules-of-safety)). Absence says nothing but [`SessionSeen::Missing`].
    Observe, READ "observe sessions": observe(sessions: Vec<SessionId>) -> Vec<SessionSeen>;

    /// Declares a session dead, if its ground still holds; answers with the session as it stands
    /// afterwards. Dead is for ever: only the first declaration is kept.
    Declare, WRITE "declare a session dead": declare(declaration: Declaration) -> SessionSeen;

    /// Sessions of a namespace, dead ones too, page by page in the order of their ids. As with every
    /// listing, a page of none is a page of one.
    Sessions, READ "list sessions": sessions(
        namespace: Namespace, after: Option<Cursor>, at_most: usize
    ) -> Page<SessionRecord>;

    // ----- locks

    /// Takes locks. A lock is granted if no session holds it, or one the caller knows to be dead (`dead`, from a
    /// declaration's answer or an observation), unless it is closed. Answers for each take, in order, with the lock
    /// as it is afterwards.
    ///
    /// - Granted, it gets the term that comes [next](crate::model::Term::next) after the old one. One whose
    ///   term is the largest there is was written by hand, and is refused.
    /// - Held by the caller's own session, whatever `dead` says: by the same ticket, the answer is the same
    ///   term again; by a larger ticket, nothing changes (this take came late); by a smaller ticket, it is
    ///   granted to this one under a new term ([R7](crate::store#rules-of-safety)).
    /// - Held by a dead session that asked for a [`lock_delay`](crate::store::Candidate::lock_delay): it becomes
    ///   free and closed for that long, and the answer is [`TakeAnswer::Closed`].
    ///
    /// A take that loses changes nothing at all. Its answer decides nothing either: the winner may lose the lock
    /// again by a failure of the store.
    Take, WRITE "take locks": take(takes: Vec<Take>, dead: Vec<SessionId>) -> Vec<TakeAnswer>;

    /// Releases locks, each to [nobody, to nobody for a while, or to a waiter](crate::store::ReleaseTo). Does nothing
    /// to a lock that is not held by that session under that term, nor to one that a session waits for if it is to be
    /// released [only if nobody does](crate::store::ReleaseTo::FreeUnlessWanted).
    ///
    /// A hand-over is a grant like any other: new term, the waiter's ticket. The waiter learns of it
    /// by a hint or a read; this answer makes no session a holder. Where there is no larger term to grant, it is a
    /// release to no waiter.
    Release, WRITE "release locks": release(releases: Vec<Release>) -> Vec<ReleaseAnswer>;

    /// Joins the queue, and marks the lock as [wanted](crate::store::LockRecord::wanted) if a session holds it and it
    /// is no task of a spread. An entry that is there already keeps its place. The queue decides nothing: a waiter
    /// tries once more after this, and looks again from time to time.
    Wait, WRITE "join a queue": wait(waits: Vec<Wait>) -> ();

    /// Leaves the queue. Skips waiters that are not there.
    StopWaiting, WRITE "leave a queue": stop_waiting(waits: Vec<(LockId, SessionId, Ticket)>) -> ();

    /// Returns the first in the queue for a lock, longest wait first; waiters that came at the same instant by
    /// session and ticket. Looks at so many places at most, and leaves out places that cannot be read. A grant does
    /// not remove the waiter's place: the waiter leaves the queue itself.
    Waiters, READ "read a queue": waiters(lock: LockId, at_most: usize) -> Queue;

    /// Returns which of these places in the queue exist, in the order they were asked for: a failure of the store
    /// may have undone one.
    Places, READ "find places in a queue": places(places: Vec<(LockId, SessionId, Ticket)>) -> Vec<bool>;

    /// Sets the value of a lock held by that session under that term. One that comes after a change
    /// with a larger number changes nothing, and is answered as set.
    SetValue, WRITE "set a value": set_value(set: SetValue) -> SetAnswer;

    /// Reads locks, in the order they were asked for.
    Locks, READ "read locks": locks(locks: Vec<LockId>) -> Vec<LockSeen>;

    /// Reads locks as they are now, though a failure of the store may undo it: enough to refuse a try, and to grant
    /// none ([R11](crate::store#rules-of-safety)).
    Peek, READ "read locks as they are now": peek(locks: Vec<LockId>) -> Vec<LockSeen>;

    /// Locks of a namespace, of one kind or of all, page by page in the order of kind and key.
    ListLocks, READ "list locks": list_locks(
        namespace: Namespace, kind: Option<Kind>, after: Option<Cursor>, at_most: usize
    ) -> Page<LockRecord>;

    /// Lists what a session holds, page by page, latest term first: the audit. A lock the store cannot
    /// make sense of is left out.
    HeldBy, READ "list the locks of a session": held_by(
        session: SessionId, after: Option<Cursor>, at_most: usize
    ) -> Page<Held>;

    /// Of all that these sessions hold, the locks with the largest terms, largest first, and those of one term by
    /// namespace, kind and key; at most so many of all sessions together. A lock the store cannot make sense of is left
    /// out, also if it is one of so many. Of each session no more is read than may be answered with.
    LatestGrants, READ "list the latest grants": latest_grants(
        sessions: Vec<SessionId>, at_most: usize
    ) -> Vec<LockRecord>;

    /// Gets a lock back for an operator: by asking a session, which may not hold it any more; by force; or by
    /// opening a lock that is kept closed.
    Revoke, WRITE "revoke a lock": revoke(revocation: Revocation) -> RevokeAnswer;

    // ----- schedules

    /// Stores the definition of a schedule in its owner's name, unless an owner under a larger term has
    /// stored one. A new timing counts from now on, unless it comes [instead of](Define::instead_of) one that has
    /// the same instants. If it is known already, nothing is changed. Answers with
    /// the schedule as it is afterwards.
    Define, WRITE "define a schedule": define(define: Define) -> ScheduleSeen;

    /// Pauses a schedule, resumes it, or orders a run: any caller may. Answers with the schedule as it stands
    /// afterwards; one that was never defined has a record from then on.
    Instruct, WRITE "update a schedule": instruct(
        schedule: ScheduleId, instruction: Instruction
    ) -> ScheduleSeen;

    /// Reads schedules, in the order they were asked for.
    Schedules, READ "read schedules": schedules(schedules: Vec<ScheduleId>) -> Vec<ScheduleSeen>;

    /// The schedules of a namespace that have a record, page by page in the order of their names. A page may be
    /// shorter than it was asked for.
    ListSchedules, READ "list schedules": list_schedules(
        namespace: Namespace, after: Option<Cursor>, at_most: usize
    ) -> Page<ScheduleRecord>;

    /// Deletes a schedule: its record first, and then a bounded part of its ledger. Says whether that was all:
    /// otherwise it is called again. An instance that has the schedule meanwhile defines it anew, as of then; what it
    /// claims may be deleted with the rest. A record that cannot be used is deleted, too.
    DeleteSchedule, WRITE "delete a schedule": delete_schedule(schedule: ScheduleId) -> bool;

    /// Claims a tick for one attempt: if it was not claimed, or in place of the attempt it names, unless that
    /// one succeeded or was the last. Answers with the run as it is afterwards.
    ///
    /// An entry of ticks that were not run is written in the same way, and finished at once.
    ///
    /// A claim does not look at the schedule's mark (see [`history`](Self::history)): its owner
    /// reads the mark when it becomes the owner, and claims nothing at or below it.
    Claim, WRITE "claim a tick": claim(claim: Claim) -> ClaimAnswer;

    /// Writes what came of an attempt, if it is the one on record and has no end yet. An end of the same outcome that
    /// another attempt might have followed becomes the [last](FinishRun::last), if this says so; nothing else of it
    /// changes. Answers with the run as it is afterwards: a late finish finds another attempt, or an end.
    Finish, WRITE "finish a run": finish(finish: FinishRun) -> ClaimAnswer;

    /// Entries of a schedule's ledger, the last in their order first, with its mark: every run up to that
    /// instant may have been purged. The mark never goes back and is never purged.
    History, READ "read a history": history(
        schedule: ScheduleId, after: Option<Cursor>, at_most: usize
    ) -> RunPage;

    /// The last entries of several ledgers, in the order the schedules were asked for: each page as
    /// [`history`](Self::history) answers it from no place, without the mark. A ledger without entries is an empty page.
    /// However many they are, they are read together, and each from its end only.
    LastRuns, READ "read the last runs of schedules": last_runs(
        schedules: Vec<ScheduleId>, at_most: usize
    ) -> Vec<Page<RunRecord>>;

    /// Purges runs of a schedule that started longer than `older_than` ago, except the latest
    /// `keep`, and answers with what is gone, earliest instant first. Raises the mark first. Called by the
    /// schedule's owner only, which claims and purges one after the other.
    PurgeRuns, WRITE "purge runs": purge_runs(
        schedule: ScheduleId, older_than: Duration, keep: usize
    ) -> RunPage;

    // ----- upkeep

    /// Removes records that are not needed any more, a part at a time: begin with no place, and go on from the place
    /// in the answer until there is none. One part looks at a bounded number of records, and nothing in it
    /// keeps the next ones from being looked at.
    ///
    /// - A lock goes that has been free for `retention.locks`, is not closed, and whose term lies 24 h behind
    ///   the store's clock ([R5](crate::store#rules-of-safety)), with its fences.
    /// - A lock whose holder has been dead for `retention.locks` becomes free, or closed if the holder asked
    ///   for a [`lock_delay`](crate::store::Candidate::lock_delay). It keeps its term, and goes in its own time.
    /// - A place in the queue goes whose session is dead.
    /// - A session goes that has been dead for `retention.sessions`, unless a lock names it.
    Purge, WRITE "purge": purge(namespace: Namespace, retention: Retention, after: Option<Cursor>) -> Purged;
}

impl<S: Store + ?Sized> StoreExt for S {}

/// The error of a store that answers another operation than it was called for.
fn mistaken(store: &'static str, operation: Operation, reply: &Reply) -> StoreError {
    let cause = format!("it answered {operation:?} with the reply to {:?}", reply.operation());
    StoreError::new(store, operation.doing(), Applied::Unknown, false, cause)
}

impl Operation {
    /// Returns the operation's place in [`ALL`](Self::ALL).
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.doing())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream::BoxStream;

    use super::*;
    use crate::store::{Answer, Capabilities, Hint, MemoryStore, Topics};

    /// Answers each call as if it had asked for no locks.
    #[derive(Debug, Default)]
    struct Mistaken(MemoryStore);

    impl Store for Mistaken {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        fn call(&self, _: Op, limit: Duration) -> Answer<'_, Reply> {
            self.0.call(Op::Locks(Vec::new()), limit)
        }

        fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
            self.0.hints(topics)
        }

        fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
            self.0.dedicated()
        }
    }

    #[tokio::test]
    async fn a_reply_to_another_operation_is_an_error_that_names_both() {
        let (store, limit) = (Mistaken::default(), Duration::from_secs(1));
        assert_eq!(store.locks(Vec::new(), limit).await.unwrap(), []);
        let error = store.schedules(Vec::new(), limit).await.unwrap_err();
        assert_eq!((error.applied(), error.is_retryable()), (Applied::Unknown, false));
        assert_eq!(
            error.to_string(),
            "memory failed to read schedules, the outcome is unknown: it answered Schedules with the reply to Locks"
        );
    }

    #[test]
    fn the_index_is_the_place_among_all() {
        for (place, operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation.index(), place);
        }
        assert_eq!(Operation::ALL.iter().filter(|operation| operation.is_write()).count(), 16);
    }
}

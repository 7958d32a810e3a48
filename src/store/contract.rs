//! The contract: what every store keeps to, method by method.

use std::{fmt, sync::Arc, time::Duration};

use futures::{future::BoxFuture, stream::BoxStream};

use super::{
    BeatWrite, Capabilities, Claim, ClaimAnswer, Cursor, Declaration, Define, FinishRun, Held, Hint,
    Instruction, LockSeen, Open, Page, Presence, Purged, Queue, Release, ReleaseAnswer, Revocation,
    RevokeAnswer, RunPage, ScheduleSeen, SessionSeen, SetAnswer, SetValue, Take, TakeAnswer, Topics, Wait,
};
use crate::{
    error::StoreError,
    model::{Kind, LockId, Namespace, Retention, ScheduleId, SessionId},
    store::{ScheduleRecord, Ticket},
};

/// The future of an operation of a store.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A place where sessions, locks, waiters and runs are kept. You may implement it, but semver does not cover that
/// before 1.0: a minor release may add methods, and fields to the records they pass, because a guarantee that needs
/// another atomic step needs another method, and a default that is not atomic would break the guarantee in silence.
/// Calling it through [`Elect`](crate::Elect) is as stable as the rest. Pin the minor version, and run the conformance
/// suite with each.
///
/// # Rules of every method
///
/// **One step.** Each method is one atomic step for each record it touches; a batch is one such
/// step a key, in any order. Nothing is held between calls. ([`purge`](Self::purge) and
/// [`purge_runs`](Self::purge_runs) are several steps, each of which is safe by itself.)
///
/// **Losing is an answer.** A lost race, a dead session, a damaged record: each is an `Ok` that says how
/// things stand. A record that cannot be used (damaged, without a layout version, or with an unknown one)
/// is [refused](super::Refusal) for that key alone: it is never written, and the other keys of the batch go
/// on.
///
/// **An error says what became of it.** [`Applied::No`](crate::Applied::No): nothing was changed.
/// [`Applied::Unknown`](crate::Applied::Unknown): it may have been applied, or may be later ([R8]).
///
/// **Again is the same.** Every write carries an identity of its own (a ticket, a nonce, a term, a
/// number). The same write may be sent any number of times, arrive late, or twice: as long as its effect
/// stands, it recognises itself and does nothing more. What has ended in between is not remembered for
/// ever: a take that arrives after the release of its own grant is granted again, to a ticket that is pending
/// no more ([R7]); a waiter that has left the queue may be in it again; a session whose dead record was
/// purged may open again. Each of these is found by the audit, skipped, or declared dead in its turn.
/// Definitions of a schedule, and instructions to it, bear no identity but an order's instant: one that
/// arrives late counts from then, and an order that has run is found in the ledger.
///
/// **Whole milliseconds.** Durations are kept in milliseconds; what is beyond is cut off.
///
/// **Limits in time.** `limit` is how long the caller will wait. A store gives up by then, on both
/// ends of the wire if it has two, and answers `Unknown`. Dropping a call's future is safe and is
/// the same as `Unknown`.
///
/// **What decides is kept.** [`open`](Self::open), [`beat`](Self::beat), [`declare`](Self::declare),
/// [`take`](Self::take), [`set_value`](Self::set_value), [`define`](Self::define),
/// [`instruct`](Self::instruct), [`claim`](Self::claim), [`finish`](Self::finish) and
/// [`revoke`](Self::revoke) answer only when no failure of the store can undo what they say ([R11]); so do the
/// reads, except [`waiters`](Self::waiters) and [`places`](Self::places). [`release`](Self::release),
/// [`wait`](Self::wait) and [`stop_waiting`](Self::stop_waiting) decide nothing and may be undone by a
/// failure: no caller may conclude from their answer that a session holds a lock. A write that decides something
/// keeps everything that was answered before it, also if it changes nothing itself; until there is one, reads
/// may not yet see a release.
///
/// **Time.** The store has a clock; it is written into records for people to read. It decides one
/// thing only, and safety does not rest on it: whether a key is still [closed](crate::store::Closed).
///
/// R1 to R15 are the [rules of safety](crate::store#rules-of-safety).
///
/// [R7]: crate::store#rules-of-safety
/// [R8]: crate::store#rules-of-safety
/// [R11]: crate::store#rules-of-safety
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Returns what this store can do.
    fn capabilities(&self) -> Capabilities;

    // ----- sessions

    /// Asks for something to keep as long as this session, which is about to be opened, or any job under it lives:
    /// its end is then proof of the session's death ([`Evidence::Gone`](super::Evidence::Gone)), and no instance has
    /// to watch for a whole ttl. `None` from a store that can prove nothing; a wrapper passes the question on.
    ///
    /// A session that is opened without it is opened all the same. What is made after the future was dropped is let
    /// go at once, and the session that is opened then has none. How long it may take is the store's to limit.
    fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
        let _ = session;
        Box::pin(async { Ok(None) })
    }

    /// Opens a session. Inserts it only if there is none of that id, and answers with the one that
    /// is there afterwards.
    ///
    /// The session is the caller's if it bears the nonce of one of the caller's attempts; its time
    /// counts from the sending of *that* attempt. With any other nonce it belongs to a twin (a cloned
    /// machine), and the caller takes another id. [`SessionSeen::Dead`] means that it was declared dead
    /// before it opened.
    fn open(&self, open: Open, limit: Duration) -> Answer<'_, SessionSeen>;

    /// Beats: succeeds only on an alive session, and only if `beat` is larger than the number on
    /// record. Answers with the session as it is afterwards; it has beaten if it is alive and
    /// bears `nonce`. Never inserts: [`SessionSeen::Missing`] and [`SessionSeen::Dead`] end the session.
    ///
    /// The answer brings the requests of operators. They are brought again until a beat names them
    /// as [`heard`](BeatWrite::heard), so that a lost answer loses none.
    fn beat(&self, beat: BeatWrite, limit: Duration) -> Answer<'_, SessionSeen>;

    /// Reads sessions, in the order they were asked for. What is seen here, unchanged for the ttl
    /// it states by the caller's own clock from the *arrival* of this answer, may be declared dead
    /// by its nonce ([R3](crate::store#rules-of-safety)). Absence says nothing but [`SessionSeen::Missing`].
    fn observe(&self, sessions: Vec<SessionId>, limit: Duration) -> Answer<'_, Vec<SessionSeen>>;

    /// Declares a session dead, if its ground still holds; answers with the session as it stands
    /// afterwards. Dead is for ever: only the first declaration is kept.
    fn declare(&self, declaration: Declaration, limit: Duration) -> Answer<'_, SessionSeen>;

    /// Sessions of a namespace, dead ones too, page by page in the order of their ids. As with every
    /// listing, a page of none is a page of one.
    fn sessions(
        &self,
        namespace: Namespace,
        after: Option<Cursor>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Page<crate::store::SessionRecord>>;

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
    fn take(&self, takes: Vec<Take>, dead: Vec<SessionId>, limit: Duration) -> Answer<'_, Vec<TakeAnswer>>;

    /// Releases locks, each to [nobody, to nobody for a while, or to a waiter](super::ReleaseTo). Does nothing
    /// to a lock that is not held by that session under that term, nor to one that a session waits for if it is to be
    /// released [only if nobody does](super::ReleaseTo::FreeUnlessWanted).
    ///
    /// A hand-over is a grant like any other: new term, the waiter's ticket. The waiter learns of it
    /// by a hint or a read; this answer makes no session a holder. Where there is no larger term to grant, it is a
    /// release to no waiter.
    fn release(&self, releases: Vec<Release>, limit: Duration) -> Answer<'_, Vec<ReleaseAnswer>>;

    /// Joins the queue, and marks the lock as [wanted](crate::store::LockRecord::wanted) if a session holds it and it
    /// is no task of a spread. An entry that is there already keeps its place. The queue decides nothing: a waiter
    /// tries once more after this, and looks again from time to time.
    fn wait(&self, waits: Vec<Wait>, limit: Duration) -> Answer<'_, ()>;

    /// Leaves the queue. Skips waiters that are not there.
    fn stop_waiting(&self, waits: Vec<(LockId, SessionId, Ticket)>, limit: Duration) -> Answer<'_, ()>;

    /// Returns the first in the queue for a lock, longest wait first; waiters that came at the same instant by
    /// session and ticket. Looks at so many places at most, and leaves out places that cannot be read. A grant does
    /// not remove the waiter's place: the waiter leaves the queue itself.
    fn waiters(&self, lock: LockId, at_most: usize, limit: Duration) -> Answer<'_, Queue>;

    /// Returns which of these places in the queue exist, in the order they were asked for: a failure of the store
    /// may have undone one.
    fn places(&self, places: Vec<(LockId, SessionId, Ticket)>, limit: Duration) -> Answer<'_, Vec<bool>>;

    /// Sets the value of a lock held by that session under that term. One that comes after a change
    /// with a larger number changes nothing, and is answered as set.
    fn set_value(&self, set: SetValue, limit: Duration) -> Answer<'_, SetAnswer>;

    /// Reads locks, in the order they were asked for.
    fn locks(&self, locks: Vec<LockId>, limit: Duration) -> Answer<'_, Vec<LockSeen>>;

    /// Locks of a namespace, of one kind or of all, page by page in the order of kind and key.
    fn list_locks(
        &self,
        namespace: Namespace,
        kind: Option<Kind>,
        after: Option<Cursor>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Page<crate::store::LockRecord>>;

    /// Lists what a session holds, page by page, latest term first: the audit. A lock the store cannot
    /// make sense of is left out.
    fn held_by(
        &self,
        session: SessionId,
        after: Option<Cursor>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Page<Held>>;

    /// Of all that these sessions hold, the locks with the largest terms, largest first, and those of one term by
    /// namespace, kind and key; at most so many of all sessions together. A lock the store cannot make sense of is left
    /// out, also if it is one of so many. Of each session no more is read than may be answered with.
    fn latest_grants(
        &self,
        sessions: Vec<SessionId>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Vec<crate::store::LockRecord>>;

    /// Gets a lock back for an operator: by asking a session, which may not hold it any more; by force; or by
    /// opening a lock that is kept closed.
    fn revoke(&self, revocation: Revocation, limit: Duration) -> Answer<'_, RevokeAnswer>;

    // ----- schedules

    /// Stores the definition of a schedule in its owner's name, unless an owner under a larger term has
    /// stored one. A new timing counts from now on, unless it comes [instead of](Define::instead_of) one that has
    /// the same instants. If it is known already, nothing is changed. Answers with
    /// the schedule as it is afterwards.
    fn define(&self, define: Define, limit: Duration) -> Answer<'_, ScheduleSeen>;

    /// Pauses a schedule, resumes it, or orders a run: any caller may. Answers with the schedule as it stands
    /// afterwards; one that was never defined has a record from then on.
    fn instruct(
        &self,
        schedule: ScheduleId,
        instruction: Instruction,
        limit: Duration,
    ) -> Answer<'_, ScheduleSeen>;

    /// Reads schedules, in the order they were asked for.
    fn schedules(&self, schedules: Vec<ScheduleId>, limit: Duration) -> Answer<'_, Vec<ScheduleSeen>>;

    /// The schedules of a namespace that have a record, page by page in the order of their names. A page may be
    /// shorter than it was asked for.
    fn list_schedules(
        &self,
        namespace: Namespace,
        after: Option<Cursor>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Page<ScheduleRecord>>;

    /// Deletes a schedule: its record first, and then a bounded part of its ledger. Says whether that was all:
    /// otherwise it is called again. An instance that has the schedule meanwhile defines it anew, as of then; what it
    /// claims may be deleted with the rest. A record that cannot be used is deleted, too.
    fn delete_schedule(&self, schedule: ScheduleId, limit: Duration) -> Answer<'_, bool>;

    /// Claims a tick for one attempt: if it was not claimed, or in place of the attempt it names, unless that
    /// one succeeded or was the last. Answers with the run as it is afterwards.
    ///
    /// An entry of ticks that were not run is written in the same way, and finished at once.
    ///
    /// A claim does not look at the schedule's mark (see [`history`](Self::history)): its owner
    /// reads the mark when it becomes the owner, and claims nothing at or below it.
    fn claim(&self, claim: Claim, limit: Duration) -> Answer<'_, ClaimAnswer>;

    /// Writes what came of an attempt, if it is the one on record and has no end yet. Answers with
    /// the run as it is afterwards: a late finish finds another attempt, or an end.
    fn finish(&self, finish: FinishRun, limit: Duration) -> Answer<'_, ClaimAnswer>;

    /// Entries of a schedule's ledger, the last in their order first, with its mark: every run up to that
    /// instant may have been purged. The mark never goes back and is never purged.
    fn history(
        &self,
        schedule: ScheduleId,
        after: Option<Cursor>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, RunPage>;

    /// The last entries of several ledgers, in the order the schedules were asked for: each page as
    /// [`history`](Self::history) answers it from no place, without the mark. A ledger without entries is an empty page.
    /// However many they are, they are read together, and each from its end only.
    fn last_runs(
        &self,
        schedules: Vec<ScheduleId>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Vec<Page<crate::model::RunRecord>>>;

    /// Purges runs of a schedule that started longer than `older_than` ago, except the latest
    /// `keep`, and answers with what is gone, earliest instant first. Raises the mark first. Called by the
    /// schedule's owner only, which claims and purges one after the other.
    fn purge_runs(
        &self,
        schedule: ScheduleId,
        older_than: Duration,
        keep: usize,
        limit: Duration,
    ) -> Answer<'_, RunPage>;

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
    fn purge(
        &self,
        namespace: Namespace,
        retention: Retention,
        after: Option<Cursor>,
        limit: Duration,
    ) -> Answer<'_, Purged>;

    /// Streams the changes that concern these topics, as they happen, for as long as the stream is kept. Hints may
    /// be lost, late, or doubled, and decide nothing ([R12](crate::store#rules-of-safety)): they say where to look.
    /// [`Hint::Resync`] says that some may have been lost; it comes first, and whenever a topic was added. A listener
    /// to no topic costs the store nothing.
    ///
    /// Told are: the session that a lock is handed to, and the sessions that a release
    /// [names](super::ReleaseTo::FreeFor); the session of which an operator asks something; and the sessions that
    /// take part in a spread, of its tasks, queues and members. Beats are told to no session.
    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint>;

    /// The same records over a connection of its own, living on the runtime this is called from: for
    /// the keeper, whose beats must wait behind nothing else, nor starve with the program's runtime.
    /// `None` if the store has no connections and needs none, or has only what was lent to it.
    ///
    /// The future must be polled on that runtime. It answers when the connection works; how long that
    /// may take is the store's to limit. What it answers is a store like any other, with
    /// [`hints`](Self::hints) of its own for callers that ask for them.
    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>>;
}

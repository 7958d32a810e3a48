//! The contract: what every store keeps to. Its operations are in `operations.rs`.

use std::{fmt, sync::Arc, time::Duration};

use futures::{future::BoxFuture, stream::BoxStream};

use super::{Capabilities, Hint, Op, Presence, Reply, Topics};
use crate::{error::StoreError, model::SessionId};

/// The future of an operation of a store.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A place where sessions, locks, waiters and runs are kept. You may implement it, but semver does not cover that
/// before 1.0: a minor release may add operations, and fields to the records they pass, because a guarantee that needs
/// another atomic step needs another operation, and a default that is not atomic would break the guarantee in silence.
/// Calling it through [`Elect`](crate::Elect) is as stable as the rest. Pin the minor version, and run the conformance
/// suite with each.
///
/// # Rules of every operation
///
/// **One step.** Each is one atomic step for each record it touches; a batch is one such
/// step a key, in any order. Nothing is held between calls. ([`purge`](super::StoreExt::purge) and
/// [`purge_runs`](super::StoreExt::purge_runs) are several steps, each of which is safe by itself.)
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
/// **What decides is kept.** [`open`](super::StoreExt::open), [`beat`](super::StoreExt::beat), [`declare`](super::StoreExt::declare),
/// [`take`](super::StoreExt::take), [`set_value`](super::StoreExt::set_value), [`define`](super::StoreExt::define),
/// [`instruct`](super::StoreExt::instruct), [`claim`](super::StoreExt::claim), [`finish`](super::StoreExt::finish) and
/// [`revoke`](super::StoreExt::revoke) answer only when no failure of the store can undo what they say ([R11]); so do the
/// reads, except [`peek`](super::StoreExt::peek), [`waiters`](super::StoreExt::waiters) and
/// [`places`](super::StoreExt::places). [`release`](super::StoreExt::release),
/// [`wait`](super::StoreExt::wait) and [`stop_waiting`](super::StoreExt::stop_waiting) decide nothing and may be undone by a
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

    /// Performs one operation, and answers with the reply to it. The contract of each is that of the method of
    /// [`StoreExt`](super::StoreExt) that sends it.
    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply>;

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

    /// Streams the changes that concern these topics, as they happen, for as long as the stream is kept. Hints may
    /// be lost, late, or doubled, and decide nothing ([R12](crate::store#rules-of-safety)): they say where to look.
    /// [`Hint::Resync`] says that some may have been lost; it comes first, and whenever a topic was added. A listener
    /// to no topic costs the store nothing.
    ///
    /// Told are: the session that a lock is handed to, and those that wait for one that is released to
    /// [nobody](super::ReleaseTo::Free); the session of which an operator asks something; and the sessions that
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

    /// Waits until all is done that goes on beside the operations, such as telling others of them; [`hints`](Self::hints)
    /// end. It is the last thing that a [dedicated](Self::dedicated) store is asked, for its runtime ends after it.
    /// The caller limits how long it may take. A wrapper passes it on.
    fn at_rest(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

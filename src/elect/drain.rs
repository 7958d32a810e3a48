//! An operator's word to an instance: to give its tasks away, or that it may have some again.
//!
//! It goes the way of revocations, as a request in the session's record. What it names is no lock: a key that says the
//! word and the session, among the tasks of a spread that the instance takes part in, so that it listens to it. Words
//! count in the order in which they come.

use std::time::{Duration, SystemTime};

use crate::{
    StoreError,
    model::{Holder, Key, Kind, LockId, Request, SessionId, SessionRecord, StoreTime, Term, Why},
    store::{Revocation, RevokeAnswer, Store},
};

const DRAIN: &str = "tenure.drain";
const UNDRAIN: &str = "tenure.undrain";

/// Asks an instance to give all tasks of its spreads and all its schedules to others, one after the other, and to take
/// none, as [`Spread::drain`](crate::spread::Spread::drain) does for one spread. It holds until the instance is
/// [undrained](undrain) or its process ends, also for spreads that it joins later. Locks and campaigns are not concerned.
///
/// With hints the instance learns of it at once, without by its next beat; its shares in its session's record then say
/// that they are draining.
///
/// # Errors
/// The store did not answer; then it may have been asked.
pub async fn drain(
    store: &dyn Store,
    session: &SessionRecord,
    by: Holder,
    why: Why,
    limit: Duration,
) -> Result<RevokeAnswer, StoreError> {
    ask(store, session, DRAIN, (by, why), limit).await
}

/// Takes back what [`drain`] asked for. What the program drains itself stays drained.
///
/// # Errors
/// As [`drain`].
pub async fn undrain(
    store: &dyn Store,
    session: &SessionRecord,
    by: Holder,
    why: Why,
    limit: Duration,
) -> Result<RevokeAnswer, StoreError> {
    ask(store, session, UNDRAIN, (by, why), limit).await
}

async fn ask(
    store: &dyn Store,
    session: &SessionRecord,
    word: &str,
    (by, why): (Holder, Why),
    limit: Duration,
) -> Result<RevokeAnswer, StoreError> {
    let lock = LockId {
        namespace: session.about.namespace.clone(),
        kind: session.shares.first().map_or(Kind::Lock, |share| Kind::of_tasks(&share.spread)),
        key: key(word, session.id),
    };
    // Another one each time: the same word may be said again.
    #[expect(clippy::disallowed_methods, reason = "it is an identity, and compared with nothing")]
    let now = StoreTime::from(SystemTime::now());
    let request = Request { lock, term: Term::first(now), by, why };
    store.revoke(Revocation::Ask { session: session.id, request }, limit).await
}

/// A key that no task has by chance.
fn key(word: &str, session: SessionId) -> Key {
    Key::new(format!("{word} {session}")).expect("it is a key")
}

/// Returns whether a request to a session is such a word: to drain, or not to drain any more.
pub(super) fn word(session: SessionId, request: &Request) -> Option<bool> {
    if request.lock.key == key(DRAIN, session) {
        return Some(true);
    }
    (request.lock.key == key(UNDRAIN, session)).then_some(false)
}

//! Wire of one instance, between its engine and its store.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, TryFutureExt, stream::BoxStream};

use crate::{EventKind, key_of};
use tenure::{
    clock::{Clock, Moment},
    model::SessionId,
    store::{
        Answer, Capabilities, Hint, LockRecord, LockSeen, Nonce, Op, Presence, Reply, SessionSeen, Store,
        TakeAnswer, Topics,
    },
};

/// Writes down what happens in one instance, in its history or wherever that is read later.
pub trait Recording: fmt::Debug + Send + Sync + 'static {
    /// Notes an event that has happened just now.
    fn write(&self, what: EventKind);
}

/// Tells a [`Recording`] what one instance sends and hears.
#[derive(Debug)]
pub struct Wire {
    store: Arc<dyn Store>,
    ears: Arc<Ears>,
}

#[derive(Debug)]
struct Ears {
    scribe: Arc<dyn Recording>,
    clock: Arc<dyn Clock>,
    /// Beats sent for the instance's own sessions, and when.
    sent: Mutex<BTreeMap<(SessionId, Nonce), Moment>>,
}

impl Ears {
    fn sent(&self) -> MutexGuard<'_, BTreeMap<(SessionId, Nonce), Moment>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sends(&self, session: SessionId, nonce: Nonce) {
        self.sent().insert((session, nonce), self.clock.now());
    }

    fn is_ours(&self, session: SessionId) -> bool {
        self.sent().range((session, Nonce::new(0))..).next().is_some_and(|((of, _), _)| *of == session)
    }

    fn hears(&self, sighting: &SessionSeen) {
        let SessionSeen::Alive(record) = sighting else { return };
        let sent = self.sent().get(&(record.id, record.nonce)).copied();
        if let Some(sent) = sent {
            self.scribe.write(EventKind::Confirmed { session: record.id, sent });
        }
    }

    fn notices(&self, record: &LockRecord) {
        if let Some(held) = &record.holding
            && let Some(key) = key_of(&record.id.key)
            && self.is_ours(held.by.session)
        {
            let (session, ticket) = (held.by.session, held.by.ticket);
            self.scribe.write(EventKind::Noticed { key, term: record.term, session, ticket });
        }
    }
}

impl Wire {
    /// A store whose instance reads that clock.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, scribe: Arc<dyn Recording>, clock: Arc<dyn Clock>) -> Self {
        Self { store, ears: Arc::new(Ears { scribe, clock, sent: Mutex::default() }) }
    }
}

impl Store for Wire {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        async move {
            let ears = &self.ears;
            match &op {
                Op::Open(open) => {
                    ears.sends(open.session, open.nonce);
                    ears.scribe.write(EventKind::Opens { session: open.session });
                }
                Op::Beat(beat) => ears.sends(beat.session, beat.nonce),
                _ => {}
            }
            let reply = self.store.call(op, limit).await?;
            match &reply {
                Reply::Open(seen) | Reply::Beat(seen) => ears.hears(seen),
                Reply::Take(answers) => {
                    for answer in answers {
                        if let TakeAnswer::Taken(record) | TakeAnswer::Held(record) = answer {
                            ears.notices(record);
                        }
                    }
                }
                Reply::Locks(seen) => {
                    for seen in seen {
                        if let LockSeen::Found(record) = seen {
                            ears.notices(record);
                        }
                    }
                }
                _ => {}
            }
            Ok(reply)
        }
        .boxed()
    }

    fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
        self.store.presence(session)
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        let around = |store| Arc::new(Self { store, ears: self.ears.clone() }) as Arc<dyn Store>;
        self.store.dedicated().map_ok(move |store| store.map(around)).boxed()
    }

    fn at_rest(&self) -> Answer<'_, ()> {
        self.store.at_rest()
    }
}

//! Topics that this instance listens to: none, unless it waits for keys or takes part in spreads.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::Engine;
use crate::{
    clock::Moment,
    store::{Topic, Topics},
    sync::locked,
};

/// Time for which an instance that waits for no key any more goes on to listen: it may wait again soon, and to begin
/// costs more than to go on.
const LINGER: Duration = Duration::from_secs(10);

/// Topics of one instance.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// Number of tickets in the queues of keys. Tickets of tasks are told of by their spread.
    in_queue: AtomicUsize,
    last_in_queue: Mutex<Option<Moment>>,
    topics: watch::Sender<BTreeSet<Topic>>,
}

impl Listening {
    pub(crate) fn topics(&self) -> Topics {
        self.topics.subscribe()
    }
}

impl Engine {
    /// Counts tickets that have come into a queue, or left it.
    pub(crate) fn count_in_queue(&self, before: usize, after: usize) {
        if before == after {
            return;
        }
        let in_queue = &self.listening.in_queue;
        if after > before {
            in_queue.fetch_add(after - before, Ordering::AcqRel);
        } else {
            in_queue.fetch_sub(before - after, Ordering::AcqRel);
        }
        self.listen();
    }

    /// Listens to what concerns this instance now.
    pub(crate) fn listen(&self) {
        let (now, mut topics) = (self.clock.now(), BTreeSet::new());
        let namespace = self.config.namespace();
        topics
            .extend(self.spreads.joined().into_iter().map(|spread| Topic::Spread(namespace.clone(), spread)));
        let lingers = {
            let mut last = locked(&self.listening.last_in_queue);
            if self.listening.in_queue.load(Ordering::Acquire) > 0 {
                *last = Some(now);
            }
            last.is_some_and(|last| now.since(last) < LINGER)
        };
        let session = self.session.borrow().as_ref().map(|session| session.id);
        topics.extend(session.filter(|_| lingers).map(Topic::Session));
        self.listening.topics.send_if_modified(|known| {
            let news = *known != topics;
            *known = topics;
            news
        });
    }
}

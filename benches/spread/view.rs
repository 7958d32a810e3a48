//! State of the tasks by the store, and every change of term it notified.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use tenure::{
    Clock, SystemClock,
    clock::Moment,
    model::{Kind, SessionId, SpreadName, Term},
    store::{
        Hint, LockSeen, News, Store, StoreExt, Topic,
        mongo::{MongoOptions, MongoStore},
    },
};
use tokio::{sync::watch, task::JoinHandle};

use crate::member::{NAMESPACE, SPREAD};

const LIMIT: Duration = Duration::from_secs(10);

/// Holder of a task, and its term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) term: Term,
    pub(crate) session: Option<SessionId>,
    pub(crate) holder: Option<String>,
}

pub(crate) type Places = BTreeMap<String, Place>;

/// A task was granted to a session.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) at: Moment,
    pub(crate) key: String,
}

/// A store handle of its own, that nothing is done to.
pub(crate) struct View {
    store: MongoStore,
    grants: Arc<Mutex<Vec<Grant>>>,
    follower: JoinHandle<()>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl View {
    pub(crate) async fn open(uri: &str, database: &str) -> Self {
        let options = MongoOptions::new().database(database);
        let store = MongoStore::connect(uri, options).await.expect("the server is up");
        let grants = Arc::new(Mutex::new(Vec::new()));
        let spread = Topic::Spread(NAMESPACE.parse().expect("a name"), SPREAD.parse().expect("a name"));
        let mut hints = store.hints(watch::channel([spread].into()).1);
        let (reads, write) = (store.clone(), grants.clone());
        let follower = tokio::spawn(async move {
            let mut terms = BTreeMap::new();
            while let Some(hint) = hints.next().await {
                let Hint::News(News::Lock(lock)) = hint else { continue };
                let at = SystemClock::new().now();
                let Ok(seen) = reads.locks(vec![lock], LIMIT).await else { continue };
                let record = seen.into_iter().next().and_then(LockSeen::found);
                let Some(record) = record.filter(|record| record.holding.is_some()) else { continue };
                if terms.insert(record.id.clone(), record.term) != Some(record.term) {
                    let grant = Grant { at, key: record.id.key.to_string() };
                    write.lock().unwrap_or_else(PoisonError::into_inner).push(grant);
                }
            }
        });
        Self { store, grants, follower }
    }

    /// All grants since then.
    pub(crate) fn grants(&self, since: Moment) -> Vec<Grant> {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().filter(|grant| grant.at >= since).cloned().collect()
    }

    pub(crate) async fn places(&self) -> Places {
        let kind = Some(Kind::Task(SpreadName::new(SPREAD).expect("within the limits")));
        let namespace = NAMESPACE.parse().expect("within the limits");
        let page = self.store.list_locks(namespace, kind, None, 10_000, LIMIT).await;
        let items = page.expect("the server answers").items;
        let place = |record: tenure::store::LockRecord| {
            let held = record.holding.as_ref();
            let place = Place {
                term: record.term,
                session: held.map(|held| held.by.session),
                holder: held.map(|held| held.by.holder.to_string()),
            };
            (record.id.key.to_string(), place)
        };
        items.into_iter().map(place).collect()
    }
}

/// Number of tasks that changed their term.
pub(crate) fn changed(before: &Places, after: &Places) -> usize {
    let is_other =
        |(key, place): &(&String, &Place)| before.get(*key).is_none_or(|old| old.term != place.term);
    after.iter().filter(is_other).count()
}

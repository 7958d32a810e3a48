//! Ringing: bells are written beside the operation that they tell of, and nobody waits for them.
//!
//! Those that come while a bucket is being written leave together when that is done, as takes do.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::{Document, Timestamp};
use tokio::sync::{Semaphore, watch};

use super::{
    buckets::{Bucket, Buckets, Inserted},
    encoding,
};
use crate::{
    store::{
        Bell, News, Topic,
        mongo::{command::within, error::CommandResult, renewal::Connection},
    },
    sync::locked,
    words,
};

/// The time a bell may take. What is later is hardly earlier than a poll.
const LIMIT: Duration = Duration::from_secs(10);
/// The time after which a failed insert is tried once more, and then twice as long each time: what left the outcome
/// of a write unknown may meet that of its bell, too.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The number of inserts at once, each of which has a connection.
const AT_ONCE: usize = 4;
/// The most news of one bucket that wait for an insert to end: with a server that hangs, there is no use in more.
const MOST: usize = 10_000;

/// Bells for one topic that wait.
#[derive(Default)]
struct Waiting {
    news: Vec<News>,
    at: Option<Timestamp>,
}

type Queue = BTreeMap<Topic, Waiting>;

/// The bells of one store handle on their way.
pub(in crate::store::mongo) struct Ringer {
    connection: Arc<Connection>,
    buckets: Arc<Buckets>,
    /// The queue of each bucket that is being written.
    queues: Mutex<BTreeMap<Bucket, Queue>>,
    permits: Semaphore,
    under_way: watch::Sender<usize>,
}

impl Ringer {
    pub(in crate::store::mongo) fn new(connection: Arc<Connection>, buckets: Arc<Buckets>) -> Self {
        Self {
            connection,
            buckets,
            queues: Mutex::default(),
            permits: Semaphore::new(AT_ONCE),
            under_way: watch::Sender::new(0),
        }
    }

    /// Rings bells for writes that were carried out by that time, and returns at once. Their loss is no error.
    pub(in crate::store::mongo) fn ring(self: &Arc<Self>, bells: Vec<Bell>, at: Option<Timestamp>) {
        let mut queues = locked(&self.queues);
        for Bell { to, news } in bells {
            let Some(to) = to else { continue };
            let bucket = Bucket::of(&to);
            let queue = match queues.entry(bucket) {
                Entry::Occupied(queue) => queue.into_mut(),
                Entry::Vacant(place) => {
                    self.under_way.send_modify(|number| *number += 1);
                    self.connection.spawn(Arc::clone(self).empty(bucket));
                    place.insert(Queue::new())
                }
            };
            let waiting: usize = queue.values().map(|waiting| waiting.news.len()).sum();
            let waiting_for = queue.entry(to).or_default();
            waiting_for.at = waiting_for.at.max(at);
            if waiting < MOST && !waiting_for.news.contains(&news) {
                waiting_for.news.push(news);
            }
        }
    }

    /// Waits until no bell is under way.
    pub(in crate::store::mongo) async fn at_rest(&self) {
        // The sender is here.
        let _ = self.under_way.subscribe().wait_for(|number| *number == 0).await;
    }

    /// Writes what is in the queue of a bucket until nothing is.
    async fn empty(self: Arc<Self>, bucket: Bucket) {
        loop {
            let permit = self.permits.acquire().await;
            let queue = {
                let mut queues = locked(&self.queues);
                let queue = queues.get_mut(&bucket).map(std::mem::take).unwrap_or_default();
                if queue.is_empty() {
                    queues.remove(&bucket);
                }
                queue
            };
            if queue.is_empty() {
                break;
            }
            let documents =
                queue.iter().flat_map(|(to, waiting)| encoding::written(to, &waiting.news, waiting.at));
            let written = self.write(bucket, documents.collect());
            if let Err(error) = within(LIMIT, "ring a bell", written).await {
                words::debug!(%error, "a bell was not rung: those whom it concerns look at the next poll");
            }
            drop(permit);
        }
        self.under_way.send_modify(|number| *number -= 1);
    }

    fn write(
        &self,
        bucket: Bucket,
        documents: Vec<Document>,
    ) -> impl Future<Output = CommandResult<()>> + Send + 'static {
        let (connection, buckets) = (Arc::clone(&self.connection), Arc::clone(&self.buckets));
        async move {
            let used = connection.current();
            let database = buckets.database(&used.database);
            let mut pause = FIRST_PAUSE;
            loop {
                let inserted = buckets.insert(&database, bucket, documents.clone());
                match connection.watched(&used, inserted).await {
                    Ok(Inserted::All) => return Ok(()),
                    // The collection is not the one that was known: it is looked for at the next attempt.
                    Ok(Inserted::ElseWhere) => {}
                    Err(failure) if failure.is_lasting() => return Err(failure),
                    Err(failure) => {
                        words::debug!(error = failure.into_words(), "a bell is rung once more");
                        tokio::time::sleep(pause).await;
                        pause *= 2;
                    }
                }
            }
        }
    }
}

//! Ringing: bells are written beside the operation that they tell of, and no caller waits for them.
//!
//! Bells that come while a bucket is being written leave together when that is done, as takes do.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::{Document, Timestamp};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::{
    MENDED_WITHIN,
    board::{Failure, Silent},
    buckets::{Bucket, Buckets, Inserted, seed},
    encoding,
};
use crate::{
    error::StoreError,
    store::{
        Bell, News, Topic,
        mongo::client::{command::within, error::CommandResult, renewal::Connection},
    },
    sync::locked,
    words,
};

/// The time a bell may take. What is later is hardly earlier than a poll.
const LIMIT: Duration = Duration::from_secs(10);
/// The time after which a failed insert is tried once more, and then twice as long each time: what left the outcome
/// of a write unknown may meet that of its bell, too.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The number of times that it is tried again: six seconds at least.
const TRIES: u32 = 6;
/// The time after which one that was given up is followed by the next: it says whether bells can be rung again.
const PAUSE: Duration = Duration::from_secs(1);
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
pub(crate) struct Ringer {
    connection: Arc<Connection>,
    buckets: Arc<Buckets>,
    /// The queue of each bucket that is being written.
    queues: Mutex<BTreeMap<Bucket, Queue>>,
    permits: Semaphore,
    under_way: watch::Sender<usize>,
    /// The buckets that cannot be written at present: others hear of nothing that is told there.
    mute: watch::Sender<Silent>,
    stop: CancellationToken,
}

impl Ringer {
    /// Tries no failed bell again once it is stopped.
    pub(crate) fn new(connection: Arc<Connection>, buckets: Arc<Buckets>, stop: CancellationToken) -> Self {
        Self {
            connection,
            buckets,
            queues: Mutex::default(),
            permits: Semaphore::new(AT_ONCE),
            under_way: watch::Sender::new(0),
            mute: watch::Sender::default(),
            stop,
        }
    }

    /// Follows the buckets that cannot be written.
    pub(crate) fn mute(&self) -> watch::Receiver<Silent> {
        self.mute.subscribe()
    }

    /// Rings bells for writes that were carried out by that time, and returns at once. Their loss is no error: where none
    /// can be written before an operator changes something, none wait.
    pub(crate) fn ring(self: &Arc<Self>, bells: Vec<Bell>, at: Option<Timestamp>) {
        let mut queues = locked(&self.queues);
        for Bell { to, news } in bells {
            let bucket = Bucket::of(&to);
            if self.mute.borrow().get(&bucket).is_some_and(|failure| failure.lasting) {
                continue;
            }
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
    pub(crate) async fn at_rest(&self) {
        // The sender is here.
        let _ = self.under_way.subscribe().wait_for(|number| *number == 0).await;
    }

    /// Writes what is in the queue of a bucket until nothing is, and none has failed.
    async fn empty(self: Arc<Self>, bucket: Bucket) {
        let mut failed = false;
        loop {
            let permit = self.permits.acquire().await;
            let queue = {
                let mut queues = locked(&self.queues);
                let queue = queues.get_mut(&bucket).map(std::mem::take).unwrap_or_default();
                if queue.is_empty() && !failed {
                    queues.remove(&bucket);
                }
                queue
            };
            let documents =
                queue.iter().flat_map(|(to, waiting)| encoding::written(to, &waiting.news, waiting.at));
            let mut documents: Vec<_> = documents.collect();
            if documents.is_empty() {
                if !failed {
                    break;
                }
                documents.push(seed());
            }
            let written = within(LIMIT, "ring a bell", self.write(bucket, documents)).await;
            drop(permit);
            let silent = |error: StoreError| Err(Failure { error: error.to_string(), lasting: false });
            let Err(failure) = written.unwrap_or_else(silent) else {
                failed = false;
                self.mute.send_if_modified(|mute| mute.remove(&bucket).is_some());
                continue;
            };
            let Failure { error, lasting } = &failure;
            words::debug!(error, "could not ring a bell: its receivers read at their next poll");
            failed = true;
            let pause = if *lasting { MENDED_WITHIN } else { PAUSE };
            self.mute.send_modify(|mute| _ = mute.insert(bucket, failure));
            if self.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                locked(&self.queues).remove(&bucket);
                break;
            }
        }
        self.under_way.send_modify(|number| *number -= 1);
    }

    fn write(
        &self,
        bucket: Bucket,
        documents: Vec<Document>,
    ) -> impl Future<Output = CommandResult<Result<(), Failure>>> + Send + 'static {
        let (connection, buckets) = (Arc::clone(&self.connection), Arc::clone(&self.buckets));
        async move {
            let used = connection.current();
            let mut pauses = (0..TRIES).map(|tries| FIRST_PAUSE * 2_u32.pow(tries));
            loop {
                let inserted = buckets.insert(&used.database, bucket, documents.clone());
                let failure = match connection.watched(&used, inserted).await {
                    Ok(Inserted::All) => return Ok(Ok(())),
                    // The collection is not the one that was known: it is looked for at the next attempt.
                    Ok(Inserted::ElseWhere) => continue,
                    Err(failure) => Failure::from(failure),
                };
                match pauses.next() {
                    Some(pause) if !failure.lasting => {
                        words::debug!(error = failure.error, "a bell is rung once more");
                        tokio::time::sleep(pause).await;
                    }
                    _ => return Ok(Err(failure)),
                }
            }
        }
    }
}

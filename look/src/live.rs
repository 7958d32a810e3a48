//! A picture that is kept up as long as it has followers, and a little longer.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use crate::{Picture, Reader, poller::Poller};
use tenure::{
    StoreError,
    clock::Moment,
    store::{Hint, News},
};

/// Time between two turns.
const TURN: Duration = Duration::from_secs(5);
/// Hints that come together are followed by one read.
const TOGETHER: Duration = Duration::from_millis(200);
/// Time for which it is kept up for a follower that may come back: a page that is reloaded, or a collector of metrics.
const LINGER: Duration = Duration::from_secs(120);

/// Keeps one picture of a namespace for all its followers. Without followers, nothing is read.
#[derive(Clone, Debug)]
pub struct LivePicture {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    reader: Reader,
    turn: Duration,
    latest: watch::Sender<Option<Latest>>,
    /// News that was reported here, to be read.
    noticed: Mutex<Vec<News>>,
    has_noticed: Notify,
    /// Signal that a follower has come.
    joined: Notify,
    /// A task keeps it up, and is the only one that reads.
    is_kept: AtomicBool,
}

/// The picture that was read last.
#[derive(Clone, Debug)]
struct Latest {
    at: Moment,
    picture: Arc<Picture>,
    /// Something was read since it is kept up.
    has_begun: bool,
}

impl Latest {
    fn read(&self) -> Result<Arc<Picture>, NotLoaded> {
        if self.has_begun {
            return Ok(self.picture.clone());
        }
        Err(NotLoaded { why: self.picture.trouble().unwrap_or_default().to_owned() })
    }
}

/// A picture that is kept up as long as this exists.
#[derive(Debug)]
pub struct Subscription {
    latest: watch::Receiver<Option<Latest>>,
}

/// No picture was read yet, for the store does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLoaded {
    why: String,
}

impl fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for NotLoaded {}

impl LivePicture {
    /// Pictures of that namespace. Nothing is read yet.
    #[must_use]
    pub fn new(reader: Reader) -> Self {
        Self {
            shared: Arc::new(Shared {
                reader,
                turn: TURN,
                latest: watch::Sender::new(None),
                noticed: Mutex::default(),
                has_noticed: Notify::new(),
                joined: Notify::new(),
                is_kept: AtomicBool::new(false),
            }),
        }
    }

    /// The same with another time between two turns.
    ///
    /// # Panics
    ///
    /// If it was shared already.
    #[must_use]
    pub fn turn(mut self, turn: Duration) -> Self {
        Arc::get_mut(&mut self.shared).expect("nobody else has it yet").turn = turn;
        self
    }

    /// The namespace, for reads of a page.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.shared.reader
    }

    /// Returns the latest picture, or waits for the first one. It is kept up for two minutes from then on.
    ///
    /// # Errors
    ///
    /// If nothing was read yet, and the store does not answer. Afterwards the last picture [says so](Picture::trouble).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn get(&self) -> Result<Arc<Picture>, NotLoaded> {
        let mut followed = self.follow();
        loop {
            let latest = followed.latest.borrow_and_update().clone();
            match latest.filter(|latest| self.shared.is_fresh(latest.at)) {
                Some(latest) => return latest.read(),
                None => followed.changed().await,
            }
        }
    }

    /// Keeps the picture up as long as the answer is kept.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn follow(&self) -> Subscription {
        let mut latest = self.shared.latest.subscribe();
        if latest.borrow().as_ref().is_some_and(|latest| self.shared.is_fresh(latest.at)) {
            latest.mark_changed();
        } else {
            latest.mark_unchanged();
        }
        self.shared.joined.notify_one();
        Shared::keep_up(&self.shared);
        Subscription { latest }
    }

    /// Has what this names read at once: the author of a change wants to see it.
    pub fn notice(&self, news: News) {
        self.shared.noticed().push(news);
        self.shared.has_noticed.notify_one();
    }
}

impl Subscription {
    /// Waits for the next picture; the first time, for one that is not old.
    ///
    /// # Errors
    ///
    /// If nothing was read since the picture is kept up, and the store does not answer. It is tried again each turn:
    /// the next answer may be a picture.
    ///
    /// # Cancel safety
    ///
    /// No picture is lost.
    pub async fn next(&mut self) -> Result<Arc<Picture>, NotLoaded> {
        loop {
            self.changed().await;
            if let Some(latest) = self.latest.borrow_and_update().as_ref() {
                return latest.read();
            }
        }
    }

    async fn changed(&mut self) {
        if self.latest.changed().await.is_err() {
            // Each `LivePicture` that may be followed has the sender.
            std::future::pending::<()>().await;
        }
    }
}

/// Says that no task keeps it up any more, also after a panic and at the end of the runtime.
struct Kept<'a>(&'a AtomicBool);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}

impl Shared {
    fn noticed(&self) -> MutexGuard<'_, Vec<News>> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task that keeps it up reads each turn, whether it is answered or not.
    fn is_fresh(&self, at: Moment) -> bool {
        self.reader.moment().since(at) <= self.turn * 2 + TOGETHER
    }

    /// Starts to keep the picture up, unless a task does.
    fn keep_up(shared: &Arc<Self>) {
        let runtime = Handle::current();
        if shared.is_kept.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = shared.clone();
        runtime.spawn(async move {
            loop {
                {
                    let _kept = Kept(&shared.is_kept);
                    Self::read(&shared).await;
                }
                // A follower that has come meanwhile found a task that was leaving.
                let is_followed = shared.latest.receiver_count() > 0;
                if !is_followed || shared.is_kept.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    /// Reads until unfollowed for `LINGER`. Starts from an empty picture, so stale records are never shown as current.
    async fn read(shared: &Arc<Self>) {
        let mut poller = Poller::new(shared.reader.clone());
        let (topics, listened) = watch::channel(poller.topics());
        let mut hints = shared.reader.store().hints(listened).fuse();
        let next = sleep(Duration::ZERO);
        let leaves = sleep(LINGER);
        tokio::pin!(next, leaves);
        let mut is_followed = true;
        loop {
            tokio::select! {
                biased;
                () = shared.latest.closed(), if is_followed => {
                    is_followed = false;
                    leaves.set(sleep(LINGER));
                }
                () = shared.joined.notified() => is_followed = true,
                () = &mut leaves, if !is_followed => return,
                () = &mut next => {
                    if !is_followed && Arc::strong_count(shared) == 1 {
                        // No follower can come back.
                        return;
                    }
                    let read = poller.turn().await;
                    shared.publish(&mut poller, Some(read));
                    topics.send_if_modified(|known| {
                        let wanted = poller.topics();
                        let is_new = *known != wanted;
                        *known = wanted;
                        is_new
                    });
                    // What was not read yet is soon.
                    next.set(sleep(if poller.is_behind { shared.turn / 5 } else { shared.turn }));
                }
                Some(hint) = hints.next() => {
                    poller.apply_hint(hint);
                    let all = async {
                        while let Some(hint) = hints.next().await {
                            poller.apply_hint(hint);
                        }
                    };
                    let _ = timeout(TOGETHER, all).await;
                    shared.look_there(&mut poller).await;
                }
                () = shared.has_noticed.notified() => {
                    for news in std::mem::take(&mut *shared.noticed()) {
                        poller.apply_hint(Hint::News(news));
                    }
                    shared.look_there(&mut poller).await;
                }
            }
        }
    }

    /// Reads what hints name. What cannot be read is left for the next turn, which says so, too.
    async fn look_there(&self, poller: &mut Poller) {
        if poller.has_begun() && poller.hinted().await.is_ok_and(|has_read| has_read) {
            self.publish(poller, None);
        }
    }

    fn publish(&self, poller: &mut Poller, turn: Option<Result<(), StoreError>>) {
        if let Some(turn) = turn {
            poller.ended(turn.err().as_ref());
        }
        let (at, picture, has_begun) = (self.reader.moment(), Arc::new(poller.picture()), poller.has_begun());
        self.latest.send_replace(Some(Latest { at, picture, has_begun }));
    }
}

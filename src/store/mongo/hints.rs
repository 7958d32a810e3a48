//! Hints of a store handle: the listeners and their topics, and the sources that are open because of them.
//!
//! A source is a bucket of bells. It is opened when a listener wants what comes from it, is reopened by itself, and
//! is closed when none does any more. It decides nothing (R12): whatever goes wrong with it slows others down.
//!
//! Bells are documents in small capped collections: a writer rings in a bucket of them, and stores that have listeners
//! tail it. So only the stores are woken that a change concerns, and a store without listeners costs nothing. Bells
//! may be lost, and no writer waits for them.

mod board;
mod buckets;
mod encoding;
mod ring;
mod tail;
mod unseen;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures::{
    StreamExt,
    future::{join_all, ready},
    stream::{self, BoxStream},
};
use tokio::{
    sync::{broadcast, watch},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) use self::{
    board::{Board, Failure, Notice, Silent},
    buckets::{Bucket, Buckets},
    ring::Ringer,
    unseen::Unseen,
};
use super::client::{
    error::CommandFailure,
    options::Collections,
    prepare,
    renewal::{Connection, Current},
};
use crate::{
    clock::{Clock, SystemClock},
    store::{Hint, Topic, Topics, hints::Told},
    sync::locked,
    words,
};

/// The time that the server may take beyond the wait it was asked for. There is no other limit: the
/// driver waits for a frozen server for ever.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause before the next try of a source or a bell that an operator has to mend first; waiters poll meanwhile.
pub(super) const MENDED_WITHIN: Duration = Duration::from_secs(60);
/// A source that was open for so long has worked: when it ends, the next is opened soon.
const LIVED: Duration = Duration::from_secs(10);

/// Why a source ended.
pub(super) enum End {
    /// The source has no listeners any more.
    Stopped,
    /// The store has another client, or its set another primary.
    Moved,
    /// A collection was dropped, and its indexes with it.
    Dropped,
    Failed(Failure),
}

impl End {
    pub(super) fn silent(error: impl Into<String>) -> Self {
        Self::Failed(Failure { error: error.into(), lasting: false })
    }
}

/// The state that the sources of one handle share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) connection: Arc<Connection>,
    pub(super) names: Collections,
    pub(super) buckets: Arc<Buckets>,
    pub(super) unseen: Arc<Unseen>,
    /// The time that the server waits for a change.
    pub(super) wait: Duration,
    /// True if what was dropped is created again.
    pub(super) create: bool,
    pub(super) has_bells: bool,
    pub(super) board: Arc<Board>,
    pub(super) ringer: Arc<Ringer>,
}

impl Shared {
    /// The end of a source whose server could not be asked, or refused.
    pub(super) fn failed(&self, used: &Current, failure: CommandFailure) -> End {
        let failure = if failure.is_refused() { self.connection.refused(used, failure) } else { failure };
        End::Failed(failure.into())
    }

    async fn run(self, bucket: Bucket, mut wanted: watch::Receiver<Wanted>, stop: CancellationToken) {
        let clock = SystemClock::new();
        let mut pause = FIRST_PAUSE;
        let mut moves = self.connection.moves();
        // Collections were dropped, and may not be there again.
        let mut lost = false;
        loop {
            if lost {
                // First: a listener that hears that a source is open relies on the rest.
                let database = self.connection.database();
                lost = !prepare::mend(&database, &self.names, self.create, PATIENCE).await;
            }
            let mut opened = None;
            let note = |shared: &Self| {
                opened.get_or_insert_with(|| clock.now());
                shared.board.opened(bucket);
            };
            let end = if lost {
                End::Dropped
            } else {
                tail::follow(&self, bucket, &mut wanted, &mut moves, &stop, note).await
            };
            // A source that fails as soon as it is open is not opened again and again: a waiter looks each time.
            if opened.is_some_and(|opened| clock.now().since(opened) >= LIVED) {
                pause = FIRST_PAUSE;
            }
            let mut lasting = false;
            match end {
                End::Stopped => return self.board.left(bucket),
                End::Moved => {
                    pause = FIRST_PAUSE;
                    continue;
                }
                End::Dropped => lost = true,
                End::Failed(failure) => {
                    words::debug!(error = failure.error, "a source of hints ended, reopening it");
                    lasting = failure.lasting;
                    self.board.deaf(bucket, failure);
                }
            }
            // The next one may take a while: until it is open, a waiter goes by its own pace.
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.board.left(bucket),
                () = moves.moved() => pause = FIRST_PAUSE,
                // A listener that begins is told whether it hears.
                Ok(()) = wanted.changed() => {}
                () = tokio::time::sleep(if lasting { MENDED_WITHIN } else { pause }) => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

/// The topics that are listened to in one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) topics: BTreeSet<Topic>,
    /// Another number whenever a listener has added one: that is followed by an opening.
    pub(super) additions: u64,
}

/// A source that runs.
struct Running {
    wanted: watch::Sender<Wanted>,
    // Ends it when it is dropped.
    _stop: DropGuard,
}

#[derive(Default)]
struct State {
    /// Topics of each listener, by its number.
    listeners: BTreeMap<u64, BTreeSet<Topic>>,
    next: u64,
    sources: BTreeMap<Bucket, Running>,
    /// Tasks of the sources that run, and of those that are about to end.
    tasks: Vec<JoinHandle<()>>,
}

/// The sources of one store handle, and the listeners to them.
pub(super) struct Hints {
    shared: Shared,
    state: Mutex<State>,
    stop: CancellationToken,
    // The last handle of the store takes its sources with it.
    _stop: DropGuard,
}

impl Hints {
    /// Ends with `stop`, and cancels it when it is dropped.
    pub(super) fn new(shared: Shared, stop: CancellationToken) -> Self {
        Self { shared, state: Mutex::default(), stop: stop.clone(), _stop: stop.drop_guard() }
    }

    /// Begins with the first poll.
    pub(super) fn listen(self: &Arc<Self>, topics: Topics) -> BoxStream<'static, Hint> {
        // A listener does not keep the store.
        let hints = Arc::downgrade(self);
        let begin = async move {
            let listener = Listener::new(&hints.upgrade()?, topics);
            Some(stream::unfold(listener, |mut listener| async {
                let hint = listener.next().await?;
                Some((hint, listener))
            }))
        };
        stream::once(begin).filter_map(ready).flatten().boxed()
    }

    /// Ends the sources, and waits until they have ended.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        let tasks = std::mem::take(&mut locked(&self.state).tasks);
        // An error says that one has ended in another way.
        join_all(tasks).await;
    }

    /// Sets the topics of a listener; it listens to nothing from the beginning, and when there are none any more.
    /// Returns whether all of them can be heard of.
    fn set(&self, listener: u64, topics: BTreeSet<Topic>) -> bool {
        let mut state = locked(&self.state);
        let before = state.listeners.remove(&listener).unwrap_or_default();
        let added: BTreeSet<_> = topics.difference(&before).cloned().collect();
        if !topics.is_empty() {
            state.listeners.insert(listener, topics);
        }
        let wanted = self.sources(&state);
        let mut heard_of = state.listeners.get(&listener).into_iter().flatten();
        let all_heard = heard_of.all(|topic| wanted.contains_key(&Bucket::of(topic)));
        state.sources.retain(|bucket, _| wanted.contains_key(bucket));
        for (bucket, topics) in wanted {
            let has_more = bucket.concerns(&added);
            let heard = state.sources.get(&bucket).is_some_and(|running| {
                running.wanted.send_if_modified(|wanted| {
                    wanted.topics.clone_from(&topics);
                    wanted.additions += u64::from(has_more);
                    has_more
                });
                // Gone if it has ended by itself.
                !running.wanted.is_closed()
            });
            if !heard {
                let running = self.begin(&mut state, bucket, topics);
                state.sources.insert(bucket, running);
            }
        }
        all_heard
    }

    fn begin(&self, state: &mut State, bucket: Bucket, topics: BTreeSet<Topic>) -> Running {
        let stop = self.stop.child_token();
        let (wanted, listens) = watch::channel(Wanted { topics, additions: 0 });
        let task = self.shared.clone().run(bucket, listens, stop.clone());
        state.tasks.retain(|task| !task.is_finished());
        state.tasks.push(self.shared.connection.spawn(task));
        Running { wanted, _stop: stop.drop_guard() }
    }

    /// The sources that are to be open, and the topics that are listened to in each.
    fn sources(&self, state: &State) -> BTreeMap<Bucket, BTreeSet<Topic>> {
        let mut buckets: BTreeMap<_, BTreeSet<Topic>> = BTreeMap::new();
        if self.stop.is_cancelled() || !self.shared.has_bells {
            return buckets;
        }
        for topic in state.listeners.values().flatten() {
            buckets.entry(Bucket::of(topic)).or_default().insert(topic.clone());
        }
        // There are no connections for more: a listener elsewhere looks from time to time.
        buckets.into_iter().take(self.shared.connection.current().streams).collect()
    }
}

/// A listener.
struct Listener {
    hints: Weak<Hints>,
    number: u64,
    told: broadcast::Receiver<Notice>,
    topics: Topics,
    known: BTreeSet<Topic>,
    mute: watch::Receiver<Silent>,
    /// The next hint to deliver.
    next: Option<Hint>,
    has_begun: bool,
    /// False when the topics cannot change any more.
    changes: bool,
    stop: CancellationToken,
}

impl Listener {
    fn new(hints: &Arc<Hints>, topics: Topics) -> Self {
        let number = {
            let mut state = locked(&hints.state);
            state.next += 1;
            state.next
        };
        let told = hints.shared.board.listen();
        let mut mute = hints.shared.ringer.mute();
        // The listener is told first how things are now.
        if !mute.borrow().is_empty() {
            mute.mark_changed();
        }
        let stop = hints.stop.clone();
        let hints = Arc::downgrade(hints);
        let (known, next) = (BTreeSet::new(), None);
        Self { hints, number, told, topics, known, mute, next, has_begun: false, changes: true, stop }
    }

    async fn next(&mut self) -> Option<Hint> {
        if !self.has_begun {
            self.has_begun = true;
            self.update();
            // Before it listens anything may have happened.
            return Some(self.resync());
        }
        loop {
            if let Some(hint) = self.next.take() {
                return Some(hint);
            }
            let told = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                changed = self.topics.changed(), if self.changes => {
                    self.changes = changed.is_ok();
                    if changed.is_ok() && self.update() {
                        return Some(self.resync());
                    }
                    continue;
                }
                Ok(()) = self.mute.changed() => {
                    let why = self.mute.borrow_and_update().values().next().cloned();
                    return Some(why.map_or(Hint::SentAgain, Failure::unsent));
                }
                told = self.told.recv() => told,
            };
            match told {
                Ok(told) => match told.hint(&self.known) {
                    Some(Hint::Resync) => return Some(self.resync()),
                    Some(hint) => return Some(hint),
                    None => {}
                },
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(self.resync()),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// A resync says that all is well again, unless what still is not follows.
    fn resync(&mut self) -> Hint {
        if let Some(hints) = self.hints.upgrade() {
            self.next = hints.shared.board.why_deaf(&self.known).map(Failure::unheard);
        }
        Hint::Resync
    }

    /// Listens to the topics of now. Returns whether some of them were not listened to, and no opening will be
    /// told.
    fn update(&mut self) -> bool {
        let topics = self.topics.borrow_and_update().clone();
        let has_more = !topics.is_subset(&self.known);
        self.known.clone_from(&topics);
        let Some(hints) = self.hints.upgrade() else { return false };
        let all_heard = hints.set(self.number, topics);
        has_more && !all_heard
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(hints) = self.hints.upgrade() {
            hints.set(self.number, BTreeSet::new());
        }
    }
}

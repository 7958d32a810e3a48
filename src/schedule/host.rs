//! The schedules of one instance: tasks of a spread, and what is known of those that it has.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    ops::Bound,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use futures::FutureExt;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    driver::{Driver, ScheduleSpec},
    overdue,
};
use crate::{
    elect::{Elect, Engine, Error, Lease, Work, chain},
    logic::backoff::{Backoff, jittered},
    model::{Key, ScheduleId, ScheduleName, ScheduleRecord, schedules},
    spread::{Spread, Start, Task},
    store::ScheduleSeen,
    sync::locked,
};

/// How many schedules their new owner reads at a time.
const LOADING: usize = 32;
/// How many records are read at once.
const PAGE: usize = 1000;
/// How many a look from time to time reads, where hints tell what changes.
const ROLLING: usize = 100;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// What an instance has to do with schedules. There is one as long as there is a schedule.
#[derive(Debug)]
pub(super) struct Host {
    book: Mutex<ScheduleRegistry>,
    pub(super) board: Board,
    pub(super) loading: Semaphore,
    joined: JoinedSignal,
    /// There is one more.
    added: Arc<Notify>,
    stop: CancellationToken,
    #[expect(dead_code, reason = "its drop ends what goes on beside the schedules")]
    stopper: DropGuard,
}

#[derive(Default)]
struct ScheduleRegistry {
    plans: BTreeMap<Key, watch::Sender<Arc<ScheduleSpec>>>,
    /// Nothing until it is joined: what was left before is left slowly.
    spread: Option<Arc<Spread>>,
}

/// Until the spread is joined.
type JoinedSignal = watch::Sender<bool>;

impl std::fmt::Debug for ScheduleRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book").field("schedules", &self.plans.len()).finish_non_exhaustive()
    }
}

impl Host {
    /// The host of this instance.
    pub(super) fn of(elect: &Elect) -> Arc<Self> {
        elect.engine().notices.host(|| {
            let stop = CancellationToken::new();
            let host = Arc::new(Self {
                book: Mutex::default(),
                board: Board::default(),
                loading: Semaphore::new(LOADING),
                joined: JoinedSignal::new(false),
                added: Arc::default(),
                stopper: stop.clone().drop_guard(),
                stop,
            });
            let engine = elect.engine();
            engine.runtime.spawn(join(Arc::downgrade(&host), elect.clone(), host.stop.clone()));
            engine.runtime.spawn(follow(Arc::downgrade(&host), Arc::downgrade(engine), host.stop.clone()));
            let looks = overdue::look_after(Arc::downgrade(&host), Arc::downgrade(engine), host.stop.clone());
            engine.runtime.spawn(looks);
            host
        })
    }

    fn book(&self) -> MutexGuard<'_, ScheduleRegistry> {
        locked(&self.book)
    }

    /// There is this schedule, too.
    pub(super) fn add(&self, plan: ScheduleSpec) -> Result<Key, Error> {
        let key = key_of(&plan.id.name);
        let mut book = self.book();
        if book.plans.contains_key(&key) {
            return Err(Error::Scheduled(plan.id.name));
        }
        book.plans.insert(key.clone(), watch::Sender::new(Arc::new(plan)));
        if let Some(spread) = &book.spread {
            spread.add(task(&key));
        }
        self.added.notify_waiters();
        Ok(key)
    }

    /// It has this timing from now on.
    pub(super) fn change(&self, plan: ScheduleSpec) {
        if let Some(known) = self.book().plans.get(&key_of(&plan.id.name)) {
            known.send_if_modified(|known| {
                let is_other = known.timing != plan.timing;
                if is_other {
                    *known = Arc::new(plan);
                }
                is_other
            });
        }
    }

    pub(super) fn plan(&self, key: &Key) -> Option<Arc<ScheduleSpec>> {
        Some(self.book().plans.get(key)?.borrow().clone())
    }

    pub(super) fn remove(&self, key: &Key) {
        let mut book = self.book();
        book.plans.remove(key);
        if let Some(spread) = &book.spread {
            spread.remove(key);
        }
    }

    /// The host of this instance, if it has schedules.
    pub(super) fn known(elect: &Elect) -> Option<Arc<Self>> {
        elect.engine().notices.known_host()
    }

    /// The spread of the schedules, as soon as it is joined.
    pub(super) async fn joined(&self) -> Arc<Spread> {
        // The sender is in self.
        let _ = self.joined.subscribe().wait_for(|joined| *joined).await;
        self.spread().expect("it is joined")
    }

    /// The spread of the schedules, once it is joined.
    pub(super) fn spread(&self) -> Option<Arc<Spread>> {
        self.book().spread.clone()
    }

    /// What is to be driven after it was removed, if it comes again before its spread has given it away.
    pub(super) async fn again(
        host: &Weak<Self>,
        key: &Key,
        lease: &Lease,
    ) -> Option<watch::Receiver<Arc<ScheduleSpec>>> {
        loop {
            // Whoever waits keeps no host: it ends with its last schedule.
            let (added, stop) = host.upgrade().map(|host| (host.added.clone(), host.stop.clone()))?;
            let mut added = pin!(added.notified());
            added.as_mut().enable();
            if let Some(plans) = host.upgrade()?.book().plans.get(key) {
                let mut plans = plans.subscribe();
                plans.mark_changed();
                return Some(plans);
            }
            tokio::select! {
                biased;
                () = lease.cancelled() => return None,
                () = stop.cancelled() => return None,
                () = added => {}
            }
        }
    }

    /// What drives a schedule of this host.
    fn start(host: Weak<Self>, elect: &Elect) -> Start {
        let engine = Arc::downgrade(elect.engine());
        Arc::new(move |key, lease, busy| {
            let plans = host.upgrade()?.book().plans.get(key)?.subscribe();
            let driver =
                Driver::new(engine.upgrade()?, host.clone(), key.clone(), lease, busy.clone(), plans);
            Some(
                async move {
                    driver.drive().await;
                    Ok(())
                }
                .boxed(),
            )
        })
    }
}

/// Takes part in the spread, once the one before it is left.
async fn join(host: Weak<Host>, elect: Elect, stop: CancellationToken) {
    loop {
        let left = elect.engine().spreads.left();
        {
            let Some(host) = host.upgrade() else { return };
            let mut book = host.book();
            let tasks = book.plans.keys().cloned();
            // What fails is the job's business, and its schedule's: no driver is quarantined.
            let mut spreading = elect.spread(schedules()).tasks(tasks).tries(u32::MAX);
            let part = elect.engine().notices.part();
            if let Some(cap) = part.cap {
                spreading = spreading.cap(cap);
            }
            if let Some(weight) = part.weight {
                spreading = spreading.weight(weight);
            }
            match spreading.begin(|_| Host::start(Arc::downgrade(&host), &elect)) {
                Ok(spread) => {
                    if part.draining {
                        spread.drain();
                    }
                    book.spread = Some(Arc::new(spread));
                    host.joined.send_replace(true);
                    return;
                }
                Err(Error::Joined(_)) => {}
                // It is closed.
                Err(_) => return,
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = left => {}
        }
    }
}

/// Brings the news of the schedules that are driven here.
async fn follow(host: Weak<Host>, engine: Weak<Engine>, stop: CancellationToken) {
    let mut missed: BTreeSet<Key> = BTreeSet::new();
    let mut rolling = None;
    let mut pauses: Option<Backoff> = None;
    let mut poll_at = None;
    loop {
        let Some(strong) = engine.upgrade() else { return };
        let (now, poll) = (strong.clock.now(), jittered(strong.poll(), strong.entropy.roll()));
        let due = *poll_at.get_or_insert(now + poll);
        let pause = pauses.as_mut().map_or(due.since(now), |pauses| pauses.next(strong.entropy.roll()));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = strong.closing.cancelled() => return,
            // However many news there are, it looks for itself, too.
            () = tokio::time::sleep(pause) => {}
            () = news(&strong, pauses.is_some()) => {}
        }
        let polled = strong.clock.now() >= due;
        if polled {
            poll_at = None;
        }
        let Some(host) = host.upgrade() else { return };
        let news = strong.notices.take();
        let hints = strong.store.capabilities().hints;
        if news.resync || polled && !hints {
            missed.extend(host.board.all());
        }
        missed.extend(news.schedules.iter().map(key_of).filter(|key| host.board.knows(key)));
        if polled && hints && pauses.is_none() {
            missed.extend(host.board.some(&mut rolling));
        }
        let answered = host.board.read(&strong, &mut missed).await;
        pauses = if answered { None } else { pauses.or(Some(Backoff::new(FIRST_PAUSE, poll))) };
    }
}

/// Until there are news; those that come while the store does not answer are read with the rest.
async fn news(engine: &Engine, is_pausing: bool) {
    if is_pausing {
        pending::<()>().await;
    }
    engine.notices.news().await;
}

/// What is known of the schedules that are driven here.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<BTreeMap<Key, watch::Sender<ScheduleRecord>>>);

/// The place of one that drives a schedule, where the news of it arrive. It is given up when this is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    host: Weak<Host>,
    key: Key,
    records: watch::Receiver<ScheduleRecord>,
}

impl Subscription {
    /// The record was read; what has arrived since is newer, and news.
    pub(super) fn knows(&self, record: ScheduleRecord) {
        let Some(host) = self.host.upgrade() else { return };
        let seats = host.board.seats();
        if let Some(seat) = seats.get(&self.key)
            && !self.records.has_changed().unwrap_or(true)
        {
            seat.send_if_modified(|known| {
                *known = record;
                false
            });
        }
    }

    /// The record, if there are news of it that were not taken.
    pub(super) fn news(&mut self) -> Option<ScheduleRecord> {
        // An error says that another has the seat: this one's lease has ended.
        let is_news = self.records.has_changed().unwrap_or(false);
        is_news.then(|| self.records.borrow_and_update().clone())
    }

    /// Until there are news that were not taken.
    pub(super) async fn changed(&mut self) {
        // Another may have the seat: this one's lease has ended.
        if self.records.changed().await.is_err() || self.records.has_changed().is_err() {
            pending::<()>().await;
        }
        self.records.mark_changed();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(host) = self.host.upgrade() else { return };
        let mut seats = host.board.seats();
        if seats.get(&self.key).is_some_and(|seat| self.records.same_channel(&seat.subscribe())) {
            seats.remove(&self.key);
        }
    }
}

impl Board {
    fn seats(&self) -> MutexGuard<'_, BTreeMap<Key, watch::Sender<ScheduleRecord>>> {
        locked(&self.0)
    }

    /// A schedule is driven here from now on.
    pub(super) fn sit(host: &Arc<Host>, key: Key, id: ScheduleId) -> Subscription {
        let (seat, records) = watch::channel(ScheduleRecord::new(id));
        host.board.seats().insert(key.clone(), seat);
        Subscription { host: Arc::downgrade(host), key, records }
    }

    fn all(&self) -> Vec<Key> {
        self.seats().keys().cloned().collect()
    }

    fn knows(&self, key: &Key) -> bool {
        self.seats().contains_key(key)
    }

    /// The next ones after that.
    fn some(&self, after: &mut Option<Key>) -> Vec<Key> {
        let seats = self.seats();
        let start = after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = seats.range((start, Bound::Unbounded)).map(|(key, _)| key);
        let some: Vec<_> = rest.take(ROLLING).cloned().collect();
        // A full page goes on next time; from the last one it begins anew.
        *after = some.last().filter(|_| some.len() == ROLLING).cloned();
        some
    }

    /// Reads these, and tells those who drive them. Says whether all was answered; what was is not among them
    /// any more.
    async fn read(&self, engine: &Engine, keys: &mut BTreeSet<Key>) -> bool {
        keys.retain(|key| self.knows(key));
        while !keys.is_empty() {
            let some: Vec<Key> = keys.iter().take(PAGE).cloned().collect();
            let namespace = engine.config.namespace();
            let id = |key: &Key| ScheduleId { namespace: namespace.clone(), name: name_of(key) };
            let limit = engine.limit();
            let ids = some.iter().map(id).collect();
            let seen = match engine.call(Work::Schedules, limit, engine.store.schedules(ids, limit)).await {
                Ok(seen) => seen,
                Err(error) => {
                    tracing::debug!(error = chain(&error), "schedules could not be read");
                    return false;
                }
            };
            let seats = self.seats();
            for (key, seen) in some.iter().zip(seen) {
                keys.remove(key);
                if let (Some(seat), ScheduleSeen::Found(record)) = (seats.get(key), seen) {
                    seat.send_if_modified(|known| {
                        // Its mark is the owner's own.
                        let is_news = ScheduleRecord { mark: record.mark, ..known.clone() } != record;
                        *known = record;
                        is_news
                    });
                }
            }
        }
        true
    }
}

/// The task that a schedule is.
pub(super) fn key_of(name: &ScheduleName) -> Key {
    Key::new(name).expect("a schedule's name is shorter than a key")
}

fn name_of(key: &Key) -> ScheduleName {
    ScheduleName::new(key).expect("it was made of a schedule's name")
}

fn task(key: &Key) -> Task {
    Task::new(key, ()).expect("it is a key")
}

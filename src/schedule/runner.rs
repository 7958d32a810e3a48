//! The runner of an instance's schedules: it takes part in their spread, and brings news to their drivers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::pending,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, Weak},
    time::Duration,
};

use futures::FutureExt;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    driver::{Driver, Unwritten},
    overdue,
    spec::{ScheduleSpec, key_of},
    subscriptions::Subscriptions,
};
use crate::{
    backoff::{Backoff, jittered},
    elect::{Elect, Engine, Error, Lease},
    model::{Key, schedules},
    spread::{Spread, Start, Task},
    sync::locked,
};

/// Schedules that their new owner reads at a time: ten thousand that move at once do not delay beats.
const LOADING: usize = 32;
/// Pause after a first read that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// State of an instance's schedules that outlives its runner.
#[derive(Debug, Default)]
struct ScheduleSlot {
    runner: Mutex<Weak<ScheduleRunner>>,
    unwritten: Arc<Unwritten>,
    /// Set once this instance looks for overdue schedules.
    looks: OnceLock<()>,
}

/// Runner of one instance's schedules. Each instance has one as long as it has a schedule.
#[derive(Debug)]
pub(super) struct ScheduleRunner {
    registry: Mutex<ScheduleRegistry>,
    pub(super) subscriptions: Arc<Subscriptions>,
    pub(super) loading: Semaphore,
    pub(super) unwritten: Arc<Unwritten>,
    joined: JoinedSignal,
    /// Notifies of each schedule that is added.
    added: Arc<Notify>,
    stop: CancellationToken,
    #[expect(dead_code, reason = "its drop ends what goes on beside the schedules")]
    stopper: DropGuard,
}

#[derive(Default)]
struct ScheduleRegistry {
    specs: BTreeMap<Key, watch::Sender<Arc<ScheduleSpec>>>,
    /// `None` until it is joined: a runner before this one may still be leaving it.
    spread: Option<Arc<Spread>>,
}

/// Signal that the spread is joined.
type JoinedSignal = watch::Sender<bool>;

impl fmt::Debug for ScheduleRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleRegistry").field("schedules", &self.specs.len()).finish_non_exhaustive()
    }
}

impl ScheduleRunner {
    /// Returns the runner of this instance, and starts one if there is none.
    pub(super) fn of(elect: &Elect) -> Arc<Self> {
        let engine = elect.engine();
        let slot: &ScheduleSlot = engine.schedules();
        let runner = {
            let mut known = locked(&slot.runner);
            if let Some(runner) = known.upgrade() {
                return runner;
            }
            let runner = Arc::new(Self::new(slot.unwritten.clone()));
            *known = Arc::downgrade(&runner);
            runner
        };
        let (weak, stop) = (|| Arc::downgrade(&runner), || runner.stop.clone());
        engine.runtime.spawn(join(weak(), elect.clone(), stop()));
        engine.runtime.spawn(follow(weak(), Arc::downgrade(engine), stop()));
        slot.looks.get_or_init(|| drop(engine.runtime.spawn(overdue::look_after(Arc::downgrade(engine)))));
        runner
    }

    /// Returns the runner of this instance, if it has schedules.
    pub(super) fn known(engine: &Engine) -> Option<Arc<Self>> {
        let slot: &ScheduleSlot = engine.schedules();
        locked(&slot.runner).upgrade()
    }

    fn new(unwritten: Arc<Unwritten>) -> Self {
        let stop = CancellationToken::new();
        Self {
            registry: Mutex::default(),
            subscriptions: Arc::default(),
            loading: Semaphore::new(LOADING),
            unwritten,
            joined: JoinedSignal::new(false),
            added: Arc::default(),
            stopper: stop.clone().drop_guard(),
            stop,
        }
    }

    fn registry(&self) -> MutexGuard<'_, ScheduleRegistry> {
        locked(&self.registry)
    }

    pub(super) fn add(&self, spec: ScheduleSpec) -> Result<Key, Error> {
        let key = key_of(&spec.id.name);
        let mut registry = self.registry();
        if registry.specs.contains_key(&key) {
            return Err(Error::Scheduled(spec.id.name));
        }
        registry.specs.insert(key.clone(), watch::Sender::new(Arc::new(spec)));
        if let Some(spread) = &registry.spread {
            spread.add(task(&key));
        }
        self.added.notify_waiters();
        Ok(key)
    }

    /// Changes the timing of a schedule.
    pub(super) fn retime(&self, spec: ScheduleSpec) {
        if let Some(known) = self.registry().specs.get(&key_of(&spec.id.name)) {
            known.send_if_modified(|known| {
                let is_other = known.timing != spec.timing;
                if is_other {
                    *known = Arc::new(spec);
                }
                is_other
            });
        }
    }

    pub(super) fn spec(&self, key: &Key) -> Option<Arc<ScheduleSpec>> {
        Some(self.registry().specs.get(key)?.borrow().clone())
    }

    pub(super) fn remove(&self, key: &Key) {
        let mut registry = self.registry();
        registry.specs.remove(key);
        if let Some(spread) = &registry.spread {
            spread.remove_task(key);
        }
    }

    /// Waits until the spread of the schedules is joined.
    pub(super) async fn joined(&self) -> Arc<Spread> {
        // The sender is in self.
        let _ = self.joined.subscribe().wait_for(|joined| *joined).await;
        self.spread().expect("it is joined")
    }

    /// Returns the spread of the schedules, once it is joined.
    pub(super) fn spread(&self) -> Option<Arc<Spread>> {
        self.registry().spread.clone()
    }

    /// Waits for a schedule that was removed to be added again, before its spread has given it away.
    pub(super) async fn added_again(
        runner: &Weak<Self>,
        key: &Key,
        lease: &Lease,
    ) -> Option<watch::Receiver<Arc<ScheduleSpec>>> {
        loop {
            // A caller that waits does not keep the runner alive: it ends with its last schedule.
            let (added, stop) = runner.upgrade().map(|runner| (runner.added.clone(), runner.stop.clone()))?;
            let mut added = pin!(added.notified());
            added.as_mut().enable();
            if let Some(specs) = runner.upgrade()?.registry().specs.get(key) {
                let mut specs = specs.subscribe();
                specs.mark_changed();
                return Some(specs);
            }
            tokio::select! {
                biased;
                () = lease.cancelled() => return None,
                () = stop.cancelled() => return None,
                () = added => {}
            }
        }
    }

    /// Returns what starts the driver of a schedule of this runner.
    fn start(runner: Weak<Self>, elect: &Elect) -> Start {
        let engine = Arc::downgrade(elect.engine());
        Arc::new(move |key, lease, permit| {
            let runner = runner.upgrade()?;
            let specs = runner.registry().specs.get(key)?.subscribe();
            let driver = Driver::new(engine.upgrade()?, &runner, key.clone(), lease, permit.clone(), specs);
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

/// Takes part in the spread, once the runner before this one has left it.
async fn join(runner: Weak<ScheduleRunner>, elect: Elect, stop: CancellationToken) {
    loop {
        let left = elect.engine().spreads.left();
        {
            let Some(runner) = runner.upgrade() else { return };
            let mut registry = runner.registry();
            let tasks = registry.specs.keys().cloned();
            // Failures are the business of the job and its schedule: no driver rests.
            let mut builder = elect.spread(schedules()).tasks(tasks).tries(u32::MAX);
            let share = elect.engine().schedule_inbox.share();
            if let Some(cap) = share.cap {
                builder = builder.cap(cap);
            }
            if let Some(weight) = share.weight {
                builder = builder.weight(weight);
            }
            match builder.begin(|_| ScheduleRunner::start(Arc::downgrade(&runner), &elect)) {
                Ok(spread) => {
                    if share.draining {
                        spread.drain();
                    }
                    registry.spread = Some(Arc::new(spread));
                    runner.joined.send_replace(true);
                    return;
                }
                Err(Error::Joined(_)) => {}
                // The instance is closed.
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

/// Brings the news of schedules to their drivers.
async fn follow(runner: Weak<ScheduleRunner>, engine: Weak<Engine>, stop: CancellationToken) {
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
        let Some(runner) = runner.upgrade() else { return };
        let subscriptions = &runner.subscriptions;
        let news = strong.schedule_inbox.take();
        let hints = strong.hints().is_some();
        if news.resync || polled && !hints {
            missed.extend(subscriptions.all());
        }
        missed.extend(news.schedules.iter().map(key_of).filter(|key| subscriptions.contains(key)));
        if polled && hints && pauses.is_none() {
            missed.extend(subscriptions.page(&mut rolling));
        }
        let answered = subscriptions.read(&strong, &mut missed).await;
        pauses = if answered { None } else { pauses.or(Some(Backoff::new(FIRST_PAUSE, poll))) };
    }
}

/// Waits for news; those that come while the store does not answer are read with the rest.
async fn news(engine: &Engine, is_pausing: bool) {
    if is_pausing {
        pending::<()>().await;
    }
    engine.schedule_inbox.news().await;
}

fn task(key: &Key) -> Task {
    Task::new(key, ()).expect("it is a key")
}

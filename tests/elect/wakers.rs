//! Wakers that block, which are code of others, and threads that stand still: what runs under a lease is told all the
//! same (R14).

use std::{
    panic::Location,
    pin::pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tenure::{
    Elect, Loss,
    elect::JobEnd,
    sim::Tasks,
    store::{MemoryStore, Store},
    testing::{Call, Course, Fault, Faulty, Intercept, Operation},
};
use tokio::runtime::Handle;

use crate::{
    elect::world::{World, short},
    wait::{until, within},
};

const MS: Duration = Duration::from_millis(1);

/// Blocks who comes, while it is closed.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
    came: AtomicUsize,
}

impl Gate {
    fn close(&self, closed: bool) {
        *self.is_closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
        drop(self.opened.wait_while(self.is_closed.lock().unwrap(), |closed| *closed).unwrap());
    }
}

/// As a waker: that of a bridge to another language waits for its lock, for example.
impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.pass();
    }
}

/// As a store: its calls block the thread they are made on.
impl Intercept for Gate {
    fn decide(&self, _: &Call) -> Course {
        self.pass();
        Course::PLAIN
    }
}

/// In real time: it is about threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_that_blocks_keeps_nobody_else_from_being_told() {
    let memory = MemoryStore::default();
    let blocking = Gate::default().around(Arc::new(memory.clone()));
    let first = Elect::start(blocking.clone() as Arc<dyn Store>, short("first")).await.unwrap();
    let neighbour = Elect::start(blocking.clone() as Arc<dyn Store>, short("neighbour")).await.unwrap();
    let second = Elect::start(memory, short("second")).await.unwrap();
    let gate = Arc::<Gate>::default();
    gate.close(true);
    let waker = Waker::from(gate.clone());
    let mut blocks = Context::from_waker(&waker);
    let blocked = async |wakers| {
        let came = async || Some(gate.came.load(Ordering::Relaxed)).filter(|came| *came >= wakers).ok_or(());
        until("a waker blocks", came).await;
    };

    // The keeper has granted a lock, and goes on.
    let held = second.acquire("wanted").await.unwrap();
    let asks = first.clone();
    let mut waits = pin!(asks.acquire("wanted"));
    assert!(waits.as_mut().poll(&mut blocks).is_pending());
    held.release().await.unwrap();
    blocked(1).await;
    let victim = within("the keeper grants another", first.acquire("victim")).await.unwrap();

    // It tells of an event.
    let mut events = first.events();
    let mut event = pin!(events.next());
    assert!(event.as_mut().poll(&mut blocks).is_pending());
    let more = within("the keeper grants more", first.acquire("more")).await.unwrap();
    blocked(2).await;

    // It hangs in the store, and the time thread tells that the leases end.
    let beside = neighbour.acquire("beside").await.unwrap();
    let others = [first.acquire("1").await.unwrap(), first.acquire("2").await.unwrap()];
    let mut lost = others.each_ref().map(|guard| guard.lost().boxed());
    for lost in &mut lost {
        assert!(lost.poll_unpin(&mut blocks).is_pending());
    }
    let leases = [victim.lease(), beside.lease(), more.lease()];
    let thread = std::thread::spawn(move || {
        while !leases.iter().all(tenure::Lease::is_cancelled) {
            std::thread::yield_now();
        }
    });
    let token = beside.lease().token();
    blocking.intercept().close(true);
    for (guard, which) in [(&victim, "of this instance"), (&beside, "of another")] {
        let loss = within(which, guard.lost()).await;
        assert!(matches!(loss, Loss::Expired { .. }), "{loss:?}");
    }
    within("a token fires", token.cancelled()).await;
    until("a thread is told", async || if thread.is_finished() { Ok(()) } else { Err(()) }).await;
    blocked(4).await;

    gate.close(false);
    blocking.intercept().close(false);
    drop(within("what was granted", waits).await.unwrap());
    within("the event", event).await.unwrap();
    drop(lost);
    drop((others, victim, more, beside));
    for elect in [&first, &neighbour, &second] {
        within("it closes", elect.close()).await;
    }
}

/// In real time, likewise: those behind a waker that blocks look for themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_that_blocks_delays_no_task_behind_it_for_longer_than_an_interval() {
    let faulty = Faulty::default().around(Arc::new(MemoryStore::default()));
    let elect = Elect::start(faulty.clone() as Arc<dyn Store>, short("a")).await.unwrap();
    let gate = Arc::<Gate>::default();
    gate.close(true);
    let waker = Waker::from(gate.clone());
    let mut blocks = Context::from_waker(&waker);

    // Both wait for the end of a lease that is given up.
    let held = elect.acquire("held").await.unwrap();
    let token = held.lease().token();
    let mut first = pin!(token.cancelled());
    assert!(first.as_mut().poll(&mut blocks).is_pending());
    let lost = tokio::spawn(async move { held.lost().await });
    let unlocked = tokio::spawn({
        let elect = elect.clone();
        async move { elect.unlock("held").await.unwrap() }
    });
    assert_eq!(within("a task is told", lost).await.unwrap(), Loss::Resigned);
    within("it is released", unlocked).await.unwrap();

    // Both wait for a session.
    faulty.intercept().always(Operation::ALL, Fault::Refused);
    let is_over = async || if elect.health().is_ok() { Err(()) } else { Ok(()) };
    until("the session is over", is_over).await;
    let mut first = pin!(elect.acquire("first"));
    assert!(first.as_mut().poll(&mut blocks).is_pending());
    let second = tokio::spawn({
        let elect = elect.clone();
        async move { elect.acquire("second").await.unwrap() }
    });
    let waits = async || Some(()).filter(|()| second.is_finished()).map_or(Ok(()), Err);
    until("the second waits", waits).await;
    faulty.intercept().heal();
    drop(within("a task has its lock", second).await.unwrap());

    // The end of an instance tells of no leader any more.
    let mut leader = elect.watch("watched").unwrap();
    within("the first look", leader.changed()).await.unwrap();
    let mut changed = pin!(leader.changed());
    assert!(changed.as_mut().poll(&mut blocks).is_pending());
    within("it closes", elect.close()).await;

    gate.close(false);
    within("the first is told", first).await.unwrap_err();
    within("the leader is told of", changed).await.unwrap_err();
}

/// Notes on which thread it is woken.
#[derive(Debug, Default)]
struct Named(Mutex<Vec<String>>);

impl Wake for Named {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().push(std::thread::current().name().unwrap_or_default().to_owned());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_outside_of_tasks_is_woken_by_the_threads_for_that_alone() {
    let elect = Elect::start(MemoryStore::default(), short("a")).await.unwrap();
    let guard = elect.acquire("held").await.unwrap();
    let named = Arc::<Named>::default();
    let waker = Waker::from(named.clone());
    let mut run = pin!(guard.run(async |_| std::future::pending::<Result<(), String>>().await));
    assert!(run.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let unlocks = tokio::spawn({
        let elect = elect.clone();
        async move { elect.unlock("held").await.unwrap() }
    });
    // The job is cancelled, and its grace ends.
    let end =
        until("the job is dropped", async || match run.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(end) => Ok(end),
            Poll::Pending => Err(named.0.lock().unwrap().clone()),
        });
    assert!(matches!(end.await, JobEnd::Cancelled(Loss::Resigned)));
    within("it is released", unlocks).await.unwrap();
    let by = named.0.lock().unwrap().clone();
    assert!(!by.is_empty() && by.iter().all(|thread| thread == "tenure-wakes"), "{by:?}");
    elect.close().await;
}

/// Stops the tasks of an instance, as a debugger stops threads.
#[derive(Clone, Debug, Default)]
struct Freezer(Arc<AtomicBool>);

impl Tasks for Freezer {
    fn wrap(
        &self,
        mut task: BoxFuture<'static, ()>,
        _: &'static Location<'static>,
    ) -> BoxFuture<'static, ()> {
        let freezes = self.0.clone();
        std::future::poll_fn(move |cx| {
            if freezes.load(Ordering::Relaxed) { Poll::Pending } else { task.poll_unpin(cx) }
        })
        .boxed()
    }

    fn spawned(&self, _: tokio::task::AbortHandle) {}

    fn spawn_blocking(&self, runtime: &Handle, call: Box<dyn FnOnce() + Send>) {
        runtime.spawn_blocking(call);
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_for_the_end_of_a_lease_look_at_the_clock_themselves() {
    let (world, freezer) = (World::new(), Freezer::default());
    let (builder, _) = world.builder("a");
    let elect = builder.tasks(Arc::new(freezer.clone())).start().await.unwrap();
    let [watched, run] = [elect.acquire("watched").await.unwrap(), elect.acquire("run").await.unwrap()];
    let grace = World::config("a").stop_grace();
    freezer.0.store(true, Ordering::Relaxed);
    let left = run.remaining();
    let watches = tokio::spawn(async move { watched.lost().await });
    let runs = tokio::spawn(async move {
        let job = async |lease: tenure::Lease| {
            lease.cancelled().await;
            assert!(lease.remaining() + MS >= grace, "it has the grace");
            std::future::pending::<Result<(), String>>().await
        };
        run.run(job).await
    });
    let both = tokio::time::timeout(left + 2 * MS, futures::future::try_join(watches, runs)).await;
    let (lost, end) = both.expect("the clock tells").unwrap();
    assert!(matches!(lost, Loss::Expired { .. }), "{lost:?}");
    assert!(matches!(end, JobEnd::Cancelled(Loss::Expired { .. })), "{end:?}");
}

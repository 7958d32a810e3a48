//! A log and a recorder of metrics that block or panic: no lease waits for them (R14).
//!
//! A process has one log, so each of these has a process to itself.

use std::{
    io, panic,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use futures::FutureExt;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tenure::{
    Loss,
    elect::{CloseReport, JobEnd, Status, Work},
    testing::{Fault, Operation},
};
use tracing::{
    Event, Subscriber,
    span::{Attributes, Id, Record},
};

use crate::{
    elect::world::{SECOND, World},
    wait::until_blocking,
};

/// Runs a test in a process of its own. Returns whether this is the one.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "TENURE_ALONE";
    if std::env::var(ALONE).as_deref() == Ok(test) {
        // What the log panics with is not a failure.
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&PANIC) {
                usual(info);
            }
        }));
        return true;
    }
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([&*name, "--exact", "--nocapture"]).env(ALONE, test).stdout(Stdio::null());
    let mut child = Killed(child.spawn().unwrap());
    let ended = until_blocking("the test's process ends", || child.0.try_wait().unwrap().ok_or(()));
    assert!(ended.success(), "{ended:?}");
    false
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // An error says that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const PANIC: &str = "the log is broken";

/// Behaviour of the log and of the recorder, once they are spoilt.
#[derive(Clone, Copy, Debug)]
enum How {
    Panics,
    /// Blocks until the process ends.
    Blocks,
}

static SPOILT: Mutex<Option<How>> = Mutex::new(None);

fn spoil(how: How) {
    *SPOILT.lock().unwrap() = Some(how);
}

fn suffer() {
    let how = *SPOILT.lock().unwrap();
    match how {
        Some(How::Panics) => panic::panic_any(PANIC),
        Some(How::Blocks) => loop {
            thread::park();
        },
        None => {}
    }
}

/// A log that reads nothing. Spans are the job's own, and its runtime is that of the whole test: they do not block.
#[derive(Default)]
struct Log {
    lines: AtomicU64,
}

fn suffer_in_a_span() {
    if !matches!(*SPOILT.lock().unwrap(), Some(How::Blocks)) {
        suffer();
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        if metadata.is_event() {
            suffer();
        } else {
            suffer_in_a_span();
        }
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        suffer_in_a_span();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        suffer();
        self.lines.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {
        suffer_in_a_span();
    }

    fn exit(&self, _: &Id) {
        suffer_in_a_span();
    }

    fn try_close(&self, _: Id) -> bool {
        suffer_in_a_span();
        true
    }
}

struct Counted;

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        suffer();
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        suffer();
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        suffer();
        Histogram::noop()
    }
}

/// An instance loses its session while the log or the recorder is broken: what ran under its leases was told, and the
/// job was dropped, before another instance has the keys.
async fn an_outage(how: How) {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("guard").await.unwrap();
    let lease = guard.lease();
    let thread = thread::spawn({
        let lease = lease.clone();
        move || {
            while !lease.is_cancelled() {
                thread::yield_now();
            }
        }
    });
    let waits = tokio::spawn(async move { guard.lost().await });
    let job = first.lock("job", async |lease| {
        lease.cancelled().await;
        std::future::pending::<Result<(), String>>().await
    });
    let job = tokio::spawn(job.await.unwrap().running().expect("the key is free").join());
    spoil(how);
    // A key more, which the log is told of.
    let another = first.acquire("another").await.unwrap();
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    for key in ["guard", "job", "another"] {
        let taken = second.acquire(key).await.unwrap();
        assert!(lease.is_cancelled() && !lease.is_valid() && !another.is_valid(), "{key}");
        assert!(waits.is_finished() && job.is_finished(), "{key}");
        taken.release().await.unwrap();
    }
    thread.join().unwrap();
    assert!(matches!(job.await.unwrap(), JobEnd::Cancelled(Loss::Expired { .. })));
    drop(another);
    faulty.intercept().heal();
    let again = first.acquire("another").await.unwrap();
    again.release().await.unwrap();
    if let How::Panics = how {
        until_blocking("its voice is missed", || {
            let troubles = first.health().troubles;
            let is_missed = troubles.iter().any(|trouble| trouble.work == Work::Telling);
            if is_missed { Ok(()) } else { Err(troubles) }
        });
    }
    second.close().await;
    assert_eq!(first.close().await, CloseReport::default());
}

#[tokio::test(start_paused = true)]
async fn a_log_that_panics_at_each_call_breaks_no_lease() {
    if is_alone("a_log_that_panics_at_each_call_breaks_no_lease") {
        let _here = tracing::subscriber::set_default(Log::default());
        an_outage(How::Panics).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_nobody_reads_breaks_no_lease() {
    if is_alone("a_log_that_nobody_reads_breaks_no_lease") {
        let _here = tracing::subscriber::set_default(Log::default());
        an_outage(How::Blocks).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_panics_at_each_call_breaks_no_lease() {
    if is_alone("a_recorder_that_panics_at_each_call_breaks_no_lease") {
        metrics::set_global_recorder(Counted).unwrap();
        an_outage(How::Panics).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_blocks_breaks_no_lease() {
    if is_alone("a_recorder_that_blocks_breaks_no_lease") {
        metrics::set_global_recorder(Counted).unwrap();
        an_outage(How::Blocks).await;
    }
}

/// A waker of the program's own, such as an executor's, that panics.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic::panic_any(PANIC);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_no_other_from_being_told() {
    if !is_alone("a_waker_that_panics_keeps_no_other_from_being_told") {
        return;
    }
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let [first, second, third] = [
        elect.acquire("1").await.unwrap(),
        elect.acquire("2").await.unwrap(),
        elect.acquire("3").await.unwrap(),
    ];
    let (broken, mut lost) = (Waker::from(Arc::new(Broken)), Box::pin(second.lost()));
    assert!(lost.poll_unpin(&mut Context::from_waker(&broken)).is_pending());
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let (one, three) = tokio::join!(first.lost(), third.lost());
    assert!(matches!((one, three), (Loss::Expired { .. }, Loss::Expired { .. })));
    assert!(second.lease().is_cancelled());
    drop(lost);
    faulty.intercept().heal();
    let again = async {
        while !elect.health().is_ok() {
            tokio::time::sleep(SECOND).await;
        }
    };
    tokio::time::timeout(SECOND * 60, again).await.expect("the keeper goes on");
}

/// The clock is asked, not whoever should have told.
#[tokio::test(start_paused = true)]
async fn a_lease_is_cancelled_by_the_clock_though_nothing_of_the_process_has_run() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let (early, late) = (elect.acquire("early").await.unwrap(), elect.acquire("late").await.unwrap());
    let (early, late) = (early.lease(), late.lease());
    let left = early.remaining();
    assert!(!early.is_cancelled());
    world.clock.suspend(left.saturating_sub(World::config("a").stop_grace()));
    // Its grace begins.
    assert!(early.is_cancelled() && early.is_valid());
    world.clock.suspend(World::config("a").stop_grace());
    assert!(!late.is_valid() && late.is_cancelled());
    assert!(matches!(late.loss(), Some(Loss::Expired { .. })));
}

/// In paused time all of an instance is on the runtime that ends.
#[test]
fn a_runtime_that_ends_under_its_keeper_tells_what_works_under_a_lease() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (elect, guard) = runtime.block_on(async {
        let (elect, _) = World::new().instance("a").await;
        let guard = elect.acquire("k").await.unwrap();
        (elect, guard)
    });
    let told = Arc::<AtomicBool>::default();
    let (lease, heard) = (guard.lease(), told.clone());
    let worker = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(lease.cancelled());
        heard.store(true, Ordering::Relaxed);
    });
    drop(runtime);
    until_blocking("the thread is told", || told.load(Ordering::Relaxed).then_some(()).ok_or(()));
    worker.join().unwrap();
    assert!(guard.lease().is_cancelled() && !guard.is_valid());
    assert_eq!(guard.lease().loss(), Some(Loss::Closed));
    assert_eq!(elect.health().status, Status::Closed);
}

/// A log that takes nothing until it is let go.
#[derive(Clone, Default)]
struct Slow(Arc<(Mutex<Held>, Condvar)>);

#[derive(Default)]
struct Held {
    is_held: bool,
    text: Vec<u8>,
}

impl io::Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (state, let_go) = &*self.0;
        let mut state = let_go.wait_while(state.lock().unwrap(), |held| held.is_held).unwrap();
        state.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn lines_say_that_they_are_late_and_the_oldest_go_when_too_many_wait() {
    // Two lines each.
    const KEYS: usize = 5000;
    if !is_alone("lines_say_that_they_are_late_and_the_oldest_go_when_too_many_wait") {
        return;
    }
    let log = Slow::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(move || writer.clone());
    let _here = tracing::subscriber::set_default(subscriber.finish());
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    tenure::words::flush();
    log.0.0.lock().unwrap().is_held = true;
    for number in 0..KEYS {
        elect.acquire(format!("key {number:04}")).await.unwrap().release().await.unwrap();
    }
    thread::sleep(Duration::from_millis(1100));
    log.0.0.lock().unwrap().is_held = false;
    log.0.1.notify_all();
    tenure::words::flush();
    let text = String::from_utf8(log.0.0.lock().unwrap().text.clone()).unwrap();
    let dropped = text.lines().find(|line| line.contains("lines were dropped")).expect(&text);
    let dropped: usize = dropped.rsplit_once("lines=").unwrap().1.parse().unwrap();
    let about: Vec<_> = text.lines().filter(|line| line.contains("key=\"key ")).collect();
    assert_eq!(about.len() + dropped, 2 * KEYS);
    assert!(about.last().unwrap().contains("released") && about.last().unwrap().contains("key 4999"));
    // The first may have been under way.
    let late = |line: &&str| line.contains("late=");
    assert!(about[1..].iter().all(late), "{}", about[1]);
}

//! The presence that is kept for a session as long as it, or a job under it, lives.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use futures::stream::BoxStream;
use tenure::{
    Applied, Elect, Event, StoreError,
    elect::JobEnd,
    model::SessionId,
    store::{Answer, Capabilities, Hint, MemoryStore, Op, Presence, Reply, Store, Topics},
    testing::{Fault, Faulty, Intercept, Intercepted, Operation},
};
use tokio::task::yield_now;

use crate::captured::Log;
use crate::elect::world::{SECOND, World};

/// The memory store, with a presence for each session, and an eye on it.
#[derive(Debug)]
struct Watching {
    store: MemoryStore,
    kept: Mutex<BTreeMap<SessionId, Weak<()>>>,
    /// Of each session that was opened: whether its presence was kept then.
    opened: Mutex<Vec<(SessionId, bool)>>,
    /// Of each session that was declared dead: whether its presence was kept then.
    declared: Mutex<Vec<(SessionId, bool)>>,
    fails: AtomicBool,
}

impl Watching {
    fn new(store: MemoryStore) -> Arc<Self> {
        Arc::new(Self {
            store,
            kept: Mutex::default(),
            opened: Mutex::default(),
            declared: Mutex::default(),
            fails: AtomicBool::new(false),
        })
    }

    fn keeps(&self, session: SessionId) -> bool {
        self.kept.lock().unwrap().get(&session).is_some_and(|kept| kept.strong_count() > 0)
    }
}

impl Store for Watching {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
        Box::pin(async move {
            if self.fails.load(Ordering::Relaxed) {
                return Err(StoreError::new("memory", "keep a file", Applied::No, true, "no space left"));
            }
            let kept = Arc::new(());
            self.kept.lock().unwrap().insert(session, Arc::downgrade(&kept));
            Ok(Some(Presence::new(kept)))
        })
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        match &op {
            Op::Open(open) => self.opened.lock().unwrap().push((open.session, self.keeps(open.session))),
            Op::Declare(declaration) => {
                let session = declaration.session;
                self.declared.lock().unwrap().push((session, self.keeps(session)));
            }
            _ => {}
        }
        self.store.call(op, limit)
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        self.store.dedicated()
    }
}

async fn instance(world: &World) -> (Elect, Arc<Watching>, Arc<Intercepted<Faulty>>) {
    let watching = Watching::new(world.memory.clone());
    let faulty = Faulty::default().around(watching.clone());
    let store: Arc<dyn Store> = faulty.clone();
    let builder = world.on(store, World::config("a"));
    (builder.start().await.unwrap(), watching, faulty)
}

fn session(elect: &Elect) -> SessionId {
    elect.health().session.expect("there is a valid session")
}

/// Loses the session, and waits for the next one. Time does not go on by itself while a call blocks its thread.
async fn next_session(elect: &Elect, faulty: &Intercepted<Faulty>) -> SessionId {
    let first = session(elect);
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    while elect.health().session == Some(first) {
        advance().await;
    }
    faulty.intercept().heal();
    loop {
        advance().await;
        if let Some(next) = elect.health().session {
            return next;
        }
    }
}

async fn advance() {
    tokio::time::advance(SECOND / 4).await;
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_presence_is_asked_for_before_its_session_opens_and_let_go_once_that_is_closed() {
    let world = World::new();
    let (elect, watching, _) = instance(&world).await;
    let id = session(&elect);
    assert_eq!(*watching.opened.lock().unwrap(), [(id, true)]);
    // A lease that somebody keeps keeps nobody alive.
    let guard = elect.acquire("k").await.unwrap();
    let lease = guard.lease();
    guard.release().await.unwrap();
    tokio::time::sleep(SECOND * 60).await;
    assert!(watching.keeps(id), "the session lives");
    elect.close().await;
    assert_eq!(*watching.declared.lock().unwrap(), [(id, true)], "nobody proves what is closed anyway");
    assert!(!watching.keeps(id));
    assert!(!lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_presence_is_kept_while_a_job_overruns_and_across_the_next_session() {
    let world = World::new();
    let (elect, watching, faulty) = instance(&world).await;
    let first = session(&elect);
    let (begun, has_begun) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let job = elect.key("k").lock_blocking(move |_| {
        begun.send(()).unwrap();
        // It does not hear that it is to stop.
        may_go.recv().unwrap();
        Ok::<_, String>(())
    });
    let job = job.await.unwrap().running().expect("the key is free");
    has_begun.recv().unwrap();
    let second = next_session(&elect, &faulty).await;
    assert_ne!(first, second);
    assert_eq!(*watching.opened.lock().unwrap(), [(first, true), (second, true)]);
    // Also longer than the instance tries to close it.
    for _ in 0..400 {
        advance().await;
        assert!(watching.keeps(first), "its job runs on");
    }
    go.send(()).unwrap();
    assert!(matches!(job.join().await, JobEnd::Overran { .. }));
    for _ in 0..20 {
        advance().await;
    }
    assert!(!watching.keeps(first), "the last job under it has returned");
    assert!(watching.keeps(second));
    elect.close().await;
    assert!(!watching.keeps(second));
}

#[tokio::test(start_paused = true)]
async fn a_presence_is_kept_as_long_as_a_guard_is_held_even_after_the_instance_closed() {
    let world = World::new();
    let (elect, watching, _) = instance(&world).await;
    let id = session(&elect);
    let guard = elect.acquire("k").await.unwrap();
    let lease = guard.lease();
    elect.close().await;
    drop(elect);
    tokio::time::sleep(SECOND * 600).await;
    assert!(watching.keeps(id), "what runs beside a guard is not known");
    drop(guard);
    tokio::time::sleep(SECOND).await;
    assert!(!watching.keeps(id));
    assert!(!lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_give_it_is_told_of_once_and_the_session_is_opened_without() {
    let (log, _here) = Log::start();
    let world = World::new();
    let watching = Watching::new(world.memory.clone());
    watching.fails.store(true, Ordering::Relaxed);
    let faulty = Faulty::default().around(watching.clone());
    let store: Arc<dyn Store> = faulty.clone();
    let elect = world.on(store, World::config("a")).start().await.unwrap();
    let mut events = elect.events();
    let first = session(&elect);
    let second = next_session(&elect, &faulty).await;
    assert_eq!(*watching.opened.lock().unwrap(), [(first, false), (second, false)]);
    let told = log.with(&["WARN", "no crash detection"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("no space left") && told[0].contains("namespace=test"), "{told:?}");
    assert!(matches!(events.next().await, Some(Event::SessionLost { .. } | Event::SessionOpened { .. })));
    elect.close().await;
}

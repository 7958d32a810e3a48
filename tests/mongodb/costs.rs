//! Cost of each operation in commands, documents, keys and bytes: what no noise of the machine changes.
//!
//! costs.txt has the figures, and says what they mean. The server's own profiler tells what it read and wrote, for
//! the counters of `serverStatus` include what it does for itself. One test measures all of them, one after the other, on
//! a server that nobody else uses. Instances beat far apart, so that only what was asked for is counted.

mod meter;
mod table;

use std::{sync::Arc, time::Duration};

use mongodb::{Database, bson::doc};
use tenure::{
    Elect, ElectConfig, Guard, Lease,
    elect::Acquired,
    model::{Kind, LockId, Outcome, RunId, StoreTime, Term},
    spread::Task,
    store::{Claim, FinishRun, Store, StoreExt, Wait, mongo::MongoStore},
};
use tenure_conformance::{Fixture, LIMIT};
use tokio::{sync::mpsc, task::JoinHandle};

use self::{
    meter::{Cost, Measured, Meter, Profile, scanned},
    table::Table,
};
use crate::{
    mongodb::{connected, round_trips::releases},
    support::mongod::{Deployment, Options, Shape},
};

const DATABASE: &str = "costs";
/// A machine that stands still for a moment may make two looks of one: what it costs once as written down is right.
const ATTEMPTS: usize = 5;
/// Beats over which those that do nothing else are counted.
const BEATS: u64 = 10;
const TASKS: usize = 10;
const TICKS: i64 = 3;
const WRITES: i32 = 100;

/// A server that nobody else uses, and the look into it.
struct Place {
    deployment: Deployment,
    database: Database,
    profile: Profile,
}

/// An instance, and its store.
struct Instance {
    elect: Elect,
    store: MongoStore,
}

impl Instance {
    /// Waits for a key that somebody else has. Answers when it is in the queue.
    async fn waits(&self, key: &'static str) -> JoinHandle<Guard> {
        let elect = self.elect.clone();
        let call = tokio::spawn(async move { elect.acquire(key).await.unwrap() });
        while self.store.waiters(lock(key), 1, LIMIT).await.unwrap().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        call
    }

    async fn close(self) {
        self.elect.close().await;
        self.store.close().await;
    }
}

impl Place {
    async fn start() -> Self {
        let deployment = Deployment::start(Shape::Single, Options::default()).await;
        let database = deployment.client().await.database(DATABASE);
        let profile = Profile::of(database.clone()).await;
        Self { deployment, database, profile }
    }

    async fn store(&self, meter: &Meter) -> MongoStore {
        connected(self.deployment.uri(), meter.options().database(DATABASE)).await
    }

    async fn instance(&self, meter: &Meter, config: ElectConfig) -> Instance {
        let store = self.store(meter).await;
        let elect = Elect::start(Arc::new(store.clone()) as Arc<dyn Store>, config).await.unwrap();
        Instance { elect, store }
    }

    async fn measure<'a>(&'a self, meter: &'a Meter) -> Measured<'a> {
        Measured::start(meter, &self.profile).await
    }
}

/// Durations with which no work is due by itself while a test runs.
fn far_apart(holder: &str) -> ElectConfig {
    let minute = Duration::from_secs(60);
    ElectConfig::new("costs", holder)
        .unwrap()
        .with_refresh_interval(10 * minute)
        .with_refresh_duration(60 * minute)
        // Once in so many ticks, by chance, a history is purged.
        .with_retention_run_entries(1_000_000)
}

/// Beats that a test can wait for.
fn quick(holder: &str) -> ElectConfig {
    let ms = Duration::from_millis(1);
    ElectConfig::new("costs", holder)
        .unwrap()
        .with_refresh_interval(300 * ms)
        .with_refresh_duration(30_000 * ms)
}

fn lock(key: &str) -> LockId {
    LockId { namespace: "costs".parse().unwrap(), kind: Kind::Lock, key: key.parse().unwrap() }
}

async fn take(elect: &Elect, key: &str) -> Guard {
    match elect.key(key).try_acquire().await.unwrap() {
        Acquired::Guard(guard) => guard,
        busy @ Acquired::Busy(_) => panic!("the lock is free, but the answer was {busy:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_costs_what_is_written_down() {
    let (mut table, mut place) = (Table::read(), Place::start().await);
    measured(store_methods, &mut place, &mut table).await;
    measured(locks_of_an_engine, &mut place, &mut table).await;
    measured(hand_over, &mut place, &mut table).await;
    measured(rest, &mut place, &mut table).await;
    measured(writes_of_others, &mut place, &mut table).await;
    measured(join, &mut place, &mut table).await;
    measured(ticks, &mut place, &mut table).await;
    measured(close, &mut place, &mut table).await;
    table.finish();
}

/// Measures a part, again if the machine had no time for it: then at another place, where its keys are new.
async fn measured(part: impl AsyncFn(&Place, &mut Table), place: &mut Place, table: &mut Table) {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            *place = Place::start().await;
        }
        part(place, table).await;
        if table.is_right() {
            break;
        }
    }
}

/// The methods of the store, without an engine.
async fn store_methods(place: &Place, table: &mut Table) {
    let meter = Meter::new();
    let store = place.store(&meter).await;
    let fixture = Fixture::new(Arc::new(store.clone()) as Arc<dyn Store>);
    let session = fixture.opened().await.id;
    let one = fixture.lock("one");

    let measured = place.measure(&meter).await;
    fixture.send(&fixture.beat(session, 1)).await;
    table.check("store, beat", &measured.cost().await);

    for (what, ticket) in [("take and release a new key", 1), ("take and release a key again", 2)] {
        let measured = place.measure(&meter).await;
        let by = fixture.candidate(session, ticket);
        let taken = fixture.take(&one, &by).await;
        store.release(releases(&[taken]), LIMIT).await.unwrap();
        table.check(&format!("store, {what}"), &measured.cost().await);
    }

    let held = fixture.lock("held");
    fixture.held(&held, session, 3).await;
    let loser = fixture.candidate(fixture.session(), 1);
    let measured = place.measure(&meter).await;
    fixture.take(&held, &loser).await;
    table.check("store, try a key that is held", &measured.cost().await);

    let measured = place.measure(&meter).await;
    store.wait(vec![Wait { lock: held.clone(), by: loser.clone() }], LIMIT).await.unwrap();
    table.check("store, join a queue", &measured.cost().await);
    let measured = place.measure(&meter).await;
    store.stop_waiting(vec![(held.clone(), loser.session, loser.ticket)], LIMIT).await.unwrap();
    table.check("store, leave a queue", &measured.cost().await);

    let measured = place.measure(&meter).await;
    let takes = (0..100).map(|key| tenure::store::Take {
        lock: fixture.lock(&format!("of many {key:03}")),
        by: fixture.candidate(session, 100 + key),
    });
    let taken = fixture.take_all(takes.collect(), &[]).await;
    store.release(releases(&taken), LIMIT).await.unwrap();
    table.check("store, take and release 100 new keys", &measured.cost().await);

    let run = RunId::tick(fixture.schedule("nightly"), StoreTime::from_millis(1000));
    let claim = Claim {
        run: run.clone(),
        session,
        holder: "pod".parse().unwrap(),
        term: Term::new(1),
        attempt: 1,
        instead_of: None,
        skipped: None,
    };
    let (outcome, error) = (Outcome::Succeeded, None);
    let finish = FinishRun { run, session, term: Term::new(1), attempt: 1, outcome, error, last: true };
    let measured = place.measure(&meter).await;
    store.claim(claim, LIMIT).await.unwrap();
    store.finish(finish, LIMIT).await.unwrap();
    table.check("store, claim and finish a tick", &measured.cost().await);

    reads_of_many(place, &meter, &fixture, table).await;
    store.close().await;
}

/// Measures reads of many records at once.
async fn reads_of_many(place: &Place, meter: &Meter, fixture: &Fixture, table: &mut Table) {
    let store = fixture.store();
    let sessions: Vec<_> = (0..100).map(|_| fixture.session()).collect();
    let schedules: Vec<_> =
        (0..100).map(|number| fixture.schedule(&format!("of many {number:03}"))).collect();
    for (number, (session, schedule)) in sessions.iter().zip(&schedules).enumerate() {
        let takes = (0..5).map(|key| tenure::store::Take {
            lock: fixture.lock(&format!("of one {number:03} {key}")),
            by: fixture.candidate(*session, key),
        });
        fixture.take_all(takes.collect(), &[]).await;
        for instant in 0..5 {
            let run = RunId::tick(schedule.clone(), StoreTime::from_millis(instant));
            let claim = Claim {
                run,
                session: *session,
                holder: "pod".parse().unwrap(),
                term: Term::new(1),
                attempt: 1,
                instead_of: None,
                skipped: None,
            };
            store.claim(claim, LIMIT).await.unwrap();
        }
    }
    let measured = place.measure(meter).await;
    let pages = store.last_runs(schedules, 3, LIMIT).await.unwrap();
    assert!(pages.iter().all(|page| page.items.len() == 3 && page.next.is_some()));
    table.check("store, the last 3 runs of 100 schedules", &measured.cost().await);
    let measured = place.measure(meter).await;
    assert_eq!(store.latest_grants(sessions, 10, LIMIT).await.unwrap().len(), 10);
    table.check("store, the latest 10 grants of 100 sessions", &measured.cost().await);
}

/// Acquire and release by an engine.
async fn locks_of_an_engine(place: &Place, table: &mut Table) {
    let meter = Meter::new();
    let instance = place.instance(&meter, far_apart("pod-1")).await;
    meter.quiet().await;
    for what in ["lock and unlock a new key", "lock and unlock a key again"] {
        let measured = place.measure(&meter).await;
        take(&instance.elect, "key").await.release().await.unwrap();
        meter.quiet().await;
        table.check(what, &measured.cost().await);
    }

    let others = Meter::new();
    let holder = place.instance(&others, far_apart("pod-2")).await;
    let guard = take(&holder.elect, "held").await;
    others.quiet().await;
    meter.quiet().await;
    let measured = place.measure(&meter).await;
    let busy = instance.elect.key("held").try_acquire().await.unwrap();
    assert!(matches!(busy, Acquired::Busy(_)));
    meter.quiet().await;
    table.check("try a key that is held", &measured.cost().await);
    guard.release().await.unwrap();
    holder.close().await;
    instance.close().await;
}

/// Both instances, from the release until both are at rest.
async fn hand_over(place: &Place, table: &mut Table) {
    let meter = Meter::new();
    let first = place.instance(&meter, far_apart("pod-1")).await;
    let second = place.instance(&meter, far_apart("pod-2")).await;
    let guard = take(&first.elect, "handed over").await;
    let call = second.waits("handed over").await;
    meter.quiet().await;
    let measured = place.measure(&meter).await;
    guard.release().await.unwrap();
    let acquired = call.await.unwrap();
    meter.quiet().await;
    table.check("hand over to one that waits", &measured.cost().await);
    acquired.release().await.unwrap();
    first.close().await;
    second.close().await;
}

/// Ten intervals of those to whom nothing happens.
async fn rest(place: &Place, table: &mut Table) {
    let ten_beats = async |meter: &Meter| {
        let mut cost = Cost::new();
        for _ in 0..ATTEMPTS {
            // Until what has just begun is at rest.
            meter.beats(3).await;
            let measured = place.measure(meter).await;
            meter.beats(BEATS).await;
            cost = measured.cost().await;
            // With one more or less, for somebody stood still, it was not ten intervals.
            if ["beat", "written"].iter().all(|figure| cost.get(*figure) == Some(&BEATS.cast_signed())) {
                break;
            }
        }
        cost
    };
    let meter = Meter::new();
    let instance = place.instance(&meter, quick("pod-1")).await;
    table.check("ten intervals of one that does nothing", &ten_beats(&meter).await);
    let guard = take(&instance.elect, "held").await;
    table.check("ten intervals of one that holds a key", &ten_beats(&meter).await);
    guard.release().await.unwrap();

    let holder = place.instance(&Meter::new(), far_apart("pod-2")).await;
    let guard = take(&holder.elect, "held").await;
    let call = instance.waits("held").await;
    table.check("ten intervals of one that waits", &ten_beats(&meter).await);
    call.abort();
    instance.close().await;
    guard.release().await.unwrap();
    holder.close().await;
}

/// Measures the work of listeners while another program writes.
async fn writes_of_others(place: &Place, table: &mut Table) {
    let meter = Meter::new();
    let holder = place.instance(&meter, far_apart("pod-1")).await;
    let waiter = place.instance(&meter, far_apart("pod-2")).await;
    let guard = take(&holder.elect, "held").await;
    let call = waiter.waits("held").await;
    meter.quiet().await;
    let foreign = place.database.client().database("foreign").collection("things");
    foreign.insert_one(doc! { "n": -1 }).await.unwrap();
    let measured = place.measure(&meter).await;
    let before = scanned(&place.database).await;
    for n in 0..WRITES {
        foreign.insert_one(doc! { "n": n }).await.unwrap();
    }
    // It reads in order: what it is told now comes after what it passed over.
    guard.release().await.unwrap();
    let acquired = call.await.unwrap();
    meter.quiet().await;
    let mut cost = measured.cost().await;
    cost.insert("scanned".to_owned(), scanned(&place.database).await - before);
    table.check("hand over after 100 writes of others", &cost);
    acquired.release().await.unwrap();
    holder.close().await;
    waiter.close().await;
}

/// Measures an instance that has all tasks of a spread, and one that joins it.
async fn join(place: &Place, table: &mut Table) {
    let meter = Meter::new();
    let part = |instance: &Instance| {
        let job = async |_: Task, lease: Lease| {
            lease.cancelled().await;
            Ok::<(), String>(())
        };
        instance.elect.spread("tasks").tasks((0..TASKS).map(|task| format!("task {task}"))).run(job).unwrap()
    };
    let first = place.instance(&meter, far_apart("pod-1")).await;
    let second = place.instance(&meter, far_apart("pod-2")).await;
    let has_all = part(&first);
    has_all.until(|status| status.is_settled() && status.held() == TASKS).await;
    meter.quiet().await;
    let measured = place.measure(&meter).await;
    let has_half = part(&second);
    has_half.until(|status| status.is_settled() && status.share().len() == TASKS / 2).await;
    meter.quiet().await;
    table.check("join a spread of ten tasks, of which five move", &measured.cost().await);
    let measured = place.measure(&meter).await;
    has_half.stop().await;
    has_all.until(|status| status.is_settled() && status.share().len() == TASKS).await;
    meter.quiet().await;
    table.check("leave it", &measured.cost().await);
    has_all.stop().await;
    first.close().await;
    second.close().await;
}

/// A schedule of every other second.
async fn ticks(place: &Place, table: &mut Table) {
    let meter = Meter::new();
    let instance = place.instance(&meter, far_apart("pod-1")).await;
    let (tell, mut ran) = mpsc::unbounded_channel();
    let schedule = instance.elect.schedule("every second", "*/2 * * * * *").run(move |_, _| {
        tell.send(()).unwrap();
        std::future::ready(Ok::<_, String>(()))
    });
    let schedule = schedule.unwrap();
    let mut runs = async |runs| {
        for _ in 0..runs {
            ran.recv().await.unwrap();
        }
        // Until the last one is finished: the next tick is later.
        meter.quiet().await;
    };
    let mut cost = Cost::new();
    for _ in 0..ATTEMPTS {
        runs(1).await;
        let measured = place.measure(&meter).await;
        runs(TICKS).await;
        cost = measured.cost().await;
        // A claim and an end of each; where there were more, somebody stood still until the next tick.
        if cost.get("findAndModify") == Some(&(2 * TICKS)) {
            break;
        }
    }
    table.check("three ticks", &cost);
    instance.close().await;
    drop(schedule);
}

/// The end of an instance that has nothing, and of one that holds a key.
async fn close(place: &Place, table: &mut Table) {
    for (what, holds) in [("close", false), ("close one that holds a key", true)] {
        let meter = Meter::new();
        let instance = place.instance(&meter, far_apart("pod-1")).await;
        let job = async |lease: Lease| {
            lease.cancelled().await;
            Ok::<(), String>(())
        };
        let running = if holds { Some(instance.elect.lock("held", job).await.unwrap()) } else { None };
        meter.quiet().await;
        let measured = place.measure(&meter).await;
        instance.elect.close().await;
        meter.quiet().await;
        table.check(what, &measured.cost().await);
        instance.store.close().await;
        drop(running);
    }
}

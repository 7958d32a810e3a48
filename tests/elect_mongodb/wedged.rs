//! A program whose runtime is blocked.

use std::{
    sync::{Arc, Barrier, Mutex},
    time::Duration,
};

use tenure::{
    Elect, Event, Loss,
    clock::Moment,
    elect::{EventStream, Work},
};
use tokio::{
    runtime::Runtime,
    sync::{oneshot, watch},
};

use crate::elect_mongodb::{
    fleet::{
        Place, SECOND, event, losses, quick, record, replica_set, session, told, until, waits, when, within,
    },
    polls::{Polls, Told, now},
};

const PACE: Duration = Duration::from_millis(10);
const WORKERS: usize = 2;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap()
}

/// All workers of a runtime are blocked, until this is dropped.
struct Blocked {
    /// Since when all of them were.
    since: Moment,
    _until: watch::Sender<()>,
}

async fn block(runtime: &Runtime) -> Blocked {
    let (all, since) = (Arc::new(Barrier::new(WORKERS)), Arc::new(Mutex::new(now())));
    let (tell, told) = oneshot::channel();
    let tell = Arc::new(Mutex::new(Some(tell)));
    let (blocks, until) = watch::channel(());
    for _ in 0..WORKERS {
        let (all, since, tell, until) = (all.clone(), since.clone(), tell.clone(), until.clone());
        runtime.spawn(async move {
            let mut latest = since.lock().unwrap();
            *latest = now().max(*latest);
            drop(latest);
            // Nobody passes before each worker has one of these.
            if all.wait().is_leader() {
                tell.lock().unwrap().take().expect("there is one leader").send(()).unwrap();
            }
            while until.has_changed().is_ok() {
                std::thread::sleep(PACE);
            }
        });
    }
    within("all workers are blocked", told).await.unwrap();
    let since = *since.lock().unwrap();
    Blocked { since, _until: blocks }
}

/// A program with an instance that leads, on a runtime of its own.
async fn program(
    place: &Place,
    runtime: &Runtime,
    probe: Option<Duration>,
    polls: &Polls,
) -> (Elect, tenure::Lease, tenure::elect::Campaign, EventStream) {
    let (place, polls) = (place.clone(), polls.clone());
    let program = async move {
        let mut builder = place.builder(quick("wedged")).await;
        if let Some(patience) = probe {
            builder = builder.liveness_probe(patience);
        }
        let elect = builder.start().await.unwrap();
        let events = elect.events();
        let campaign = elect.campaign("key").run(move |lease| polls.job(lease, PACE, Told::GoesOn)).unwrap();
        let lease = campaign.led().await.unwrap();
        (elect, lease, campaign, events)
    };
    within("the program leads", runtime.spawn(program)).await.unwrap()
}

#[tokio::test]
async fn a_program_that_blocks_its_runtime_keeps_its_lease() {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let (user, polls) = (runtime(), Polls::default());
    let (elect, lease, campaign, mut events) = program(&place, &user, None, &polls).await;
    told(&mut events);
    let other = place.instance(quick("other")).await;
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { other.acquire("key").await.unwrap().term() }
    });
    waits(&other, 1).await;

    let id = elect.health().session.unwrap();
    // The other stands in the queue by now, or soon.
    let as_ever = || async {
        let mut record = record(&store, "key").await.unwrap();
        record.wanted = true;
        record
    };
    let before = as_ever().await;
    let blocked = block(&user).await;
    let since = blocked.since;
    let beat = session(&store, id).await.unwrap().beat;
    tokio::time::sleep(quick("x").ttl() + SECOND).await;
    assert!(polls.of("key").iter().all(|poll| poll.at <= since), "it is blocked");
    let jobs = || elect.health().troubles.into_iter().find(|trouble| trouble.work == Work::Jobs);
    until("its health says that nothing runs", async || jobs().ok_or(())).await;
    until("its record says so", async || {
        let record = session(&store, id).await.unwrap();
        when(record.stalled_since.is_some(), record)
    })
    .await;
    let after = session(&store, id).await.unwrap();
    let until_then = now();
    drop(blocked);
    assert!(after.is_alive());
    assert!(after.beat > beat, "it beats while it is blocked");
    assert_eq!(as_ever().await, before);
    let events = told(&mut events);
    assert!(losses(&events).is_empty(), "{events:?}");
    assert!(lease.is_valid() && !lease.is_cancelled() && elect.health().is_ok());
    until("the job goes on", async || {
        let last = polls.of("key").pop();
        when(last.as_ref().is_some_and(|poll| poll.at > until_then), last)
    })
    .await;
    until("its health is as before", async || jobs().map_or(Ok(()), Err)).await;
    until("its record is as before", async || {
        let record = session(&store, id).await.unwrap();
        when(record.stalled_since.is_none(), record)
    })
    .await;
    assert!(polls.of("key").iter().all(|poll| poll.term == lease.term()));
    assert!(!waiter.is_finished());

    drop((elect, campaign));
    assert!(within("the key is handed over", waiter).await.unwrap() > lease.term());
    user.shutdown_background();
}

#[tokio::test]
async fn with_a_liveness_probe_a_blocked_program_loses_its_session_on_purpose() {
    let place = Place::on(replica_set().await.uri()).await;
    let (user, polls) = (runtime(), Polls::default());
    // Longer than a machine stands still.
    let patience = 5 * SECOND;
    let (_elect, lease, _campaign, mut events) = program(&place, &user, Some(patience), &polls).await;
    let other = place.instance(quick("other")).await;
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { other.acquire("key").await.unwrap() }
    });
    waits(&other, 1).await;

    let blocked = block(&user).await;
    let ended = event(&mut events, "the session is lost", |event| match event {
        Event::SessionLost { loss, .. } => Some((now(), loss.clone())),
        _ => None,
    });
    let (at, loss) = ended.await;
    assert_eq!(loss, Loss::Probe);
    assert!(lease.is_cancelled() && !lease.is_valid());
    assert_eq!(lease.loss(), Some(Loss::Probe));
    // Something still runs under it, as far as anybody can tell: others wait for its ttl.
    let guard = within("the other takes over", waiter).await.unwrap();
    println!(
        "probe of {patience:?}: session ended {:.0?} after the block began, taken over {:.2?} after that",
        at.since(blocked.since),
        now().since(at)
    );
    let since = blocked.since;
    drop(blocked);
    // By then it stands again, under another session, and the old job is not polled any more.
    event(&mut events, "another session", |event| matches!(event, Event::SessionOpened { .. }).then_some(()))
        .await;
    guard.release().await.unwrap();
    until("it leads again", async || {
        let last = polls.of("key").pop();
        when(last.as_ref().is_some_and(|poll| poll.term > lease.term()), last)
    })
    .await;
    let late: Vec<_> = polls.under("key", lease.term()).into_iter().filter(|poll| poll.at > since).collect();
    assert!(late.is_empty(), "{late:?}");
    user.shutdown_background();
}

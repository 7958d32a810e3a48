//! A program whose runtime is blocked.

use std::{sync::Arc, time::Duration};

use tenure::{Elect, Event, Loss, elect::EventStream};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

use crate::{
    fleet::{Place, bounded, event, losses, quick, record, replica_set, session, told, until},
    polls::{Polls, Told, now},
};

const PACE: Duration = Duration::from_millis(10);
const WORKERS: usize = 2;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap()
}

/// Blocks every worker of a runtime for so long. Answers when all of them are blocked.
async fn block(runtime: &Runtime, time: Duration) -> Vec<JoinHandle<()>> {
    let all = Arc::new(std::sync::Barrier::new(WORKERS));
    let (tell, told) = oneshot::channel();
    let tell = Arc::new(std::sync::Mutex::new(Some(tell)));
    let blocks = (0..WORKERS).map(|_| {
        let (all, tell) = (all.clone(), tell.clone());
        runtime.spawn(async move {
            // Nobody passes before each worker has one of these.
            if all.wait().is_leader() {
                tell.lock().unwrap().take().expect("there is one leader").send(()).unwrap();
            }
            std::thread::sleep(time);
        })
    });
    let blocks = blocks.collect();
    bounded("all workers are blocked", told).await.unwrap();
    blocks
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
    bounded("the program leads", runtime.spawn(program)).await.unwrap()
}

#[tokio::test]
async fn a_program_that_blocks_its_runtime_keeps_its_lease() {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let (user, polls) = (runtime(), Polls::default());
    let (elect, lease, campaign, mut events) = program(&place, &user, None, &polls).await;
    told(&mut events);
    let other = place.instance(quick("other")).await;
    let waits = tokio::spawn({
        let other = other.clone();
        async move { other.acquire("key").await.unwrap().term() }
    });
    until("the other waits", || async { (other.health().waiting == 1).then_some(()) }).await;

    let id = elect.health().session.unwrap();
    // The other stands in line by now, or soon.
    let as_ever = || async {
        let mut record = record(&store, "key").await.unwrap();
        record.wanted = true;
        record
    };
    let before = as_ever().await;
    let ttl = quick("x").ttl();
    let blocks = block(&user, ttl * 2).await;
    let (blocked, beat) = (now(), session(&store, id).await.unwrap().beat.get());
    for block in blocks {
        block.await.unwrap();
    }
    let polled: Vec<_> = polls.of("key").into_iter().filter(|poll| poll.at > blocked).collect();
    let silent = polled.first().map_or(now(), |poll| poll.at).since(blocked);
    assert!(silent + PACE * 5 >= ttl * 2, "it was blocked for {silent:?} only");
    let after = session(&store, id).await.unwrap();
    assert!(after.is_alive());
    assert!(after.beat.get() >= beat + 10, "{} beats in two ttl", after.beat.get() - beat);
    assert_eq!(as_ever().await, before);
    let events = told(&mut events);
    assert!(losses(&events).is_empty(), "{events:?}");
    assert!(lease.is_valid() && !lease.is_cancelled() && elect.health().is_ok());
    until("the job goes on", || async { (polls.of("key").last()?.at > blocked + ttl * 2).then_some(()) })
        .await;
    assert!(polls.of("key").iter().all(|poll| poll.term == lease.term()));
    assert!(!waits.is_finished());

    drop((elect, campaign));
    assert!(bounded("the key is handed over", waits).await.unwrap() > lease.term());
    user.shutdown_background();
}

#[tokio::test]
async fn with_a_liveness_probe_a_blocked_program_loses_its_session_on_purpose() {
    let place = Place::on(replica_set().await.uri()).await;
    let (user, polls) = (runtime(), Polls::default());
    let ttl = quick("x").ttl();
    let patience = ttl / 3;
    let (_elect, lease, _campaign, mut events) = program(&place, &user, Some(patience), &polls).await;
    let other = place.instance(quick("other")).await;
    let waits = tokio::spawn({
        let other = other.clone();
        async move { other.acquire("key").await.unwrap() }
    });
    until("the other waits", || async { (other.health().waiting == 1).then_some(()) }).await;

    let blocks = block(&user, ttl * 3).await;
    let blocked = now();
    let ended = event(&mut events, "the session is lost", |event| match event {
        Event::SessionLost { loss, .. } => Some((now(), loss.clone())),
        _ => None,
    });
    let (at, loss) = ended.await;
    assert_eq!(loss, Loss::Probe);
    assert!(lease.is_cancelled() && !lease.is_valid());
    assert_eq!(lease.loss(), Some(Loss::Probe));
    // Something still runs under it, as far as anybody can tell: others wait for its ttl.
    let guard = bounded("the other takes over", waits).await.unwrap();
    println!(
        "probe of {patience:?}: session ended {:.0?} after the block began, taken over {:.2?} after that",
        at.since(blocked),
        now().since(at)
    );
    assert!(at.since(blocked) < patience * 2, "{:?}", at.since(blocked));
    assert!(blocks.iter().all(|block| !block.is_finished()), "it is blocked all the time");
    for block in blocks {
        block.await.unwrap();
    }
    // By then it stands again, under another session, and the old job is not polled any more.
    event(&mut events, "another session", |event| matches!(event, Event::SessionOpened { .. }).then_some(()))
        .await;
    guard.release().await.unwrap();
    until("it leads again", || async {
        polls.of("key").last().filter(|poll| poll.term > lease.term()).map(drop)
    })
    .await;
    let late: Vec<_> =
        polls.under("key", lease.term()).into_iter().filter(|poll| poll.at > blocked).collect();
    assert!(late.is_empty(), "{late:?}");
    user.shutdown_background();
}

//! Standing for a key until stopped.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tenure::{
    Event, Lease, Loss,
    elect::{HeldBy, JobEnd, Resigned},
    model::Why,
    testing::{Fault, Operation},
};
use tokio::{sync::mpsc, time::Instant};

use crate::elect::world::{SECOND, World};

#[tokio::test(start_paused = true)]
async fn a_campaign_that_stops_is_followed_by_the_one_that_waits() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let leads = first.campaign("k").start().unwrap();
    let term = leads.led().await.unwrap().term();
    let waits = second.campaign("k").start().unwrap();
    tokio::time::sleep(SECOND * 20).await;
    assert!(leads.is_leading() && !waits.is_leading());
    let before = Instant::now();
    leads.stop().await;
    let lease = waits.led().await.unwrap();
    assert!(lease.term() > term);
    assert!(before.elapsed() < SECOND, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn callbacks_tell_of_acquired_lost_and_new_leaders_in_that_order() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let (acquired, lost, led) = (tell.clone(), tell.clone(), tell);
    let campaign = first
        .campaign("k")
        .on_acquired(move |_| {
            let tell = acquired.clone();
            async move { tell.send("acquired".to_owned()).unwrap() }
        })
        .on_lost(move |loss| {
            let tell = lost.clone();
            async move { tell.send(format!("lost: {}", loss.name())).unwrap() }
        })
        .on_new_leader(move |leader| {
            let tell = led.clone();
            let who = leader.map_or_else(|| "nobody".to_owned(), |leader| leader.holder.to_string());
            async move { tell.send(format!("led by {who}")).unwrap() }
        })
        .start()
        .unwrap();
    let other = second.campaign("k").start().unwrap();
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let news = told.recv().await.unwrap();
        // The first look may have been before anybody led.
        if news != "led by nobody" {
            heard.push(news);
        }
    }
    heard.sort();
    assert_eq!(heard, ["acquired", "led by a"]);
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    assert_eq!(told.recv().await.unwrap(), "lost: expired");
    other.led().await.unwrap();
    faulty.intercept().heal();
    assert_eq!(told.recv().await.unwrap(), "led by b");
    other.stop().await;
    let mut again = Vec::new();
    while again.len() < 2 {
        let news = told.recv().await.unwrap();
        // It may be looked at between the release and the take.
        if news != "led by nobody" {
            again.push(news);
        }
    }
    again.sort();
    assert_eq!(again, ["acquired", "led by a"]);
    campaign.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_or_panicking_callback_hurts_nobody() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let campaign = first
        .campaign("k")
        .on_acquired(|_| async { panic!("at once") })
        .on_lost(|_| std::future::pending())
        .on_new_leader(|_| async { panic!("at once") })
        .start()
        .unwrap();
    campaign.led().await.unwrap();
    tokio::time::sleep(SECOND * 60).await;
    assert!(campaign.is_leading());
    let before = Instant::now();
    let _ = campaign.resign();
    drop(second.acquire("k").await.unwrap());
    // A callback that never returns has the grace.
    assert!(before.elapsed() < SECOND * 6, "{:?}", before.elapsed());
    campaign.led().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_can_resign_in_favour_of_a_named_waiter() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let (third, _) = world.instance("c").await;
    let leads = first.campaign("k").start().unwrap();
    leads.led().await.unwrap();
    let second = second.campaign("k").start().unwrap();
    tokio::time::sleep(SECOND).await;
    let third = third.campaign("k").start().unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(leads.resign_to("nobody").await.unwrap(), Resigned::NobodyWaits);
    assert!(leads.is_leading());
    assert_eq!(leads.resign_to("c").await.unwrap(), Resigned::Yes);
    third.led().await.unwrap();
    assert!(!second.is_leading());
    assert_eq!(leads.resign_to("c").await.unwrap(), Resigned::NotLeading);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_leader_stands_aside_and_reports_why() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let campaign = first.campaign("k").start().unwrap();
    let lease = campaign.led().await.unwrap();
    let mut events = campaign.events();
    let held: HeldBy = second.locked_keys().await.unwrap().held.pop().unwrap();
    let before = Instant::now();
    assert!(second.revoke(&held, Why::new("maintenance").unwrap()).await.unwrap());
    lease.cancelled().await;
    // It listens to nothing while it waits for nothing: its next heartbeat brings the request.
    assert!(before.elapsed() < SECOND * 6, "{:?}", before.elapsed());
    let Event::Lost { loss: Loss::Revoked { by, why }, .. } = events.next().await.unwrap() else {
        panic!("it was revoked");
    };
    assert_eq!((by.as_str(), why.as_str()), ("b", "maintenance"));
    tokio::time::sleep(SECOND * 20).await;
    assert!(!campaign.is_leading());
    assert!(second.locked_keys().await.unwrap().held.is_empty());
    campaign.led().await.unwrap();
    assert!(before.elapsed() >= SECOND * 30);
}

#[tokio::test(start_paused = true)]
async fn a_revocation_says_whether_the_lock_had_that_holder() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let held = async || second.locked_keys().await.unwrap().held.pop().unwrap();
    let guard = first.acquire("k").await.unwrap();
    let former = held().await;
    guard.release().await.unwrap();
    assert!(!second.revoke(&former, "maintenance").await.unwrap(), "nobody has it");
    let guard = first.acquire("k").await.unwrap();
    assert!(!second.revoke(&former, "maintenance").await.unwrap(), "under another term");
    let present = held().await;
    assert!(second.revoke(&present, "maintenance").await.unwrap());
    assert!(matches!(guard.lost().await, Loss::Revoked { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_of_a_new_value_of_the_same_holder() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    let mut watch = second.watch("k").unwrap();
    assert_eq!(watch.changed().await.unwrap().unwrap().value, None);
    let mut events = second.events();
    let poll = second.config().poll_interval();
    for value in [Some("10.0.0.7:443"), Some("10.0.0.8:443"), None] {
        match value {
            Some(value) => guard.lease().set_value(value).await.unwrap(),
            None => guard.lease().clear_value().await.unwrap(),
        }
        let told = tokio::time::timeout(poll + SECOND, watch.changed()).await.expect("it is told");
        let told = told.unwrap().unwrap();
        assert_eq!(told.term, guard.term());
        assert_eq!(told.value.as_ref().map(tenure::model::Value::as_bytes), value.map(str::as_bytes));
    }
    let is_leader = |event: &Event| matches!(event, Event::NewLeader { .. });
    let more = tokio::time::timeout(SECOND, events.next()).await;
    assert!(!more.is_ok_and(|event| event.is_some_and(|event| is_leader(&event))), "the leader is the same");
}

#[tokio::test(start_paused = true)]
async fn a_watch_follows_who_leads_without_standing() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let mut watch = second.watch("k").unwrap();
    assert_eq!(watch.changed().await.unwrap(), None);
    let guard = first.key("k").value(b"10.0.0.7:443").acquire().await.unwrap();
    let leader = watch.changed().await.unwrap().unwrap();
    assert_eq!((leader.holder.as_str(), leader.term), ("a", guard.term()));
    assert_eq!(leader.value.unwrap().as_bytes(), b"10.0.0.7:443");
    guard.lease().clear_value().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(watch.changed().await.unwrap(), None);
    second.close().await;
    assert!(watch.changed().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn every_acquired_is_followed_by_one_released_or_lost() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut events = elect.events();
    let log = seen.clone();
    let reader = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            log.lock().unwrap().push(event);
        }
    });
    for _ in 0..3 {
        let guard = elect.acquire("k").await.unwrap();
        guard.release().await.unwrap();
    }
    let campaign = elect.campaign("k").run(async |lease: Lease| {
        lease.cancelled().await;
        Ok::<_, String>(())
    });
    let campaign = campaign.unwrap();
    campaign.led().await.unwrap();
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    tokio::time::sleep(SECOND * 40).await;
    faulty.intercept().heal();
    campaign.led().await.unwrap();
    elect.close().await;
    reader.await.unwrap();
    let mut open = None;
    let mut ends = (0, 0);
    for event in seen.lock().unwrap().iter() {
        match event {
            Event::Acquired { term, .. } => assert_eq!(open.replace(*term), None),
            Event::Released { term, .. } => {
                assert_eq!(open.take(), Some(*term));
                ends.0 += 1;
            }
            Event::Lost { term, .. } => {
                assert_eq!(open.take(), Some(*term));
                ends.1 += 1;
            }
            _ => {}
        }
    }
    assert_eq!((open, ends), (None, (4, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_returns_is_run_again_after_a_rest() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let campaign = elect.campaign("k").rest_between(SECOND * 7).run(move |lease: Lease| {
        tell.send((Instant::now(), lease.term())).unwrap();
        async { Ok::<_, String>(()) }
    });
    let _campaign = campaign.unwrap();
    let mut last: Option<(Instant, tenure::model::Term)> = None;
    for _ in 0..4 {
        let (at, term) = told.recv().await.unwrap();
        if let Some((before, lower)) = last {
            assert!(term > lower);
            let rest = at - before;
            assert!(rest >= SECOND * 7 && rest < SECOND * 7 + Duration::from_millis(100), "{rest:?}");
        }
        last = Some((at, term));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_gets_a_clone_of_its_state_at_each_call() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let campaign = elect.campaign("k").run_with(tell, async |tell, lease: Lease| {
        tell.send(lease.to_string()).map_err(|error| error.to_string())
    });
    let _campaign = campaign.unwrap();
    let (first, second) = (told.recv().await.unwrap(), told.recv().await.unwrap());
    assert!(first.starts_with("lock \"k\" of ") && first.contains(" under term "), "{first}");
    assert_ne!(first, second, "each call has a lease of its own");
}

/// As docs/locks.md has it.
#[tokio::test(start_paused = true)]
async fn an_instance_whose_spawned_work_fails_gives_the_lead_to_another() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let instance = first.clone();
    let leads = first
        .campaign("k")
        .on_acquired(move |lease| {
            let work = lease.spawn(async {
                tokio::time::sleep(SECOND * 10).await;
                Err::<(), _>("the disk is full")
            });
            let instance = instance.clone();
            tokio::spawn(async move {
                let end = work.await;
                if lease.is_valid() {
                    assert!(matches!(end, Ok(JobEnd::Failed("the disk is full"))));
                    instance.unlock("k").await.unwrap();
                }
            });
            async {}
        })
        .start()
        .unwrap();
    leads.led().await.unwrap();
    let waits = second.campaign("k").start().unwrap();
    waits.led().await.unwrap();
    assert!(!leads.is_leading());
}

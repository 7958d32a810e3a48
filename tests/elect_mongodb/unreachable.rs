//! An instance that does not reach its store any more stops in time, and comes back.

use std::time::Duration;

use tenure::{Elect, ElectConfig, Event, Loss, clock::Moment};

use crate::elect_mongodb::{
    fleet::{MS, Place, event, holds, quick, replica_set, until, validity, waits, when, within},
    polls::{Polls, Told, now},
};
use crate::support::proxy::{Mode, Proxy};

const KEYS: usize = 5;
const PACE: Duration = Duration::from_millis(5);

/// Waits until a beat has passed and was answered; when it passed, and how many had by then.
async fn beat_passes(proxy: &Proxy, elect: &Elect) -> (Moment, u64) {
    let beats = proxy.passed("findAndModify") + 1;
    proxy.until_passed("findAndModify", beats).await;
    let passed = now();
    until("the beat is answered", async || {
        let ago = elect.health().last_beat.expect("it has beaten");
        when(now().since(passed) >= ago, ago)
    })
    .await;
    (passed, beats)
}

/// Cuts an instance off between two beats. Answers with a moment before which the last one was sent, and how
/// many there were.
async fn cut(proxy: &Proxy, elect: &Elect, from: Mode, to: Mode) -> (Moment, u64) {
    until("it is cut off before the next beat", async || {
        let (sent_by, beats) = beat_passes(proxy, elect).await;
        proxy.set_mode(to).await;
        // What is within the proxy gets through.
        tokio::time::sleep(PACE).await;
        let passed = proxy.passed("findAndModify");
        if passed == beats {
            return Ok((sent_by, beats));
        }
        proxy.set_mode(from).await;
        Err(passed)
    })
    .await
}

/// Cuts an instance off from its store, whose answers took so long until then. Every job is told in time and
/// no poll begins after the end.
///
/// How soon they are told is judged in paused time, by the tests of R9 in `tests/elect/rules.rs`.
async fn cut_off(config: ElectConfig, slow: Duration, mode: Mode) {
    let deployment = replica_set().await;
    let primary = deployment.wait_for_primary(None).await;
    let proxy = Proxy::start(primary.port());
    let place = Place::on(deployment.uri()).await;
    let elect = place.builder_over(&proxy.uri(), config.clone()).await.start().await.unwrap();
    let mut events = elect.events();
    let polls = Polls::default();
    let name = |number: usize| format!("key {number}");
    let campaigns: Vec<_> = (0..KEYS)
        .map(|number| {
            let polls = polls.clone();
            // Every second one does not listen: it has to be dropped.
            let told = if number % 2 == 0 { Told::Stops } else { Told::GoesOn };
            elect.campaign(name(number)).run(move |lease| polls.job(lease, PACE, told)).unwrap()
        })
        .collect();
    let mut leases = Vec::new();
    for campaign in &campaigns {
        leases.push(within("a free key is led", campaign.led()).await.unwrap());
    }
    let other = place.instance(config.clone()).await;
    let successors: Vec<_> = (0..KEYS)
        .map(|number| {
            let polls = polls.clone();
            other.campaign(name(number)).run(move |lease| polls.job(lease, PACE, Told::Stops)).unwrap()
        })
        .collect();
    waits(&other, KEYS).await;

    let delay = Mode::Delay { to_server: Duration::ZERO, to_client: slow };
    proxy.set_mode(delay).await;
    let (sent_by, beats) = cut(&proxy, &elect, delay, mode).await;
    let latest = sent_by + validity(&config);
    // As the engine has it, or a little less.
    let end = now() + leases[0].remaining();
    assert!(end <= latest, "its end is {:?} too late", end.since(latest));

    for lease in &leases {
        within("a token fires", lease.cancelled()).await;
        assert!(matches!(lease.loss(), Some(Loss::Expired { .. })), "{:?}", lease.loss());
    }
    let told = now();
    let cancel = end - config.stop_grace();
    assert!(told >= cancel, "told {:?} too early", cancel.since(told));
    event(&mut events, "the session is lost", |event| {
        matches!(event, Event::SessionLost { loss: Loss::Expired { .. }, .. }).then_some(())
    })
    .await;
    assert!(now() >= end, "it is over {:?} too early", end.since(now()));

    let mut taken_over = Vec::new();
    for (lease, successor) in leases.iter().zip(&successors) {
        let led = within("the other takes over", successor.led()).await.unwrap();
        assert!(led.term() > lease.term());
        let key = lease.key().as_str();
        let last = polls.last_allowed(key, lease.term());
        assert!(last <= Some(latest), "{key}: polled {:?} after the end", last.unwrap().since(latest));
        let first = polls.under(key, led.term()).first().map(|poll| poll.at);
        assert!(first.is_none_or(|first| Some(first) > last), "{key}: both ran");
        taken_over.push(led);
    }
    println!(
        "{mode:?}, ttl {:?}: told {:.0?} before the end; taken over {:.2?} after the last beat",
        config.ttl(),
        end.since(told),
        now().since(sent_by)
    );
    assert_eq!(proxy.passed("findAndModify"), beats, "nothing has passed since");

    proxy.set_mode(Mode::Pass).await;
    event(&mut events, "another session", |event| matches!(event, Event::SessionOpened { .. }).then_some(()))
        .await;
    waits(&elect, KEYS).await;
    for successor in successors {
        successor.stop().await;
    }
    for (campaign, before) in campaigns.iter().zip(&taken_over) {
        let again = within("it leads again", campaign.led()).await.unwrap();
        assert!(again.term() > before.term());
        assert!(holds(&again).await);
    }
}

#[tokio::test]
async fn jobs_stop_in_time_when_the_network_swallows_everything() {
    cut_off(quick("pod"), Duration::ZERO, Mode::BlackHole).await;
}

#[tokio::test]
async fn jobs_stop_in_time_when_connections_are_refused() {
    cut_off(quick("pod"), Duration::ZERO, Mode::Refuse).await;
}

#[tokio::test]
async fn the_end_counts_from_the_sending_of_a_beat_however_late_its_answer() {
    cut_off(quick("pod"), 300 * MS, Mode::BlackHole).await;
}

#[tokio::test]
async fn a_beat_that_arrived_without_an_answer_moves_no_end() {
    let config = quick("pod");
    let deployment = replica_set().await;
    let proxy = Proxy::start(deployment.wait_for_primary(None).await.port());
    let place = Place::on(deployment.uri()).await;
    let elect = place.builder_over(&proxy.uri(), config.clone()).await.start().await.unwrap();
    let polls = Polls::default();
    let campaign = {
        let polls = polls.clone();
        elect.campaign("key").run(move |lease| polls.job(lease, PACE, Told::GoesOn)).unwrap()
    };
    let lease = within("a free key is led", campaign.led()).await.unwrap();
    let (sent_by, beats) = cut(&proxy, &elect, Mode::Pass, Mode::RepliesLost).await;
    let latest = sent_by + validity(&config);
    within("a token fires", lease.cancelled()).await;
    // The store has a beat that nobody here knows of; other connections get no further than their
    // handshake.
    proxy.until_passed("findAndModify", beats + 1).await;
    let end = now() + lease.remaining();
    assert!(!lease.is_valid() || end <= latest, "its end is {:?} too late", end.since(latest));
    proxy.set_mode(Mode::Pass).await;
    let again = until("it leads again", async || {
        let led = campaign.led().await.unwrap();
        if led.term() == lease.term() { Err(led) } else { Ok(led) }
    })
    .await;
    assert!(again.term() > lease.term());
    let last = polls.last_allowed("key", lease.term());
    assert!(last <= Some(latest), "polled {:?} after the end", last.unwrap().since(latest));
}

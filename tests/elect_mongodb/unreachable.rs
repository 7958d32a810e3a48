//! An instance that does not reach its store any more stops in time, and comes back.

use std::time::Duration;

use tenure::{ElectConfig, Event, Loss, clock::Moment};

use crate::{
    fleet::{
        MS, PREEMPTED, Place, SECOND, bounded, config, event, quick, replica_set, until, validity, within,
    },
    polls::{Polls, Told, now},
    support::proxy::{Mode, Proxy},
};

const KEYS: usize = 5;
const PACE: Duration = Duration::from_millis(5);
/// Lateness of a timer on a busy machine.
const LATE: Duration = Duration::from_millis(250);

/// Until a beat has passed and was answered; when it passed.
async fn beat_passes(proxy: &Proxy, elect: &tenure::Elect) -> Moment {
    let beats = || proxy.passed("findAndModify");
    proxy.until_passed("findAndModify", beats() + 1).await;
    let passed = now();
    until("the beat is answered", || async {
        let ago = elect.health().last_beat.expect("it has beaten");
        (now().since(passed) >= ago).then_some(())
    })
    .await;
    passed
}

/// Cuts an instance off from its store, whose answers took so long until then. Every job is told in
/// time and no poll begins after the end.
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
        leases.push(bounded("a free key is led", campaign.led()).await.unwrap());
    }
    let other = place.instance(config.clone()).await;
    let successors: Vec<_> = (0..KEYS)
        .map(|number| {
            let polls = polls.clone();
            other.campaign(name(number)).run(move |lease| polls.job(lease, PACE, Told::Stops)).unwrap()
        })
        .collect();
    until("the other waits", || async { (other.health().waiting == KEYS).then_some(()) }).await;

    if !slow.is_zero() {
        proxy.set_mode(Mode::Delay { to_server: Duration::ZERO, to_client: slow }).await;
        beat_passes(&proxy, &elect).await;
    }
    let sent_by = beat_passes(&proxy, &elect).await;
    let beats = proxy.passed("findAndModify");
    proxy.set_mode(mode).await;
    assert_eq!(proxy.passed("findAndModify"), beats, "the last beat is the one that was awaited");

    let end = sent_by + validity(&config);
    let patience = validity(&config) + 10 * SECOND;
    for lease in &leases {
        within(patience, "a token fires", lease.cancelled()).await;
        assert!(matches!(lease.loss(), Some(Loss::Expired { .. })), "{:?}", lease.loss());
    }
    let told = now();
    let cancel = end - config.stop_grace();
    assert!(told <= cancel + LATE, "told {:?} too late", told.since(cancel));
    assert!(told + LATE >= cancel, "told {:?} too early", cancel.since(told));
    event(&mut events, "the session is lost", |event| {
        matches!(event, Event::SessionLost { loss: Loss::Expired { .. }, .. }).then_some(())
    })
    .await;
    let over = now();
    assert!(over <= end + LATE, "over {:?} too late", over.since(end));

    let mut taken_over = Vec::new();
    for (lease, successor) in leases.iter().zip(&successors) {
        let led = within(patience, "the other takes over", successor.led()).await.unwrap();
        assert!(led.term() > lease.term());
        let key = lease.key().as_str();
        let old = polls.under(key, lease.term());
        let last = old.last().unwrap().at;
        assert!(last <= end + PREEMPTED, "{key}: polled {:?} after the end", last.since(end));
        let first = polls.under(key, led.term()).first().map(|poll| poll.at);
        assert!(first.is_none_or(|first| first > last), "{key}: both ran");
        taken_over.push(led);
    }
    // Those that did not listen ran to the end.
    let stubborn = polls.under(&name(1), leases[1].term());
    let last = stubborn.last().unwrap().at;
    assert!(last + LATE >= end, "dropped {:?} too early", end.since(last));
    println!(
        "{mode:?}, ttl {:?}: told {:.0?} before the end, last poll {:.0?} before it; taken over {:.2?} after the last beat",
        config.ttl(),
        end.since(told),
        end.since(last),
        now().since(sent_by)
    );
    assert_eq!(proxy.passed("findAndModify"), beats, "nothing has passed since");

    proxy.set_mode(Mode::Pass).await;
    event(&mut events, "another session", |event| matches!(event, Event::SessionOpened { .. }).then_some(()))
        .await;
    until("it waits again", || async { (elect.health().waiting == KEYS).then_some(()) }).await;
    for successor in successors {
        successor.stop().await;
    }
    for (campaign, before) in campaigns.iter().zip(&taken_over) {
        let again = bounded("it leads again", campaign.led()).await.unwrap();
        assert!(again.term() > before.term());
        assert!(again.check().await.unwrap());
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
    let lease = bounded("a free key is led", campaign.led()).await.unwrap();
    let sent_by = beat_passes(&proxy, &elect).await;
    let beats = proxy.passed("findAndModify");
    proxy.set_mode(Mode::RepliesLost).await;
    let end = sent_by + validity(&config);
    within(validity(&config) + SECOND, "a token fires", lease.cancelled()).await;
    // The store has a beat that nobody here knows of; other connections get no further than their
    // handshake.
    proxy.until_passed("findAndModify", beats + 1).await;
    proxy.set_mode(Mode::Pass).await;
    let again = bounded("it leads again", async {
        loop {
            let led = campaign.led().await.unwrap();
            if led.term() != lease.term() {
                return led;
            }
            tokio::time::sleep(MS).await;
        }
    })
    .await;
    assert!(again.term() > lease.term());
    let last = polls.under("key", lease.term()).last().unwrap().at;
    assert!(last <= end + PREEMPTED, "polled {:?} after the end", last.since(end));
}

#[tokio::test]
async fn jobs_stop_in_time_with_the_default_durations_too() {
    cut_off(config("pod"), Duration::ZERO, Mode::BlackHole).await;
}

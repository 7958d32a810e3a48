//! Processes that die and processes that are frozen.

use std::time::Duration;

use futures::future::join_all;
use mongodb::bson::doc;
use tenure::{clock::Moment, model::SessionId, store::mongo::MongoStore};

use crate::elect_mongodb::{
    contender::{Contender, Said},
    fleet::{Place, quick, record, replica_set, rounds, session, until, validity},
    polls::now,
};

const LANES: u32 = 4;

/// Waits until this session stands in the queue and the holder has beaten once more: it watches by then. Returns a
/// moment before that beat.
pub(crate) async fn watches(place: &Place, store: &MongoStore, key: &str, standby: &Contender) -> Moment {
    let id = standby.all("session").remove(0).rest;
    until("the standby stands in the queue", async || {
        let waiters = place.collection("waiters");
        let found = waiters.find_one(doc! { "_id.session": &id }).await.expect("the server is up");
        found.ok_or_else(|| standby.said())
    })
    .await;
    let holder = record(store, key).await.unwrap().holding.unwrap().by.session;
    beats(store, holder, 2).await
}

/// Waits until this session has beaten so often from now on. Returns a moment before the last of these beats.
async fn beats(store: &MongoStore, holder: SessionId, times: u64) -> Moment {
    let mut before = now();
    let first = session(store, holder).await.unwrap().beat.get();
    until("the holder beats", async || {
        let looked = now();
        let beat = session(store, holder).await.unwrap().beat.get();
        if beat >= first + times {
            return Ok(before);
        }
        before = looked;
        Err(beat)
    })
    .await
}

/// Kills one leader after the other. Answers with how long each takeover took.
async fn lane(number: u32) -> Vec<Duration> {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let key = "the one";
    let mut leader = Contender::start(&place, "pod-0", key).await;
    let mut term = leader.until("poll", |_| true).await.number();
    let mut took = Vec::new();
    for round in 0..rounds() {
        let next = Contender::start(&place, &format!("pod-{}", round + 1), key).await;
        let beaten = watches(&place, &store, key, &next).await;
        assert!(next.all("poll").is_empty(), "it waits");
        // Each at another phase of the beat.
        let phase = (round * LANES + number) * quick("x").refresh_interval() / (LANES * rounds());
        tokio::time::sleep(phase).await;
        assert_eq!(record(&store, key).await.unwrap().term.get(), term, "it leads until it is killed");

        let killed = leader.kill();
        let polled = next.until("poll", |_| true).await;
        assert!(polled.number() > term, "terms rise");
        let silent = polled.at.since(beaten);
        assert!(silent >= quick("x").ttl(), "sooner than anybody may: {silent:?} after a beat");
        took.push(polled.at.since(killed));
        term = polled.number();
        leader = next;
    }
    took
}

/// Speed is judged by `jobs::a_dead_holder_is_replaced…` and `sooner::…` of `tests/elect/`, in paused time.
/// `TENURE_ROUNDS` multiplies the takeovers.
#[tokio::test]
async fn a_standby_takes_over_from_a_killed_process_when_its_ttl_is_over() {
    let mut took: Vec<Duration> = join_all((0..LANES).map(lane)).await.concat();
    took.sort();
    let (ttl, n) = (quick("x").ttl(), took.len());
    println!(
        "takeover after kill -9, ttl {ttl:?}, n = {n}: min {:.3?}, median {:.3?}, max {:.3?}",
        took[0],
        took[n / 2],
        took[n - 1]
    );
}

#[tokio::test]
async fn a_job_that_was_frozen_until_another_leads_is_not_polled_again() {
    not_polled_again(true).await;
}

#[tokio::test]
async fn a_job_that_was_frozen_for_just_longer_than_its_lease_is_not_polled_again() {
    not_polled_again(false).await;
}

/// By chance a process is frozen within a poll, or between the look at the clock that allows one and its
/// beginning: once, and not time after time.
async fn not_polled_again(until_another_leads: bool) {
    let mut late = Vec::new();
    for _ in 0..5 {
        late = frozen(until_another_leads).await;
        if late.is_empty() {
            return;
        }
    }
    panic!("an old job went on after a thaw, time after time, at last: {late:?}");
}

/// Freezes a process, until another leads or for just longer than its lease. Answers with what the old job did
/// after the thaw.
async fn frozen(until_another_leads: bool) -> Vec<Said> {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let key = "the one";
    let first = Contender::start(&place, "pod-1", key).await;
    let old = first.until("poll", |_| true).await.number();
    let second = Contender::start(&place, "pod-2", key).await;
    watches(&place, &store, key, &second).await;

    let fresh = |said: &Said| said.number() > old;
    let frozen = first.freeze().await;
    if until_another_leads {
        second.until("poll", fresh).await;
    } else {
        // Sooner than anybody may take over.
        tokio::time::sleep(validity(&quick("x")) + Duration::from_millis(20)).await;
    }
    let thawed = first.thaw();
    let dropped = first.until("dropped", |_| true).await;
    assert_eq!(dropped.number(), old);
    // The other has it by now, or whoever is quicker: the old one stands again.
    let polled = tokio::select! {
        polled = second.until("poll", fresh) => polled,
        polled = first.until("poll", fresh) => polled,
    };
    assert!(polled.at > frozen);
    first.until("session-lost", |_| true).await;
    // It stands again, under another session; by then whatever it had to do has been done.
    let again = first.until("session", |said| said.at > thawed).await;
    assert_ne!(again.rest, first.all("session")[0].rest);
    beats(&store, again.rest.parse().unwrap(), 2).await;
    let polls: Vec<_> = first.all("poll").into_iter().filter(|poll| poll.number() == old).collect();
    let (before, mut late): (Vec<_>, Vec<_>) = polls.into_iter().partition(|poll| poll.at < frozen);
    assert!(before.last().unwrap().at < polled.at);
    println!(
        "frozen for {:.2?}: somebody led {:.2?} after the freeze; the old job was dropped {:.1?} after the thaw",
        thawed.since(frozen),
        polled.at.since(frozen),
        dropped.at.since(thawed)
    );

    // The successor keeps it.
    assert_eq!(record(&store, key).await.unwrap().term.get(), polled.number());
    assert!(second.all("lost").is_empty() && second.all("session-lost").is_empty());
    late.extend(first.all("overran"));
    late
}

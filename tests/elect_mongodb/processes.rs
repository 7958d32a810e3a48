//! Processes that die and processes that are frozen.

use std::time::Duration;

use futures::future::join_all;
use mongodb::bson::doc;
use tenure::{model::SessionId, store::mongo::MongoStore};

use crate::{
    contender::{Contender, Said},
    fleet::{MS, Place, SECOND, quick, record, replica_set, session, until, validity},
    polls::now,
};

const LANES: u32 = 4;
const ROUNDS: u32 = 5;

/// Until this session stands in line and the holder has beaten once more: it watches by then.
pub(crate) async fn watches(place: &Place, store: &MongoStore, key: &str, standby: &Contender) {
    let id = standby.all("session").remove(0).rest;
    until("the standby stands in line", || async {
        let waiters = place.collection("waiters");
        waiters.find_one(doc! { "_id.session": &id }).await.expect("the server is up")
    })
    .await;
    let holder = record(store, key).await.unwrap().holding.unwrap().by.session;
    beats(store, holder, 2).await;
}

/// Until this session has beaten so often from now on.
async fn beats(store: &MongoStore, holder: SessionId, times: u64) {
    let before = session(store, holder).await.unwrap().beat.get();
    until("the holder beats", || async {
        let beat = session(store, holder).await.unwrap().beat.get();
        (beat >= before + times).then_some(())
    })
    .await;
}

/// Kills one leader after the other. Answers with how long each takeover took.
async fn lane(number: u32) -> Vec<Duration> {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let key = "the one";
    let mut leader = Contender::start(&place, "pod-0", key).await;
    let mut term = leader.until("poll", |_| true).await.number();
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let next = Contender::start(&place, &format!("pod-{}", round + 1), key).await;
        watches(&place, &store, key, &next).await;
        assert!(next.all("poll").is_empty(), "it waits");
        // At each round in another phase of the beat.
        let phase = (round * LANES + number) * quick("x").refresh_interval() / (LANES * ROUNDS);
        tokio::time::sleep(phase).await;
        assert_eq!(record(&store, key).await.unwrap().term.get(), term, "it leads until it is killed");

        let killed = leader.kill();
        let polled = next.until("poll", |_| true).await;
        assert!(polled.number() > term, "terms rise");
        took.push(polled.at.since(killed));
        term = polled.number();
        leader = next;
    }
    took
}

#[tokio::test]
async fn a_standby_takes_over_from_a_killed_process_as_soon_as_its_ttl_is_over() {
    let mut took: Vec<Duration> = join_all((0..LANES).map(lane)).await.concat();
    took.sort();
    let (ttl, n) = (quick("x").ttl(), took.len());
    println!(
        "takeover after kill -9, ttl {ttl:?}, n = {n}: min {:.3?}, median {:.3?}, max {:.3?}",
        took[0],
        took[n / 2],
        took[n - 1]
    );
    assert_eq!(n, 20);
    // The last beat was up to an interval ago.
    assert!(took[0] + quick("x").refresh_interval() + 50 * MS >= ttl, "sooner than anybody may: {took:?}");
    // The machine is shared with the other tests, and with what these processes start.
    assert!(took[n * 9 / 10 - 1] <= ttl + 500 * MS, "{took:?}");
    assert!(took[n - 1] <= ttl + 1500 * MS, "{took:?}");
}

#[tokio::test]
async fn a_job_that_was_frozen_for_long_is_not_polled_again() {
    frozen_for(quick("x").ttl() * 3).await;
}

#[tokio::test]
async fn a_job_that_was_frozen_for_just_longer_than_its_lease_is_not_polled_again() {
    // Sooner than anybody may take over.
    frozen_for(validity(&quick("x")) + 20 * MS).await;
}

async fn frozen_for(time: Duration) {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let key = "the one";
    let first = Contender::start(&place, "pod-1", key).await;
    let old = first.until("poll", |_| true).await.number();
    let second = Contender::start(&place, "pod-2", key).await;
    watches(&place, &store, key, &second).await;

    let frozen = first.freeze().await;
    tokio::time::sleep(time.saturating_sub(now().since(frozen))).await;
    let thawed = first.thaw();
    assert!(thawed.since(frozen) >= time);
    let dropped = first.until("dropped", |_| true).await;
    assert_eq!(dropped.number(), old);
    // The other has it by now, or whoever is quicker: the old one stands again.
    let fresh = |said: &Said| said.number() > old;
    let polled = tokio::select! {
        polled = second.until("poll", fresh) => polled,
        polled = first.until("poll", fresh) => polled,
    };
    let other_leads = !second.all("poll").is_empty();
    assert!(other_leads || time < quick("x").ttl(), "the other took over meanwhile");
    assert!(polled.at > frozen);
    first.until("session-lost", |_| true).await;
    // It stands again, under another session; by then whatever it had to do has been done.
    let again = first.until("session", |said| said.at > thawed).await;
    assert_ne!(again.rest, first.all("session")[0].rest);
    beats(&store, again.rest.parse().unwrap(), 2).await;
    let polls: Vec<_> = first.all("poll").into_iter().filter(|poll| poll.number() == old).collect();
    let late: Vec<_> = polls.iter().filter(|poll| poll.at >= frozen).collect();
    assert!(late.is_empty(), "polled after it was thawed at {thawed:?}: {late:?}");
    assert!(first.all("overran").is_empty());
    assert!(polls.last().unwrap().at < polled.at);
    println!(
        "frozen for {:.2?}: somebody led {:.2?} after the freeze; the old job was dropped {:.1?} after the thaw",
        thawed.since(frozen),
        polled.at.since(frozen),
        dropped.at.since(thawed)
    );
    assert!(dropped.at.since(thawed) < SECOND);

    // The successor keeps it.
    assert_eq!(record(&store, key).await.unwrap().term.get(), polled.number());
    assert!(second.all("lost").is_empty() && second.all("session-lost").is_empty());
}

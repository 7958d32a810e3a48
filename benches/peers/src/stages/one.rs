//! A single client: pairs, takes at a pace, tries that lose, and hand-overs to one waiter.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::Size;
use crate::{
    figures::{Figure, Figures, Part},
    machine::Meter,
    measure::{median, micros, now},
    peers::{Instance, Peer},
    servers::Place,
};

/// Two instances of a peer on its servers.
pub(crate) struct Two {
    pub(crate) peer: Peer,
    pub(crate) first: Arc<dyn Instance>,
    pub(crate) second: Arc<dyn Instance>,
}

impl Two {
    pub(crate) async fn start(place: &Place, peer: Peer) -> Self {
        let uri = place.uri(peer);
        let first = peer.start(uri, super::TTL, "pod-1").await;
        let second = peer.start(uri, super::TTL, "pod-2").await;
        for instance in [&first, &second] {
            for _ in 0..5 {
                let held = instance.take("warm").await;
                instance.give(held).await;
            }
        }
        Self { peer, first, second }
    }

    pub(crate) async fn close(self) {
        self.first.close().await;
        self.second.close().await;
    }
}

/// Times of so many operations, as p50, p99, and processor time an operation.
struct Times {
    p50: f64,
    p99: f64,
    servers: f64,
    client: f64,
}

impl Times {
    fn of(mut times: Vec<f64>, meter: &Meter) -> Self {
        let (spent, count) = (meter.stop(), times.len());
        times.sort_by(f64::total_cmp);
        let p99 = times[(count * 99 / 100).min(count - 1)];
        let (servers, client) = (spent.servers / count as f64, spent.client / count as f64);
        Self { p50: median(times), p99, servers, client }
    }

    fn with(&self, value: f64) -> [f64; 3] {
        [value, self.servers, self.client]
    }
}

/// Pairs one after the other.
pub(crate) async fn pairs(place: &Place, two: &Two, size: &Size, figures: &mut Figures) {
    let (meter, mut times) = (Meter::start(place.pids(two.peer)), Vec::new());
    for _ in 0..size.pairs {
        let started = now();
        let held = two.first.take("pairs").await;
        two.first.give(held).await;
        times.push(micros(started.elapsed()));
    }
    let times = Times::of(times, &meter);
    figures.add_all(place.nodes, Figure::Pair, two.peer, times.with(times.p50));
    figures.add((place.nodes, Figure::Pair99, Part::Value, (0, 0)), two.peer, times.p99);
}

/// Takes with a pause before each, so that none waits for the flush of the one before it.
pub(crate) async fn paced(place: &Place, two: &Two, size: &Size, figures: &mut Figures) {
    let (meter, mut times) = (Meter::start(place.pids(two.peer)), Vec::new());
    for _ in 0..size.paced {
        sleep(Duration::from_millis(20)).await;
        let started = now();
        let held = two.first.take("paced").await;
        times.push(micros(started.elapsed()));
        two.first.give(held).await;
    }
    let times = Times::of(times, &meter);
    figures.add_all(place.nodes, Figure::Open, two.peer, times.with(times.p50));
}

/// Tries for a key that another instance holds. Of the floor: its write.
pub(crate) async fn tries(place: &Place, two: &Two, size: &Size, figures: &mut Figures) {
    let held = two.second.try_take("tries").await.expect("the key is free");
    let (meter, mut times) = (Meter::start(place.pids(two.peer)), Vec::new());
    for _ in 0..size.tries {
        let started = now();
        let taken = two.first.try_take("tries").await;
        times.push(micros(started.elapsed()));
        assert!(taken.is_none() || two.peer == Peer::Floor, "the key is held");
    }
    let times = Times::of(times, &meter);
    two.second.give(held).await;
    figures.add_all(place.nodes, Figure::Try, two.peer, times.with(times.p50));
}

/// From the call that releases to the moment when the waiter has the key.
pub(crate) async fn hand_over(place: &Place, two: &Two, size: &Size, figures: &mut Figures) {
    if two.peer == Peer::Floor {
        return;
    }
    let (meter, mut times) = (Meter::start(place.pids(two.peer)), Vec::new());
    for hand in 0..size.hands {
        let held = two.first.take("handed").await;
        let waiter = Arc::clone(&two.second);
        let waits = tokio::spawn(async move {
            let held = waiter.take("handed").await;
            let acquired = now();
            waiter.give(held).await;
            acquired
        });
        // At another phase of the poll each time: 37 is prime to 100.
        sleep(Duration::from_millis(150 + hand * 37 % 100)).await;
        let started = now();
        two.first.give(held).await;
        let acquired = waits.await.expect("the waiter does not panic");
        times.push(micros(acquired.saturating_duration_since(started)));
    }
    let times = Times::of(times, &meter);
    figures.add_all(place.nodes, Figure::HandOver, two.peer, times.with(times.p50));
}

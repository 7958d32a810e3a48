//! Time until the next in the queue has the lock.

use std::{sync::Arc, time::Instant};

use futures::StreamExt;
use mongodb::{Collection, bson::Document};
use tenure::{Elect, Guard};
use tokio::sync::mpsc;

use crate::{
    figures::{figure, measured},
    fleet::instance,
    measure::{median, micros, now},
    world::{World, bare, insert},
};

const ROUNDS: usize = 200;

/// One write and its change event, by clients of their own.
pub(crate) struct WriteAndEvent {
    collection: Collection<Document>,
    id: String,
    heard: mpsc::UnboundedReceiver<Instant>,
}

impl WriteAndEvent {
    pub(crate) async fn open(world: &World) -> Self {
        let collection = World::collection(&world.plain, "events");
        let id = format!("event {}", world.draw());
        insert(&collection, [id.clone()]).await;
        let listener = World::collection(&world.no_retry, "events");
        let mut events = listener.watch().await.expect("a replica set has change streams");
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                event.expect("the stream goes on");
                if tell.send(now()).is_err() {
                    return;
                }
            }
        });
        Self { collection, id, heard }
    }

    /// From the sending of the write to the arrival of its event, or of its answer if that is later.
    pub(crate) async fn once(&mut self) -> f64 {
        let started = now();
        bare(&self.collection, &self.id).await;
        let answered = started.elapsed();
        let heard = self.heard.recv().await.expect("the stream goes on").duration_since(started);
        micros(answered.max(heard))
    }
}

/// A waiter that says when it has the lock, and keeps it until it is told to go on.
fn waiter(elect: &Elect, key: &'static str, acquired: mpsc::UnboundedSender<(Instant, Guard)>) {
    let elect = elect.clone();
    tokio::spawn(async move {
        loop {
            let Ok(guard) = elect.acquire(key).await else { return };
            let instant = now();
            if acquired.send((instant, guard)).is_err() {
                return;
            }
        }
    });
}

/// Two instances that hand a lock to each other.
pub(crate) async fn one_waiter(world: &World) {
    let instances = [instance(world, "first").await, instance(world, "second").await];
    let (acquired, mut turns) = mpsc::unbounded_channel();
    for elect in &instances {
        waiter(elect, "hand over", acquired.clone());
    }
    let mut floor = WriteAndEvent::open(world).await;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    let (_, mut guard) = turns.recv().await.expect("somebody gets it");
    for round in 0..ROUNDS {
        floors.push(floor.once().await);
        let started = now();
        drop(guard);
        let (instant, next) = turns.recv().await.expect("the other gets it");
        guard = next;
        if round > 0 {
            ours.push(micros(instant.duration_since(started)));
        }
        // So that the other one is back in line.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (ours, floor) = (median(ours), median(floors));
    measured("handover_p50", ours, "µs");
    measured("write_and_event_p50", floor, "µs");
    figure("handover_p50_ratio", ours / floor);
    drop(guard);
    for elect in instances {
        elect.close().await;
    }
}

/// The same with 100 waiters, ten in each of ten instances.
pub(crate) async fn many_waiters(world: &Arc<World>) {
    let mut instances = Vec::new();
    let (acquired, mut turns) = mpsc::unbounded_channel();
    for number in 0..10 {
        let elect = instance(world, &format!("of ten {number}")).await;
        for _ in 0..10 {
            waiter(&elect, "hand on", acquired.clone());
        }
        instances.push(elect);
    }
    let mut floor = WriteAndEvent::open(world).await;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    let (_, mut guard) = turns.recv().await.expect("somebody gets it");
    // Until all stand in line.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    for round in 0..ROUNDS {
        floors.push(floor.once().await);
        let started = now();
        drop(guard);
        let (instant, next) = turns.recv().await.expect("the next one gets it");
        guard = next;
        if round > 0 {
            ours.push(micros(instant.duration_since(started)));
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (ours, floor) = (median(ours), median(floors));
    measured("handover_100_waiters_p50", ours, "µs");
    figure("handover_100_waiters_p50_ratio", ours / floor);
    drop(guard);
    for elect in instances {
        elect.close().await;
    }
}

//! 32 instances that want one key, again and again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::{StreamExt, future::join_all, stream};
use tokio::time::sleep;

use super::{Size, TTL};
use crate::{
    figures::{Figure, Figures, Part},
    machine::Meter,
    measure::now,
    peers::{Instance, Peer},
    servers::Place,
};

const WAITERS: usize = 32;
/// Instances that are started at a time.
const AT_A_TIME: usize = 8;

pub(crate) async fn instances(
    place: &Place,
    peer: Peer,
    number: usize,
    ttl: std::time::Duration,
) -> Vec<Arc<dyn Instance>> {
    let names: Vec<_> = (0..number).map(|number| format!("pod-{number:03}")).collect();
    let starts = names.iter().map(|name| peer.start(place.uri(peer), ttl, name));
    stream::iter(starts).buffer_unordered(AT_A_TIME).collect().await
}

pub(crate) async fn of_32(place: &Place, peer: Peer, size: &Size, figures: &mut Figures) {
    let instances = instances(place, peer, WAITERS, TTL).await;
    let (over, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let waiter = |instance: &Arc<dyn Instance>| {
        let (instance, over, counts) = (Arc::clone(instance), Arc::clone(&over), Arc::clone(&counts));
        tokio::spawn(async move {
            let mut turns = 0_u64;
            while !over.load(Ordering::Relaxed) {
                let held = instance.take("turns").await;
                instance.give(held).await;
                turns += u64::from(counts.load(Ordering::Relaxed));
            }
            turns
        })
    };
    let waiters: Vec<_> = instances.iter().map(waiter).collect();
    sleep(size.calm).await;
    counts.store(true, Ordering::Relaxed);
    let (started, meter) = (now(), Meter::start(place.pids(peer)));
    sleep(size.turns).await;
    counts.store(false, Ordering::Relaxed);
    let (seconds, spent) = (started.elapsed().as_secs_f64(), meter.stop());
    over.store(true, Ordering::Relaxed);
    let turns: Vec<u64> =
        join_all(waiters).await.into_iter().map(|turns| turns.expect("no waiter panics")).collect();
    join_all(instances.iter().map(|instance| instance.close())).await;
    let all = turns.iter().sum::<u64>().max(1) as f64;
    let (least, most) = (turns.iter().min().copied().unwrap_or(0), turns.iter().max().copied().unwrap_or(1));
    figures.add_all(
        place.nodes,
        Figure::Turns,
        peer,
        [all / seconds, spent.servers / all, spent.client / all],
    );
    let even = least as f64 / most.max(1) as f64;
    figures.add((place.nodes, Figure::LeastToMost, Part::Value, (0, 0)), peer, even);
}

//! 32 instances that want one key, again and again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use mongodb::options::WriteConcern;

use crate::{
    events::WriteAndEvent,
    figures::{figure, measured},
    measure::{median, now},
    world::World,
};

const CONTENDERS: usize = 32;
const WINDOW: Duration = Duration::from_secs(15);

/// Changes of one key's holder: how many, and how evenly.
pub(crate) async fn on_one_key(world: &Arc<World>) {
    let mut floor = WriteAndEvent::open(world, WriteConcern::majority()).await;
    let mut floors = Vec::new();
    for _ in 0..200 {
        floors.push(floor.once().await);
    }
    let floor = median(floors);
    let instances: Vec<_> = join_all(
        (0..CONTENDERS).map(|number| async move { world.instance(&format!("one of 32, {number}")).await }),
    )
    .await;
    let counting = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..CONTENDERS).map(|_| AtomicU64::new(0)).collect());
    let tasks: Vec<_> = instances
        .iter()
        .enumerate()
        .map(|(number, elect)| {
            let (elect, counting, over, counts) =
                (elect.clone(), counting.clone(), over.clone(), counts.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = elect.acquire("contended").await.expect("the engine is not closed");
                    if counting.load(Ordering::Relaxed) {
                        counts[number].fetch_add(1, Ordering::Relaxed);
                    }
                    drop(guard);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = world.cpu();
    counting.store(true, Ordering::Relaxed);
    let started = now();
    tokio::time::sleep(WINDOW).await;
    counting.store(false, Ordering::Relaxed);
    let seconds = started.elapsed().as_secs_f64();
    let cpu = world.cpu() - before;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no task panics");
    }
    let counts: Vec<f64> = counts.iter().map(|count| count.load(Ordering::Relaxed) as f64).collect();
    let total: f64 = counts.iter().sum();
    let (least, most) =
        counts.iter().fold((f64::MAX, 0.0_f64), |(least, most), count| (least.min(*count), most.max(*count)));
    measured("contenders_32_turns", total, "turns");
    measured("contenders_32_turn", seconds / total * 1e6, "µs");
    measured("contenders_32_floor", floor, "µs");
    measured("contenders_32_server_cpu", cpu / total, "µs");
    figure("contenders_32_rate_ratio", total / seconds * (floor / 1e6));
    figure("contenders_32_min_to_max", least / most);
    join_all(instances.iter().map(tenure::Elect::close)).await;
}

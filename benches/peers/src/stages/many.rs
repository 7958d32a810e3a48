//! 64 tasks of one instance, each on a key of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use tokio::time::sleep;

use super::{Size, one::Two};
use crate::{
    figures::{Figure, Figures},
    machine::Meter,
    measure::now,
    servers::Place,
};

const TASKS: usize = 64;

pub(crate) async fn of_64(place: &Place, two: &Two, size: &Size, figures: &mut Figures) {
    let (over, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let task = |number: usize| {
        let (instance, over, pairs) = (Arc::clone(&two.first), Arc::clone(&over), Arc::clone(&pairs));
        tokio::spawn(async move {
            let key = format!("many {number}");
            while !over.load(Ordering::Relaxed) {
                let held = instance.take(&key).await;
                instance.give(held).await;
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    sleep(size.calm + Duration::from_millis(200)).await;
    let (started, before) = (now(), pairs.load(Ordering::Relaxed));
    let meter = Meter::start(place.pids(two.peer));
    sleep(size.window).await;
    let (done, spent) = ((pairs.load(Ordering::Relaxed) - before).max(1) as f64, meter.stop());
    let rate = done / started.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    for ended in join_all(tasks).await {
        ended.expect("no task panics");
    }
    let costs = [rate, spent.servers / done, spent.client / done];
    figures.add_all(place.nodes, Figure::Many, two.peer, costs);
}

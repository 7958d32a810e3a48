//! Pairs by 64 tasks at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, join_all};

use super::measure::now;

pub(crate) const TASKS: usize = 64;

/// A pair, by the task of that number.
pub(crate) type Contestant = Arc<dyn Fn(usize) -> BoxFuture<'static, ()> + Send + Sync>;

/// Pairs a second, and pairs.
pub(crate) async fn rate(pair: &Contestant) -> (f64, u64) {
    const WINDOW: Duration = Duration::from_millis(900);
    let over = Arc::new(AtomicBool::new(false));
    let started = now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (pair, over) = (Arc::clone(pair), Arc::clone(&over));
            tokio::spawn(async move {
                let mut pairs = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    pair(task).await;
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    tokio::time::sleep(WINDOW).await;
    over.store(true, Ordering::Relaxed);
    let pairs: u64 = join_all(tasks).await.into_iter().map(|pairs| pairs.expect("no task panics")).sum();
    (pairs as f64 / started.elapsed().as_secs_f64(), pairs)
}

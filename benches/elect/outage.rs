//! 50 instances that come back after the store was away for a minute.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use tenure::{
    store::Store,
    testing::{Call, Course, Fault, Intercept},
};

use crate::{
    figures::{figure, measured},
    instances::{config, start},
    measure::now,
    world::World,
};

const INSTANCES: usize = 50;
const OUTAGE: Duration = Duration::from_secs(60);

/// Counts what reaches the store, second by second, and keeps everything from it while it is away.
#[derive(Debug)]
struct Gate {
    started: std::time::Instant,
    away: std::sync::atomic::AtomicBool,
    seconds: Vec<AtomicU64>,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Gate>);

impl Intercept for Shared {
    fn decide(&self, _: &Call) -> Course {
        let second = usize::try_from(now().duration_since(self.0.started).as_secs()).unwrap_or(usize::MAX);
        if let Some(count) = self.0.seconds.get(second) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if self.0.away.load(Ordering::Relaxed) { Fault::Swallowed.into() } else { Course::PLAIN }
    }
}

/// Requests a second: before, and in the worst second after.
pub(crate) async fn come_back(world: &World) {
    let gate = Arc::new(Gate {
        started: now(),
        away: std::sync::atomic::AtomicBool::new(false),
        seconds: (0..600).map(|_| AtomicU64::new(0)).collect(),
    });
    let shared = Arc::new(world.for_engine().await);
    let instances = join_all((0..INSTANCES).map(|number| {
        let (gate, shared) = (Shared(gate.clone()), shared.clone());
        async move {
            let store: Arc<dyn Store> = gate.around(shared);
            let elect = start(store, config(&format!("of 50, {number}"))).await;
            let campaign = elect.campaign(format!("role {}", number % 10)).start().expect("it is not closed");
            (elect, campaign)
        }
    }))
    .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let away_at = now().duration_since(gate.started).as_secs();
    gate.away.store(true, Ordering::Relaxed);
    tokio::time::sleep(OUTAGE).await;
    gate.away.store(false, Ordering::Relaxed);
    let back_at = now().duration_since(gate.started).as_secs();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let healthy = instances.iter().filter(|(elect, _)| elect.health().is_ok()).count();
    assert_eq!(healthy, INSTANCES, "all of them are back");
    let count = |from: u64, to: u64| {
        let second = |second: u64| {
            let second = usize::try_from(second).expect("a few minutes");
            gate.seconds[second].load(Ordering::Relaxed) as f64
        };
        (from..to).map(second).collect::<Vec<_>>()
    };
    let before = count(away_at - 10, away_at);
    let during = count(away_at + 5, back_at);
    let after = count(back_at, back_at + 30);
    let mean = |counts: &[f64]| counts.iter().sum::<f64>() / counts.len() as f64;
    let most = |counts: &[f64]| counts.iter().fold(0.0_f64, |most, count| most.max(*count));
    measured("outage_50_requests_per_s_before", mean(&before), "requests/s");
    measured("outage_50_requests_per_s_during", mean(&during), "requests/s");
    measured("outage_50_requests_per_s_after", mean(&after), "requests/s");
    figure("outage_50_worst_second_after", most(&after));
    for (_, campaign) in instances {
        drop(campaign);
    }
}

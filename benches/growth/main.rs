//! Growth of a process with the keys it has ever seen, on a replica set of three: there must be none.
//!
//! `cargo bench --all-features --bench growth` starts its own servers and runs three instances in this process, with new keys all
//! the time, as many as they manage, for `GROWTH_MINUTES` (5). The memory of the last tenth of that time is held against that of the
//! second. `tests/growth` does the same in paused time, over days.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../tests/growth/load.rs"]
mod load;

use std::{sync::Arc, time::Duration};

use peak_alloc::PeakAlloc;
use tenure::{
    store::{
        Store,
        mongo::{MongoOptions, MongoStore},
    },
    testing::{Fault, Faulty, Intercept, Operation},
};

use self::{
    common::{
        figures::{figure, measured},
        instances::{config, start},
        measure::{now, resident},
        support::mongod::{Deployment, Options, Shape, Timing},
    },
    load::Load,
};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// New keys at once.
const KEYS: usize = 100;
/// Life of an instance that is to die.
const DOOMED_FOR: Duration = Duration::from_secs(20);
const TENTHS: usize = 10;

/// Memory of this process.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    heap: f64,
    resident: f64,
}

impl Sample {
    fn take() -> Self {
        Self { heap: HEAP.current_usage() as f64, resident: resident() }
    }
}

async fn store(deployment: &Deployment) -> Arc<dyn Store> {
    let options = MongoOptions::new().database("growth");
    Arc::new(MongoStore::connect(deployment.uri(), options).await.expect("the servers are up"))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let minutes =
        std::env::var("GROWTH_MINUTES").map_or(5, |m| m.parse().expect("GROWTH_MINUTES is a number"));
    let options = Options { test_commands: false, timing: Timing::Default, ..Options::default() };
    let deployment = Deployment::start(Shape::ReplicaSet, options).await;
    let of = |holder: &'static str| async { start(store(&deployment).await, config(holder)).await };
    let mut load = Load::new([of("a").await, of("b").await, of("c").await]);
    // Those that die leave no connections behind: they share this store.
    let shared = store(&deployment).await;
    let (began, time) = (now(), Duration::from_secs(60 * minutes));
    let mut tenths = vec![Vec::new(); TENTHS];
    while began.elapsed() < time {
        let faulty = Faulty::default().around(shared.clone());
        let doomed = start(faulty.clone() as Arc<dyn Store>, config("doomed")).await;
        let (mut held, lives) = (Vec::new(), now());
        while lives.elapsed() < DOOMED_FOR && began.elapsed() < time {
            held.append(&mut load.pass(KEYS, &doomed).await);
            let tenth = began.elapsed().as_millis() * TENTHS as u128 / time.as_millis();
            let tenth = usize::try_from(tenth).expect("at most ten").min(TENTHS - 1);
            tenths[tenth].push(Sample::take());
        }
        faulty.intercept().always(Operation::ALL, Fault::Swallowed);
        drop((held, doomed));
    }
    measured("growth_keys", load.seen() as f64, "");
    load.close().await;

    let mean = |samples: &[Sample], what: fn(&Sample) -> f64| {
        samples.iter().map(what).sum::<f64>() / samples.len() as f64
    };
    for (tenth, samples) in tenths.iter().enumerate() {
        measured(&format!("growth_heap_of_tenth_{}", tenth + 1), mean(samples, |s| s.heap) / 1e6, "MB");
        measured(
            &format!("growth_resident_of_tenth_{}", tenth + 1),
            mean(samples, |s| s.resident) / 1e6,
            "MB",
        );
    }
    let ratio = |what: fn(&Sample) -> f64| mean(&tenths[TENTHS - 1], what) / mean(&tenths[1], what);
    figure("growth_heap_ratio", ratio(|s| s.heap));
    figure("growth_resident_ratio", ratio(|s| s.resident));
}

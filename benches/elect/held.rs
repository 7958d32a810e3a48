//! Cost of holding many keys and doing nothing.

use std::time::Duration;

use futures::future::join_all;
use tenure::elect::Locked;

use crate::{
    figures::{figure, measured},
    measure::{cpu, resident},
    world::World,
};

const KEYS: usize = 10_000;
const IDLE: Duration = Duration::from_secs(20);

/// Memory per key, and the CPU of this process and of the servers while nothing happens.
pub(crate) async fn keys(world: &World) {
    let elect = world.instance("holder").await;
    // What the first batch allocates for ever is not a key's.
    hold(&elect, "warm", 2_000).await;
    let before = resident();
    hold(&elect, "kept", KEYS).await;
    let bytes = (resident() - before) / KEYS as f64;
    // Until what was sent has been forgotten.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let own = [std::process::id()];
    let (here, there) = (cpu(&own), world.cpu());
    tokio::time::sleep(IDLE).await;
    let (here, there) = (cpu(&own) - here, world.cpu() - there);
    measured("held_10000_server_cpu", there / IDLE.as_secs_f64(), "µs/s");
    figure("held_10000_cpu_percent", here / IDLE.as_secs_f64() / 1e4);
    figure("held_bytes_per_key", bytes);
    elect.close().await;
}

async fn hold(elect: &tenure::Elect, name: &str, keys: usize) {
    for chunk in (0..keys).collect::<Vec<_>>().chunks(1000) {
        let locks = chunk.iter().map(|key| {
            let elect = elect.clone();
            let key = format!("{name} {key}");
            async move {
                let job = elect.lock(key, async |lease| {
                    lease.cancelled().await;
                    Ok::<(), ()>(())
                });
                assert!(matches!(job.await.expect("the server answers"), Locked::Running(_)));
            }
        });
        join_all(locks).await;
    }
}

//! Cost of holding many keys: a beat, and a page of the audit.

use tenure::{
    model::{LockId, SessionId},
    store::{Beat, BeatWrite, Nonce, StoreExt},
};

use crate::{
    figures::{figure, measured},
    measure::{median, micros, now, ratio, turn},
    world::{LIMIT, World, bare, insert},
};

/// A session that holds so many keys.
async fn holder(world: &World, keys: usize) -> SessionId {
    let session = world.open().await;
    let number = world.draw();
    let locks: Vec<LockId> = (0..keys).map(|key| World::lock(&format!("held {number} {key}"))).collect();
    for some in locks.chunks(10_000) {
        world.take_all(some, session).await;
    }
    session
}

/// A beat beside one bare `findAndModify`.
pub(crate) async fn beats(world: &World, held: &[usize]) {
    const ROUNDS: usize = 9;
    const BEATS: usize = 60;
    let nodes = world.nodes;
    let plain = World::collection(&world.plain, "floor");
    let no_retry = World::collection(&world.no_retry, "floor");
    insert(&plain, ["beat".to_owned()]).await;
    for keys in held {
        let session = holder(world, *keys).await;
        let mut number = 0;
        let mut each = [const { Vec::new() }; 3];
        for round in 0..=ROUNDS {
            for contestant in turn(round, 3) {
                let mut one = Vec::new();
                for _ in 0..BEATS {
                    let started = now();
                    match contestant {
                        0 => {
                            number += 1;
                            let nonce = Nonce::new(world.draw());
                            let beat = BeatWrite::new(session, Beat::new(number), nonce);
                            let seen = world.store.beat(beat, LIMIT).await.expect("the server answers");
                            assert!(seen.bears(nonce), "{seen:?}");
                        }
                        1 => bare(&plain, "beat").await,
                        _ => bare(&no_retry, "beat").await,
                    }
                    one.push(micros(started.elapsed()));
                }
                if round > 0 {
                    each[contestant].push(median(one));
                }
            }
        }
        measured(&format!("beat_p50_{keys}_on_{nodes}"), median(each[0].clone()), "µs");
        measured(&format!("beat_{keys}_to_retryable_modify_on_{nodes}"), ratio(&each[0], &each[1]), "times");
        // Against the one without retries: the harder of the two.
        figure(&format!("beat_ratio_{keys}_on_{nodes}"), ratio(&each[0], &each[2]));
    }
}

/// The server's CPU for one page of 1,000, whatever else is held.
pub(crate) async fn pages(world: &World) {
    const ROUNDS: usize = 6;
    const PAGES: usize = 25;
    const HELD: [usize; 3] = [1_000, 10_000, 100_000];
    let mut sessions = Vec::new();
    for keys in HELD {
        sessions.push(holder(world, keys).await);
    }
    let mut spent = [0.0; 3];
    let mut took = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        for contestant in turn(round, 3) {
            let before = world.cpu();
            for _ in 0..PAGES {
                let started = now();
                let page = world.store.held_by(sessions[contestant], None, 1000, LIMIT).await;
                assert_eq!(page.expect("the server answers").items.len(), 1000);
                took[contestant].push(micros(started.elapsed()));
            }
            if round > 0 {
                spent[contestant] += world.cpu() - before;
            }
        }
    }
    for ((keys, spent), took) in HELD.iter().zip(spent).zip(took) {
        measured(&format!("audit_server_cpu_{keys}"), spent / (ROUNDS * PAGES) as f64, "µs");
        measured(&format!("audit_p50_{keys}"), median(took), "µs");
    }
    figure("audit_cpu_ratio_100000_to_1000", spent[2] / spent[0]);
}

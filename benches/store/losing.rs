//! A try that loses: by the write that might have won, and by a read first.

use mongodb::bson::doc;
use tenure::store::{LockSeen, StoreExt, TakeAnswer};

use crate::{
    figures::{figure, measured},
    measure::{median, micros, now, ratio, turn},
    world::{LIMIT, World, bare, insert},
};

const ROUNDS: usize = 9;
const TRIES: usize = 200;

pub(crate) async fn tries(world: &World) {
    const NAMES: [&str; 3] = ["bare_find", "losing_take_write", "losing_take_read"];
    let (holder, loser) = (world.open().await, world.open().await);
    let lock = World::lock("held");
    world.take(&lock, holder).await;
    let take = world.ticket(lock.clone(), loser);
    let found = World::collection(&world.plain, "floor");
    insert(&found, ["held".to_owned()]).await;

    let before = world.oplog("locks").await;
    for busy in [false, true] {
        // Others who write elsewhere, as in a fleet there always are.
        let writers: Vec<_> = (0..if busy { 4 } else { 0 })
            .map(|number| {
                let collection = World::collection(&world.no_retry, "foreign");
                tokio::spawn(async move {
                    let key = format!("writer {number}");
                    insert(&collection, [key.clone()]).await;
                    loop {
                        bare(&collection, &key).await;
                    }
                })
            })
            .collect();
        let mut tries = [const { Vec::new() }; 3];
        for round in 0..=ROUNDS {
            for contestant in turn(round, 3) {
                let mut one = Vec::new();
                for _ in 0..TRIES {
                    let started = now();
                    match contestant {
                        0 => {
                            let id = doc! { "_id": "held" };
                            found.find_one(id).await.expect("the server answers").expect("it is there");
                        }
                        1 => {
                            let takes = vec![take.clone()];
                            let lost = world.store.take(takes, Vec::new(), LIMIT).await;
                            let lost = lost.expect("the server answers").remove(0);
                            assert!(matches!(lost, TakeAnswer::Held(_)), "{lost:?}");
                        }
                        _ => {
                            let seen = world.store.locks(vec![lock.clone()], LIMIT).await;
                            let seen = seen.expect("the server answers").remove(0);
                            assert!(matches!(seen, LockSeen::Found(_)), "{seen:?}");
                        }
                    }
                    one.push(micros(started.elapsed()));
                }
                if round > 0 {
                    tries[contestant].push(median(one));
                }
            }
        }
        writers.iter().for_each(tokio::task::JoinHandle::abort);
        let among = if busy { "_among_4_writers" } else { "" };
        for (name, tries) in NAMES.iter().zip(&tries) {
            measured(&format!("{name}_p50{among}"), median(tries.clone()), "µs");
        }
        if busy {
            measured("losing_take_ratio_write_among_4_writers", ratio(&tries[1], &tries[0]), "times");
            measured("losing_take_ratio_read_among_4_writers", ratio(&tries[2], &tries[0]), "times");
        } else {
            figure("losing_take_ratio_write", ratio(&tries[1], &tries[0]));
            figure("losing_take_ratio_read", ratio(&tries[2], &tries[0]));
        }
    }
    figure("losing_take_oplog_entries", (world.oplog("locks").await - before) as f64);
}

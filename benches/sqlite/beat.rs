//! A beat of a session that holds 10,000 keys, beside one bare update.

use std::time::Duration;

use tenure::{
    model::{Kind, LockId, SessionId},
    store::{About, Beat, BeatWrite, Candidate, Nonce, Open, StoreExt, Take, Ticket},
};

use crate::{
    figures::{figure, measured},
    floor::{Floor, Sync},
    measure::{median, micros, now, ratio, turn},
    place::Place,
};

const KEYS: usize = 10_000;
const LIMIT: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(600);

pub(crate) async fn with_10_000_keys() {
    const ROUNDS: usize = 9;
    const BEATS: usize = 300;
    let place = Place::new("beat");
    let store = place.store();
    let session = SessionId::from_u128(0xbea7);
    let about = About::new("bench".parse().expect("a name"), "pod-1".parse().expect("a name"));
    let open = Open { session, nonce: Nonce::new(1), about, ttl: TTL, shares: Vec::new(), drained: None };
    store.open(open, LIMIT).await.expect("the disk works");
    for keys in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
        let takes: Vec<_> = keys.iter().map(|key| take(session, *key)).collect();
        let answers = store.take(takes, Vec::new(), LIMIT).await.expect("the disk works");
        assert!(answers.iter().all(|answer| answer.taken().is_some()), "nobody else takes them");
    }
    let mut floor = Floor::open(&place.floor(), Sync::Normal);
    let asked = Floor::open(&place.floor(), Sync::Normal).on_a_thread();
    let (mut number, mut times) = (1, [const { Vec::new() }; 3]);
    for round in 0..=ROUNDS {
        for contestant in turn(round, 3) {
            let mut each = Vec::new();
            for _ in 0..BEATS {
                number += 1;
                let beat = beat(session, number);
                let started = now();
                match contestant {
                    0 => {
                        let seen = store.beat(beat, LIMIT).await.expect("the disk works");
                        assert!(seen.bears(Nonce::new(number)), "it is alive");
                    }
                    1 => tokio::task::block_in_place(|| floor.transaction()),
                    _ => asked().await,
                }
                each.push(micros(started.elapsed()));
            }
            if round > 0 {
                times[contestant].push(median(each));
            }
        }
    }
    measured("sqlite_beat_p50", median(times[0].clone()), "µs");
    measured("sqlite_bare_update_p50", median(times[1].clone()), "µs");
    measured("sqlite_update_on_a_thread_p50", median(times[2].clone()), "µs");
    measured("sqlite_beat_10000_keys_to_thread_ratio", ratio(&times[0], &times[2]), "times");
    figure("sqlite_beat_10000_keys_ratio", ratio(&times[0], &times[1]));
    store.close().await;
}

fn beat(session: SessionId, number: u64) -> BeatWrite {
    BeatWrite::new(session, Beat::new(number), Nonce::new(number))
}

fn take(session: SessionId, key: usize) -> Take {
    let (namespace, key) = ("bench".parse().expect("a name"), format!("key {key}").parse().expect("a name"));
    let lock = LockId { namespace, kind: Kind::Lock, key };
    Take { lock, by: Candidate::new(session, Ticket::new(1), TTL, "pod-1".parse().expect("a name")) }
}

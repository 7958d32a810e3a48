//! Many keys at once: what a spread does when its instance starts.

use std::future::Future;

use mongodb::bson::{Bson, doc};
use tenure::{
    model::{LockId, Term},
    store::{Release, StoreExt},
};

use crate::{
    figures::{figure, measured},
    measure::{cpu, median, now},
    world::{LIMIT, World, given_up},
};

/// Measurements of one way to take or release: keys a second, and CPU a key.
#[derive(Default)]
struct Seen {
    rates: Vec<f64>,
    cpu: f64,
    own_cpu: f64,
    keys: usize,
}

impl Seen {
    async fn of<T>(&mut self, world: &World, keys: usize, work: impl Future<Output = T>) -> T {
        let (before, own, started) = (world.cpu(), cpu(&[std::process::id()]), now());
        let done = work.await;
        self.rates.push(keys as f64 / started.elapsed().as_secs_f64());
        self.cpu += world.cpu() - before;
        self.own_cpu += cpu(&[std::process::id()]) - own;
        self.keys += keys;
        done
    }

    fn say(&self, name: &str) -> f64 {
        let rate = median(self.rates.clone());
        measured(&format!("{name}_server_cpu"), self.cpu / self.keys as f64, "µs/key");
        measured(&format!("{name}_client_cpu"), self.own_cpu / self.keys as f64, "µs/key");
        measured(name, rate, "keys/s");
        rate
    }
}

pub(crate) async fn rates(world: &World) {
    let session = world.open().await;
    for (keys, rounds) in [(1_000, 9), (10_000, 5)] {
        let [mut fresh, mut again, mut release, mut read, mut floor] = [(); 5].map(|()| Seen::default());
        for _ in 0..rounds {
            let number = world.draw();
            let locks: Vec<_> = (0..keys).map(|key| World::lock(&format!("many {number} {key}"))).collect();
            let mut terms = fresh.of(world, keys, world.take_all(&locks, session)).await;
            // Often enough for the list of past holders to be full.
            for _ in 0..2 {
                release.of(world, keys, release_all(world, &locks, &terms, session)).await;
                terms = again.of(world, keys, world.take_all(&locks, session)).await;
            }
            read.of(world, keys, world.store.locks(locks.clone(), LIMIT)).await.expect("the server answers");
            floor.of(world, keys, insert_bare(world, &locks)).await;
        }
        floor.say(&format!("insert_many_keys_per_s_{keys}"));
        read.say(&format!("read_keys_per_s_{keys}"));
        release.say(&format!("release_keys_per_s_{keys}"));
        let (fresh, again) = (
            fresh.say(&format!("taken_per_s_{keys}_fresh")),
            again.say(&format!("taken_per_s_{keys}_again")),
        );
        figure(&format!("take_keys_per_s_{keys}_fresh"), fresh);
        figure(&format!("take_keys_per_s_{keys}_again"), again);
    }
}

async fn release_all(world: &World, locks: &[LockId], terms: &[Term], session: tenure::model::SessionId) {
    let releases: Vec<Release> =
        locks.iter().zip(terms).map(|(lock, term)| given_up(lock, session, *term)).collect();
    world.store.release(releases, LIMIT).await.expect("the server answers");
}

/// Bulk insert by the driver alone, of as many documents of two fields.
async fn insert_bare(world: &World, locks: &[LockId]) {
    let collection = World::collection(&world.no_retry, "bulk");
    let document = |lock: &LockId| {
        let id = doc! { "ns": lock.namespace.as_str(), "kind": "lock", "key": lock.key.as_str() };
        doc! { "_id": id, "session": Bson::Null }
    };
    let majority = mongodb::options::WriteConcern::majority();
    let inserted = collection.insert_many(locks.iter().map(document)).ordered(false).write_concern(majority);
    inserted.await.expect("the server answers");
}

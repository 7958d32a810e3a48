//! Cost of one bell, by the number of those who listen in its bucket.

use std::time::Duration;

use futures::StreamExt;
use tenure::{
    model::{Key, Kind, LockId},
    store::{
        Hint, News, Store, Topic,
        mongo::{MongoStore, bare},
    },
};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

use crate::{
    figures::measured,
    machine::{Meter, Spent},
    measure::{median, turn},
    table,
    world::World,
};

const ROUNDS: usize = 3;
const LISTENERS: [usize; 4] = [0, 1, 8, 32];
const BELLS: u32 = 200;
const PACE: Duration = Duration::from_millis(10);

/// Bells that nobody acts upon, rung one after the other.
pub(crate) async fn rung(world: &World) {
    let store = world.for_engine().await;
    let mut rounds = [const { Vec::new() }; LISTENERS.len()];
    for round in 0..ROUNDS {
        for place in turn(round, LISTENERS.len()) {
            let mut tails = Vec::new();
            for _ in 0..LISTENERS[place] {
                tails.push(Tail::open(world).await);
            }
            // The first one creates the collection, if nobody has.
            ring(&store, PACE * 100).await;
            let meter = Meter::start(world);
            for _ in 0..BELLS {
                ring(&store, PACE).await;
            }
            rounds[place].push(meter.stop());
            for tail in tails {
                tail.close().await;
            }
        }
    }
    store.close().await;
    let each = |place: usize, what: fn(&Spent) -> f64| {
        let rounds: &Vec<Spent> = &rounds[place];
        median(rounds.iter().map(|spent| what(spent) / f64::from(BELLS)).collect())
    };
    let row = |(place, listeners): (usize, &usize)| {
        let all = each(place, |spent| spent.servers);
        measured(&format!("bell_heard_by_{listeners}_on_{}", world.nodes), all, "µs");
        let connections = each(place, |spent| spent.connections);
        vec![listeners.to_string(), format!("{all:.0}"), format!("{connections:.0}")]
    };
    let rows: Vec<_> = LISTENERS.iter().enumerate().map(row).collect();
    let title = format!("a bell on {}, by its listeners: µs of processor of all servers", world.nodes);
    table::print(&title, &["listeners", "servers", "of it connections"], &rows);
}

fn topic() -> Topic {
    Topic::Spread("bench".parse().expect("a name"), "import".parse().expect("a name"))
}

async fn ring(store: &MongoStore, pace: Duration) {
    let kind = Kind::Task("import".parse().expect("a name"));
    let key = Key::new("orders").expect("a name");
    let lock = LockId { namespace: "bench".parse().expect("a name"), kind, key };
    bare::ring(store, [(topic(), News::Lock(lock))], None);
    sleep(pace).await;
}

/// A listener, with a client of its own.
struct Tail {
    store: MongoStore,
    hears: JoinHandle<()>,
    // Without it nobody could change the topics, and none would be listened to any more.
    _topics: watch::Sender<std::collections::BTreeSet<Topic>>,
}

impl Tail {
    async fn open(world: &World) -> Self {
        let store = world.for_engine().await;
        let (topics, wanted) = watch::channel([topic()].into());
        let mut hints = store.hints(wanted);
        // The first says that it begins, the next that it is open.
        for _ in 0..2 {
            assert_eq!(hints.next().await, Some(Hint::Resync));
        }
        let hears = tokio::spawn(async move { while hints.next().await.is_some() {} });
        Self { store, hears, _topics: topics }
    }

    async fn close(self) {
        self.store.close().await;
        self.hears.await.expect("it ends with its store");
    }
}

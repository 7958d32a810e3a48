//! Work of the store while keys are held and nothing else happens.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream};
use tokio::{
    task::JoinSet,
    time::{Instant, interval_at, sleep},
};

use super::{Size, turns::instances};
use crate::{
    figures::{Figure, Figures, Part},
    machine::Meter,
    measure::now,
    peers::{Held, Instance, Keeps, Peer},
    servers::Place,
};

/// Takes under way at a time.
const AT_A_TIME: usize = 64;

/// Commands, writes and processor time of the servers, a second.
type Rates = [f64; 3];

async fn rates(place: &Place, peer: Peer, window: Duration) -> Rates {
    let (began, before) = (now(), place.work(peer).await);
    let meter = Meter::start(place.pids(peer));
    sleep(window).await;
    let spent = meter.stop();
    let (work, seconds) = (place.work_since(peer, &before).await, began.elapsed().as_secs_f64());
    [work.commands / seconds, work.writes / seconds, spent.servers / seconds]
}

/// Instances and keys of each: work beyond that of the same servers without an instance, just before.
pub(crate) async fn with_keys(place: &Place, size: &Size, figures: &mut Figures) {
    let peers: Vec<Peer> = place.peers().into_iter().filter(|peer| peer.keeps() != Keeps::Never).collect();
    let (on_mongo, others): (Vec<Peer>, Vec<Peer>) =
        peers.into_iter().partition(|peer| !matches!(peer, Peer::Etcd | Peer::Redis));
    for &case in size.rest {
        // Each has servers of its own, so that others may be at rest beside those on MongoDB.
        let others_rows = join_all(others.iter().map(async |peer| {
            let idle = rates(place, *peer, size.rest_window).await;
            (*peer, idle, hold(place, *peer, case, size).await)
        }));
        let mongo_rows = async {
            let (idle, mut rows) = (rates(place, Peer::Floor, size.rest_window).await, Vec::new());
            for peer in &on_mongo {
                rows.push((*peer, idle, hold(place, *peer, case, size).await));
            }
            rows
        };
        let (others_rows, mongo_rows) = tokio::join!(others_rows, mongo_rows);
        for (peer, idle, row) in mongo_rows.into_iter().chain(others_rows) {
            let figures_of_row = [Figure::RestCommands, Figure::RestWrites, Figure::RestServers];
            for ((figure, value), idle) in figures_of_row.into_iter().zip(row).zip(idle) {
                figures.add((place.nodes, figure, Part::Value, case), peer, (value - idle).max(0.0));
            }
        }
    }
}

async fn hold(place: &Place, peer: Peer, (number, keys): (usize, usize), size: &Size) -> Rates {
    let instances = instances(place, peer, number, size.rest_ttl).await;
    let each = (AT_A_TIME / number).max(1);
    let take = async |(number, instance): (usize, &Arc<dyn Instance>)| {
        let instance = Arc::clone(instance);
        let takes = (0..keys).map(|key| {
            let instance = Arc::clone(&instance);
            async move { instance.try_take(&format!("rest {keys} {number} {key}")).await }
        });
        let held: Vec<Option<Held>> = stream::iter(takes).buffer_unordered(each).collect().await;
        held.into_iter().map(|held| held.expect("the key is free")).collect::<Vec<_>>()
    };
    let held = join_all(instances.iter().enumerate().map(take)).await;
    let mut keepers = JoinSet::new();
    let (pause, mut kept) = (size.rest_ttl / 3, Vec::new());
    for (instance, held) in instances.iter().zip(held) {
        for held in held {
            if peer.keeps() != Keeps::EachKey {
                kept.push(held);
                continue;
            }
            let instance = Arc::clone(instance);
            // Spread over the interval, as keys are that are taken over time.
            let begin = Instant::from_std(now())
                + pause * u32::try_from(keepers.len()).expect("some thousands")
                    / u32::try_from(number * keys).expect("some thousands");
            keepers.spawn(async move {
                let mut ticks = interval_at(begin, pause);
                loop {
                    ticks.tick().await;
                    instance.renew(&held).await;
                }
            });
        }
    }
    sleep(size.calm).await;
    let rates = rates(place, peer, size.rest_window).await;
    keepers.shutdown().await;
    drop(kept);
    join_all(instances.iter().map(|instance| instance.close())).await;
    rates
}

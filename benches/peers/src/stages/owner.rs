//! Time to a new owner, at equal ttl, when the old one goes.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::sleep;

use super::Size;
use crate::{
    figures::{Figure, Figures, Part},
    holder::Holder,
    measure::{micros, now},
    peers::Peer,
    relay::Relay,
    servers::Place,
};

pub(crate) const FAULTS: [Figure; 4] = [Figure::Closed, Figure::Killed, Figure::Frozen, Figure::CutOff];

/// All peers and all faults at a time: each waits for seconds and computes next to nothing.
pub(crate) async fn is_lost(place: &Place, size: &Size, figures: &mut Figures) {
    for round in 0..size.owners {
        let peers: Vec<Peer> = place.peers().into_iter().filter(|peer| *peer != Peer::Floor).collect();
        let cases = peers.iter().flat_map(|peer| FAULTS.map(|fault| (*peer, fault)));
        let cases: Vec<_> = cases.map(|(peer, fault)| lose(place, peer, fault, round, size)).collect();
        for (peer, fault, seconds) in join_all(cases).await {
            figures.add((place.nodes, fault, Part::Value, (0, 0)), peer, seconds);
        }
    }
}

async fn lose(place: &Place, peer: Peer, fault: Figure, round: u32, size: &Size) -> (Peer, Figure, f64) {
    let (listener, port) = Relay::bind().await;
    let (server, by_relay) = place.by_way_of(peer, port).await;
    let relay = Relay::start(listener, server);
    let (key, ttl) = (format!("{} {round}", fault.name()), size.owner_ttl);
    let waiter = peer.start(place.uri(peer), ttl, &format!("waiter for {key}")).await;
    let mut holder = Holder::start(peer, &by_relay, ttl, &key);
    holder.held().await;
    let waits = {
        let (waiter, key) = (Arc::clone(&waiter), key.clone());
        tokio::spawn(async move {
            let held = waiter.take(&key).await;
            let acquired = now();
            waiter.give(held).await;
            acquired
        })
    };
    // Half a ttl, then at another phase of the renewals in each round.
    sleep(ttl / 2 + ttl / 3 * round / size.owners).await;
    let lost = now();
    match fault {
        Figure::Closed => holder.close(),
        Figure::Killed => holder.kill(),
        Figure::Frozen => holder.freeze(),
        _ => relay.swallow(),
    }
    let acquired = tokio::time::timeout(ttl * 20, waits).await;
    let acquired = acquired.expect("the ttl is over twenty times").expect("the waiter does not panic");
    waiter.close().await;
    (peer, fault, micros(acquired.saturating_duration_since(lost)) / 1e6)
}

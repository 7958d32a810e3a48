//! The kill of one of eleven members.

use std::time::Duration;

use crate::{
    figures::{figure, measured},
    fleet::{Fleet, World, millis, name},
    joins::worst,
    measure::median,
    member::config,
};

const ROUNDS: usize = 3;
const CALM: Duration = Duration::from_secs(4);

pub(crate) async fn one_of_eleven(world: &World) {
    let mut fleet = Fleet::of(world, "kills", 11, 100, true).await;
    let ttl = config("any", true).ttl();
    let (mut held, mut ran, mut needless) = (Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS {
        let victim = name(round * 3);
        let before = fleet.view.places().await;
        let orphans = before.values().filter(|place| place.holder.as_ref() == Some(&victim)).count();
        let begun = fleet.kill(&victim);
        let (at, _) = fleet.settled().await;
        let changes = fleet.changes(&before, begun, CALM).await;
        held.push(millis(at.since(begun)));
        ran.push(millis(changes.last_began(begun)));
        let moves = changes.grants().max(changes.terms).max(changes.began.len());
        println!("measured kill_{round} {:.0} ms {orphans} orphans {moves} moves", ran[round]);
        needless = needless.max(moves.abs_diff(orphans));
        fleet.start(&victim).await;
        fleet.join(&victim).await;
        fleet.settled().await;
        tokio::time::sleep(CALM).await;
    }
    measured("kill_ttl", millis(ttl), "ms");
    measured("kill_held_again_worst", worst(&held), "ms");
    measured("kill_running_again_p50", median(ran.clone()), "ms");
    measured("kill_running_again_worst", worst(&ran), "ms");
    figure("kill_running_again_after_ttl_ms", worst(&ran) - millis(ttl));
    figure("kill_needless_moves", needless as f64);
}

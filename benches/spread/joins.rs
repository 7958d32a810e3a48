//! An eleventh instance comes, and leaves.

use std::time::Duration;

use crate::{
    figures::{figure, measured},
    fleet::{Fleet, World, millis, name},
    measure::median,
};

const ROUNDS: usize = 5;
const TASKS: usize = 100;
/// Longer than a task is kept where it has just come.
const CALM: Duration = Duration::from_secs(4);

pub(crate) async fn one_of_eleven(world: &World) {
    let mut fleet = Fleet::of(world, "joins", 10, TASKS, false).await;
    let eleventh = name(10);
    let (mut settled, mut ran, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let (mut left, mut left_ran, mut closing) = (Vec::new(), Vec::new(), Vec::new());
    let (mut terms, mut starts, mut needless) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let before = fleet.view.places().await;
        let started = fleet.start(&eleventh).await;
        let begun = fleet.join(&eleventh).await;
        let (at, _) = fleet.settled().await;
        let changes = fleet.changes(&before, begun, CALM).await;
        settled.push(millis(at.since(begun)));
        whole.push(millis(at.since(started)));
        ran.push(millis(changes.last_began(begun)));
        println!(
            "measured join_{round} {:.0} ms {} grants",
            at.since(begun).as_secs_f64() * 1e3,
            changes.grants()
        );
        // Each counted in its own way.
        terms.push(changes.terms.max(changes.grants()));
        starts.push(changes.began.len());

        let before = changes.after;
        let orphans = before.values().filter(|place| place.holder.as_ref() == Some(&eleventh)).count();
        let (begun, closed) = fleet.close(&eleventh, None).await;
        let (at, _) = fleet.settled().await;
        let changes = fleet.changes(&before, begun, CALM).await;
        left.push(millis(at.since(begun)));
        left_ran.push(millis(changes.last_began(begun)));
        closing.push(millis(closed.since(begun)));
        println!("measured leave_{round} {:.0} ms {orphans} orphans", at.since(begun).as_secs_f64() * 1e3);
        needless.push(changes.grants().max(changes.terms).max(changes.began.len()).abs_diff(orphans));
    }
    measured("join_settled_p50", median(settled.clone()), "ms");
    measured("join_running_p50", median(ran.clone()), "ms");
    measured("join_running_worst", worst(&ran), "ms");
    measured("join_with_start_of_process_p50", median(whole), "ms");
    figure("join_settled_ms", worst(&settled));
    figure("join_terms_changed", furthest(&terms, 9));
    figure("join_jobs_started", furthest(&starts, 9));
    measured("leave_held_again_p50", median(left.clone()), "ms");
    measured("leave_running_again_p50", median(left_ran.clone()), "ms");
    measured("leave_running_again_worst", worst(&left_ran), "ms");
    measured("leave_close_p50", median(closing), "ms");
    figure("leave_held_again_ms", worst(&left));
    figure("leave_needless_moves", needless.iter().max().copied().unwrap_or(0) as f64);
}

pub(crate) fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The one that is furthest from what it should be.
fn furthest(values: &[usize], from: usize) -> f64 {
    values.iter().copied().max_by_key(|value| value.abs_diff(from)).unwrap_or(0) as f64
}

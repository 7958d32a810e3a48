//! Purging runs: the latest stay, and the mark says up to where they may be gone.

use std::time::Duration;

use crate::{
    fixture::{Fixture, LIMIT, eventually, sure},
    runs::{all_runs, claim, claimed, run},
};
use tenure::{
    model::{ScheduleId, StoreTime},
    store::StoreExt,
};

/// Claims one run for each instant.
pub(crate) async fn ledger(fixture: &Fixture, schedule: &ScheduleId, instants: &[i64]) {
    for instant in instants {
        claimed(fixture, &claim(&run(schedule, *instant), fixture.session(), 1)).await;
    }
}

pub(crate) async fn purge(fixture: &Fixture, schedule: &ScheduleId, older_than: Duration, keep: usize) {
    sure(fixture.store().purge_runs(schedule.clone(), older_than, keep, LIMIT)).await;
}

/// Instants that are left, latest first, and the mark.
pub(crate) async fn left(fixture: &Fixture, schedule: &ScheduleId) -> (Vec<i64>, Option<i64>) {
    let mark = sure(fixture.store().history(schedule.clone(), None, 1, LIMIT)).await.mark;
    let runs = all_runs(fixture, schedule, 100).await;
    let instants = runs.iter().map(|run| run.id.instant.as_millis()).collect();
    (instants, mark.map(StoreTime::as_millis))
}

/// Purges until that is left; what is to stay must stay throughout.
pub(crate) async fn purge_down_to(
    fixture: &Fixture,
    schedule: &ScheduleId,
    keep: usize,
    expected: &[i64],
) -> i64 {
    eventually("runs that are old enough are purged", async || {
        purge(fixture, schedule, Duration::ZERO, keep).await;
        let (instants, mark) = left(fixture, schedule).await;
        assert!(instants.starts_with(expected), "the latest {keep} must stay: {instants:?}");
        (instants == expected).then(|| mark.expect("a purge that removed runs must have raised the mark"))
    })
    .await
}

/// Runs that started lately stay, however few are to be kept.
pub async fn young_runs_are_not_purged(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    ledger(fixture, &schedule, &[1, 2, 3]).await;
    // The store's clock has to go on, or nothing were old enough to be purged.
    let other = fixture.schedule("hourly");
    ledger(fixture, &other, &[1]).await;
    purge_down_to(fixture, &other, 0, &[]).await;
    purge(fixture, &schedule, Duration::from_secs(3600), 0).await;
    assert_eq!(left(fixture, &schedule).await, (vec![3, 2, 1], None), "they started less than an hour ago");
}

/// The latest stay, however old: by instant, not by when they started.
pub async fn the_latest_runs_are_kept(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    ledger(fixture, &schedule, &[5, 1, -4, 3, 2]).await;
    let mark = purge_down_to(fixture, &schedule, 2, &[5, 3]).await;
    assert_eq!(mark, 2, "the mark must stand at the latest run that was purged");
    purge(fixture, &schedule, Duration::ZERO, 2).await;
    assert_eq!(left(fixture, &schedule).await, (vec![5, 3], Some(2)), "nothing more to purge");
    purge(fixture, &schedule, Duration::ZERO, 100).await;
    assert_eq!(left(fixture, &schedule).await, (vec![5, 3], Some(2)), "fewer than are to be kept");
}

/// Also when every run is gone, and through purges of earlier instants.
pub async fn the_mark_never_goes_back(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    ledger(fixture, &schedule, &[10, 20, 30]).await;
    assert_eq!(purge_down_to(fixture, &schedule, 0, &[]).await, 30);
    ledger(fixture, &schedule, &[15]).await;
    assert_eq!(purge_down_to(fixture, &schedule, 0, &[]).await, 30, "a purge below must not lower it");
    ledger(fixture, &schedule, &[40, 50]).await;
    assert_eq!(left(fixture, &schedule).await, (vec![50, 40], Some(30)), "a claim must not raise it");
    assert_eq!(purge_down_to(fixture, &schedule, 1, &[50]).await, 40, "a purge above must raise it");
}

/// The owner looks at the mark, a claim does not: also a purged tick is granted again.
pub async fn a_claim_does_not_look_at_the_mark(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    ledger(fixture, &schedule, &[10, 20]).await;
    purge_down_to(fixture, &schedule, 0, &[]).await;
    ledger(fixture, &schedule, &[20, 5]).await;
    assert_eq!(left(fixture, &schedule).await, (vec![20, 5], Some(20)));
}

/// A purge of one schedule leaves the others' runs and marks.
pub async fn a_purge_keeps_to_its_schedule(fixture: &Fixture) {
    let [mine, other, foreign] =
        [fixture.schedule("nightly"), fixture.schedule("nightly2"), fixture.another().schedule("nightly")];
    for schedule in [&mine, &other, &foreign] {
        ledger(fixture, schedule, &[1, 2]).await;
    }
    purge_down_to(fixture, &mine, 0, &[]).await;
    for schedule in [&other, &foreign] {
        assert_eq!(left(fixture, schedule).await, (vec![2, 1], None));
    }
}

/// There may be no runs at all.
pub async fn a_purge_of_nothing_leaves_no_mark(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    purge(fixture, &schedule, Duration::ZERO, 0).await;
    assert_eq!(left(fixture, &schedule).await, (vec![], None));
}

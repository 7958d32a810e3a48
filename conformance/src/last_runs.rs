//! The last entries of several ledgers, read at once.

use crate::{
    entries::{ENTRIES, entry},
    fixture::{Fixture, LIMIT, sure},
    purge_runs::{ledger, purge_down_to},
    runs::claimed,
};
use tenure::{
    model::{RunRecord, ScheduleId},
    store::{Page, StoreExt},
};

/// As their histories begin, one by one.
async fn beginnings(fixture: &Fixture, schedules: &[ScheduleId], at_most: usize) -> Vec<Page<RunRecord>> {
    let mut pages = Vec::new();
    for schedule in schedules {
        pages.push(sure(fixture.store().history(schedule.clone(), None, at_most, LIMIT)).await.into());
    }
    pages
}

async fn last(fixture: &Fixture, schedules: &[ScheduleId], at_most: usize) -> Vec<Page<RunRecord>> {
    sure(fixture.store().last_runs(schedules.to_vec(), at_most, LIMIT)).await
}

/// Ticks, orders and ticks that were not run, many, few or none, of two namespaces: in the order asked for, each as
/// its history begins, and with the same place to go on from.
pub async fn the_last_runs_are_those_a_history_begins_with(fixture: &Fixture) {
    let another = fixture.another();
    let schedules = [
        fixture.schedule("nightly2"),
        another.schedule("nightly"),
        fixture.schedule("never ran"),
        fixture.schedule("nightly"),
        fixture.schedule("night"),
    ];
    ledger(fixture, &schedules[0], &[5, 1_000, 1_700_000_000_000, -3, 999, 0, -1_000_000]).await;
    ledger(fixture, &schedules[1], &[7]).await;
    for instant in [20, 10] {
        for of in ENTRIES {
            claimed(fixture, &entry(fixture, &schedules[3], instant, of)).await;
        }
    }
    ledger(fixture, &schedules[4], &[1, 2]).await;
    for at_most in [1, 2, 3, 6, 7, 100] {
        let pages = last(fixture, &schedules, at_most).await;
        let lengths: Vec<_> = pages.iter().map(|page| page.items.len()).collect();
        assert_eq!(lengths, [7, 1, 0, 6, 2].map(|runs| at_most.min(runs)), "{at_most} at most of each");
        let have_more: Vec<_> = pages.iter().map(|page| page.next.is_some()).collect();
        assert_eq!(have_more, [7, 1, 0, 6, 2].map(|runs| at_most < runs), "{at_most} at most of each");
        assert_eq!(pages, beginnings(fixture, &schedules, at_most).await, "{at_most} at most of each");
    }
    assert_eq!(last(fixture, &schedules, 0).await, last(fixture, &schedules, 1).await, "as every page");
}

/// Twice in the question is twice in the answer.
pub async fn a_ledger_asked_for_twice_is_answered_twice(fixture: &Fixture) {
    let [nightly, hourly, none] = ["nightly", "hourly", "none"].map(|name| fixture.schedule(name));
    ledger(fixture, &nightly, &[1, 2, 3]).await;
    ledger(fixture, &hourly, &[4]).await;
    let asked = [nightly.clone(), none.clone(), hourly, nightly.clone(), none, nightly];
    assert_eq!(last(fixture, &asked, 2).await, beginnings(fixture, &asked, 2).await);
    assert_eq!(last(fixture, &[], 2).await, [], "of nothing there is nothing");
}

/// More than a store may find at a time, in no order of their own.
pub async fn many_ledgers_are_read_at_once(fixture: &Fixture) {
    let name = |number: usize| fixture.schedule(&format!("schedule {}", number * 37 % 60));
    let schedules: Vec<_> = (0..60).map(name).collect();
    for (number, schedule) in schedules.iter().enumerate() {
        ledger(fixture, schedule, &[10, 30, 20][..number % 4]).await;
    }
    assert_eq!(last(fixture, &schedules, 2).await, beginnings(fixture, &schedules, 2).await);
}

/// Purged runs are gone, and the schedule's own record is no entry.
pub async fn the_last_runs_follow_a_purge(fixture: &Fixture) {
    let [nightly, hourly] = [fixture.schedule("nightly"), fixture.schedule("hourly")];
    for schedule in [&nightly, &hourly] {
        ledger(fixture, schedule, &[10, 20, 30]).await;
    }
    purge_down_to(fixture, &nightly, 2, &[30, 20]).await;
    purge_down_to(fixture, &hourly, 0, &[]).await;
    let pages = last(fixture, &[hourly, nightly], 2).await;
    let instants =
        |page: &Page<RunRecord>| page.items.iter().map(|run| run.id.instant.as_millis()).collect::<Vec<_>>();
    assert_eq!(pages.iter().map(instants).collect::<Vec<_>>(), [vec![], vec![30, 20]]);
    assert!(pages.iter().all(|page| page.next.is_none() && page.refused.is_empty()), "{pages:?}");
}

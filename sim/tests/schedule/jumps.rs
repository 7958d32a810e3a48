//! The store's clock jumps, and no instance is there for a day: it moves when ticks are run, never how often.

use std::{collections::BTreeSet, time::Duration};

use tenure::{
    model::StoreTime,
    schedule::{Misfire, ScheduleBuilder},
};

use crate::schedule::crew::{Crew, DAY, HOUR, MINUTE, SECOND, every_second, pass};

const CAP: u32 = 50;

fn capped(schedule: ScheduleBuilder) -> ScheduleBuilder {
    schedule.misfire(Misfire::All { window: HOUR, at_most: CAP })
}

/// The longest time in which nothing was run, by the clock of the waiters.
async fn longest_silence(crew: &Crew, time: Duration) -> Duration {
    let begun = tokio::time::Instant::now();
    let (mut last, mut longest, mut runs) = (begun, Duration::ZERO, crew.registry.runs().len());
    while begun.elapsed() < time {
        pass(SECOND / 2).await;
        let now = crew.registry.runs().len();
        if now > runs {
            (last, runs) = (tokio::time::Instant::now(), now);
        }
        longest = longest.max(last.elapsed());
    }
    longest
}

#[track_caller]
fn nothing_twice(crew: &Crew) {
    let instants = crew.registry.instants();
    let different: BTreeSet<_> = instants.iter().collect();
    assert_eq!(instants.len(), different.len(), "some ticks were run twice");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_a_month_ahead_for_a_minute_moves_nothing() {
    let crew = Crew::new();
    let _members = [crew.with("a", "* * * * * *", capped).await, crew.with("b", "* * * * * *", capped).await];
    pass(MINUTE).await;
    crew.clock.step_wall(30 * DAY);
    assert!(longest_silence(&crew, MINUTE).await <= 2 * SECOND);
    crew.clock.step_wall_back(30 * DAY);
    assert!(longest_silence(&crew, 10 * MINUTE).await <= 2 * SECOND);
    nothing_twice(&crew);
    let instants = crew.registry.instants();
    assert_eq!(instants, every_second(instants[0], *instants.last().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_a_month_ahead_and_comes_back_is_followed_within_the_cap() {
    let crew = Crew::new();
    let mut members = Vec::new();
    for holder in ["a", "b", "c"] {
        members.push(crew.with(holder, "* * * * * *", capped).await);
    }
    pass(MINUTE).await;
    let before = crew.registry.runs().len();
    crew.clock.step_wall(30 * DAY);
    let silence = longest_silence(&crew, 20 * MINUTE).await;
    assert!(silence <= 2 * SECOND, "{silence:?}");
    let after = crew.registry.runs().len() - before;
    assert!(after <= 20 * 60 + CAP as usize + 1, "{after} runs: no burst beyond the cap");
    nothing_twice(&crew);
    // And back: what was run under the wrong time is not run again, and no tick waits for a month.
    let before = crew.registry.runs().len();
    crew.clock.step_wall_back(30 * DAY);
    let silence = longest_silence(&crew, 20 * MINUTE).await;
    assert!(silence <= 5 * MINUTE, "{silence:?}");
    let after = crew.registry.runs().len() - before;
    assert!(after <= 20 * 60 + CAP as usize + 1, "{after} runs: no burst beyond the cap");
    nothing_twice(&crew);
    // The instance that takes over goes on from there, too.
    let begun = crew.now();
    members.remove(0).elect.close().await;
    members.remove(0).elect.close().await;
    assert!(longest_silence(&crew, 5 * MINUTE).await <= 3 * SECOND);
    nothing_twice(&crew);
    let mut since: Vec<_> =
        crew.registry.instants().into_iter().filter(|at| *at >= begun && *at <= crew.now()).collect();
    since.sort_unstable();
    assert_eq!(since, every_second(since[0], *since.last().unwrap()), "none is missing");
    let skipped: Vec<_> = crew.told().await.into_iter().filter(|entry| entry.contains("too late")).collect();
    assert!(skipped.len() <= 3, "a range is one entry: {skipped:?}");
}

#[tokio::test(start_paused = true)]
async fn a_small_step_of_the_stores_clock_is_no_burst_and_no_long_silence() {
    for forward in [true, false] {
        let crew = Crew::new();
        let _member = crew.with("a", "* * * * * *", |schedule| schedule).await;
        pass(MINUTE).await;
        let before = crew.registry.runs().len();
        if forward {
            crew.clock.step_wall(30 * SECOND);
        } else {
            crew.clock.step_wall_back(30 * SECOND);
        }
        let silence = longest_silence(&crew, 2 * MINUTE).await;
        assert!(silence <= 31 * SECOND, "{silence:?}");
        let after = crew.registry.runs().len() - before;
        assert!(after <= 121, "{after}");
        nothing_twice(&crew);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_day_is_made_up_for_within_the_cap() {
    let crew = Crew::new();
    let member = crew.with("a", "* * * * * *", capped).await;
    pass(MINUTE).await;
    member.elect.close().await;
    let before = crew.registry.runs().len();
    pass(DAY).await;
    let _member = crew.with("b", "* * * * * *", capped).await;
    pass(10 * SECOND).await;
    let after = crew.registry.runs().len() - before;
    assert!((CAP as usize..=CAP as usize + 11).contains(&after), "{after}");
    nothing_twice(&crew);
    let skipped: Vec<_> = crew.told().await.into_iter().filter(|entry| entry.contains("too late")).collect();
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(skipped[0].contains(" 10000 too late"), "ten thousand and more are not counted: {skipped:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_for_a_day_is_made_up_for_within_the_cap() {
    let crew = Crew::new();
    let member = crew.with("a", "* * * * * *", capped).await;
    pass(MINUTE).await;
    let before = crew.registry.runs().len();
    member.faulty.intercept().always(tenure::testing::Operation::ALL, tenure::testing::Fault::RequestLost);
    pass(DAY).await;
    let during = crew.registry.runs().len() - before;
    assert!(during <= 1, "what cannot be claimed is not run");
    member.faulty.intercept().heal();
    pass(MINUTE).await;
    let after = crew.registry.runs().len() - before;
    assert!((CAP as usize..=CAP as usize + 61).contains(&after), "{after}");
    nothing_twice(&crew);
}

/// Runs while the clocks change, if another instance has the schedule every twenty minutes.
async fn over_a_change(
    from: u64,
    expression: &str,
    set: impl Fn(ScheduleBuilder) -> ScheduleBuilder,
) -> Vec<String> {
    let crew = Crew::long();
    crew.clock
        .step_wall(Duration::from_secs(from).saturating_sub(crew.now().since(StoreTime::from_millis(0))));
    for holder in 0..90 {
        let member = crew.with(&format!("pod-{holder}"), expression, &set).await;
        pass(20 * MINUTE).await;
        member.elect.close().await;
    }
    nothing_twice(&crew);
    crew.registry.instants().iter().map(|at| at.to_string()[8..16].to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_clocks_is_the_same_for_whoever_has_the_schedule() {
    // The 24th of October 2026, ten in the evening; the clocks of London go back at one in the night.
    let autumn = 1_792_879_200;
    let london = |schedule: ScheduleBuilder| schedule.zone("Europe/London");
    assert_eq!(over_a_change(autumn, "30 1 * * *", london).await, ["25T00:30", "26T01:30"]);
    let wild = over_a_change(autumn, "*/30 1 * * *", london).await;
    assert_eq!(wild, ["25T00:00", "25T00:30", "25T01:00", "25T01:30", "26T01:00", "26T01:30"]);
    // The 8th of March 2026, four in the morning UTC; those of New York go ahead at seven.
    let spring = 1_772_942_400;
    let new_york = |schedule: ScheduleBuilder| schedule.zone("America/New_York");
    assert_eq!(over_a_change(spring, "30 2 * * *", new_york).await, ["08T07:00", "09T06:30"]);
}

#[tokio::test(start_paused = true)]
async fn a_purge_by_a_clock_that_is_doubted_makes_nothing_run_twice() {
    let crew = Crew::new();
    let _member = crew.with("a", "*/10 * * * * *", |schedule| schedule.keep_history(10 * MINUTE, 10)).await;
    pass(20 * MINUTE).await;
    crew.clock.step_wall_back(15 * MINUTE);
    // Time until it is believed: its ticks have run before.
    pass(6 * MINUTE).await;
    let before = crew.registry.runs().len();
    crew.clock.step_wall(40 * MINUTE);
    pass(4 * MINUTE).await;
    assert_eq!(crew.registry.runs().len(), before, "it goes by the time before, in which all has run");
    pass(20 * MINUTE).await;
    let mut instants = crew.registry.instants();
    assert!(instants.len() > before, "and then by what the store shows");
    instants.sort_unstable();
    let twice: Vec<_> = instants.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

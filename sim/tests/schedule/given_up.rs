//! Ticks that are given up, that failed for good, and those of another timing: none goes without a word.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tenure::{
    Event,
    model::Outcome,
    schedule::{Misfire, Retries},
};

use crate::schedule::crew::{Crew, DAY, HOUR, MINUTE, SECOND, at, pass};

#[tokio::test(start_paused = true)]
async fn a_tick_that_is_told_to_stop_in_every_attempt_is_abandoned_and_told() {
    let crew = Crew::new();
    let mut last =
        crew.with_job("pod-0", "0 1 1 1 *", |schedule| schedule, crew.job("pod-0", 2 * HOUR)).await;
    pass(HOUR + MINUTE).await;
    let mut ends = Vec::new();
    for pod in 1..8 {
        let name = format!("pod-{pod}");
        let next = crew.with_job(&name, "0 1 1 1 *", |schedule| schedule, crew.job(&name, 2 * HOUR)).await;
        pass(MINUTE).await;
        let mut events = last.schedule.as_ref().unwrap().events();
        last.elect.close().await;
        while let Some(event) = events.next().await {
            if let Event::Ran { attempt, outcome, last, .. } = event {
                ends.push((attempt, outcome, last));
            }
        }
        last = next;
        pass(MINUTE).await;
    }
    assert_eq!(crew.told().await, ["01:00:00 abandoned 5"]);
    let cancelled = |attempt| (attempt, Outcome::Cancelled, false);
    let given_up = (5, Outcome::Abandoned, true);
    assert_eq!(ends, [cancelled(1), cancelled(2), cancelled(3), cancelled(4), given_up]);
    let status = last.schedule.as_ref().unwrap().status().await.unwrap().unwrap();
    assert_eq!(status.failures, 1);
    let text = status.to_string();
    assert!(text.contains("abandoned: cancelled in attempt 5 and not retried"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_failed_for_good_is_not_run_again_by_an_owner_that_allows_more_tries() {
    for hours in [1, 12, 100] {
        let crew = Crew::new();
        let runs = Arc::new(AtomicUsize::new(0));
        let failing = {
            let runs = runs.clone();
            move |_, _| {
                runs.fetch_add(1, Ordering::Relaxed);
                async { Err("broken".to_owned()) }
            }
        };
        let within_a_week =
            |schedule: tenure::schedule::ScheduleBuilder| schedule.misfire(Misfire::One { window: 7 * DAY });
        let one = crew.with_job("a", "30 0 1 1 *", within_a_week, failing).await;
        pass(HOUR).await;
        one.elect.close().await;
        let before = runs.load(Ordering::Relaxed);
        assert!(before > 0);
        pass(HOUR * hours).await;
        let more = |schedule: tenure::schedule::ScheduleBuilder| {
            within_a_week(schedule).retries(Retries { tries: 3, ..Retries::default() })
        };
        let _two = crew.with("b", "30 0 1 1 *", more).await;
        pass(MINUTE).await;
        assert_eq!(crew.registry.runs(), [], "{hours} h later");
        assert!(crew.told().await.iter().all(|told| told.ends_with("failed 1")), "{:?}", crew.told().await);
    }
}

/// The owner dies ten seconds before its tick, and has a successor with that timing.
async fn inherited(expression: &str) -> Crew {
    let crew = Crew::new();
    let one = crew.with("a", "0 * * * *", |schedule| schedule).await;
    pass(59 * MINUTE + 50 * SECOND).await;
    let two = crew.with("b", expression, |schedule| schedule).await;
    one.kill().await;
    pass(5 * MINUTE).await;
    let since = two.definition().await.since;
    if expression == "0 0-23 * * *" {
        assert!(since < at(60), "it has the instants it had");
    } else {
        assert!(since > at(3600), "it has others from now on");
    }
    crew
}

#[tokio::test(start_paused = true)]
async fn the_same_instants_in_other_words_are_run_by_the_next_owner() {
    let crew = inherited("0 0-23 * * *").await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1"]);
    assert_eq!(crew.registry.instants(), [at(3600)]);
}

#[tokio::test(start_paused = true)]
async fn a_tick_of_the_timing_before_is_told_by_the_next_owner() {
    let crew = inherited("0,30 * * * *").await;
    assert_eq!(crew.told().await, ["01:00:00-01:00:00 1 rescheduled"]);
    assert_eq!(crew.registry.instants(), []);
}

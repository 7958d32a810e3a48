//! Metrics of schedules.

use tenure::{
    model::Why,
    schedule::{Retries, ScheduleBuilder},
};

use crate::numbers::{Numbers, is};
use crate::schedule::crew::{Crew, HOUR, MINUTE, SECOND, pass};

const SCHEDULE: &str = "namespace=test schedule=report";

#[tokio::test(start_paused = true)]
async fn runs_are_counted_with_their_lateness_and_duration() {
    let numbers = Numbers::start();
    let crew = Crew::new();
    let retries = Retries { tries: 2, first: MINUTE, longest: MINUTE };
    let job = |tick: tenure::schedule::Tick, _| async move {
        pass(10 * SECOND).await;
        if tick.attempt() == 1 { Err("the first try fails".to_owned()) } else { Ok(()) }
    };
    let _member = crew.with_job("a", "@hourly", |schedule| schedule.retries(retries), job).await;
    pass(3 * HOUR + 5 * MINUTE).await;
    let count = |outcome| numbers.count(&format!("tenure_schedule_runs_total {SCHEDULE} outcome={outcome}"));
    assert_eq!((count("failed"), count("succeeded")), (3, 3));
    let lateness = numbers.values(&format!("tenure_schedule_lateness_seconds {SCHEDULE}"));
    assert!(
        lateness.len() == 3 && lateness.iter().all(|late| *late < 1.0),
        "of each tick once: {lateness:?}"
    );
    let took = numbers.values(&format!("tenure_schedule_run_seconds {SCHEDULE}"));
    assert_eq!(took.len(), 6);
    for took in took {
        is(took, 10.0);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_and_skipped_ticks_are_counted() {
    let numbers = Numbers::start();
    let crew = Crew::new();
    let job = |_, _| async { Err("it never works".to_owned()) };
    let set = |schedule: ScheduleBuilder| schedule;
    let member = crew.with_job("a", "* * * * *", set, job).await;
    pass(3 * MINUTE + SECOND).await;
    let failures = || numbers.gauge(&format!("tenure_schedule_failures {SCHEDULE}"));
    is(failures(), 3.0);
    let schedule = member.schedule.as_ref().unwrap();
    schedule.pause(Why::new("a look").unwrap()).await.unwrap();
    pass(5 * MINUTE).await;
    schedule.resume().await.unwrap();
    pass(SECOND).await;
    assert_eq!(numbers.count(&format!("tenure_schedule_skipped_total {SCHEDULE} why=paused")), 5);
    member.elect.close().await;
    is(failures(), 0.0);
}

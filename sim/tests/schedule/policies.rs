//! Ticks that are late, overlap, or fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tenure::{
    model::Why,
    schedule::{Misfire, OnCrash, Overlap, Retries, ScheduleBuilder},
    store::{Define, Definition, StoreExt},
    testing::{Fault, Operation},
};

use crate::schedule::crew::{Crew, HOUR, MINUTE, Member, NAME, SECOND, at, pass};

const MINUTELY: &str = "* * * * *";

/// A schedule by the minute, without an owner from 00:01:30 to 00:11:30.
async fn after_an_outage(set: impl Fn(ScheduleBuilder) -> ScheduleBuilder) -> (Crew, Member) {
    let crew = Crew::new();
    let member = crew.with("a", MINUTELY, &set).await;
    pass(90 * SECOND).await;
    member.elect.close().await;
    pass(10 * MINUTE).await;
    let member = crew.with("b", MINUTELY, set).await;
    pass(MINUTE).await;
    (crew, member)
}

#[tokio::test(start_paused = true)]
async fn of_ticks_that_were_missed_the_latest_is_run_by_default() {
    let (crew, _member) = after_an_outage(|schedule| schedule).await;
    assert_eq!(
        crew.told().await,
        [
            "00:01:00 succeeded 1",
            "00:02:00-00:10:00 9 too late",
            "00:11:00 succeeded 1",
            "00:12:00 succeeded 1"
        ]
    );
    assert_eq!(crew.registry.instants(), [at(60), at(660), at(720)]);
}

#[tokio::test(start_paused = true)]
async fn of_ticks_that_were_missed_none_is_run_that_is_too_late() {
    let tolerance = 10 * SECOND;
    let (crew, _member) = after_an_outage(|schedule| schedule.misfire(Misfire::Skip { tolerance })).await;
    assert_eq!(
        crew.told().await,
        ["00:01:00 succeeded 1", "00:02:00-00:11:00 10 too late", "00:12:00 succeeded 1"]
    );
}

#[tokio::test(start_paused = true)]
async fn of_ticks_that_were_missed_all_are_run_within_the_window_and_the_cap() {
    let all =
        |window, at_most| move |schedule: ScheduleBuilder| schedule.misfire(Misfire::All { window, at_most });
    let (crew, _member) = after_an_outage(all(HOUR, 100)).await;
    assert_eq!(crew.registry.instants(), (1..=12).map(|minute| at(60 * minute)).collect::<Vec<_>>());
    assert_eq!(crew.told().await.len(), 12, "nothing was skipped");

    let (crew, _member) = after_an_outage(all(HOUR, 3)).await;
    assert_eq!(
        crew.told().await[..4],
        [
            "00:01:00 succeeded 1",
            "00:02:00-00:08:00 7 too late",
            "00:09:00 succeeded 1",
            "00:10:00 succeeded 1"
        ]
    );

    let (crew, _member) = after_an_outage(all(5 * MINUTE, 100)).await;
    assert_eq!(
        crew.told().await[..3],
        ["00:01:00 succeeded 1", "00:02:00-00:06:00 5 too late", "00:07:00 succeeded 1"]
    );
}

/// A schedule by the minute, whose runs take two and a half.
async fn with_long_runs(set: impl FnOnce(ScheduleBuilder) -> ScheduleBuilder) -> Crew {
    let crew = Crew::new();
    let job = crew.job("a", 150 * SECOND);
    let member = crew.with_job("a", MINUTELY, set, job).await;
    pass(8 * MINUTE + 45 * SECOND).await;
    member.elect.close().await;
    crew
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_falls_due_while_the_run_before_is_on_is_not_run_by_default() {
    let crew = with_long_runs(|schedule| schedule).await;
    assert_eq!(
        crew.told().await,
        [
            "00:01:00 succeeded 1",
            "00:02:00-00:03:00 2 previous run still active",
            "00:04:00 succeeded 1",
            "00:05:00-00:06:00 2 previous run still active",
            "00:07:00 cancelled 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_waits_is_run_when_the_run_before_has_ended() {
    let crew = with_long_runs(|schedule| schedule.overlap(Overlap::Queue)).await;
    assert_eq!(
        crew.told().await,
        [
            "00:01:00 succeeded 1",
            "00:02:00-00:02:00 1 too late",
            "00:03:00 succeeded 1", // from 00:03:30 to 00:06:00
            "00:04:00-00:05:00 2 too late",
            "00:06:00 succeeded 1", // to 00:08:30
            "00:07:00-00:07:00 1 too late",
            "00:08:00 cancelled 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_makes_way_for_the_next_tick() {
    let crew = with_long_runs(|schedule| schedule.overlap(Overlap::Cancel)).await;
    let minutes = (1..8).map(|minute| format!("00:0{minute}:00 displaced 1"));
    let expected: Vec<_> = minutes.chain(["00:08:00 cancelled 1".to_owned()]).collect();
    assert_eq!(crew.told().await, expected);
    let late = |run: &crate::schedule::crew::Run| run.at.since(run.instant) > SECOND / 10;
    assert!(!crew.registry.runs().iter().any(late), "{:?}", crew.registry.runs());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_stop_when_its_time_is_over_is_dropped() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| schedule.timeout(20 * SECOND);
    let registry = crew.registry.clone();
    let job = move |tick: tenure::schedule::Tick, _| {
        let running = registry.begin(&tick, "a", tick.scheduled_at());
        async move {
            let _running = running;
            std::future::pending::<Result<(), String>>().await
        }
    };
    let member = crew.with_job("a", MINUTELY, set, job).await;
    pass(MINUTE + 21 * SECOND).await;
    assert!(crew.registry.is_running(), "it has its grace");
    pass(5 * SECOND).await;
    assert!(!crew.registry.is_running());
    assert_eq!(crew.told().await, ["00:01:00 timed out 1"]);
    let status = member.schedule.as_ref().unwrap().status().await.unwrap().unwrap();
    let finish = status.last.unwrap().finish.unwrap();
    assert!(finish.error.unwrap().as_str().contains("did not stop"));
    assert_eq!(status.failures, 1);
}

/// A job that fails so often in a row, and then does not.
fn failing(times: u32) -> impl Fn(tenure::schedule::Tick, tenure::Lease) -> Failing + Send + Sync + 'static {
    let failures = Arc::new(AtomicU32::new(0));
    move |_, _| {
        let fails = failures.fetch_add(1, Ordering::Relaxed) < times;
        Box::pin(async move { if fails { Err("no paper".to_owned()) } else { Ok(()) } })
    }
}

type Failing = std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_is_tried_again_within_its_tick() {
    let crew = Crew::new();
    let retries = Retries { tries: 4, first: 2 * SECOND, longest: MINUTE };
    let member = crew.with_job("a", "@hourly", |schedule| schedule.retries(retries), failing(3)).await;
    let mut events = member.schedule.as_ref().unwrap().events();
    pass(HOUR + MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 4"]);
    let mut attempts = Vec::new();
    while let Some(Some(event)) = futures::FutureExt::now_or_never(events.next()) {
        if let tenure::Event::Ran { attempt, outcome, lateness, error, .. } = event {
            attempts.push((attempt, outcome.as_str(), lateness.as_secs(), error));
        }
    }
    let failed = |attempt: u32| (attempt, "failed", Some("no paper".to_owned()));
    let told: Vec<_> = attempts.iter().map(|(n, word, _, error)| (*n, *word, error.clone())).collect();
    assert_eq!(told, [failed(1), failed(2), failed(3), (4, "succeeded", None)]);
    // Two seconds, four, eight: each with up to half of it less.
    let late: Vec<_> = attempts.iter().map(|(_, _, late, _)| *late).collect();
    assert!(
        (1..=2).contains(&late[1]) && (3..=6).contains(&late[2]) && (7..=14).contains(&late[3]),
        "{late:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_are_counted_over_restarts() {
    let crew = Crew::new();
    let member = crew.with_job("a", "@hourly", |schedule| schedule, failing(3)).await;
    pass(2 * HOUR + MINUTE).await;
    let status = member.schedule.as_ref().unwrap().status().await.unwrap().unwrap();
    assert_eq!(status.failures, 2);
    assert!(status.to_string().contains("failed: no paper; 2 failures in a row"), "{status}");
    member.elect.close().await;
    let member = crew.with_job("b", "@hourly", |schedule| schedule, failing(1)).await;
    pass(HOUR).await;
    let status = || async { member.schedule.as_ref().unwrap().status().await.unwrap().unwrap() };
    assert_eq!(status().await.failures, 3);
    pass(HOUR).await;
    assert_eq!(status().await.failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_panics_has_failed_and_the_next_tick_is_run() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| schedule.on_crash(OnCrash::AtMostOnce);
    let job = |tick: tenure::schedule::Tick, _| async move {
        assert!(tick.scheduled_at() > at(60), "the first one");
        Ok(())
    };
    let member = crew.with_job("a", MINUTELY, set, job).await;
    pass(3 * MINUTE).await;
    assert_eq!(crew.told().await[..2], ["00:01:00 failed 1", "00:02:00 succeeded 1"]);
    let history = member.elect.schedules().history("report", None, 100).await.unwrap();
    let error = history.items.last().unwrap().finish.clone().unwrap().error.unwrap();
    assert_eq!(error.as_str(), "panicked: the first one");
}

#[tokio::test(start_paused = true)]
async fn the_policies_stand_in_the_store_in_words() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| {
        schedule
            .zone("Europe/London")
            .misfire(Misfire::All { window: HOUR, at_most: 10 })
            .overlap(Overlap::Cancel)
            .on_crash(OnCrash::AtMostOnce)
            .retries(Retries { tries: 3, ..Retries::default() })
            .timeout(90 * SECOND)
            .spread_over(Duration::from_secs(300))
    };
    let member = crew.with("a", "*/5  * * * *", set).await;
    pass(SECOND).await;
    let definition = member.definition().await;
    assert_eq!(definition.timing.as_str(), "*/5 * * * * in Europe/London, vixie, spread over 5m");
    let (policies, rules) = definition.policies.as_str().rsplit_once(", zone rules ").unwrap();
    assert!(rules.len() == 8 && rules.bytes().all(|byte| byte.is_ascii_hexdigit()), "{rules}");
    assert_eq!(
        policies,
        "misfire all within 1h at most 10, overlap cancel, at most once, tries 3 times 1s to 1m apart, timeout 1m 30s"
    );
    assert_eq!(member.schedule.as_ref().unwrap().policies(), definition.policies.as_str());
    assert_eq!(member.schedule.as_ref().unwrap().timing(), definition.timing.as_str());
}

#[tokio::test(start_paused = true)]
async fn default_policies_are_described_with_one_number_for_each_thing() {
    let crew = Crew::short();
    let member = crew.with("a", "@daily", |schedule| schedule).await;
    assert_eq!(
        member.schedule.as_ref().unwrap().policies(),
        "misfire one within 7days, overlap skip, at least once (begun up to 5 times where its runners die), tries once"
    );
}

#[tokio::test(start_paused = true)]
async fn ticks_missed_before_a_run_began_are_late_and_not_overlapped() {
    let crew = Crew::short();
    let one = crew.with_job("a", "@hourly", |schedule| schedule, crew.job("a", 5 * MINUTE)).await;
    pass(HOUR + 10 * SECOND).await;
    one.kill().await;
    pass(4 * HOUR + 30 * MINUTE).await;
    let _two = crew.with_job("b", "@hourly", |schedule| schedule, crew.job("b", 5 * MINUTE)).await;
    pass(20 * MINUTE).await;
    assert_eq!(
        crew.told().await,
        ["01:00:00 succeeded 2", "02:00:00-04:00:00 3 too late", "05:00:00 succeeded 1"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_order_does_not_make_way_for_a_tick_that_was_due_before() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| schedule.overlap(Overlap::Cancel);
    let member = crew.with_job("a", "@hourly", set, crew.job("a", MINUTE)).await;
    pass(30 * MINUTE).await;
    member.elect.close().await;
    pass(HOUR).await;
    let operator = crew.member("op").await;
    operator.elect.schedules().run_now("report", tenure::model::Why::new("").unwrap()).await.unwrap();
    let _member = crew.with_job("b", "@hourly", set, crew.job("b", MINUTE)).await;
    pass(5 * MINUTE).await;
    let told = crew.told().await;
    assert!(told[0] == "01:00:00 succeeded 1" && told[1].ends_with("ordered succeeded 1"), "{told:?}");
}

/// Panics when it is dropped.
struct Brittle;

impl Drop for Brittle {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "it broke");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_panics_when_it_is_dropped_has_still_timed_out() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| schedule.timeout(10 * SECOND);
    let job = |_, _| async move {
        let _brittle = Brittle;
        std::future::pending::<Result<(), String>>().await
    };
    let _member = crew.with_job("a", MINUTELY, set, job).await;
    pass(3 * MINUTE + 30 * SECOND).await;
    assert_eq!(crew.told().await, ["00:01:00 timed out 1", "00:02:00 timed out 1", "00:03:00 timed out 1"]);
}

/// A run whose job takes an hour, of a schedule by the minute whose runs make way.
async fn with_a_run_that_makes_way() -> (Crew, Member) {
    let crew = Crew::new();
    let job = crew.job("a", HOUR);
    let member = crew.with_job("a", MINUTELY, |schedule| schedule.overlap(Overlap::Cancel), job).await;
    (crew, member)
}

#[tokio::test(start_paused = true)]
async fn a_run_makes_way_also_when_the_schedule_was_held_back_meanwhile() {
    let (crew, member) = with_a_run_that_makes_way().await;
    let schedule = member.schedule.as_ref().unwrap();
    pass(90 * SECOND).await;
    schedule.pause(Why::new("a look").unwrap()).await.unwrap();
    pass(MINUTE).await;
    schedule.resume().await.unwrap();
    pass(40 * SECOND).await;
    assert_eq!(crew.told().await, ["00:01:00 displaced 1", "00:02:00-00:02:00 1 paused", "00:03:00 open 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_ordered_during_a_pause_makes_way_for_the_next_tick() {
    let (crew, member) = with_a_run_that_makes_way().await;
    let schedule = member.schedule.as_ref().unwrap();
    schedule.pause(Why::new("a look").unwrap()).await.unwrap();
    pass(90 * SECOND).await;
    schedule.run_now(Why::new("now").unwrap()).await.unwrap();
    pass(SECOND).await;
    schedule.resume().await.unwrap();
    pass(40 * SECOND).await;
    let told = crew.told().await;
    assert!(told.iter().any(|entry| entry.ends_with("ordered displaced 1")), "{told:?}");
    assert_eq!(told.last().unwrap(), "00:02:00 open 1");
}

#[tokio::test(start_paused = true)]
async fn ticks_that_another_timing_leaves_behind_are_told() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| schedule.overlap(Overlap::Queue);
    let member = crew.with_job("a", MINUTELY, set, crew.job("a", 150 * SECOND)).await;
    pass(190 * SECOND).await;
    let schedule = member.schedule.as_ref().unwrap();
    schedule.set_timing("@hourly").unwrap();
    pass(MINUTE).await;
    assert_eq!(crew.told().await, ["00:01:00 succeeded 1", "00:02:00-00:03:00 2 rescheduled"]);
}

#[tokio::test(start_paused = true)]
async fn ticks_that_fall_due_until_another_timing_is_stored_are_told() {
    let crew = Crew::new();
    let member = crew.with("a", MINUTELY, |schedule| schedule).await;
    pass(90 * SECOND).await;
    member.faulty.intercept().always(&[Operation::Define], Fault::Refused);
    member.schedule.as_ref().unwrap().set_timing("@hourly").unwrap();
    pass(3 * MINUTE).await;
    member.faulty.intercept().heal();
    pass(MINUTE).await;
    let told = crew.told().await;
    assert_eq!(told, ["00:01:00 succeeded 1", "00:02:00-00:04:00 3 rescheduled"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_arrives_late_takes_no_tick_from_its_owner() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| schedule.overlap(Overlap::Queue);
    let member = crew.with_job("a", "@hourly", set, crew.job("a", 90 * MINUTE)).await;
    pass(70 * MINUTE).await;
    let Definition { policies, term, .. } = member.definition().await;
    let late = Define {
        schedule: Crew::id(NAME),
        term,
        timing: "another".parse().unwrap(),
        policies,
        instead_of: None,
    };
    crew.memory.define(late, SECOND).await.unwrap();
    pass(2 * HOUR).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1", "02:00:00 open 1"]);
    let timing = member.definition().await.timing;
    assert!(timing.as_str().starts_with("0 * * * *"), "it is put right: {timing}");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_a_pause_interrupts_is_made_when_the_schedule_goes_on() {
    let crew = Crew::new();
    let retries = Retries { tries: 2, first: MINUTE, longest: MINUTE };
    let member = crew.with_job("a", "@hourly", |schedule| schedule.retries(retries), failing(1)).await;
    let schedule = member.schedule.as_ref().unwrap();
    pass(HOUR + 10 * SECOND).await;
    assert_eq!(crew.told().await, ["01:00:00 failed 1"]);
    schedule.pause(Why::new("a look").unwrap()).await.unwrap();
    pass(3 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 failed 1"]);
    assert_eq!(schedule.status().await.unwrap().unwrap().failures, 1);
    schedule.resume().await.unwrap();
    pass(MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_failed_before_the_window_is_not_tried_again_when_more_tries_are_allowed() {
    let crew = Crew::new();
    let window = Misfire::One { window: 10 * MINUTE };
    let tries = |tries| {
        move |schedule: ScheduleBuilder| {
            schedule.misfire(window).retries(Retries { tries, ..Retries::default() })
        }
    };
    let member = crew.with_job("a", "@hourly", tries(1), failing(1)).await;
    pass(HOUR + MINUTE).await;
    member.elect.close().await;
    pass(20 * MINUTE).await;
    let _member = crew.with("b", "@hourly", tries(2)).await;
    pass(MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 failed 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_falls_due_while_a_run_stops_is_run_rather_than_another_try() {
    let crew = Crew::new();
    let retries = Retries { tries: 3, ..Retries::default() };
    let set =
        |schedule: ScheduleBuilder| schedule.overlap(Overlap::Cancel).timeout(58 * SECOND).retries(retries);
    let job = |_, lease: tenure::Lease| async move {
        lease.cancelled().await;
        pass(4 * SECOND).await;
        Err("it had to stop".to_owned())
    };
    let _member = crew.with_job("a", MINUTELY, set, job).await;
    pass(150 * SECOND).await;
    assert_eq!(crew.told().await, ["00:01:00 timed out 1", "00:02:00 open 1"]);
}

#[tokio::test(start_paused = true)]
async fn the_timing_it_has_already_changes_nothing() {
    let crew = Crew::new();
    let member = crew.with_job("a", MINUTELY, |schedule| schedule, crew.job("a", 150 * SECOND)).await;
    pass(130 * SECOND).await;
    member.schedule.as_ref().unwrap().set_timing(MINUTELY).unwrap();
    pass(95 * SECOND).await;
    assert_eq!(crew.told().await, ["00:01:00 succeeded 1", "00:02:00-00:03:00 2 previous run still active"]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_over_takes_no_try_from_a_run_that_makes_way() {
    let crew = Crew::new();
    let retries = Retries { tries: 3, ..Retries::default() };
    let set = |schedule: ScheduleBuilder| schedule.overlap(Overlap::Cancel).retries(retries);
    let job = |tick: tenure::schedule::Tick, _| async move {
        if tick.attempt() > 1 {
            return Ok(());
        }
        pass(85 * SECOND).await;
        Err("it did not work".to_owned())
    };
    let member = crew.with_job("a", MINUTELY, set, job).await;
    let schedule = member.schedule.as_ref().unwrap();
    pass(100 * SECOND).await;
    schedule.pause(Why::new("a look").unwrap()).await.unwrap();
    pass(40 * SECOND).await;
    schedule.resume().await.unwrap();
    pass(20 * SECOND).await;
    assert_eq!(crew.told().await, ["00:01:00 succeeded 2", "00:02:00-00:02:00 1 paused"]);
}

#[tokio::test(start_paused = true)]
async fn ticks_due_in_the_rest_before_a_pause_overlap() {
    let crew = Crew::new();
    let retries = Retries { tries: 2, first: 10 * MINUTE, longest: 10 * MINUTE };
    let member = crew.with_job("a", MINUTELY, |schedule| schedule.retries(retries), failing(1)).await;
    let schedule = member.schedule.as_ref().unwrap();
    pass(5 * MINUTE + 10 * SECOND).await;
    schedule.pause(Why::new("a look").unwrap()).await.unwrap();
    pass(15 * MINUTE).await;
    schedule.resume().await.unwrap();
    pass(20 * SECOND).await;
    assert_eq!(
        crew.told().await,
        [
            "00:01:00 succeeded 2",
            "00:02:00-00:05:00 4 previous run still active",
            "00:06:00-00:20:00 15 paused"
        ]
    );
}

/// Runs of half a minute, each minute, that make way; and when ticks and orders began: whole seconds.
async fn begun_with_orders(orders: u64) -> (Vec<String>, Vec<String>) {
    let crew = Crew::new();
    let skip = Misfire::Skip { tolerance: 5 * SECOND };
    let set = |schedule: ScheduleBuilder| schedule.overlap(Overlap::Cancel).misfire(skip);
    let member = crew.with_job("a", MINUTELY, set, crew.job("a", 30 * SECOND)).await;
    pass(110 * SECOND).await;
    for order in 0..orders {
        member.schedule.as_ref().unwrap().run_now(Why::new(order.to_string()).unwrap()).await.unwrap();
    }
    pass(200 * SECOND).await;
    let begun = |run: &crate::schedule::crew::Run| {
        format!("{} at {}", run.instant.since(at(0)).as_secs(), run.at.since(at(0)).as_secs())
    };
    (crew.registry.runs().iter().map(begun).collect(), crew.told().await)
}

#[tokio::test(start_paused = true)]
async fn a_tick_for_which_a_run_made_way_goes_before_what_was_ordered() {
    let (begun, told) = begun_with_orders(2).await;
    // The second order begins when the tick's run has ended.
    assert_eq!(
        begun,
        ["60 at 60", "110 at 110", "120 at 120", "110 at 150", "180 at 180", "240 at 240", "300 at 300"]
    );
    assert!(told.iter().all(|entry| !entry.ends_with("too late")), "{told:?}");
    let (begun, told) = begun_with_orders(3).await;
    assert_eq!(
        begun,
        [
            "60 at 60",
            "110 at 110",
            "120 at 120",
            "110 at 150",
            "180 at 180",
            "110 at 210",
            "240 at 240",
            "300 at 300"
        ]
    );
    assert!(told.iter().all(|entry| !entry.ends_with("too late")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tick_for_which_a_run_made_way_begins_within_its_window_or_not_at_all() {
    let crew = Crew::new();
    let skip = Misfire::Skip { tolerance: 5 * SECOND };
    let set = |schedule: ScheduleBuilder| schedule.overlap(Overlap::Cancel).misfire(skip);
    let member = crew.with_job("a", MINUTELY, set, crew.job("a", 90 * SECOND)).await;
    pass(100 * SECOND).await;
    // How the first run has ended cannot be written.
    member.faulty.intercept().always(&[Operation::Finish], Fault::Refused);
    pass(75 * SECOND).await;
    member.faulty.intercept().heal();
    pass(20 * SECOND).await;
    assert_eq!(
        crew.told().await,
        ["00:01:00 displaced 1", "00:02:00-00:02:00 1 too late", "00:03:00 open 1"]
    );
}

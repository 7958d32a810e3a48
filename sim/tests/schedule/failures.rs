//! Ticks that have failed for good: the listeners, the time, and that it is told once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tenure::{
    Event, Lease,
    elect::EventStream,
    model::{Outcome, RunRecord, StoreTime, Why},
    schedule::{Failure, OnCrash, Overlap, Retries, ScheduleBuilder, Tick},
    testing::{Fault, Operation},
};

use crate::schedule::crew::{Crew, HOUR, MINUTE, SECOND, at, pass};

const HOURLY: &str = "@hourly";

/// Failures that were reported: the instant, and the words.
#[derive(Clone, Default)]
struct Reported(Arc<Mutex<Vec<(StoreTime, String)>>>);

impl Reported {
    /// Has a schedule tell here.
    fn by(&self, schedule: ScheduleBuilder) -> ScheduleBuilder {
        let told = self.clone();
        schedule.on_failure(move |tick: Tick, failure: Failure| {
            told.0.lock().unwrap().push((tick.scheduled_at(), failure.to_string()));
            std::future::ready(())
        })
    }

    fn all(&self) -> Vec<(StoreTime, String)> {
        self.0.lock().unwrap().clone()
    }
}

/// A job that fails until this attempt.
fn fails_before(
    attempt: u32,
) -> impl Fn(Tick, Lease) -> std::future::Ready<Result<(), String>> + Send + Sync {
    move |tick, _| {
        let has_failed = tick.attempt() < attempt;
        std::future::ready(if has_failed { Err("the disk is full".to_owned()) } else { Ok(()) })
    }
}

fn tries(tries: u32) -> Retries {
    Retries { tries, ..Retries::default() }
}

/// The attempts that were told until now: number, outcome, whether it is the last.
async fn attempts(events: &mut EventStream) -> Vec<(u32, Outcome, bool)> {
    let mut attempts = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(SECOND, events.next()).await {
        if let Event::Ran { attempt, outcome, last, .. } = event {
            attempts.push((attempt, outcome, last));
        }
    }
    attempts
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_told_to_have_failed_once_and_after_its_last_try() {
    let (crew, told) = (Crew::new(), Reported::default());
    let member =
        crew.with_job("a", HOURLY, |new| told.by(new.retries(tries(3))), fails_before(u32::MAX)).await;
    let mut events = member.schedule.as_ref().unwrap().events();
    pass(HOUR + MINUTE).await;
    assert_eq!(told.all(), [(at(3600), "failed after 3 attempts: the disk is full".to_owned())]);
    let failed = Outcome::Failed;
    assert_eq!(attempts(&mut events).await, [(1, failed, false), (2, failed, false), (3, failed, true)]);
    assert_eq!(crew.told().await, ["01:00:00 failed 3"]);
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_succeeds_at_its_last_try_has_not_failed() {
    let (crew, told) = (Crew::new(), Reported::default());
    let member = crew.with_job("a", HOURLY, |new| told.by(new.retries(tries(2))), fails_before(2)).await;
    let mut events = member.schedule.as_ref().unwrap().events();
    pass(HOUR + MINUTE).await;
    assert_eq!(told.all(), []);
    assert_eq!(attempts(&mut events).await, [(1, Outcome::Failed, false), (2, Outcome::Succeeded, true)]);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_fails_and_a_run_that_takes_too_long_are_told() {
    let (crew, told) = (Crew::new(), Reported::default());
    let set = |new: ScheduleBuilder| told.by(new.timeout(10 * SECOND));
    let member = crew.with_job("a", HOURLY, set, crew.job("a", MINUTE)).await;
    pass(MINUTE).await;
    let ordered = member.schedule.as_ref().unwrap().run_now(Why::new("to see it").unwrap()).await.unwrap();
    pass(MINUTE).await;
    assert_eq!(told.all(), [(ordered, "timed out after 1 attempt: cancelled".to_owned())]);
}

/// The owner of an hourly schedule closes in the middle of its first run; then another has it.
async fn closed_in_the_middle(
    set: impl Fn(ScheduleBuilder) -> ScheduleBuilder,
) -> (Vec<(u32, Outcome, bool)>, Crew) {
    let crew = Crew::new();
    let one = crew.with_job("a", HOURLY, &set, crew.job("a", MINUTE)).await;
    let mut events = one.schedule.as_ref().unwrap().events();
    pass(HOUR + 10 * SECOND).await;
    let _two = crew.with_job("b", HOURLY, &set, crew.job("b", MINUTE)).await;
    one.elect.close().await;
    let told = attempts(&mut events).await;
    pass(5 * MINUTE).await;
    (told, crew)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_begun_again_elsewhere_has_not_failed() {
    let told = Reported::default();
    let (attempts, crew) = closed_in_the_middle(|new| told.by(new)).await;
    assert_eq!(attempts, [(1, Outcome::Cancelled, false)]);
    assert_eq!(crew.told().await, ["01:00:00 succeeded 2"]);
    assert_eq!(told.all(), []);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_told_to_stop_and_may_not_be_begun_again_has_failed() {
    let told = Reported::default();
    let (attempts, crew) = closed_in_the_middle(|new| told.by(new.on_crash(OnCrash::AtMostOnce))).await;
    assert_eq!(attempts, [(1, Outcome::Cancelled, true)]);
    assert_eq!(crew.told().await, ["01:00:00 cancelled 1"]);
    assert_eq!(told.all(), [(at(3600), "cancelled after 1 attempt: cancelled".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_a_failure_is_told_to() {
    let (crew, done) = (Crew::new(), Arc::new(Mutex::new(0)));
    let set = |new: ScheduleBuilder| {
        let done = done.clone();
        new.on_failure(move |_, _| {
            let done = done.clone();
            async move {
                pass(2 * SECOND).await;
                *done.lock().unwrap() += 1;
            }
        })
    };
    let member = crew.with_job("a", HOURLY, set, fails_before(u32::MAX)).await;
    pass(HOUR + SECOND).await;
    assert_eq!(*done.lock().unwrap(), 0, "it takes longer");
    member.elect.close().await;
    assert_eq!(*done.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_run_is_told_by_the_instance_that_finds_it() {
    let (crew, told) = (Crew::short(), Reported::default());
    let set = |new: ScheduleBuilder| told.by(new.on_crash(OnCrash::AtMostOnce));
    let one = crew.with_job("a", HOURLY, set, crew.job("a", MINUTE)).await;
    pass(HOUR + 10 * SECOND).await;
    let two = crew.with_job("b", HOURLY, set, crew.job("b", MINUTE)).await;
    let mut events = two.schedule.as_ref().unwrap().events();
    one.kill().await;
    pass(5 * MINUTE).await;
    let words = "abandoned after 1 attempt: the lease of a ended before an outcome was recorded".to_owned();
    assert_eq!(told.all(), [(at(3600), words)]);
    assert_eq!(attempts(&mut events).await, [(1, Outcome::Abandoned, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_whose_record_was_written_late_is_told_once() {
    for (away, set) in
        [(MINUTE, OnCrash::AtMostOnce), (MINUTE, OnCrash::default()), (HOUR / 2, OnCrash::default())]
    {
        let (crew, told) = (Crew::new(), Reported::default());
        let set = |new: ScheduleBuilder| told.by(new.on_crash(set).timeout(3 * SECOND));
        let one = crew.with_job("a", HOURLY, set, crew.job("a", MINUTE)).await;
        pass(HOUR + SECOND).await;
        one.faulty.intercept().always(Operation::ALL, Fault::Swallowed);
        pass(away).await;
        assert_eq!(told.all(), []);
        one.faulty.intercept().heal();
        pass(10 * MINUTE).await;
        assert_eq!(crew.told().await, ["01:00:00 timed out 1"], "{away:?}");
        let [(instant, words)] = &told.all()[..] else { panic!("it is told once: {:?}", told.all()) };
        assert_eq!(*instant, at(3600));
        assert!(words.starts_with("timed out after 1 attempt"), "{words}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_another_instance_settled_meanwhile_is_told_once() {
    let (crew, told) = (Crew::new(), Reported::default());
    let set = |new: ScheduleBuilder| told.by(new.on_crash(OnCrash::AtMostOnce).timeout(3 * SECOND));
    let one = crew.with_job("a", HOURLY, set, crew.job("a", MINUTE)).await;
    pass(10 * MINUTE).await;
    let _two = crew.with_job("b", HOURLY, set, crew.job("b", MINUTE)).await;
    pass(50 * MINUTE + SECOND).await;
    one.faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    pass(5 * MINUTE).await;
    one.faulty.intercept().heal();
    pass(5 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 abandoned 1"]);
    let words = "abandoned after 1 attempt: the lease of a ended before an outcome was recorded".to_owned();
    assert_eq!(told.all(), [(at(3600), words)]);
}

#[tokio::test(start_paused = true)]
async fn a_try_that_makes_way_for_the_next_tick_is_told_as_failed() {
    let (crew, told) = (Crew::new(), Reported::default());
    let rests = Retries { tries: 2, first: 50 * SECOND, longest: 50 * SECOND };
    let set = |new: ScheduleBuilder| told.by(new.overlap(Overlap::Cancel).retries(rests));
    let member = crew.with_job("a", "0,10 0 1 * * *", set, fails_before(u32::MAX)).await;
    let mut events = member.schedule.as_ref().unwrap().events();
    pass(HOUR + 5 * MINUTE).await;
    let failed = |attempts: u32, plural| format!("failed after {attempts} attempt{plural}: the disk is full");
    assert_eq!(told.all(), [(at(3600), failed(1, "")), (at(3610), failed(2, "s"))]);
    let (failed, nobody) = (Outcome::Failed, Outcome::Displaced);
    assert_eq!(
        attempts(&mut events).await,
        [(1, failed, false), (2, nobody, true), (1, failed, false), (2, failed, true)],
        "of each tick there is one that is the last"
    );
}

/// An order whose job fails just before the full hour, the tick of which displaces its other tries. Then the owner
/// closes, and another instance has the schedule.
async fn with_an_order_displaced(away: &[Operation]) -> (Crew, Reported) {
    let (crew, told) = (Crew::new(), Reported::default());
    let rests = Retries { tries: 3, first: 40 * SECOND, longest: 40 * SECOND };
    let set = |new: ScheduleBuilder| told.by(new.overlap(Overlap::Cancel).retries(rests));
    let job = |tick: Tick, _| async move {
        if tick.is_ordered() { Err("the disk is full".to_owned()) } else { Ok(()) }
    };
    let one = crew.with_job("a", HOURLY, set, job).await;
    pass(3590 * SECOND).await;
    one.schedule.as_ref().unwrap().run_now(Why::new("to see it").unwrap()).await.unwrap();
    pass(5 * SECOND).await;
    one.faulty.intercept().always(away, Fault::Swallowed);
    let two = crew.with_job("b", HOURLY, set, job).await;
    pass(10 * MINUTE).await;
    one.elect.close().await;
    one.faulty.intercept().heal();
    pass(10 * MINUTE).await;
    two.elect.close().await;
    (crew, told)
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_retry_made_way_is_over_for_the_next_owner_too() {
    let (crew, told) = with_an_order_displaced(&[]).await;
    assert_eq!(crew.told().await, ["00:59:50 ordered failed 1", "01:00:00 succeeded 1"]);
    assert!(crew.ledger().await.iter().all(RunRecord::is_over), "{:?}", crew.ledger().await);
    assert_eq!(told.all(), [(at(3590), "failed after 1 attempt: the disk is full".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_made_way_is_told_only_once_that_is_on_record() {
    let (crew, told) = with_an_order_displaced(&[Operation::Finish]).await;
    assert_eq!(
        crew.told().await[0],
        "00:59:50 ordered failed 3",
        "the next owner tries it, as it reads no end"
    );
    assert_eq!(told.all(), [(at(3590), "failed after 3 attempts: the disk is full".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_or_hangs_holds_up_no_run() {
    for hangs in [false, true] {
        let crew = Crew::new();
        let set = |new: ScheduleBuilder| {
            new.on_failure(move |_, _| async move {
                assert!(hangs, "the program has a fault");
                std::future::pending::<()>().await;
            })
        };
        let job = crew.job("a", Duration::ZERO);
        let member = crew
            .with_job("a", "* * * * * *", set, move |tick, lease| {
                let run = job(tick, lease);
                async move { run.await.and(Err("no".to_owned())) }
            })
            .await;
        pass(150 * SECOND).await;
        let runs = crew.registry.runs().len();
        assert!(runs >= 148, "{runs} runs in 150 s");
        let closed = tokio::time::timeout(10 * SECOND, member.elect.close()).await;
        assert_eq!(closed.unwrap().overran, [], "and closing is bounded");
    }
}

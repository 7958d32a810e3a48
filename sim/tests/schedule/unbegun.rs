//! Ticks that were claimed and not begun: no instance has run them, so they are not lost, and not run too late.

use std::time::Duration;

use tenure::{
    Event,
    elect::Work,
    model::{Outcome, Why},
    schedule::{Misfire, NotRun, OnCrash, ScheduleBuilder},
    store::{Declaration, Evidence, LockRecord, StoreExt},
    testing::{Course, Fault, Operation},
};

use crate::schedule::crew::{Crew, HOUR, MINUTE, Member, SECOND, at, pass};

const HOURLY: &str = "@hourly";

fn at_most_once(schedule: ScheduleBuilder) -> ScheduleBuilder {
    schedule.on_crash(OnCrash::AtMostOnce)
}

/// The lock that says whose the schedule is.
async fn lock(crew: &Crew) -> LockRecord {
    crew.memory.list_locks("test".parse().unwrap(), None, None, 10, SECOND).await.unwrap().items[0].clone()
}

/// Two instances; the next claim of the first one takes this course, and it is half a second to its tick.
async fn before_the_claim(crew: &Crew, course: Course) -> (Member, Member) {
    let one = crew.with("a", HOURLY, at_most_once).await;
    pass(HOUR / 2).await;
    let two = crew.with("b", HOURLY, at_most_once).await;
    pass(MINUTE * 29 + SECOND * 59 + SECOND / 2).await;
    one.faulty.intercept().next(Operation::Claim, course);
    (one, two)
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_an_instance_has_claimed_as_it_closes_is_run_by_the_next_one() {
    for course in [
        Course::PLAIN.answered_after(SECOND),
        Course::PLAIN.late_by(SECOND),
        Course::from(Fault::AnswerLost).answered_after(SECOND),
    ] {
        let crew = Crew::new();
        let (one, _two) = before_the_claim(&crew, course).await;
        pass(SECOND).await;
        one.elect.close().await;
        pass(MINUTE).await;
        assert_eq!(crew.told().await, ["01:00:00 succeeded 1"], "{course:?}");
        let runs = crew.registry.runs();
        assert_eq!(runs.iter().map(|run| (run.attempt, &*run.by)).collect::<Vec<_>>(), [(1, "b")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_is_given_back_says_so_and_counts_as_no_attempt() {
    let crew = Crew::new();
    let one = crew.with("a", HOURLY, at_most_once).await;
    pass(MINUTE * 59 + SECOND * 59 + SECOND / 2).await;
    one.faulty.intercept().next(Operation::Claim, Course::PLAIN.answered_after(SECOND));
    pass(SECOND).await;
    one.elect.close().await;
    assert_eq!(crew.told().await, ["01:00:00 not begun 1"]);
    assert_eq!(crew.registry.runs(), []);
    let two = crew.with("b", HOURLY, at_most_once).await;
    let status = two.schedule.as_ref().unwrap().status().await.unwrap().unwrap();
    assert_eq!(status.last.unwrap().finish.unwrap().outcome, Outcome::NotBegun);
    pass(MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1"], "also by one that comes later");
}

#[tokio::test(start_paused = true)]
async fn an_order_that_was_claimed_as_its_owner_lost_its_session_is_run() {
    // Also a claim that arrives when the lease is over.
    for course in [Course::PLAIN.answered_after(SECOND), Course::PLAIN.late_by(SECOND)] {
        let crew = Crew::new();
        let (one, _two) = before_the_claim(&crew, course).await;
        one.schedule.as_ref().unwrap().run_now("now").await.unwrap();
        pass(SECOND / 10).await;
        let declaration = Declaration {
            session: lock(&crew).await.holding.unwrap().by.session,
            ground: Evidence::Operator,
            by: "op".parse().unwrap(),
            why: Why::shortened("by hand"),
            tell: Vec::new(),
        };
        crew.memory.declare(declaration, SECOND).await.unwrap();
        pass(MINUTE).await;
        assert_eq!(crew.registry.runs().len(), 2, "it, and the tick: {course:?}");
        let told = crew.told().await;
        assert!(told[0].ends_with("ordered succeeded 1"), "{course:?}: {told:?}");
        let status = one.elect.schedules().status("report").await.unwrap().unwrap();
        assert_eq!(status.record.orders, [], "it is wanted no more");
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_that_was_claimed_as_its_owner_drains_is_run_by_the_next_one() {
    let crew = Crew::new();
    let (one, _two) = before_the_claim(&crew, Course::PLAIN.answered_after(SECOND)).await;
    one.schedule.as_ref().unwrap().run_now("now").await.unwrap();
    pass(SECOND / 10).await;
    one.elect.schedules().drain();
    pass(MINUTE).await;
    let told = crew.told().await;
    assert!(told[0].ends_with("ordered succeeded 1"), "{told:?}");
    assert_eq!(crew.registry.runs().len(), 2, "it, and the tick");
}

/// Runs none that is later than five seconds.
fn in_time(schedule: ScheduleBuilder) -> ScheduleBuilder {
    schedule.misfire(Misfire::Skip { tolerance: 5 * SECOND })
}

#[tokio::test(start_paused = true)]
async fn a_tick_whose_claim_is_refused_for_longer_than_its_tolerance_is_not_run() {
    for away in [20, 60, 600] {
        let crew = Crew::new();
        let one = crew.with("a", HOURLY, in_time).await;
        let mut events = one.schedule.as_ref().unwrap().events();
        pass(MINUTE * 59 + SECOND * 58).await;
        one.faulty.intercept().always(&[Operation::Claim], Fault::Refused);
        pass(2 * SECOND + Duration::from_secs(away)).await;
        if away > 20 {
            let health = one.elect.health();
            assert!(health.troubles.iter().any(|trouble| trouble.work == Work::Ledger), "{health:?}");
        }
        one.faulty.intercept().heal();
        pass(30 * SECOND).await;
        assert_eq!(crew.registry.runs(), [], "away for {away} s");
        assert_eq!(crew.told().await, ["01:00:00-01:00:00 1 too late"], "away for {away} s");
        let told = async {
            loop {
                if let Event::NotRun { from, count, why, .. } = events.next().await.unwrap() {
                    break (from, count, why);
                }
            }
        };
        let told = tokio::time::timeout(SECOND, told).await;
        assert_eq!(told, Ok((at(3600), 1, NotRun::Late)));
        pass(HOUR).await;
        assert_eq!(crew.registry.instants(), [at(7200)], "the next one is in time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_within_the_tolerance_is_run() {
    let crew = Crew::new();
    let one = crew.with("a", HOURLY, in_time).await;
    pass(MINUTE * 59 + SECOND * 59).await;
    one.faulty.intercept().always(&[Operation::Claim], Fault::Refused);
    pass(4 * SECOND).await;
    one.faulty.intercept().heal();
    pass(MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_too_late_is_given_back() {
    let crew = Crew::new();
    let one = crew.with("a", HOURLY, in_time).await;
    pass(MINUTE * 59 + SECOND * 59).await;
    one.faulty.intercept().always(&[Operation::Claim], Fault::AnswerLost);
    pass(10 * SECOND).await;
    one.faulty.intercept().heal();
    pass(MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 not begun 1", "01:00:00-01:00:00 1 too late"]);
    // The next owner finds both.
    let _two = crew.with("b", HOURLY, in_time).await;
    one.kill().await;
    pass(10 * MINUTE).await;
    assert_eq!(crew.told().await.len(), 2);
    assert_eq!(crew.registry.runs(), []);
}

#[tokio::test(start_paused = true)]
async fn a_tick_paused_while_its_claim_was_on_its_way_is_not_begun() {
    for fault in [Fault::Refused, Fault::Swallowed, Fault::AnswerLost] {
        let crew = Crew::new();
        let one = crew.with("a", "*/5 * * * *", |schedule| schedule).await;
        let operator = crew.member("op").await;
        pass(290 * SECOND).await;
        one.faulty.intercept().always(&[Operation::Claim], fault);
        pass(25 * SECOND).await;
        operator.elect.schedules().pause("report", Why::new("it is on fire").unwrap()).await.unwrap();
        pass(MINUTE).await;
        one.faulty.intercept().heal();
        pass(10 * MINUTE).await;
        assert_eq!(crew.registry.runs(), [], "{fault:?}");
        operator.elect.schedules().resume("report").await.unwrap();
        pass(5 * MINUTE).await;
        let told = crew.told().await;
        assert!(told.contains(&"00:05:00-00:05:00 1 paused".to_owned()), "{told:?}");
        assert_eq!(crew.registry.runs().len(), 1, "{told:?}");
    }
}

/// Pauses a schedule while the claim of a tick's second try takes that course, and lets it go on a while later.
async fn paused_before_a_retry(
    crew: &Crew,
    expression: &str,
    takes: Duration,
    course: Course,
    goes_on: Duration,
) {
    let (registry, clock) = (crew.registry.clone(), crew.clock.clone());
    let job = move |tick: tenure::schedule::Tick, _| {
        let running = registry.begin(&tick, "a", tenure::Clock::wall(&*clock));
        async move {
            let _running = running;
            if tick.attempt() > 1 {
                return Ok(());
            }
            tokio::time::sleep(takes).await;
            Err("not yet".to_owned())
        }
    };
    let retries = tenure::schedule::Retries { tries: 2, first: 5 * SECOND, longest: 5 * SECOND };
    let set = |schedule: ScheduleBuilder| schedule.retries(retries).on_crash(OnCrash::AtMostOnce);
    let one = crew.with_job("a", expression, set, job).await;
    let operator = crew.member("op").await;
    pass(HOUR + takes + SECOND).await;
    assert_eq!(crew.registry.runs().len(), 1);
    one.faulty.intercept().always(&[Operation::Claim], course);
    pass(7 * SECOND).await;
    operator.elect.schedules().pause("report", Why::new("").unwrap()).await.unwrap();
    pass(goes_on).await;
    one.faulty.intercept().heal();
    operator.elect.schedules().resume("report").await.unwrap();
    pass(30 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_was_paused_while_its_claim_was_on_its_way_is_made_afterwards() {
    for (course, number) in [
        (Course::from(Fault::Refused), 2),
        (Course::from(Fault::Swallowed), 2),
        // Was on record, and given back.
        (Course::from(Fault::AnswerLost), 3),
        (Course::PLAIN.late_by(4 * SECOND), 3),
    ] {
        for goes_on in [SECOND, 20 * SECOND, 5 * MINUTE] {
            let crew = Crew::new();
            paused_before_a_retry(&crew, HOURLY, Duration::ZERO, course, goes_on).await;
            let expected = [format!("01:00:00 succeeded {number}")];
            let case = format!("{course:?}, paused for {goes_on:?}");
            if goes_on > SECOND {
                assert_eq!(crew.told().await, expected, "{case}");
            }
            assert_eq!(crew.registry.runs().len(), 2, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_retry_is_given_back_before_its_instance_has_closed() {
    let crew = Crew::new();
    let retries = tenure::schedule::Retries { tries: 2, first: 5 * SECOND, longest: 5 * SECOND };
    let set = |schedule: ScheduleBuilder| at_most_once(schedule).retries(retries);
    let failing = |_, _| std::future::ready(Err("not yet".to_owned()));
    let one = crew.with_job("a", HOURLY, set, failing).await;
    let operator = crew.member("op").await;
    pass(HOUR + SECOND).await;
    one.faulty.intercept().always(&[Operation::Claim], Course::PLAIN.answered_after(2 * SECOND));
    one.faulty.intercept().always(&[Operation::Finish], Course::PLAIN.late_by(SECOND));
    while crew.ledger().await[0].attempt == 1 {
        pass(SECOND / 10).await;
    }
    operator.elect.schedules().pause("report", Why::new("").unwrap()).await.unwrap();
    // The claim is answered, and the write that returns it is on its way.
    pass(2 * SECOND + SECOND / 5).await;
    one.elect.close().await;
    assert_eq!(crew.told().await, ["01:00:00 not begun 2"]);
}

#[tokio::test(start_paused = true)]
async fn ticks_under_a_run_whose_retry_was_paused_overlap() {
    let crew = Crew::new();
    let swallowed = Course::from(Fault::Swallowed);
    paused_before_a_retry(&crew, "0,1,3 1 * * *", 70 * SECOND, swallowed, MINUTE / 2).await;
    let told = crew.told().await;
    assert_eq!(told, ["01:00:00 succeeded 2", "01:01:00-01:01:00 1 previous run still active"]);
}

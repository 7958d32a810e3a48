//! Ticks whose runner dies, is told to stop, or is moved.

use std::time::Duration;

use tenure::{
    Event,
    elect::EventStream,
    model::{Entry, StoreTime},
    schedule::{OnCrash, ScheduleBuilder},
    store::{Claim, FinishRun, StoreExt},
    testing::{Fault, Operation},
};

use crate::schedule::crew::{Crew, HOUR, MINUTE, Member, NAME, SECOND, at, pass};

const HOURLY: &str = "@hourly";

/// The owner of an hourly schedule is killed in the middle of its first run.
async fn killed_in_the_middle(set: impl Fn(ScheduleBuilder) -> ScheduleBuilder) -> (Crew, EventStream) {
    let crew = Crew::short();
    let one = crew.with_job("a", HOURLY, &set, crew.job("a", MINUTE)).await;
    pass(HOUR + 10 * SECOND).await;
    assert!(crew.registry.is_running());
    let two = crew.with_job("b", HOURLY, &set, crew.job("b", MINUTE)).await;
    let events = two.schedule.as_ref().unwrap().events();
    pass(10 * SECOND).await;
    one.kill().await;
    assert!(!crew.registry.is_running());
    pass(5 * MINUTE).await;
    (crew, events)
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_runner_died_is_begun_again_at_least_once() {
    let (crew, _) = killed_in_the_middle(|schedule| schedule).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 2"]);
    let runs = crew.registry.runs();
    assert_eq!(runs.iter().map(|run| (run.attempt, &*run.by)).collect::<Vec<_>>(), [(1, "a"), (2, "b")]);
    assert!(runs[1].at.since(at(3620)) < 5 * SECOND, "as soon as the lease is over");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_runner_died_is_not_begun_again_at_most_once() {
    let (crew, mut events) = killed_in_the_middle(|schedule| schedule.on_crash(OnCrash::AtMostOnce)).await;
    assert_eq!(crew.told().await, ["01:00:00 abandoned 1"]);
    assert_eq!(crew.registry.runs().len(), 1);
    let abandoned = async {
        loop {
            if let Event::Ran { run, attempt, outcome, .. } = events.next().await.unwrap() {
                break (run.instant, attempt, outcome);
            }
        }
    };
    let told = tokio::time::timeout(SECOND, abandoned).await;
    assert_eq!(told, Ok((at(3600), 1, tenure::model::Outcome::Abandoned)), "whoever gave it up says so");
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_kills_its_runners_is_given_up_in_the_end() {
    let crew = Crew::short();
    let set = |schedule: ScheduleBuilder| schedule.on_crash(OnCrash::AtLeastOnce { attempts: 3 });
    for holder in ["a", "b", "c", "d"] {
        let member = crew.with_job(holder, HOURLY, set, crew.job(holder, MINUTE)).await;
        let until = |is: bool| {
            let registry = crew.registry.clone();
            async move {
                while registry.is_running() != is {
                    pass(SECOND).await;
                }
            }
        };
        let _ = tokio::time::timeout(HOUR + 10 * SECOND, until(true)).await;
        member.kill().await;
    }
    let _last = crew.with("e", HOURLY, set).await;
    pass(MINUTE).await;
    assert_eq!(crew.told().await[0], "01:00:00 abandoned 3");
    assert_eq!(crew.registry.runs().iter().filter(|run| run.instant == at(3600)).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_told_to_stop_with_its_instance_is_begun_again_by_another() {
    let crew = Crew::new();
    let one = crew.with_job("a", HOURLY, |schedule| schedule, crew.job("a", MINUTE)).await;
    pass(HOUR + 10 * SECOND).await;
    let _two = crew.with_job("b", HOURLY, |schedule| schedule, crew.job("b", MINUTE)).await;
    pass(10 * SECOND).await;
    one.elect.close().await;
    assert_eq!(crew.told().await, ["01:00:00 cancelled 1"], "it is written before the lock is given back");
    pass(2 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_not_interrupted_by_instances_that_come() {
    let crew = Crew::new();
    let job = || crew.job("a", 10 * MINUTE);
    let one = crew.with_job("a", HOURLY, |schedule| schedule.on_crash(OnCrash::AtMostOnce), job()).await;
    let other = one.elect.schedule("other", "* * * * * *").run(crew.job("a", Duration::ZERO)).unwrap();
    pass(HOUR + 10 * SECOND).await;
    assert!(crew.registry.is_running());
    // Of two schedules one is to go.
    let two = crew.member("b").await;
    let theirs = [
        two.elect.schedule(NAME, HOURLY).run(crew.job("b", MINUTE)).unwrap(),
        two.elect.schedule("other", "* * * * * *").run(crew.job("b", Duration::ZERO)).unwrap(),
    ];
    for _ in 0..9 {
        pass(MINUTE).await;
        assert!(crew.registry.is_running());
    }
    pass(MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1"]);
    let status = two.elect.schedules().spread_status().unwrap();
    let shares: Vec<_> = status.members.iter().map(|member| member.tasks).collect();
    assert_eq!(shares, [1, 1], "one went: {status}");
    drop((theirs, other));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_member_drains_is_begun_again_by_another() {
    let crew = Crew::new();
    let one = crew.with_job("a", HOURLY, |schedule| schedule, crew.job("a", 10 * MINUTE)).await;
    pass(HOUR + 10 * SECOND).await;
    let two = crew.with_job("b", HOURLY, |schedule| schedule, crew.job("b", MINUTE)).await;
    two.elect.schedules().until(tenure::spread::SpreadStatus::is_settled).await;
    one.elect.schedules().drain();
    pass(2 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 2"]);
    assert_eq!(crew.registry.runs()[1].by, "b");
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_lost_or_not_answered_change_nothing_but_the_lateness() {
    for fault in [Fault::RequestLost, Fault::AnswerLost] {
        for operation in [Operation::Claim, Operation::Finish] {
            let crew = Crew::new();
            let member = crew.with("a", "*/10 * * * * *", |schedule| schedule).await;
            pass(5 * SECOND).await;
            for _ in 0..3 {
                member.faulty.intercept().next(operation, fault);
            }
            pass(MINUTE).await;
            let ticks: Vec<_> = (1..=6).map(|tick| at(10 * tick)).collect();
            assert_eq!(crew.succeeded().await, ticks, "{fault:?} of {operation:?}");
            assert_eq!(crew.registry.instants(), ticks, "{fault:?} of {operation:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_dead_owner_that_arrives_late_runs_nothing_twice() {
    for promise in [OnCrash::default(), OnCrash::AtMostOnce] {
        let crew = Crew::short();
        let one = crew.with("a", HOURLY, |schedule| schedule.on_crash(promise)).await;
        pass(59 * MINUTE + 56 * SECOND).await;
        let lease = {
            let seen = crew.memory.list_locks("test".parse().unwrap(), None, None, 10, SECOND).await.unwrap();
            seen.items[0].clone()
        };
        let _two = crew.with("b", HOURLY, |schedule| schedule.on_crash(promise)).await;
        one.kill().await;
        pass(SECOND * 7 / 2).await;
        // It was on its way for four seconds.
        let claim = Claim {
            run: tenure::model::RunId::tick(Crew::id(NAME), at(3600)),
            session: lease.holding.as_ref().unwrap().by.session,
            holder: "a".parse().unwrap(),
            term: lease.term,
            attempt: 1,
            instead_of: None,
            skipped: None,
        };
        crew.memory.claim(claim.clone(), SECOND).await.unwrap();
        pass(MINUTE).await;
        let told = crew.told().await;
        if promise == OnCrash::AtMostOnce {
            assert_eq!((told, crew.registry.runs().len()), (vec!["01:00:00 abandoned 1".to_owned()], 0));
        } else {
            assert_eq!((told, crew.registry.runs().len()), (vec!["01:00:00 succeeded 2".to_owned()], 1));
        }
        // And what it would say of its end is too late, too.
        let Claim { run, session, term, attempt, .. } = claim;
        let finish = FinishRun {
            run,
            session,
            term,
            attempt,
            outcome: tenure::model::Outcome::Failed,
            error: None,
            last: true,
        };
        let before = crew.ledger().await;
        crew.memory.finish(finish, SECOND).await.unwrap();
        assert_eq!(crew.ledger().await, before);
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_another_owner_has_finished_is_left_alone() {
    let crew = Crew::new();
    let member = crew.with("a", HOURLY, |schedule| schedule).await;
    let mut events = member.schedule.as_ref().unwrap().events();
    pass(HOUR / 2).await;
    // Another owner has been there: the store's clock was ahead, and is not any more.
    let session = tenure::model::SessionId::from_u128(7);
    let claim = Claim {
        run: tenure::model::RunId::tick(Crew::id(NAME), at(3600)),
        session,
        holder: "z".parse().unwrap(),
        term: tenure::model::Term::new(5),
        attempt: 1,
        instead_of: None,
        skipped: None,
    };
    crew.memory.claim(claim.clone(), SECOND).await.unwrap();
    let Claim { run, term, attempt, .. } = claim;
    let finish = FinishRun {
        run,
        session,
        term,
        attempt,
        outcome: tenure::model::Outcome::Succeeded,
        error: None,
        last: true,
    };
    crew.memory.finish(finish, SECOND).await.unwrap();
    pass(2 * HOUR).await;
    assert_eq!(crew.registry.instants(), [at(7200)]);
    let mut ran: Vec<StoreTime> = Vec::new();
    while let Some(Some(event)) = futures::FutureExt::now_or_never(events.next()) {
        if let Event::Ran { run, .. } = event {
            assert_eq!(run.entry, Entry::Tick);
            ran.push(run.instant);
        }
    }
    assert_eq!(ran, [at(7200)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ended_while_the_store_was_away_is_known_to_its_instance() {
    for promise in [OnCrash::default(), OnCrash::AtMostOnce] {
        // The lease is over long before the store is back; also one that is not needed for long.
        for away in [20 * SECOND, MINUTE, HOUR] {
            let crew = Crew::new();
            let set = |schedule: ScheduleBuilder| schedule.on_crash(promise);
            let member = crew.with_job("a", "0 * * * *", set, crew.job("a", 3 * SECOND)).await;
            pass(HOUR + SECOND).await;
            member.faulty.intercept().always(Operation::ALL, Fault::Swallowed);
            pass(away).await;
            member.faulty.intercept().heal();
            pass(10 * MINUTE).await;
            assert_eq!(crew.told().await[0], "01:00:00 succeeded 1", "{promise:?} {away:?}");
            assert_eq!(crew.registry.instants()[0], at(3600));
            assert!(crew.registry.runs().iter().all(|run| run.attempt == 1), "{:?}", crew.registry.runs());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_written_before_anybody_else_settles_the_run() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| schedule.on_crash(OnCrash::AtMostOnce);
    let one = crew.with_job("a", "0 * * * *", set, crew.job("a", 3 * SECOND)).await;
    pass(HOUR + SECOND).await;
    one.faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    pass(MINUTE).await;
    one.faulty.intercept().heal();
    pass(MINUTE).await;
    // The instance writes the outcome itself.
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_known_to_a_schedule_that_was_removed_and_added_again() {
    let crew = Crew::new();
    let add = |member: &Member| {
        let schedule = member.elect.schedule("report", "0 * * * *").run(crew.job("a", 3 * SECOND));
        Some(schedule.unwrap())
    };
    let mut one = crew.member("a").await;
    one.schedule = add(&one);
    pass(HOUR + SECOND).await;
    one.faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    pass(MINUTE).await;
    one.schedule = None;
    pass(SECOND).await;
    one.schedule = add(&one);
    one.faulty.intercept().heal();
    pass(10 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1"]);
    assert_eq!(crew.registry.instants(), [at(3600)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_another_instance_gave_up_is_not_called_a_death() {
    let crew = Crew::new();
    let set = |schedule: ScheduleBuilder| schedule.on_crash(OnCrash::AtMostOnce);
    let one = crew.with_job("a", "0 * * * *", set, crew.job("a", 3 * SECOND)).await;
    pass(10 * MINUTE).await;
    let _two = crew.with_job("b", "0 * * * *", set, crew.job("b", 3 * SECOND)).await;
    pass(50 * MINUTE + SECOND).await;
    one.faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    pass(5 * MINUTE).await;
    one.faulty.intercept().heal();
    pass(MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 abandoned 1"]);
    let error = crew.ledger().await[0].finish.clone().unwrap().error.unwrap();
    assert_eq!(error.as_str(), "its lease ended before an outcome was recorded");
}

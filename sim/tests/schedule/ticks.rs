//! Ticks in their time: as they are due, once, and no more commands than needed.

use std::time::Duration;

use futures::FutureExt;
use tenure::{
    Elect, Error, Event,
    schedule::{Misfire, ScheduleBuilder, Timing},
    store::{Define, Definition, StoreExt},
    testing::{Counts, Operation},
};

use crate::captured::Log;
use crate::schedule::crew::{Crew, DAY, HOUR, MINUTE, Member, NAME, SECOND, at, every_second, pass};

#[tokio::test(start_paused = true)]
async fn ticks_are_run_once_and_in_time() {
    let crew = Crew::new();
    let mut members = Vec::new();
    for holder in ["a", "b", "c"] {
        members.push(crew.with(holder, "* * * * * *", |schedule| schedule).await);
    }
    pass(MINUTE).await;
    let runs = crew.registry.runs();
    assert!(runs.len() >= 55, "{}", runs.len());
    let instants = crew.registry.instants();
    assert_eq!(instants, every_second(instants[0], *instants.last().unwrap()));
    assert!(runs.iter().all(|run| run.at.since(run.instant) <= Duration::from_millis(20)), "{runs:?}");
    assert!(runs.iter().all(|run| run.by == runs[0].by), "it has one owner");
    assert_eq!(crew.succeeded().await, instants);
}

#[tokio::test(start_paused = true)]
async fn a_tick_costs_two_commands_and_nothing_those_who_do_not_own_it() {
    let crew = Crew::new();
    let one = crew.with("a", "@hourly", |schedule| schedule).await;
    let other = crew.with("b", "@hourly", |schedule| schedule).await;
    pass(2 * HOUR + MINUTE).await;
    let ran = crew.registry.runs().len();
    let counts = |member: &Member| member.counts.intercept().counts();
    let before = [counts(&one), counts(&other)];
    pass(4 * HOUR).await;
    let after = [counts(&one) - before[0], counts(&other) - before[1]];
    assert_eq!(crew.registry.runs().len(), ran + 4);
    let is_one = crew.registry.runs()[0].by == "a";
    let (owner, idle) = if is_one { (&after[0], &after[1]) } else { (&after[1], &after[0]) };
    let of_schedules = [
        Operation::Claim,
        Operation::Finish,
        Operation::History,
        Operation::Define,
        Operation::Instruct,
        Operation::PurgeRuns,
    ];
    let spent = |counts: &Counts| of_schedules.map(|operation| counts.calls(operation));
    assert_eq!(spent(owner), [4, 4, 0, 0, 0, 0], "claim and finish");
    assert_eq!(spent(idle), [0; 6]);
    assert_eq!(idle.calls(Operation::Schedules), 0, "what it does not have it does not look at");
}

#[tokio::test(start_paused = true)]
async fn a_new_schedule_has_no_tick_before_it_was_first_stored() {
    let crew = Crew::new();
    pass(10 * MINUTE + SECOND).await;
    let _member = crew.with("a", "* * * * *", |schedule| schedule).await;
    pass(2 * MINUTE).await;
    assert_eq!(crew.registry.instants(), [at(11 * 60), at(12 * 60)]);
}

#[tokio::test(start_paused = true)]
async fn a_weekly_job_runs_though_nobody_lives_for_a_week() {
    let crew = Crew::long();
    for _ in 0..20 {
        let member = crew.with("a", "@weekly", |schedule| schedule).await;
        pass(23 * HOUR).await;
        member.elect.close().await;
        pass(HOUR).await;
    }
    // Sundays, of which the fourth of January is the first.
    assert_eq!(crew.registry.instants(), [at(3 * 86400), at(10 * 86400), at(17 * 86400)]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_expression_counts_from_when_it_is_stored() {
    let crew = Crew::new();
    let member = crew.with("a", "0 * * * *", |schedule| schedule).await;
    pass(90 * MINUTE).await;
    assert_eq!(crew.registry.instants(), [at(3600)]);
    let mut events = member.schedule.as_ref().unwrap().events();
    // A quarter past was at 01:15: that one is not made up for.
    member.schedule.as_ref().unwrap().set_timing("15 * * * *").unwrap();
    pass(MINUTE).await;
    let told = events.next().await;
    let Some(Event::Retimed { timing, .. }) = told else { panic!("{told:?}") };
    assert!(timing.as_str().starts_with("15 * * * *"), "{timing}");
    pass(HOUR).await;
    assert_eq!(crew.registry.instants(), [at(3600), at(2 * 3600 + 900)]);
    member.elect.close().await;
    // Another version of the program, a day later: noticed, too.
    let member = crew.with("b", "30 * * * *", |schedule| schedule).await;
    let mut events = member.schedule.as_ref().unwrap().events();
    pass(HOUR).await;
    let timed = async {
        loop {
            if let Some(Event::Retimed { timing, .. }) = events.next().await {
                break timing;
            }
        }
    };
    assert!(timed.await.as_str().starts_with("30 * * * *"));
    assert_eq!(crew.registry.instants().len(), 3, "{:?}", crew.told().await);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_arrives_late_is_put_right() {
    for crew in [Crew::new, Crew::deaf] {
        let crew = crew();
        let member = crew.with("a", "0 * * * *", |schedule| schedule).await;
        pass(MINUTE).await;
        let Definition { timing, policies, term, .. } = member.definition().await;
        let late = Define { schedule: Crew::id(NAME), term, timing, policies, instead_of: None };
        member.schedule.as_ref().unwrap().set_timing("30 * * * *").unwrap();
        pass(MINUTE).await;
        assert!(member.definition().await.timing.as_str().starts_with("30 * * * *"));
        // Its owner has long given up that call.
        crew.memory.define(late, SECOND).await.unwrap();
        assert!(member.definition().await.timing.as_str().starts_with("0 * * * *"), "nothing refuses it");
        let late_at = crew.now();
        while !member.definition().await.timing.as_str().starts_with("30 * * * *") {
            pass(SECOND / 10).await;
        }
        let after = crew.now().since(late_at);
        assert!(after <= member.elect.config().poll_interval() + SECOND, "{after:?}");
        pass(2 * HOUR).await;
        assert_eq!(crew.registry.instants(), [at(1800), at(3600 + 1800)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_one_time_schedule_is_run_once_however_often_it_is_defined() {
    let crew = Crew::long();
    let member = crew.with("a", "@after 10m", |schedule| schedule).await;
    pass(HOUR).await;
    assert_eq!(crew.registry.instants(), [at(601)], "to the next whole second");
    member.elect.close().await;
    let member = crew.with("a", "@after 10m", |schedule| schedule).await;
    pass(DAY).await;
    assert_eq!(crew.registry.instants(), [at(601)]);
    assert_eq!(member.schedule.as_ref().unwrap().next(3).len(), 1, "as if it were new");
    drop(member);
    let _at = crew.with("b", "@at 2026-01-03T12:00:00Z", |schedule| schedule).await;
    pass(3 * DAY).await;
    assert_eq!(crew.registry.instants(), [at(601), at(2 * 86400 + 12 * 3600)]);
}

#[tokio::test(start_paused = true)]
async fn an_instant_that_is_past_when_it_is_given_runs_at_once_and_never_again() {
    let crew = Crew::new();
    pass(HOUR).await;
    for holder in ["a", "b"] {
        let member = crew.with(holder, "@at 2026-01-01T00:30:00Z", |schedule| schedule).await;
        pass(MINUTE).await;
        member.elect.close().await;
    }
    assert_eq!(crew.told().await, ["00:30:00 succeeded 1"]);
    assert_eq!(crew.registry.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_instant_whose_window_is_over_when_it_is_given_is_told_to_be_too_late_once() {
    let crew = Crew::new();
    pass(HOUR).await;
    let soon = Misfire::One { window: 10 * MINUTE };
    for holder in ["a", "b"] {
        let member = crew.with(holder, "@at 2026-01-01T00:30:00Z", |schedule| schedule.misfire(soon)).await;
        let mut events = member.schedule.as_ref().unwrap().events();
        pass(MINUTE).await;
        let mut told = 0;
        while let Some(Some(event)) = events.next().now_or_never() {
            told += u32::from(matches!(event, Event::NotRun { .. }));
        }
        assert_eq!(told, u32::from(holder == "a"));
        member.elect.close().await;
    }
    assert_eq!(crew.told().await, ["00:30:00-00:30:00 1 too late"]);
    assert_eq!(crew.registry.runs(), []);
}

#[tokio::test(start_paused = true)]
async fn an_instant_that_another_timing_has_passed_runs_unless_it_ran_then() {
    let crew = Crew::new();
    let member = crew.with("a", "0,1 * * * *", |schedule| schedule).await;
    // More ticks than an owner reads at first.
    pass(25 * HOUR).await;
    let before = crew.registry.runs().len();
    for past in ["@at 2026-01-01T01:30:00Z", "@at 2026-01-01T02:01:00Z"] {
        member.schedule.as_ref().unwrap().set_timing(past).unwrap();
        pass(MINUTE).await;
        assert_eq!(crew.registry.instants()[before..], [at(5400)], "{past}");
    }
}

#[tokio::test(start_paused = true)]
async fn schedules_come_and_go_while_the_instance_runs() {
    let crew = Crew::new();
    let mut member = crew.member("a").await;
    let run =
        |name: &'static str| member.elect.schedule(name, "*/10 * * * * *").run(crew.job("a", Duration::ZERO));
    let (one, two) = (run("one").unwrap(), run("two").unwrap());
    assert!(matches!(run("one"), Err(Error::Scheduled(name)) if name.as_str() == "one"));
    pass(11 * SECOND).await;
    assert_eq!(crew.registry.runs().len(), 2);
    drop(one);
    pass(10 * SECOND).await;
    assert_eq!(crew.registry.runs().len(), 3);
    drop(two);
    pass(10 * SECOND).await;
    assert_eq!(crew.registry.runs().len(), 3);
    // The last one has gone, and with it what the instance had to do with schedules.
    member.schedule = Some(run("one").unwrap());
    pass(SECOND).await;
    assert_eq!(
        crew.registry.instants()[3..],
        [at(30)],
        "nobody had it meanwhile: the last tick is made up for"
    );
    pass(9 * SECOND).await;
    assert_eq!(crew.registry.instants()[4..], [at(40)]);
    member.elect.close().await;
    assert!(matches!(run("three"), Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_removed_goes_to_an_instance_that_has_it() {
    let crew = Crew::new();
    let mut one = crew.with("a", "*/10 * * * * *", |schedule| schedule).await;
    pass(5 * SECOND).await;
    let two = crew.with("b", "*/10 * * * * *", |schedule| schedule).await;
    // Each has one that the other does not know, so that the first one stays where it is.
    let of = |elect: &Elect, name: &str| {
        elect.schedule(name, "@yearly").run(|_, _| async { Ok::<(), String>(()) }).unwrap()
    };
    let _others = [of(&one.elect, "of a"), of(&two.elect, "of b")];
    pass(30 * SECOND).await;
    drop(one.schedule.take());
    pass(MINUTE).await;
    let by: Vec<_> = crew.registry.runs().iter().map(|run| run.by.clone()).collect();
    let all: Vec<_> = (1..10).map(|ten| at(ten * 10)).collect();
    assert_eq!(crew.registry.instants(), all);
    assert_eq!(by, ["a", "a", "a", "b", "b", "b", "b", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_schedules_are_refused_with_the_reason() {
    use tenure::schedule::{Misfire, OnCrash, Retries};
    let crew = Crew::new();
    let member = crew.member("a").await;
    let job = || crew.job("a", Duration::ZERO);
    let says = |refused: Result<_, Error>| {
        let error = refused.err().unwrap();
        assert!(error.is_config(), "{error}");
        error.to_string()
    };
    let elect = &member.elect;
    assert_eq!(
        says(elect.schedule("s", "0 0 31 2 *").run(job())),
        "the schedule \"s\" cannot be run: the expression \"0 0 31 2 *\" names a day that does not exist"
    );
    let zoned = elect.schedule("s", Timing::new("@daily").zone("Europe/Lodnon")).run(job());
    assert!(says(zoned).contains("Europe/Lodnon"));
    for misfire in [
        Misfire::Skip { tolerance: Duration::ZERO },
        Misfire::One { window: SECOND / 2 },
        Misfire::All { window: Duration::ZERO, at_most: 5 },
    ] {
        assert!(
            says(elect.schedule("s", "@daily").misfire(misfire).run(job())).contains("must be at least 1s")
        );
    }
    assert!(says(elect.schedule("s", "@daily").keep_history(SECOND, 9).run(job())).contains("too few"));
    let all = Misfire::All { window: HOUR, at_most: 0 };
    assert!(says(elect.schedule("s", "@daily").misfire(all).run(job())).contains("at_most (0)"));
    let never = OnCrash::AtLeastOnce { attempts: 0 };
    assert!(says(elect.schedule("s", "@daily").on_crash(never).run(job())).contains("at least 1 attempt"));
    let no_try = Retries { tries: 0, ..Retries::default() };
    assert!(
        says(elect.schedule("s", "@daily").retries(no_try).run(job())).contains("tries must be at least 1")
    );
    let no_rest = Retries { tries: u32::MAX, first: Duration::ZERO, ..Retries::default() };
    let refused = says(elect.schedule("s", "@daily").retries(no_rest).run(job()));
    assert!(refused.contains("the first rest (0ns) must be at least 10ms"), "{refused}");
    assert!(
        says(elect.schedule("s", "@daily").timeout(Duration::ZERO).run(job())).contains("longer than 0s")
    );
    assert!(matches!(elect.schedule("", "@daily").run(job()), Err(Error::Limit(_))));
    assert!(matches!(
        elect.spread("tenure.schedules").run(async |_, _| Ok::<_, String>(())),
        Err(Error::Reserved(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_removed_and_comes_again_at_once_goes_on() {
    for (gone_for, expression) in [(Duration::ZERO, "*/10 * * * * *"), (SECOND / 20, "*/5 * * * * *")] {
        let crew = Crew::new();
        let member = crew.member("a").await;
        let run = |name: &'static str, expression: &'static str| {
            member.elect.schedule(name, expression).run(crew.job("a", Duration::ZERO)).unwrap()
        };
        let (one, _other) = (run("one", "*/10 * * * * *"), run("other", "@yearly"));
        pass(11 * SECOND).await;
        assert_eq!(crew.registry.instants(), [at(10)]);
        drop(one);
        pass(gone_for).await;
        let _one = run("one", expression);
        pass(10 * SECOND).await;
        assert_eq!(crew.registry.instants().last(), Some(&at(20)), "{gone_for:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn caps_and_drains_of_schedules_can_be_set_at_any_time() {
    let crew = Crew::new();
    let mut members = Vec::new();
    for holder in ["a", "b"] {
        let member = crew.member(holder).await;
        // Before there is any, and before the others are known.
        if holder == "a" {
            member.elect.schedules().set_cap(1);
        }
        let schedules: Vec<_> = ["one", "two", "three", "four"]
            .map(|name| member.elect.schedule(name, "@daily").run(crew.job(holder, Duration::ZERO)).unwrap())
            .into();
        members.push((member, schedules));
    }
    let all = members[1].0.elect.schedules();
    all.until(|status| status.held() == 4 && status.is_settled()).await;
    let counts =
        |status: tenure::spread::SpreadStatus| status.members.iter().map(|one| one.tasks).collect::<Vec<_>>();
    assert_eq!(counts(all.spread_status().unwrap()), [1, 3]);
    members[0].0.elect.schedules().set_cap(2);
    all.until(|status| status.members.iter().all(|one| one.tasks == 2)).await;
    members[0].0.elect.schedules().drain();
    all.until(|status| status.members.iter().any(|one| one.tasks == 4)).await;
    assert_eq!(counts(all.spread_status().unwrap()), [0, 4]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_more_weight_has_more_schedules() {
    let crew = Crew::new();
    let (one, two) = (crew.member("a").await, crew.member("b").await);
    one.elect.schedules().set_weight(3);
    let run = |member: &Member, holder| {
        ["one", "two", "three", "four"]
            .map(|name| member.elect.schedule(name, "@daily").run(crew.job(holder, Duration::ZERO)).unwrap())
    };
    let _schedules = (run(&one, "a"), run(&two, "b"));
    let all = two.elect.schedules();
    all.until(|status| status.held() == 4 && status.is_settled()).await;
    let counts: Vec<_> = all.spread_status().unwrap().members.iter().map(|one| one.tasks).collect();
    assert_eq!(counts, [3, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_be_purged_stops_nothing() {
    let crew = Crew::new();
    let keep = |schedule: tenure::schedule::ScheduleBuilder| schedule.keep_history(HOUR, 2);
    let member = crew.with("a", "* * * * * *", keep).await;
    member.faulty.intercept().always(&[Operation::PurgeRuns], tenure::testing::Fault::Refused);
    pass(3 * MINUTE).await;
    assert!(crew.registry.runs().len() >= 175, "{}", crew.registry.runs().len());
    assert!(member.counts.intercept().counts().calls(Operation::PurgeRuns) > 5, "a tenth of the ticks try");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_knows_other_rules_of_the_zone_says_so_and_loses_no_tick() {
    let (log, _here) = Log::start();
    let crew = Crew::new();
    let berlin = |schedule: ScheduleBuilder| schedule.zone("Europe/Berlin");
    let one = crew.with("a", "*/10 * * * *", berlin).await;
    pass(15 * MINUTE).await;
    let ours = one.definition().await;
    let text = ours.policies.to_string();
    let (before, rules) = text.rsplit_once(", zone rules ").unwrap();
    assert_eq!(rules.len(), 8, "{rules}");
    assert!(log.with(&["different time-zone databases"]).is_empty());
    // Another build had it meanwhile.
    let policies = format!("{before}, zone rules 00000000").parse().unwrap();
    let Definition { timing, term, .. } = ours.clone();
    let other = Define { schedule: Crew::id(NAME), term, timing, policies, instead_of: None };
    crew.memory.define(other, SECOND).await.unwrap();
    pass(MINUTE).await;
    let mended = one.definition().await;
    assert_eq!((mended.policies, mended.since), (ours.policies, ours.since));
    let told = log.with(&["WARN", "different time-zone databases", "theirs=\"00000000\"", rules]);
    assert_eq!(told.len(), 1, "{told:?}");
    let status = one.schedule.as_ref().unwrap().status().await.unwrap().unwrap();
    assert!(status.to_string().contains(rules), "{status}");
    pass(15 * MINUTE).await;
    assert_eq!(crew.told().await, ["00:10:00 succeeded 1", "00:20:00 succeeded 1", "00:30:00 succeeded 1"]);
}

//! Held back, let go on, run now.

use std::time::Duration;

use tenure::{
    model::{Entry, Why},
    testing::{Fault, Operation},
};

use crate::schedule::crew::{Crew, HOUR, MINUTE, SECOND, at, pass};

fn why(text: &str) -> Why {
    Why::new(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_held_back_runs_nothing_and_says_so() {
    let crew = Crew::new();
    let one = crew.with("a", "* * * * *", |schedule| schedule).await;
    let two = crew.with("b", "* * * * *", |schedule| schedule).await;
    pass(90 * SECOND).await;
    // By an instance that does not own it, and need not even have it.
    let operator = crew.member("op").await;
    operator.elect.schedules().pause("report", why("the printer is on fire")).await.unwrap();
    pass(5 * MINUTE).await;
    assert_eq!(crew.registry.instants(), [at(60)]);
    let status = one.schedule.as_ref().unwrap().status().await.unwrap().unwrap();
    assert!(status.to_string().contains("paused since 2026-01-01T00:01:30"), "{status}");
    assert!(status.to_string().contains("by op: the printer is on fire"), "{status}");
    // The pause stays, whichever instance has the schedule.
    one.elect.close().await;
    two.elect.close().await;
    let three = crew.with("c", "* * * * *", |schedule| schedule).await;
    pass(2 * MINUTE).await;
    assert_eq!(crew.registry.instants(), [at(60)]);
    three.schedule.as_ref().unwrap().resume().await.unwrap();
    pass(2 * MINUTE).await;
    assert_eq!(
        crew.told().await,
        [
            "00:01:00 succeeded 1",
            "00:02:00-00:08:00 7 paused",
            "00:09:00 succeeded 1",
            "00:10:00 succeeded 1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_on_goes_on_when_its_schedule_is_held_back() {
    let crew = Crew::new();
    let member = crew.with_job("a", "@hourly", |schedule| schedule, crew.job("a", 5 * MINUTE)).await;
    pass(HOUR + SECOND).await;
    member.schedule.as_ref().unwrap().pause(why("")).await.unwrap();
    pass(2 * HOUR).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_run_now_once_also_if_it_is_held_back() {
    let crew = Crew::new();
    let member = crew.with("a", "@hourly", |schedule| schedule).await;
    let schedule = member.schedule.as_ref().unwrap();
    pass(10 * MINUTE).await;
    let instant = schedule.run_now(why("to see")).await.unwrap();
    pass(SECOND).await;
    assert_eq!(crew.registry.instants(), [instant]);
    schedule.pause(why("")).await.unwrap();
    pass(MINUTE).await;
    let again = crew.member("op").await.elect.schedules().run_now("report", why("to see")).await.unwrap();
    pass(SECOND).await;
    assert_eq!(crew.registry.instants(), [instant, again]);
    assert!(crew.ledger().await.iter().all(|run| run.id.entry == Entry::Order && run.has_succeeded()));
    let status = schedule.status().await.unwrap().unwrap();
    assert!(status.record.orders.is_empty(), "it waits no more");
    // The next owner does not run it again.
    member.elect.close().await;
    let _next = crew.with("b", "@hourly", |schedule| schedule).await;
    pass(HOUR).await;
    assert_eq!(crew.registry.instants(), [instant, again]);
}

#[tokio::test(start_paused = true)]
async fn orders_are_found_by_polling_where_hints_are_missing() {
    let crew = Crew::deaf();
    let member = crew.with("a", "@hourly", |schedule| schedule).await;
    pass(MINUTE).await;
    let begun = crew.now();
    let instant = crew.member("op").await.elect.schedules().run_now("report", why("")).await.unwrap();
    while crew.registry.runs().is_empty() {
        pass(SECOND / 10).await;
    }
    assert_eq!(crew.registry.instants(), [instant]);
    let after = crew.now().since(begun);
    assert!(after <= member.elect.config().poll_interval() + SECOND, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_end_was_not_answered_is_run_once() {
    let crew = Crew::new();
    let member = crew.with("a", "@hourly", |schedule| schedule).await;
    pass(SECOND).await;
    for operation in [Operation::Claim, Operation::Finish, Operation::Instruct] {
        member.faulty.intercept().next(operation, Fault::AnswerLost);
    }
    let operator = crew.member("op").await;
    let instant = operator.elect.schedules().run_now("report", why("")).await.unwrap();
    pass(MINUTE).await;
    assert_eq!(crew.registry.instants(), [instant]);
}

#[tokio::test(start_paused = true)]
async fn the_history_is_read_page_by_page_and_does_not_grow_for_ever() {
    let crew = Crew::new();
    let keep = |schedule: tenure::schedule::ScheduleBuilder| schedule.keep_history(HOUR, 20);
    let member = crew.with("a", "* * * * * *", keep).await;
    pass(3 * HOUR).await;
    let kept = crew.ledger().await.len();
    // A page is purged once in twenty ticks, on the average.
    assert!((3600..3600 + 600).contains(&kept), "{kept}");
    let schedules = member.elect.schedules();
    let (mut after, mut read) = (None, Vec::new());
    loop {
        let page = schedules.history("report", after, 1000).await.unwrap();
        assert!(page.mark.is_some(), "some were purged");
        read.extend(page.items.into_iter().map(|run| run.id.instant));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(read.len() >= kept && read.is_sorted_by(|a, b| a > b));
}

#[tokio::test(start_paused = true)]
async fn the_configuration_says_how_much_history_is_kept() {
    let crew = Crew::keeping(10 * MINUTE, 20);
    let _member = crew.with("a", "* * * * * *", |schedule| schedule).await;
    pass(HOUR).await;
    let kept = crew.ledger().await.len();
    assert!((600..600 + 300).contains(&kept), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn ledger_entries_beyond_a_shorter_history_are_purged_in_one_go() {
    let crew = Crew::new();
    let member = crew.with("a", "* * * * * *", |schedule| schedule.keep_history(HOUR, 20)).await;
    pass(2_500 * SECOND).await;
    member.elect.close().await;
    let before = crew.ledger().await.len();
    assert!(before > 2_400, "more than a page: {before}");
    let _member = crew.with("b", "* * * * * *", |schedule| schedule.keep_history(MINUTE, 20)).await;
    while crew.ledger().await.len() >= before {
        pass(SECOND / 2).await;
    }
    pass(SECOND / 2).await;
    let kept = crew.ledger().await.len();
    assert!((60..70).contains(&kept), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_nobody_has_is_unknown_and_can_be_paused_before_it_exists() {
    let crew = Crew::new();
    let schedules = crew.member("op").await.elect.schedules();
    assert_eq!(schedules.status("report").await.unwrap(), None);
    assert!(schedules.spread_status().is_none());
    // It can be held back before it is there.
    schedules.clone().even_if_unknown().pause("report", why("not yet")).await.unwrap();
    let member = crew.with("a", "* * * * *", |schedule| schedule).await;
    pass(5 * MINUTE).await;
    assert!(crew.registry.runs().is_empty());
    let next = member.schedule.as_ref().unwrap().next(3);
    assert_eq!(next.len(), 3);
    assert!(next[0].since(crew.now()) <= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_was_due_before_a_pause_waits_for_its_end() {
    let crew = Crew::new();
    let member = crew.with("a", "@hourly", |schedule| schedule).await;
    pass(30 * MINUTE).await;
    member.elect.close().await;
    // No instance is there at one and at two; then an operator says stop, and only then an instance comes.
    pass(2 * HOUR).await;
    let operator = crew.member("op").await;
    operator.elect.schedules().pause("report", why("")).await.unwrap();
    let _member = crew.with("b", "@hourly", |schedule| schedule).await;
    pass(HOUR).await;
    assert!(crew.registry.runs().is_empty(), "{:?}", crew.registry.runs());
    operator.elect.schedules().resume("report").await.unwrap();
    pass(MINUTE).await;
    assert_eq!(
        crew.told().await,
        ["01:00:00-01:00:00 1 too late", "02:00:00 succeeded 1", "03:00:00-03:00:00 1 paused"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_runner_died_waits_for_the_end_of_a_pause() {
    let crew = Crew::short();
    let one = crew.with_job("a", "@hourly", |schedule| schedule, crew.job("a", MINUTE)).await;
    pass(HOUR + 10 * SECOND).await;
    let two = crew.with_job("b", "@hourly", |schedule| schedule, crew.job("b", MINUTE)).await;
    two.schedule.as_ref().unwrap().pause(why("it kills its runners")).await.unwrap();
    one.kill().await;
    pass(10 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 open 1"]);
    two.schedule.as_ref().unwrap().resume().await.unwrap();
    pass(2 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_ends_by_a_wrong_clock_has_ended() {
    let crew = Crew::new();
    let member = crew.with("a", "* * * * *", |schedule| schedule).await;
    let schedule = member.schedule.as_ref().unwrap();
    pass(90 * SECOND).await;
    schedule.pause(why("")).await.unwrap();
    pass(MINUTE).await;
    crew.clock.step_wall(30 * crate::schedule::crew::DAY);
    schedule.resume().await.unwrap();
    pass(SECOND).await;
    crew.clock.step_wall_back(30 * crate::schedule::crew::DAY);
    pass(2 * MINUTE).await;
    assert_eq!(
        crew.told().await,
        [
            "00:01:00 succeeded 1",
            "00:02:00-00:02:00 1 paused",
            "00:03:00 succeeded 1",
            "00:04:00 succeeded 1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn more_orders_than_may_wait_are_refused_with_the_limit_and_the_remedy() {
    let crew = Crew::new();
    let _member = crew.with_job("a", "0 0 1 1 *", |schedule| schedule, crew.job("a", SECOND)).await;
    pass(SECOND).await;
    let schedules = crew.member("op").await.elect.schedules();
    let mut refused = Vec::new();
    for order in 0..110 {
        refused.extend(schedules.run_now("report", why(&order.to_string())).await.err());
    }
    assert!((9..=10).contains(&refused.len()), "one may have begun: {}", refused.len());
    assert_eq!(
        refused[0].to_string(),
        "schedule \"report\" of test: 100 orders wait already, the maximum: try again once some are done"
    );
    pass(5 * MINUTE).await;
    assert_eq!(crew.registry.runs().len(), 110 - refused.len());
    schedules.run_now("report", why("again")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ticks_that_are_not_run_are_counted_up_to_ten_thousand_or_more() {
    let crew = Crew::new();
    let member = crew.with("a", "* * * * * *", |schedule| schedule).await;
    let schedule = member.schedule.as_ref().unwrap();
    for (paused, ticks) in [(SECOND * 2, "2 ticks"), (3 * HOUR, "10000 or more ticks")] {
        pass(SECOND / 2).await;
        schedule.pause(why("")).await.unwrap();
        pass(paused).await;
        schedule.resume().await.unwrap();
        pass(SECOND * 3).await;
        let skipped = crew.ledger().await.into_iter().filter_map(|run| run.skipped).next_back().unwrap();
        assert_eq!(skipped.ticks(), ticks);
    }
}

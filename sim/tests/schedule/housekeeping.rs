//! Unknown names, listings and deletions, and schedules that no instance runs.

use std::{collections::BTreeSet, time::Duration};

use futures::FutureExt;
use tenure::{
    Error, Event,
    elect::EventStream,
    model::StoreTime,
    schedule::{Misfire, ScheduleBuilder},
    store::{ScheduleSeen, StoreExt},
};

use crate::schedule::crew::{Crew, DAY, HOUR, MINUTE, Member, NAME, SECOND, at, pass};

#[tokio::test(start_paused = true)]
async fn a_name_that_nobody_has_is_refused() {
    let crew = Crew::new();
    let one = crew.with("a", "0 * * * *", |schedule| schedule).await;
    let operator = crew.member("op").await;
    pass(10 * SECOND).await;
    for member in [&one, &operator] {
        let schedules = member.elect.schedules();
        let refused = [
            schedules.run_now("rep0rt", "x").await.map(drop),
            schedules.pause("rep0rt", "x").await,
            schedules.resume("rep0rt").await,
        ];
        for refused in refused {
            assert!(
                matches!(&refused, Err(Error::UnknownSchedule(name)) if name.as_str() == "rep0rt"),
                "{refused:?}"
            );
        }
        assert_eq!(schedules.status("rep0rt").await.unwrap(), None, "and leaves no record");
    }
    let text = operator.elect.schedules().resume("rep0rt").await.unwrap_err().to_string();
    assert!(text.contains("\"rep0rt\"") && text.contains("even_if_unknown"), "{text}");
    operator.elect.schedules().pause(NAME, "by its name").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nobody_has_yet_is_held_back_by_whoever_says_so() {
    let crew = Crew::new();
    let operator = crew.member("op").await;
    operator.elect.schedules().even_if_unknown().pause(NAME, "before its time").await.unwrap();
    let one = crew.with("a", "* * * * *", |schedule| schedule).await;
    pass(5 * MINUTE).await;
    assert_eq!(crew.registry.runs(), []);
    operator.elect.schedules().resume(NAME).await.unwrap();
    pass(MINUTE).await;
    assert_eq!(crew.registry.runs().len(), 1);
    drop(one);
}

#[tokio::test(start_paused = true)]
async fn orders_given_in_the_same_millisecond_are_runs_of_their_own() {
    let crew = Crew::new();
    let one = crew.with("a", "0 0 1 1 *", |schedule| schedule).await;
    let other = crew.member("b").await;
    pass(10 * SECOND).await;
    let mut given = BTreeSet::new();
    for _ in 0..5 {
        given.insert(one.elect.schedules().run_now(NAME, "x").await.unwrap());
        given.insert(other.elect.schedules().run_now(NAME, "x").await.unwrap());
    }
    pass(MINUTE).await;
    assert_eq!(given.len(), 10, "each has an instant of its own");
    assert_eq!(crew.registry.instants().into_iter().collect::<BTreeSet<_>>(), given);
}

/// Two pauses in a time in which no instance has the schedule.
#[tokio::test(start_paused = true)]
async fn ticks_of_every_pause_are_told_as_that_also_if_nobody_had_the_schedule() {
    let crew = Crew::new();
    let all = |schedule: tenure::schedule::ScheduleBuilder| {
        schedule.misfire(tenure::schedule::Misfire::All { window: DAY, at_most: 100 })
    };
    let one = crew.with("a", "0 * * * *", all).await;
    let operator = crew.member("op").await;
    pass(30 * MINUTE).await;
    one.elect.close().await;
    for _ in 0..3 {
        operator.elect.schedules().pause(NAME, "a look").await.unwrap();
        pass(HOUR).await;
        operator.elect.schedules().resume(NAME).await.unwrap();
        pass(HOUR).await;
    }
    let _two = crew.with("b", "0 * * * *", all).await;
    pass(MINUTE).await;
    assert_eq!(crew.registry.instants(), [at(2 * 3600), at(4 * 3600), at(6 * 3600)]);
    let told = crew.told().await;
    let paused: Vec<_> = told.iter().filter(|told| told.ends_with("1 paused")).collect();
    assert_eq!(paused.len(), 3, "{told:?}");
}

/// The ticks that were told as overdue.
fn overdue(events: &mut EventStream) -> Vec<StoreTime> {
    let mut all = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        if let Event::Overdue { due, .. } = event {
            all.push(due);
        }
    }
    all
}

async fn with_another(crew: &Crew, holder: &str) -> Member {
    let mut member = crew.member(holder).await;
    let schedule = member.elect.schedule("other", "0 0 1 1 *").run(crew.job(holder, Duration::ZERO));
    member.schedule = Some(schedule.unwrap());
    member
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_nobody_runs_is_told_once_by_one_instance() {
    let crew = Crew::new();
    let one = crew.with("a", "0 * * * *", |schedule| schedule).await;
    let others = [with_another(&crew, "b").await, with_another(&crew, "c").await];
    let mut streams = others.each_ref().map(|other| other.elect.events());
    pass(90 * MINUTE).await;
    let told: Vec<_> = streams.iter_mut().flat_map(overdue).collect();
    assert_eq!(told, [], "it is run");
    one.kill().await;
    pass(29 * MINUTE).await;
    let told: Vec<_> = streams.iter_mut().flat_map(overdue).collect();
    assert_eq!(told, [], "nothing is due");
    pass(5 * MINUTE).await;
    let told: Vec<_> = streams.iter_mut().flat_map(overdue).collect();
    assert_eq!(told, [at(2 * 3600)], "within five minutes of its tick");
    pass(5 * HOUR).await;
    let told: Vec<_> = streams.iter_mut().flat_map(overdue).collect();
    assert_eq!(told, [], "it is the same tick that is due");
    let all = others[0].elect.schedules().overdue().await.unwrap();
    assert_eq!(
        all.iter().map(|one| (one.schedule.as_str(), one.due)).collect::<Vec<_>>(),
        [(NAME, at(2 * 3600))]
    );
    // An instance that runs it again puts an end to it.
    let _again = crew.with("d", "0 * * * *", |schedule| schedule).await;
    pass(MINUTE).await;
    assert_eq!(others[1].elect.schedules().overdue().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_nobody_runs_is_told_whatever_instances_without_schedules_there_are() {
    let crew = Crew::new();
    let one = crew.with("a", "0 * * * *", |schedule| schedule).await;
    pass(90 * MINUTE).await;
    one.kill().await;
    let other = with_another(&crew, "b").await;
    let mut stream = other.elect.events();
    let mut without = Vec::new();
    // Some of them have smaller session ids.
    for n in 0..9 {
        without.push(crew.member(&format!("web-{n}")).await);
    }
    pass(2 * HOUR).await;
    assert_eq!(overdue(&mut stream), [at(2 * 3600)]);
}

#[tokio::test(start_paused = true)]
async fn schedules_are_listed_and_deleted() {
    let crew = Crew::new();
    let one = crew.with("a", "* * * * *", |schedule| schedule).await;
    let other = with_another(&crew, "b").await;
    pass(10 * MINUTE).await;
    let schedules = other.elect.schedules();
    let names = async |at_most| {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = schedules.list(after, at_most).await.unwrap();
            all.extend(page.items.into_iter().map(|record| record.id.name.as_str().to_owned()));
            after = page.next;
            if after.is_none() {
                break all;
            }
        }
    };
    assert_eq!(names(1).await, ["other", NAME]);
    assert_eq!(names(100).await, ["other", NAME]);
    let refused = schedules.delete(NAME).await;
    assert!(matches!(&refused, Err(Error::Owned { by, .. }) if by.as_str() == "a"), "{refused:?}");
    let refused = schedules.delete("other").await;
    assert!(matches!(&refused, Err(Error::Owned { by, .. }) if by.as_str() == "b"), "{refused:?}");
    assert_eq!(names(100).await.len(), 2);
    one.elect.close().await;
    assert!(schedules.delete(NAME).await.unwrap());
    assert_eq!(names(100).await, ["other"]);
    assert_eq!(crew.ledger().await, []);
    assert!(!schedules.delete(NAME).await.unwrap(), "it is gone");
    assert!(schedules.clone().even_if_owned().delete("other").await.unwrap());
    // An instance that has it again begins anew.
    let _again = crew.with("c", "* * * * *", |schedule| schedule).await;
    pass(90 * SECOND).await;
    assert_eq!(crew.ledger().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn schedules_that_had_one_tick_leave_nothing_behind() {
    let crew = Crew::keeping(2 * HOUR, 10);
    let one = with_another(&crew, "a").await;
    let mut kept = Vec::new();
    for n in 0..20 {
        let job = crew.job("a", Duration::ZERO);
        let schedule = one.elect.schedule(format!("mail-{n}"), "@after 10s").run(job).unwrap();
        pass(15 * SECOND).await;
        if n == 0 {
            kept.push(schedule);
        }
    }
    assert_eq!(crew.registry.runs().len(), 20);
    let left = async || {
        let ids = (0..20).map(|n| Crew::id(&format!("mail-{n}"))).collect();
        let seen = crew.memory.schedules(ids, SECOND).await.unwrap();
        seen.iter().filter(|seen| matches!(seen, ScheduleSeen::Found(_))).count()
    };
    pass(HOUR).await;
    assert_eq!(left().await, 20, "as long as a history is kept");
    pass(2 * HOUR).await;
    assert_eq!(left().await, 1, "but the one that this instance has");
    let runs = crew.memory.history(Crew::id("mail-7"), None, 10, SECOND).await.unwrap();
    assert_eq!(runs.items, []);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_of_one_tick_is_removed_by_an_instance_without_others_and_does_not_run_again() {
    let crew = Crew::keeping(2 * HOUR, 10);
    let set = |schedule: ScheduleBuilder| schedule.misfire(Misfire::One { window: DAY });
    let mut member = crew.with("a", "@at 2026-01-01T00:01:00Z", set).await;
    pass(2 * MINUTE).await;
    member.schedule = None;
    assert_eq!(crew.told().await, ["00:01:00 succeeded 1"]);
    pass(3 * HOUR).await;
    let seen = crew.memory.schedules(vec![Crew::id(NAME)], SECOND).await.unwrap();
    assert_eq!(seen, [ScheduleSeen::Absent]);
    assert_eq!(crew.told().await, [""; 0]);
    // The program is started once more, with the same instant.
    member.elect.close().await;
    let _again = crew.with("a", "@at 2026-01-01T00:01:00Z", set).await;
    pass(MINUTE).await;
    assert_eq!(crew.registry.runs().len(), 1);
    assert_eq!(crew.told().await, ["00:01:00-00:01:00 1 too late"]);
}

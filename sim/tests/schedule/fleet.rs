//! Whole fleets: owners that die at the tick, all of them at once, and each tick once.

use std::time::Duration;

use tenure::{
    model::{Entry, Outcome},
    schedule::{Misfire, Overlap, ScheduleBuilder},
    spread::SpreadStatus,
};

use crate::schedule::crew::{Crew, MINUTE, Member, SECOND, every_second, pass};

const FLEET: usize = 20;

/// Every tick is run, however late.
fn all(schedule: ScheduleBuilder) -> ScheduleBuilder {
    let misfire = Misfire::All { window: 10 * MINUTE, at_most: 600 };
    schedule.misfire(misfire).overlap(Overlap::Queue)
}

async fn one(crew: &Crew, number: usize) -> Member {
    let holder = format!("pod-{number}");
    // A run takes a while, so that it can be killed in the middle.
    let job = crew.job(&holder, Duration::from_millis(30));
    crew.with_job(&holder, "* * * * * *", all, job).await
}

/// Waits until just after the next tick: its run is on.
async fn mid_tick(crew: &Crew) {
    let millis = u64::try_from(crew.now().as_millis()).unwrap();
    pass(Duration::from_millis(1000 - millis % 1000 + 10)).await;
}

#[tokio::test(start_paused = true)]
async fn twenty_instances_with_wrong_clocks_and_dying_owners_run_each_tick_once() {
    let crew = Crew::short();
    let mut members = Vec::new();
    for number in 0..FLEET {
        members.push(one(&crew, number).await);
    }
    pass(10 * SECOND).await;
    let begun = crew.registry.runs()[0].instant;
    // Runs of a healthy owner: not those that wait for a dead one's lease to end, nor those made up for then.
    let mut healthy = Vec::new();
    let mut next = FLEET;
    let rounds: u32 = if tenure_sim::is_whole() { 20 } else { 8 };
    for round in 0..rounds {
        mid_tick(&crew).await;
        let owner = crew.registry.runs().last().unwrap().by.clone();
        if round % 2 == 0 {
            // At the very second.
            pass(Duration::from_millis(970)).await;
        }
        let (dying, living): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| member.elect.config().holder().as_str() == owner);
        members = living;
        for member in dying {
            member.kill().await;
        }
        members.push(one(&crew, next).await);
        next += 1;
        pass(9 * SECOND).await;
        let from = crew.now();
        pass(19 * SECOND).await;
        healthy.extend(crew.registry.runs().into_iter().filter(|run| run.at >= from));
    }
    // All of them, in the middle of a tick.
    mid_tick(&crew).await;
    for member in members.drain(..) {
        member.gate.kill();
    }
    pass(2 * SECOND).await;
    for number in 0..FLEET {
        members.push(one(&crew, next + number).await);
    }
    pass(MINUTE).await;
    let end = crew.now();
    assert!(end.since(begun) >= rounds * 28 * SECOND);
    let ledger = crew.ledger().await;
    let instants: Vec<_> = ledger.iter().map(|run| run.id.instant).collect();
    assert_eq!(
        instants,
        every_second(begun, *instants.last().unwrap()),
        "each instant is in the ledger once"
    );
    assert!(end.since(*instants.last().unwrap()) <= SECOND);
    for run in &ledger[..ledger.len() - 1] {
        assert_eq!(run.id.entry, Entry::Tick);
        assert_eq!(run.finish.as_ref().map(|finish| finish.outcome), Some(Outcome::Succeeded), "{run:?}");
    }
    // Runs that were begun again are those that a dead owner had begun.
    let again = crew.registry.runs().len() - ledger.len();
    assert!(again <= rounds as usize + 1, "{again}");
    let mut lateness: Vec<_> = healthy.iter().map(|run| run.at.since(run.instant)).collect();
    lateness.sort_unstable();
    let p99 = lateness[lateness.len() * 99 / 100];
    println!("figure schedule_lateness_p99_ms {} goal 100 {}", p99.as_millis(), lateness.len());
    assert!(p99 <= Duration::from_millis(100), "{p99:?} of {}", lateness.len());
}

#[tokio::test(start_paused = true)]
async fn many_schedules_are_spread_and_each_has_one_owner() {
    let crew = Crew::new();
    let (mut members, mut schedules) = (Vec::new(), Vec::new());
    for number in 0..10 {
        let holder = format!("pod-{number}");
        let member = crew.member(&holder).await;
        for schedule in 0..500 {
            let name = format!("schedule-{schedule:03}");
            let scheduling = member.elect.schedule(name, "@every 30s");
            schedules.push(scheduling.run(crew.job(&holder, Duration::ZERO)).unwrap());
        }
        members.push(member);
    }
    let all = members[0].elect.schedules();
    let is_so =
        |status: &SpreadStatus| status.is_settled() && status.members.len() == 10 && status.held() == 500;
    let status = all.until(is_so).await;
    assert!(status.members.iter().all(|member| member.tasks == 50), "{status}");
    pass(SECOND).await;
    let before = crew.registry.runs().len();
    pass(MINUTE).await;
    assert_eq!(crew.registry.runs().len() - before, 1000, "each of them twice a minute");
    let late = crew
        .registry
        .runs()
        .iter()
        .skip(before)
        .filter(|run| run.at.since(run.instant) > SECOND / 10)
        .count();
    assert_eq!(late, 0);
}

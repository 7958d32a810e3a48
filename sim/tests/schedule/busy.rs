//! Schedules that are in the middle of runs when an instance joins.

use std::{collections::BTreeSet, time::Duration};

use tenure::{
    model::{Entry, Kind, LockId, StoreTime},
    schedule::{Overlap, Schedule},
    spread::SpreadStatus,
    store::StoreExt,
    testing::Operation,
};

use crate::schedule::crew::{Crew, HOUR, MINUTE, Member, SECOND, at, pass};

const EVERY_SECOND: &str = "* * * * * *";

/// Timing of a schedule of a test, and the length of its runs.
type Sort<'a> = (&'a str, Duration);

/// An instance with these schedules, named `s00` and so on.
async fn join(
    crew: &Crew,
    holder: &'static str,
    sorts: &[Sort<'_>],
    overlap: Overlap,
) -> (Member, Vec<Schedule>) {
    let member = crew.member(holder).await;
    let schedules = sorts.iter().enumerate().map(|(n, (expression, takes))| {
        let scheduling = member.elect.schedule(format!("s{n:02}"), *expression).overlap(overlap);
        scheduling.run(crew.job(holder, *takes)).unwrap()
    });
    let schedules = schedules.collect();
    (member, schedules)
}

/// Number of schedules of each, as that one knows it.
fn shares(member: &Member) -> Vec<usize> {
    let status = member.elect.schedules().spread_status().unwrap();
    status.members.iter().map(|member| member.tasks).collect()
}

/// Waits until the schedules are shared out like this; answers with how long it took.
async fn shared(member: &Member, shares: &[usize], within: Duration) -> Option<Duration> {
    let begun = tokio::time::Instant::now();
    let is_so =
        |status: &SpreadStatus| status.members.iter().map(|member| member.tasks).eq(shares.iter().copied());
    let schedules = member.elect.schedules();
    tokio::time::timeout(within, schedules.until(is_so)).await.ok().map(|_| begun.elapsed())
}

fn lock(name: &str) -> LockId {
    LockId { namespace: "test".parse().unwrap(), kind: Kind::Schedule, key: name.parse().unwrap() }
}

/// Number of times that this instance has written a value with a lock.
fn said(member: &Member) -> u64 {
    member.counts.intercept().counts().calls(Operation::SetValue)
}

/// The ticks that the ledger tells of, as run or not run: their instants, and how many succeeded.
async fn dealt_with(crew: &Crew, name: &str) -> (BTreeSet<StoreTime>, usize) {
    let history = crew.memory.history(Crew::id(name), None, usize::MAX, SECOND).await.unwrap();
    let (mut instants, mut succeeded) = (BTreeSet::new(), 0);
    for run in history.items.into_iter().filter(|run| run.id.entry != Entry::Order) {
        succeeded += usize::from(run.has_succeeded());
        let from = run.skipped.as_ref().map_or(run.id.instant, |skipped| skipped.from);
        instants.extend(crate::schedule::crew::every_second(from, run.id.instant));
    }
    (instants, succeeded)
}

#[tokio::test(start_paused = true)]
async fn a_busy_schedule_goes_to_a_newcomer_at_the_end_of_its_run() {
    for (millis, overlap) in
        [(750, Overlap::Skip), (850, Overlap::Skip), (950, Overlap::Skip), (1500, Overlap::Queue)]
    {
        let crew = Crew::new();
        let sorts = [(EVERY_SECOND, Duration::from_millis(millis)); 10];
        let a = join(&crew, "a", &sorts, overlap).await;
        pass(30 * SECOND).await;
        let b = join(&crew, "b", &sorts, overlap).await;
        let took = shared(&a.0, &[5, 5], 30 * MINUTE).await;
        pass(MINUTE).await;
        let late = crew.registry.runs().iter().map(|run| run.at.since(run.instant)).max().unwrap();
        println!(
            "runs of {millis} ms every second ({overlap:?}): {:?} after {took:?}, at most {late:?} late",
            shares(&a.0)
        );
        assert!(took.is_some_and(|took| took < MINUTE), "{took:?}");
        assert_eq!(said(&a.0) + said(&b.0), 0, "such a move costs no write");
        let now = crew.now();
        for n in 0..10 {
            let (instants, succeeded) = dealt_with(&crew, &format!("s{n:02}")).await;
            let (first, last) = (*instants.first().unwrap(), *instants.last().unwrap());
            assert_eq!(
                Vec::from_iter(instants),
                crate::schedule::crew::every_second(first, last),
                "no tick is lost"
            );
            assert!(first <= at(2) && now.since(last) <= 3 * SECOND, "{first} {last}");
            if millis < 1000 {
                let whole = usize::try_from(last.since(first).as_secs()).unwrap();
                assert!(succeeded >= whole, "each is run: {succeeded} of {whole}");
            }
        }
        if millis < 1000 {
            assert!(late < SECOND / 4, "no run is later than a hand-over takes: {late:?}");
        }
    }
}

/// Runs of five hours among ten schedules; the others are due each minute.
async fn long_runs(crew: &Crew, long: usize) -> ((Member, Vec<Schedule>), (Member, Vec<Schedule>)) {
    let sort = |n| if n >= 10 - long { ("0 1 * * *", 5 * HOUR) } else { ("* * * * *", Duration::ZERO) };
    let sorts: Vec<_> = (0..10).map(sort).collect();
    let a = join(crew, "a", &sorts, Overlap::Skip).await;
    pass(HOUR + MINUTE + SECOND).await;
    let b = join(crew, "b", &sorts, Overlap::Skip).await;
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn a_schedule_in_a_long_run_moves_when_that_has_ended() {
    for long in [0, 3, 8] {
        let crew = Crew::new();
        let (a, b) = long_runs(&crew, long).await;
        pass(MINUTE).await;
        let theirs = shares(&a.0)[1];
        println!("{long} of 10 in runs of 5 h: {:?} after a minute", shares(&a.0));
        assert!((5_usize.saturating_sub(long)..=5).contains(&theirs), "idle schedules go at once: {theirs}");
        let took = shared(&a.0, &[5, 5], 5 * HOUR).await;
        println!("{:?} after {took:?}", shares(&a.0));
        assert!(took.is_some(), "{:?}", shares(&a.0));
        pass(HOUR).await;
        for n in 10 - long..10 {
            let (_, succeeded) = dealt_with(&crew, &format!("s{n:02}")).await;
            assert_eq!(succeeded, 1, "it was not interrupted");
        }
        assert!(crew.registry.runs().iter().all(|run| run.attempt == 1));
        assert_eq!(said(&a.0) + said(&b.0), 0, "such a move costs no write");
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_schedule_moves_when_its_member_drains() {
    let crew = Crew::new();
    let (a, b) = long_runs(&crew, 8).await;
    pass(MINUTE).await;
    assert!(shares(&a.0)[0] >= 5);
    a.0.elect.schedules().drain();
    let took = shared(&b.0, &[0, 10], MINUTE).await;
    assert!(took.is_some_and(|took| took < 10 * SECOND), "{took:?}");
    pass(6 * HOUR).await;
    let (_, succeeded) = dealt_with(&crew, "s09").await;
    assert_eq!(succeeded, 1, "it was begun again");
}

#[tokio::test(start_paused = true)]
async fn runs_that_follow_one_another_move_at_the_end_of_one() {
    // The other one joins when they have just begun.
    for (millis, joins) in [(7950, 58), (19_950, 62)] {
        let crew = Crew::new();
        let sorts = [(EVERY_SECOND, Duration::from_millis(millis)); 4];
        let a = join(&crew, "a", &sorts, Overlap::Skip).await;
        pass(at(joins).since(crew.now())).await;
        let b = join(&crew, "b", &sorts, Overlap::Skip).await;
        let took = shared(&a.0, &[2, 2], HOUR).await;
        println!("runs of {millis} ms, one after the other: {took:?}");
        assert!(took.is_some_and(|took| took < MINUTE), "{took:?}");
        assert_eq!(said(&a.0) + said(&b.0), 0, "such a move costs no write");
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_that_leaves_the_queue_delays_no_run() {
    let crew = Crew::new();
    let sorts = [("*/5 * * * * *", 4 * SECOND); 2];
    let a = join(&crew, "a", &sorts, Overlap::Skip).await;
    pass(at(60).plus(SECOND / 10).since(crew.now())).await;
    let b = join(&crew, "b", &sorts, Overlap::Skip).await;
    let waits = async || {
        let (one, two) = (lock("s00"), lock("s01"));
        let queues = [crew.memory.waiters(one, 10, SECOND).await, crew.memory.waiters(two, 10, SECOND).await];
        queues.into_iter().any(|queue| !queue.unwrap().waiters.is_empty())
    };
    while !waits().await {
        pass(SECOND / 10).await;
    }
    assert!(crew.now() < at(64), "the runs of the minute are on");
    // Long enough for the holder to have found it.
    pass(SECOND / 2).await;
    b.0.elect.schedules().set_cap(0);
    pass(2 * MINUTE).await;
    assert_eq!(shares(&a.0), [2, 0]);
    let late = crew.registry.runs().iter().map(|run| run.at.since(run.instant)).max().unwrap();
    assert!(late < SECOND / 10, "{late:?}");
    let (instants, succeeded) = dealt_with(&crew, "s00").await;
    assert!(instants.len() - succeeded <= 1, "each tick was run: {succeeded} of {}", instants.len());
}

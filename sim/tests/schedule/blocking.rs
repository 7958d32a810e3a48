//! Jobs of schedules that block their threads.

use std::time::Duration;

use tenure::{Lease, schedule::Tick};
use tenure_sim::block_for;

use crate::schedule::crew::{Crew, HOUR, MINUTE, Member, NAME, SECOND, pass};

/// A job that takes so long, and stops when it is told to, if it listens.
fn blocks(
    crew: &Crew,
    holder: &str,
    takes: Duration,
    listens: bool,
) -> impl Fn(Tick, Lease) -> Result<(), String> + Send + Sync + 'static + use<> {
    let (registry, clock, holder) = (crew.registry.clone(), crew.clock.clone(), holder.to_owned());
    move |tick, lease| {
        // It sees that no two are on at once.
        let _running = registry.begin(&tick, &holder, tenure::Clock::wall(&*clock));
        let mut left = takes;
        while !left.is_zero() {
            if listens && lease.is_cancelled() {
                return Err("cancelled".to_owned());
            }
            let step = left.min(SECOND / 10);
            if !block_for(step) {
                return Err("gone".to_owned());
            }
            left -= step;
        }
        Ok(())
    }
}

async fn with(
    crew: &Crew,
    holder: &str,
    expression: &str,
    set: impl FnOnce(tenure::schedule::ScheduleBuilder) -> tenure::schedule::ScheduleBuilder,
    job: impl Fn(Tick, Lease) -> Result<(), String> + Send + Sync + 'static,
) -> Member {
    let mut member = crew.member(holder).await;
    member.schedule = Some(set(member.elect.schedule(NAME, expression)).run_blocking(job).unwrap());
    member
}

#[tokio::test(start_paused = true)]
async fn a_run_that_blocks_is_run_and_told_of_its_timeout() {
    let crew = Crew::new();
    let _one = with(&crew, "a", "0 * * * *", |one| one, blocks(&crew, "a", MINUTE, true)).await;
    pass(HOUR + 2 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 1"]);
    let crew = Crew::new();
    let job = blocks(&crew, "a", MINUTE, true);
    let _one = with(&crew, "a", "0 * * * *", |one| one.timeout(10 * SECOND), job).await;
    pass(HOUR + 2 * MINUTE).await;
    let ledger = crew.ledger().await;
    assert_eq!(crew.told().await, ["01:00:00 timed out 1"]);
    let finish = ledger[0].finish.as_ref().unwrap();
    assert_eq!(finish.error.as_ref().unwrap().as_str(), "cancelled");
    assert!(finish.at.since(crew.registry.runs()[0].at) < 11 * SECOND, "at once");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_after_its_timeout_holds_up_the_next_run() {
    let crew = Crew::new();
    let job = blocks(&crew, "a", 35 * SECOND, false);
    let _one = with(&crew, "a", "*/10 * * * * *", |one| one.timeout(2 * SECOND), job).await;
    pass(2 * MINUTE).await;
    let told = crew.told().await;
    println!("{told:#?}");
    assert_eq!(
        told[..4],
        [
            "00:00:10 succeeded 1",
            "00:00:20-00:00:40 3 previous run still active",
            "00:00:50 succeeded 1",
            "00:01:00-00:01:20 3 previous run still active",
        ],
        "who returns Ok has done its work"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_told_to_stop_with_its_instance_is_begun_again_by_another() {
    let crew = Crew::new();
    let one = with(&crew, "a", "0 * * * *", |one| one, blocks(&crew, "a", 5 * MINUTE, true)).await;
    pass(HOUR + 10 * SECOND).await;
    let _two = with(&crew, "b", "0 * * * *", |one| one, blocks(&crew, "b", MINUTE, true)).await;
    pass(10 * SECOND).await;
    one.elect.close().await;
    assert_eq!(crew.told().await, ["01:00:00 cancelled 1"], "it is written before the lock is given back");
    pass(2 * MINUTE).await;
    assert_eq!(crew.told().await, ["01:00:00 succeeded 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ignores_its_cancellation_keeps_its_schedule_until_it_returns() {
    let crew = Crew::new();
    let one = with(&crew, "a", "0 * * * *", |one| one, blocks(&crew, "a", 5 * MINUTE, false)).await;
    pass(HOUR + 10 * SECOND).await;
    let two = with(&crew, "b", "0 * * * *", |one| one, blocks(&crew, "b", MINUTE, true)).await;
    two.elect.schedules().until(tenure::spread::SpreadStatus::is_settled).await;
    one.elect.schedules().drain();
    // The registry sees that no other member runs it.
    pass(4 * MINUTE).await;
    let first = crew.registry.runs();
    assert_eq!(first.len(), 1);
    pass(4 * MINUTE).await;
    let runs = crew.registry.runs();
    println!("{:?} {runs:?}", crew.told().await);
    assert_eq!(runs.len(), 2, "its end was not on record");
    assert!(runs[1].by == "b" && runs[1].at.since(runs[0].at) >= 5 * MINUTE);
    assert_eq!(crew.told().await, ["01:00:00 succeeded 2"]);
}

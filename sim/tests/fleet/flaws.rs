//! Every flaw is noticed, by the checker that is there for it.

use std::{collections::BTreeMap, time::Duration};

use tenure::sim::Flaw;
use tenure::testing::{Course, Fault, Operation, Rates};
use tenure_sim::{Deviation, Fleet, Instance, JobBehaviour, Paces, Plan, Summary, Violation};

use crate::fleet::world::{play, run, seeds};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Kinds of fleets in which a flaw shows itself.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// In fleets run by chance.
    Chance(Paces),
    /// In a script: chance would find it too seldom.
    Script(fn(u64, Option<Flaw>) -> Result<Summary, Violation>),
}

use Where::{Chance, Script};

/// Checkers for each flaw. On most seeds one of them is the first to notice.
const FLAWS: &[(Flaw, Where, &[&str])] = &[
    (Flaw::EndFromAnswer, Script(beats_are_answered_late), &["early cancel"]),
    (Flaw::StretchedTtl, Chance(Paces::Short), &["early cancel"]),
    (Flaw::OwnTtl, Chance(Paces::Mixed), &["no theft"]),
    (Flaw::CountFromSending, Script(looks_arrive_late), &["no theft"]),
    (Flaw::AnyBeat, Chance(Paces::Short), &["no theft"]),
    (Flaw::UnnamedBeat, Chance(Paces::Short), &["no theft"]),
    (Flaw::SameNonce, Chance(Paces::Short), &["no theft"]),
    (Flaw::CloseUnderJob, Chance(Paces::Short), &["closing"]),
    (Flaw::AnyTicket, Chance(Paces::Short), &["unknown starts nothing"]),
    (Flaw::UnknownIsNo, Chance(Paces::Short), &["released means released"]),
    (Flaw::ReleaseBeforeDrain, Chance(Paces::Short), &["exclusion"]),
    (Flaw::NoEarlyCancel, Chance(Paces::Short), &["early cancel"]),
    (Flaw::NoCheckInPoll, Chance(Paces::Short), &["early cancel"]),
    (Flaw::LateEnd, Chance(Paces::Short), &["early cancel"]),
    (Flaw::LateAnswer, Script(a_take_is_answered_to_a_frozen_machine), &["unknown starts nothing"]),
    (Flaw::ReleaseMakesHolder, Chance(Paces::Short), &["unknown starts nothing"]),
    (Flaw::EndIncluded, Script(a_machine_comes_back_at_its_end), &["early cancel"]),
    (Flaw::ChosenWatchers, Script(all_crash_but_one), &["liveness"]),
    (Flaw::HastyAudit, Chance(Paces::Short), &["exclusion"]),
    (Flaw::RunUnclaimed, Chance(Paces::Short), &["ticks"]),
    (Flaw::ClaimAfterRun, Chance(Paces::Short), &["ticks"]),
    (Flaw::ForgetLedger, Chance(Paces::Short), &["ticks"]),
    (Flaw::SettleTwice, Chance(Paces::Short), &["ticks"]),
];

/// Time of faults: a flaw shows itself within seconds or not at all, and a fleet that hides it costs its whole time.
const CHAOS: Duration = Duration::from_secs(30);

/// Over how many seeds a flaw may hide.
const SEEDS: u64 = 24;

#[test]
fn every_flaw_is_noticed_by_the_checker_that_is_there_for_it() {
    let only = std::env::var("FLEET_FLAW").unwrap_or_default();
    for (flaw, place, checkers) in FLAWS {
        if !format!("{flaw:?}").contains(&only) {
            continue;
        }
        let mut noticed = BTreeMap::<_, Vec<u64>>::new();
        let mut steps = 0;
        let seed = seeds(SEEDS).find(|seed| {
            let ran = match place {
                Chance(paces) => {
                    run(*seed, &Plan { paces: *paces, chaos: CHAOS, flaw: Some(*flaw), ..Plan::default() })
                }
                Script(script) => script(*seed, Some(*flaw)),
            };
            let Err(violation) = ran else { return false };
            steps = violation.entered;
            noticed.entry(violation.invariant).or_default().push(*seed);
            checkers.contains(&violation.invariant)
        });
        let seed =
            seed.unwrap_or_else(|| panic!("{flaw:?} is not noticed by {checkers:?}, but: {noticed:?}"));
        println!("{flaw:?}: {checkers:?} on seed {seed} after {steps} steps; of all seeds {noticed:?}");
    }
}

#[test]
fn the_scripts_that_show_the_flaws_violate_nothing_without_them() {
    for (_, place, _) in FLAWS {
        if let Script(script) = place {
            for seed in seeds(SEEDS / 4) {
                script(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
            }
        }
    }
}

#[test]
fn a_store_that_breaks_the_contract_is_noticed() {
    for (deviation, checker) in
        [(Deviation::TermsKept, "terms rise"), (Deviation::DeposedPrimary, "exclusion")]
    {
        let plan = Plan { deviation: Some(deviation), ..Plan::default() };
        let violation = seeds(4).find_map(|seed| run(seed, &plan).err());
        let violation = violation.unwrap_or_else(|| panic!("{deviation:?} is not noticed"));
        assert_eq!(violation.invariant, checker, "{violation}");
    }
}

// ----- scripts

/// A small fleet to which nothing happens but what the script says.
fn plan(paces: Paces, instances: usize, flaw: Option<Flaw>) -> Plan {
    Plan {
        instances,
        keys: 2,
        tasks: 0,
        schedules: 0,
        paces,
        rates: Rates::default(),
        flaw,
        ..Plan::default()
    }
}

async fn begun(fleet: &Fleet, member: usize) -> Instance {
    let instance = fleet.start(member);
    while instance.elect().health().session.is_none() {
        tokio::time::sleep(MS).await;
    }
    instance
}

const BEATS: &[Operation] = &[Operation::Open, Operation::Beat];

/// Two seconds of each beat's time are the way of its answer; then there is no answer any more.
fn beats_are_answered_late(seed: u64, flaw: Option<Flaw>) -> Result<Summary, Violation> {
    play(seed, plan(Paces::Default, 2, flaw), async |fleet: Fleet| {
        let holder = begun(&fleet, 0).await;
        holder.lock(0, JobBehaviour::Ignores).await.unwrap();
        holder.weather().script().always(BEATS, Course::PLAIN.answered_after(2 * SECOND));
        tokio::time::sleep(60 * SECOND).await;
        holder.weather().script().always(BEATS, Fault::Swallowed);
        tokio::time::sleep(60 * SECOND).await;
    })
}

/// The looks of a waiter are on their way for long before they see anything; the holder beats once
/// more just before, and then never again.
fn looks_arrive_late(seed: u64, flaw: Option<Flaw>) -> Result<Summary, Violation> {
    play(seed, plan(Paces::Short, 2, flaw), async |fleet: Fleet| {
        let holder = begun(&fleet, 0).await;
        let waiter = begun(&fleet, 1).await;
        holder.lock(0, JobBehaviour::Ignores).await.unwrap();
        let way = Course::PLAIN.late_by(SECOND);
        waiter.weather().script().always(&[Operation::Observe], way);
        waiter.stands(0, JobBehaviour::Returns);
        tokio::time::sleep(fleet.dice().between(3 * SECOND, 6 * SECOND)).await;
        holder.freeze();
        tokio::time::sleep(8 * SECOND).await;
    })
}

/// An instance that waits for the answer to a take is frozen until its session is over. Then it gets
/// the answer, and perhaps the keeper has not noticed yet. (A hint would tell of the grant before.)
fn a_take_is_answered_to_a_frozen_machine(seed: u64, flaw: Option<Flaw>) -> Result<Summary, Violation> {
    let rates = Rates { hint_lost: 1000, ..Rates::default() };
    play(seed, Plan { rates, ..plan(Paces::Short, 1, flaw) }, async |fleet: Fleet| {
        let holder = begun(&fleet, 0).await;
        for _ in 0..8 {
            tokio::time::sleep(fleet.dice().up_to(SECOND)).await;
            holder.weather().script().next(Operation::Take, Course::PLAIN.answered_after(SECOND / 2));
            let waits = holder.gate().spawn({
                let holder = holder.clone();
                async move { drop(holder.acquire(0).await) }
            });
            tokio::time::sleep(SECOND / 4).await;
            holder.freeze();
            tokio::time::sleep(4 * SECOND).await;
            holder.thaw(&mut fleet.dice(), 2).await;
            let _ = waits.await;
        }
    })
}

/// A machine comes back at the very moment of its session's end.
fn a_machine_comes_back_at_its_end(seed: u64, flaw: Option<Flaw>) -> Result<Summary, Violation> {
    play(seed, plan(Paces::Short, 1, flaw), async |fleet: Fleet| {
        let holder = begun(&fleet, 0).await;
        for _ in 0..8 {
            holder.lock(0, JobBehaviour::Relentless).await.unwrap();
            tokio::time::sleep(fleet.dice().between(SECOND, 2 * SECOND)).await;
            holder.weather().script().always(BEATS, Fault::Swallowed);
            tokio::time::sleep(SECOND / 2).await;
            let left = holder.elect().health().remaining;
            holder.freeze();
            // One nanosecond of the flawed one's end is no millisecond.
            tokio::time::sleep(Duration::from_millis(u64::try_from(left.as_millis()).unwrap())).await;
            holder.weather().script().heal();
            holder.thaw(&mut fleet.dice(), 0).await;
            tokio::time::sleep(5 * SECOND).await;
        }
    })
}

/// The holders of all keys crash together, and one instance is left to notice.
fn all_crash_but_one(seed: u64, flaw: Option<Flaw>) -> Result<Summary, Violation> {
    play(seed, Plan { keys: 4, ..plan(Paces::Short, 5, flaw) }, async |fleet: Fleet| {
        for key in 0..4 {
            let holder = begun(&fleet, key).await;
            holder.lock(key, JobBehaviour::Ignores).await.unwrap();
        }
        let last = begun(&fleet, 4).await;
        for key in 0..4 {
            last.stands(key, JobBehaviour::Obeys(u32::MAX));
        }
        tokio::time::sleep(SECOND).await;
        for member in 0..4 {
            fleet.crash(member);
        }
        tokio::time::sleep(10 * SECOND).await;
        fleet.settle().await;
        fleet.close_all().await;
    })
}

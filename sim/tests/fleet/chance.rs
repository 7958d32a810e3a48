//! The engine as it is, in fleets run by chance.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use tenure_sim::{Paces, Plan, Sum};

use crate::fleet::world::{fail, run, seeds};

/// Runs these seeds, two at a time.
fn all_pass(seeds: impl Iterator<Item = u64> + Send, plan: impl Fn(u64) -> Plan + Sync) -> Sum {
    #[allow(clippy::disallowed_methods)]
    let begun = Instant::now();
    let seeds = Mutex::new(seeds.fuse());
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        let run_some = || {
            while let Some(seed) = { seeds.lock().unwrap().next() } {
                let plan = plan(seed);
                match run(seed, &plan) {
                    Ok(ran) => *sum.lock().unwrap() += Sum::from(&ran),
                    Err(violation) => fail(&plan, violation),
                }
            }
        };
        scope.spawn(run_some);
        run_some();
    });
    let sum = sum.into_inner().unwrap();
    println!("{sum}, no violation, in {:.1?}", begun.elapsed());
    let Sum { hand_overs, takeovers, losses, .. } = sum;
    assert!(hand_overs > 0 && takeovers > 0 && losses > 0, "they show nothing of it");
    sum
}

/// Every fifth one with schedules, whose ticks take longer to simulate than all the rest.
fn of_hours(seed: u64) -> Plan {
    let plan = Plan::for_hours(2.0, Paces::of_seed(seed));
    Plan { schedules: if seed.is_multiple_of(5) { plan.schedules } else { 0 }, ..plan }
}

/// Long enough that what builds up shows. `FLEET_SEEDS=500` is enough to trust: a thousand hours.
#[test]
fn fleets_violate_nothing_in_two_hours_each() {
    let replays = std::env::var("FLEET_SEED").is_ok();
    let sum = all_pass(seeds(5), of_hours);
    let least = 2.0 * seeds(5).count() as f64;
    assert!(replays || sum.hours() >= least, "{} hours", sum.hours());
    assert!(sum.faults as f64 >= 100.0 * sum.hours(), "{} faults", sum.faults);
}

#[test]
fn busy_fleets_with_all_sorts_of_durations_violate_nothing() {
    all_pass(seeds(2), |_| Plan::default());
}

#[test]
fn busy_fleets_with_short_durations_violate_nothing() {
    all_pass(seeds(2), |_| Plan { paces: Paces::Short, ..Plan::default() });
}

#[test]
fn busy_fleets_with_the_default_durations_violate_nothing() {
    all_pass(seeds(2), |_| Plan { paces: Paces::Default, ..Plan::default() });
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in seeds(1) {
        let plan = Plan { chaos: Duration::from_secs(40), ..Plan::default() };
        let [first, second] =
            [(); 2].map(|()| run(seed, &plan).map(|summary| (summary.hash, summary.entries)));
        assert_eq!(first.unwrap(), second.unwrap());
    }
}

/// Looks for as many violations as there are, of each sort the first in full.
#[test]
#[ignore = "for whoever hunts: FLEET_SEEDS says over how many seeds"]
fn hunt() {
    let mut found = std::collections::BTreeMap::<_, Vec<u64>>::new();
    for (name, paces) in [("mixed", Paces::Mixed), ("short", Paces::Short), ("default", Paces::Default)] {
        for seed in seeds(20) {
            eprintln!("{name} {seed}");
            if let Err(violation) = run(seed, &Plan { paces, ..Plan::default() }) {
                let seeds = found.entry((violation.invariant, name)).or_default();
                if seeds.is_empty() {
                    println!("{violation}\n");
                }
                seeds.push(seed);
            }
        }
    }
    println!("{found:#?}");
}

/// The same over hours, without a shorter story.
#[test]
#[ignore = "for whoever hunts: FLEET_SEEDS and FLEET_FROM say over which seeds"]
fn hunt_for_hours() {
    let mut found = std::collections::BTreeMap::<_, Vec<u64>>::new();
    let mut sum = Sum::default();
    for seed in seeds(500) {
        match run(seed, &of_hours(seed)) {
            Ok(ran) => sum += Sum::from(&ran),
            Err(violation) => {
                let seeds = found.entry(violation.invariant).or_default();
                println!("{}", if seeds.is_empty() { violation.to_string() } else { violation.says });
                seeds.push(seed);
            }
        }
    }
    println!("{sum}; {found:#?}");
}

#[test]
#[ignore = "for whoever hunts: the hash of each seed, to compare over processes"]
fn hashes() {
    for seed in seeds(20) {
        let plan = Plan { chaos: Duration::from_secs(60), ..Plan::default() };
        match run(seed, &plan) {
            Ok(summary) => println!("{seed} {:x} {}", summary.hash, summary.entries),
            Err(violation) => println!("{seed} {}", violation.says),
        }
    }
}

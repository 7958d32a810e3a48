//! The engine as it is, in fleets run by chance.

use std::time::{Duration, Instant};

use tenure::testing::fleet::{Paces, Plan};

use crate::world::{run, seeds};

fn passes(plan: &Plan, many: u64) {
    #[allow(clippy::disallowed_methods)]
    let begun = Instant::now();
    let (mut time, mut grants, mut troubles, mut runs) = (Duration::ZERO, 0, 0, 0);
    for seed in seeds(many) {
        match run(seed, plan) {
            Ok(summary) => {
                time += summary.time;
                (grants, troubles, runs) = (grants + summary.grants, troubles + summary.troubles, runs + 1);
            }
            Err(violation) => panic!("{violation}"),
        }
    }
    let took = begun.elapsed();
    println!(
        "{runs} fleets, {:.1} hours in {took:.1?}, {grants} grants, {troubles} troubles",
        time.as_secs_f64() / 3600.0
    );
}

#[test]
fn fleets_with_all_sorts_of_durations_violate_nothing() {
    passes(&Plan::default(), 60);
}

#[test]
fn fleets_with_short_durations_violate_nothing() {
    passes(&Plan { paces: Paces::Short, ..Plan::default() }, 60);
}

#[test]
fn fleets_with_the_default_durations_violate_nothing() {
    passes(&Plan { paces: Paces::Default, ..Plan::default() }, 40);
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in seeds(5) {
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

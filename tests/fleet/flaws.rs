//! Every flaw is noticed by a checker.

use std::collections::BTreeMap;

use tenure::testing::{
    Flaw,
    fleet::{Deviation, Paces, Plan},
};

use crate::world::{run, seeds};

/// For whoever hunts: what notices which flaw in fleets run by chance.
#[test]
#[ignore = "for whoever hunts: FLEET_SEEDS says over how many seeds"]
fn survey() {
    let only = std::env::var("FLEET_FLAW").unwrap_or_default();
    for flaw in ALL.iter().filter(|flaw| format!("{flaw:?}").contains(&only)) {
        for (name, paces) in [("mixed", Paces::Mixed), ("short", Paces::Short)] {
            let mut found = BTreeMap::<_, Vec<u64>>::new();
            for seed in seeds(10) {
                let plan = Plan { paces, flaw: Some(*flaw), ..Plan::default() };
                if let Err(violation) = run(seed, &plan) {
                    found.entry(violation.invariant).or_default().push(seed);
                }
            }
            println!("{flaw:?} {name}: {found:?}");
        }
    }
    for deviation in [Deviation::TermsKept, Deviation::DeposedPrimary] {
        let mut found = BTreeMap::<_, Vec<u64>>::new();
        for seed in seeds(10) {
            let plan = Plan { deviation: Some(deviation), ..Plan::default() };
            if let Err(violation) = run(seed, &plan) {
                found.entry(violation.invariant).or_default().push(seed);
            }
        }
        println!("{deviation:?}: {found:?}");
    }
}

const ALL: &[Flaw] = &[
    Flaw::EndFromAnswer,
    Flaw::StretchedTtl,
    Flaw::OwnTtl,
    Flaw::CountFromSending,
    Flaw::AnyBeat,
    Flaw::UnnamedBeat,
    Flaw::SameNonce,
    Flaw::CloseUnderJob,
    Flaw::AnyWish,
    Flaw::UnknownIsNo,
    Flaw::ReleaseBeforeDrain,
    Flaw::NoEarlyCancel,
    Flaw::NoCheckInPoll,
    Flaw::LateEnd,
    Flaw::LateAnswer,
    Flaw::ReleaseMakesHolder,
    Flaw::HastyAudit,
];

//! Every wrong design is refuted: the model finds where it breaks, by a shortest trace.
//!
//! Each has a budget of its own, just large enough: then the trace has nothing in it but what matters.
//! With `MODEL_TRACE=all`, or a part of a design's name, the traces are printed.

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::model::{
    action::Action,
    budget::Budget,
    properties::{EXCLUSION, GIVEN_BACK, IN_TIME, KNOWN, NO_THEFT, TERMS_RISE},
    protocol::Protocol,
    trace::told,
    world::World,
    wrong::Wrong,
};

/// A holder that beats, and one that waits for its death.
const WATCHED: Budget = Budget { steady: 1, begun: true, ticks: 6, attempts: 2, ..Budget::CALM };
/// Two that want the lock, whose sessions do not end.
const CONTENDED: Budget = Budget { steady: 2, timeouts: 1, ..Budget::CALM };

/// The design, the property it violates, and where.
const WRONG: &[(Wrong, &str, Budget)] = &[
    (Wrong::StoreClock, EXCLUSION, Budget { failovers: 1, ..WATCHED }),
    (Wrong::EndFromAnswer, NO_THEFT, Budget { ttl: 4, ..WATCHED }),
    (Wrong::StretchedTtl, NO_THEFT, Budget { ticks: 7, attempts: 3, timeouts: 1, ..WATCHED }),
    (Wrong::NoMargin, NO_THEFT, Budget { drift: true, ..WATCHED }),
    (Wrong::SameNonce, NO_THEFT, Budget { ttl: 4, attempts: 3, timeouts: 1, ..WATCHED }),
    (Wrong::UnnamedBeat, NO_THEFT, Budget { attempts: 3, ..WATCHED }),
    (Wrong::AnyBeat, NO_THEFT, Budget { attempts: 3, ..WATCHED }),
    (Wrong::CountFromSending, NO_THEFT, Budget { attempts: 3, ..WATCHED }),
    (Wrong::HastyTombstone, NO_THEFT, Budget { deletions: 1, ..WATCHED }),
    (Wrong::CloseUnderJob, NO_THEFT, Budget { closes: true, ..WATCHED }),
    (Wrong::TermsKept, TERMS_RISE, CONTENDED),
    (Wrong::ReleaseAnyTerm, EXCLUSION, Budget { tickets: 2, doubles: 1, ..CONTENDED }),
    (Wrong::AnyTicket, EXCLUSION, Budget { tickets: 2, gives_up: true, ..CONTENDED }),
    (Wrong::NewerTerm, EXCLUSION, Budget { tickets: 2, gives_up: true, audit: true, ..CONTENDED }),
    (Wrong::SmallerTicket, KNOWN, Budget { tickets: 2, gives_up: true, ..CONTENDED }),
    (Wrong::UnknownIsNo, EXCLUSION, Budget { tickets: 2, gives_up: true, ..CONTENDED }),
    (Wrong::ReleaseBeforeDrain, EXCLUSION, Budget { cancels: 1, ..CONTENDED }),
    (Wrong::NoCheckInPoll, EXCLUSION, WATCHED),
    (Wrong::EndIncluded, NO_THEFT, Budget { drift: true, ..WATCHED }),
    (Wrong::LateAnswer, IN_TIME, Budget { begun: false, ..WATCHED }),
    (Wrong::UndeclaredDeath, EXCLUSION, Budget { attempts: 3, ..WATCHED }),
    (
        Wrong::DeathReadLocally,
        EXCLUSION,
        Budget { attempts: 3, failovers: 1, two_primaries: true, ..WATCHED },
    ),
    (Wrong::PrimaryBeat, NO_THEFT, Budget { ttl: 4, failovers: 1, ..WATCHED }),
    (Wrong::PrimaryTake, EXCLUSION, Budget { failovers: 1, ..CONTENDED }),
    (
        Wrong::ReleaseMakesHolder,
        EXCLUSION,
        Budget { begun: true, tickets: 2, queue: true, failovers: 1, ..CONTENDED },
    ),
    (Wrong::GivenUpIsKept, GIVEN_BACK, Budget { gives_up: true, queue: true, audit: true, ..CONTENDED }),
    (Wrong::HastyAudit, EXCLUSION, Budget { audit: true, ..CONTENDED }),
];

/// More steps than any refutation takes.
const MOST_STEPS: usize = 40;

/// A violation of that property within so many steps.
fn violation(protocol: Protocol, property: &'static str, steps: usize) -> Option<Path<World, Action>> {
    let checker = protocol
        .checker()
        // It counts the states of a trace and leaves the last one out.
        .target_max_depth(steps + 2)
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    checker.discovery(property)
}

/// A shortest one. The checker goes by breadth, but notices what it found at the end of a block of states
/// only, and keeps the last of them: so it is asked again for a shorter one.
fn refutation(protocol: Protocol, property: &'static str) -> Option<Path<World, Action>> {
    let mut shortest = violation(protocol, property, MOST_STEPS)?;
    while let Some(shorter) = violation(protocol, property, steps(&shortest) - 1) {
        shortest = shorter;
    }
    Some(shortest)
}

fn steps(path: &Path<World, Action>) -> usize {
    path.clone().into_actions().len()
}

#[test]
fn every_wrong_design_is_refuted() {
    let printed = std::env::var("MODEL_TRACE").unwrap_or_else(|_| "none".into());
    for (wrong, property, budget) in WRONG {
        let name = format!("{wrong:?}");
        let right = Protocol { budget: *budget, wrong: None };
        let found = refutation(Protocol { wrong: Some(*wrong), ..right }, property);
        let path = found.unwrap_or_else(|| panic!("{name} does not violate \"{property}\""));
        let steps = steps(&path);
        println!("{name}: \"{property}\" is violated in {steps} steps");
        if printed == "all" || name.contains(&printed) {
            println!("{}", told(path));
        }
        // It is the design that is wrong, not the model of its surroundings.
        if tenure_sim::is_whole()
            && let Some(path) = violation(right, property, steps)
        {
            panic!("the right design violates \"{property}\":\n{}", told(path));
        }
    }
}

#[test]
fn there_is_a_refutation_for_each_of_them() {
    // As many as there are names; the compiler complains of one that is used nowhere.
    let mut names: Vec<_> = WRONG.iter().map(|(wrong, ..)| format!("{wrong:?}")).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), Wrong::HastyAudit as usize + 1, "{names:?}");
}

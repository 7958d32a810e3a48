//! Every wrong design is refuted: the model finds where it breaks, by a shortest trace.
//!
//! Each has a budget of its own, just large enough: then the trace has nothing in it but what matters.
//! With `MODEL_TRACE=all`, or a part of a design's name, the traces are printed.

use std::num::NonZeroUsize;

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::{
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
    (Wrong::ReleaseAnyTerm, EXCLUSION, Budget { wishes: 2, doubles: 1, ..CONTENDED }),
    (Wrong::AnyWish, EXCLUSION, Budget { wishes: 2, gives_up: true, ..CONTENDED }),
    (Wrong::NewerTerm, EXCLUSION, Budget { wishes: 2, gives_up: true, audit: true, ..CONTENDED }),
    (Wrong::SmallerWish, KNOWN, Budget { wishes: 2, gives_up: true, ..CONTENDED }),
    (Wrong::UnknownIsNo, EXCLUSION, Budget { wishes: 2, gives_up: true, ..CONTENDED }),
    (Wrong::ReleaseBeforeDrain, EXCLUSION, Budget { cancels: 1, ..CONTENDED }),
    (Wrong::NoCheckInPoll, IN_TIME, WATCHED),
    (Wrong::EndIncluded, IN_TIME, WATCHED),
    (Wrong::LateAnswer, IN_TIME, Budget { begun: false, ..WATCHED }),
    (Wrong::UndeclaredDeath, EXCLUSION, Budget { attempts: 3, ..WATCHED }),
    (Wrong::PrimaryBeat, NO_THEFT, Budget { ttl: 4, failovers: 1, ..WATCHED }),
    (Wrong::PrimaryTake, EXCLUSION, Budget { failovers: 1, ..CONTENDED }),
    (Wrong::ReleaseMakesHolder, EXCLUSION, Budget { begun: true, wishes: 2, line: true, failovers: 1, ..CONTENDED }),
    (Wrong::GivenUpIsKept, GIVEN_BACK, Budget { gives_up: true, line: true, audit: true, ..CONTENDED }),
    (Wrong::HastyAudit, EXCLUSION, Budget { audit: true, ..CONTENDED }),
];

/// A shortest trace to a violation, and of what.
fn refutation(protocol: Protocol, property: &'static str) -> Option<Path<World, Action>> {
    let mut shortest = None;
    let mut longest = NonZeroUsize::new(60);
    // The checker notices a violation only at the end of a block of states, and keeps the last of them.
    while let Some(depth) = longest {
        let checker = protocol
            .checker()
            .target_max_depth(depth.get())
            .finish_when(HasDiscoveries::AnyOf([property].into()))
            .spawn_bfs()
            .join();
        let Some(found) = checker.discovery(property) else { break };
        longest = NonZeroUsize::new(found.clone().into_actions().len());
        println!("      {} {} states", longest.unwrap(), checker.unique_state_count());
        shortest = Some(found);
    }
    shortest
}

#[test]
fn every_wrong_design_is_refuted() {
    let printed = std::env::var("MODEL_TRACE").unwrap_or_else(|_| "-".into());
    let only = std::env::var("ONLY").unwrap_or_default();
    for (wrong, property, budget) in WRONG {
        let name = format!("{wrong:?}");
        if !name.contains(&only) { continue; }
        let right = Protocol { budget: *budget, wrong: None };
        let Some(path) = refutation(Protocol { wrong: Some(*wrong), ..right }, property) else { println!("XXX {wrong:?} is not refuted"); continue; };
        let steps = path.clone().into_actions().len();
        println!("{name}: {property}, {steps} steps");
        if printed == "all" || name.contains(&printed) {
            println!("{}", told(path));
        }
    }
}

//! The right design, in several surroundings, each gone through whole: the small ones, and with `SIM=whole` all.

use std::collections::BTreeSet;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::model::{budget::Budget, protocol::Protocol, trace::told};

/// The fewest states that are to hold, all together: in the small surroundings, and in all.
const STATES: (usize, usize) = (800_000, 10_000_000);

/// A holder that beats, and one that waits for its death.
const WATCHED: Budget = Budget { steady: 1, begun: true, ticks: 6, attempts: 2, timeouts: 1, ..Budget::CALM };
/// Two that want the lock, whose sessions do not end by themselves.
const CONTENDED: Budget = Budget { steady: 2, gives_up: true, audit: true, ..Budget::CALM };

/// Gone through with each run of the tests.
const SMALL: &[(&str, Budget)] = &[
    ("a holder that beats, an observer, and a failover", Budget { failovers: 1, ..WATCHED }),
    ("a record deleted by hand", Budget { ticks: 5, timeouts: 0, deletions: 1, ..WATCHED }),
    (
        "sessions opened again",
        Budget { sessions: 3, closes: true, ticks: 3, attempts: 1, timeouts: 0, ..WATCHED },
    ),
    ("a queue", Budget { steady: 2, begun: true, queue: true, ..Budget::CALM }),
    (
        "requests that arrive twice",
        Budget { tickets: 2, gives_up: false, audit: false, doubles: 1, ..CONTENDED },
    ),
    ("jobs that are asked to stop", Budget { cancels: 1, expirations: 1, gives_up: false, ..CONTENDED }),
    (
        "tickets given up in a queue, and a failover",
        Budget { failovers: 1, queue: true, audit: false, begun: true, ..CONTENDED },
    ),
];
/// Gone through with `SIM=whole` only: a minute and more on two cores.
const LARGE: &[(&str, Budget)] = &[
    (
        "sessions opened again, and more time",
        Budget { sessions: 3, closes: true, ticks: 4, attempts: 1, timeouts: 0, ..WATCHED },
    ),
    ("a holder that beats twice, and an observer", Budget { attempts: 3, ..WATCHED }),
    ("a clock that runs fast", Budget { drift: true, ..WATCHED }),
    (
        "two primaries, and a holder that beats twice",
        Budget { attempts: 3, failovers: 1, two_primaries: true, timeouts: 0, ..WATCHED },
    ),
    ("tickets given up and made again", Budget { tickets: 2, ..CONTENDED }),
    ("a clock that runs fast, and a failover", Budget { drift: true, failovers: 1, ..WATCHED }),
    ("a clock that runs fast, and two beats", Budget { drift: true, attempts: 3, ..WATCHED }),
    (
        "two primaries, and a clock that runs fast",
        Budget { drift: true, failovers: 1, two_primaries: true, ..WATCHED },
    ),
    (
        "a holder that beats twice, a failover, a clock that runs fast",
        Budget { drift: true, attempts: 3, failovers: 1, ..WATCHED },
    ),
];

#[test]
fn the_right_design_holds() {
    let whole = tenure_sim::is_whole();
    let (surroundings, least) =
        if whole { ([SMALL, LARGE].concat(), STATES.1) } else { (SMALL.to_vec(), STATES.0) };
    let mut total = 0;
    let mut reached = BTreeSet::new();
    for (name, budget) in &surroundings {
        let protocol = Protocol { budget: *budget, wrong: None };
        let checker =
            protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let states = checker.unique_state_count();
        println!("{name}: {states} states, up to {} steps", checker.max_depth() - 1);
        total += states;
        for property in protocol.properties() {
            let found = checker.discovery(property.name);
            match (property.expectation, found) {
                (Expectation::Sometimes, Some(_)) => {
                    reached.insert(property.name);
                }
                (Expectation::Always | Expectation::Eventually, Some(path)) => {
                    panic!("{name}: \"{}\" is violated:\n{}", property.name, told(path))
                }
                (_, None) => {}
            }
        }
    }
    println!("{total} states in all");
    assert!(total >= least, "only {total} states");
    // A model in which nothing happens holds as well.
    let properties = Protocol { budget: Budget::CALM, wrong: None }.properties();
    for property in properties.iter().filter(|it| it.expectation == Expectation::Sometimes) {
        assert!(reached.contains(property.name), "it never happens that {}", property.name);
    }
}

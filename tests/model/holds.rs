//! The right design, in several surroundings.

use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::{budget::Budget, protocol::Protocol, trace::told};

pub(crate) const CONFIGS: &[(&str, Budget)] = &[
    ("t1", Budget { ticks: 7, attempts: 3, failovers: 1, drift: true, ..Budget::CALM }),
    ("s1", Budget { ticks: 8, attempts: 3, failovers: 1, drift: true, steady: 1, begun: true, ..Budget::CALM }),
    ("l1", Budget { wishes: 2, gives_up: true, line: true, audit: true, failovers: 1, ..Budget::CALM }),
];

#[test]
#[ignore]
fn probe() {
    let only = std::env::var("M").unwrap_or_default();
    for (name, budget) in CONFIGS.iter().filter(|(n, _)| n.contains(&only)) {
        let t = Instant::now();
        let mut b = *budget;
        let budget = &mut b;
        let v = |k: &str, d: u8| std::env::var(k).map_or(d, |v| v.parse().unwrap());
        let f = |k: &str, d: bool| std::env::var(k).map_or(d, |v| v == "1");
        budget.instances = v("inst", budget.instances); budget.sessions = v("sess", budget.sessions); budget.begun = f("begun", budget.begun); budget.steady = v("steady", budget.steady); budget.ticks = v("ticks", budget.ticks);
        budget.drift = f("drift", budget.drift); budget.attempts = v("att", budget.attempts); budget.wishes = v("wishes", budget.wishes);
        budget.gives_up = f("gives", budget.gives_up); budget.line = f("line", budget.line); budget.audit = f("audit", budget.audit); budget.closes = f("closes", budget.closes);
        budget.failovers = v("fo", budget.failovers); budget.doubles = v("dbl", budget.doubles); budget.deletions = v("del", budget.deletions); budget.abandons = v("aband", budget.abandons);
        budget.timeouts = v("to", budget.timeouts); budget.cancels = v("cancel", budget.cancels); budget.doubts = v("doubts", budget.doubts); budget.room = v("room", budget.room as u8) as usize;
        let checker = Protocol { budget: *budget, wrong: None }
            .checker()
            .threads(2)
            .finish_when(HasDiscoveries::AnyFailures)
            .target_state_count(std::env::var("CAP").map_or(30_000_000, |v| v.parse().unwrap()))
            .spawn_bfs()
            .join();
        println!("{name}: {} unique {} total depth {} {:?}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), t.elapsed());
        let p = checker.model().properties();
        let d = checker.discoveries();
        for p in p { 
            match (p.expectation, d.get(p.name)) {
                (Expectation::Always, Some(path)) => println!("VIOLATED {}\n{}", p.name, told(path.clone())),
                (Expectation::Sometimes, Some(path)) => println!("  reached {} ({})", p.name, path.clone().into_actions().len()),
                (Expectation::Sometimes, None) => println!("  NOT {}", p.name),
                _ => {}
            }
        }
    }
}

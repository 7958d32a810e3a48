//! A shorter story for a violation: the same seed with less going on.

use std::time::Duration;

use super::{Plan, Summary, Trouble, Violation, run};

/// Number of runs of a fleet, at most.
const TRIES: usize = 60;

/// Runs a fleet by chance, on a runtime of its own whose time is paused.
///
/// # Errors
/// The first [`Violation`].
///
/// # Panics
/// Inside of another runtime.
pub fn simulate(seed: u64, plan: &Plan) -> Result<Summary, Violation> {
    in_paused_time(run(seed, plan.clone()))
}

/// Runs a future on a runtime of its own, whose time stands still until nothing is left to do.
///
/// # Panics
/// Inside of another runtime.
pub fn in_paused_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O needs nothing of the system").block_on(run)
}

/// The shortest history that violates the same rule and could be found, and the plan that has it.
///
/// # Panics
/// Inside of another runtime.
#[must_use]
pub fn shorten(plan: &Plan, violation: Violation) -> (Plan, Violation) {
    let (mut plan, mut shortest) = (plan.clone(), violation);
    let mut tries = TRIES;
    loop {
        let simpler = simpler(&plan, &shortest);
        let found = simpler.into_iter().find_map(|simpler| {
            tries = tries.checked_sub(1)?;
            let violation = simulate(shortest.seed, &simpler).err()?;
            let better = violation.invariant == shortest.invariant && violation.entered < shortest.entered;
            better.then_some((simpler, violation))
        });
        match found {
            Some((simpler, violation)) => (plan, shortest) = (simpler, violation),
            None => return (plan, shortest),
        }
    }
}

/// Plans with a little less in them, the largest steps first.
fn simpler(plan: &Plan, violation: &Violation) -> Vec<Plan> {
    let mut simpler = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        simpler.push(changed);
    };
    if plan.rounds > 1 {
        with(&|plan| plan.rounds = 1);
    }
    for share in [4, 2] {
        if violation.at > Duration::from_secs(20) {
            with(&|plan| plan.chaos = plan.chaos.min(violation.at / share));
        }
    }
    if plan.programs > 1 {
        with(&|plan| plan.programs = 1);
    }
    for fewer in [plan.keys / 2, plan.keys - 1] {
        if fewer > 0 && fewer < plan.keys {
            with(&|plan| plan.keys = fewer);
        }
    }
    if plan.tasks > 0 {
        with(&|plan| plan.tasks = 0);
    }
    if plan.schedules > 0 {
        with(&|plan| plan.schedules -= 1);
    }
    if plan.instances > 2 {
        with(&|plan| plan.instances -= 1);
    }
    for trouble in Trouble::ALL {
        if plan.has(trouble) {
            with(&|plan| {
                plan.troubles.remove(&trouble);
            });
        }
    }
    simpler
}

//! Runs fleets, each on a runtime of its own.

use std::future::Future;

use tenure_sim::{
    Fleet, Plan, Summary, Violation, in_paused_time, play as play_by_script, shorten, simulate,
};

/// Runs a fleet by chance. A violation of a seed that is replayed leaves its whole story in a file.
pub(crate) fn run(seed: u64, plan: &Plan) -> Result<Summary, Violation> {
    let ran = simulate(seed, plan);
    if let (Err(violation), Ok(_)) = (&ran, std::env::var("FLEET_SEED")) {
        let path = std::env::temp_dir().join(format!("fleet-{seed}.log"));
        let lines: Vec<_> = violation.entries.iter().map(|entry| format!("{entry}\n")).collect();
        std::fs::write(&path, lines.concat()).unwrap();
        println!("the whole story is in {}", path.display());
    }
    ran
}

/// The violation of a run that should have had none, by the shortest story of it.
pub(crate) fn fail(plan: &Plan, violation: Violation) -> ! {
    let seed = violation.seed;
    let (shorter, violation) = shorten(plan, violation);
    panic!("{violation}\nwith {shorter:?}\nto replay: FLEET_SEED={seed} and the same test");
}

pub(crate) fn play<F: Future<Output = ()>>(
    seed: u64,
    plan: Plan,
    script: impl FnOnce(Fleet) -> F,
) -> Result<Summary, Violation> {
    in_paused_time(play_by_script(seed, plan, script))
}

/// The seeds of a run: the one that is to be replayed, or so many from the first one on, and with `SIM=whole` four times
/// as many.
pub(crate) fn seeds(many: u64) -> impl Iterator<Item = u64> + Send {
    let replayed = std::env::var("FLEET_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let first = std::env::var("FLEET_FROM").map_or(1, |seed| seed.parse::<u64>().unwrap());
    let from = replayed.unwrap_or(first);
    let usual = if tenure_sim::is_whole() { 4 * many } else { many };
    let many = std::env::var("FLEET_SEEDS").ok().map_or(usual, |many| many.parse().unwrap());
    from..from + if replayed.is_some() { 1 } else { many }
}

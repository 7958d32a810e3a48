//! Simulates whole fleets of the real engine, with all that can go wrong, and judges what happened.
//!
//! ```sh
//! cargo run -p tenure-sim --profile test --example simulate -- --seeds 1..100 --hours 2 --faults all
//! ```
//!
//! Time is simulated, and one seed decides everything: two runs of it print the same hash. Seeds come in
//! three classes, by the durations their instances run by. The run fails if an invariant was violated, or
//! if a class of seeds was too quiet to have shown anything.

mod arguments;
mod report;

use std::{
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use arguments::Arguments;
use report::Report;
use tenure_sim::{Violation, shorten, simulate};

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{}", arguments::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(refused) => {
            eprintln!("{refused}\n\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    let mut report = Report::default();
    let violated = run_all(&arguments, &mut report);
    for violation in violated {
        report.violations += 1;
        tell(&arguments, violation);
    }
    println!("{report}");
    if let Some(log) = &arguments.log
        && let Err(refused) = report.append_to(log, &arguments)
    {
        eprintln!("could not write to {}: {refused}", log.display());
        return ExitCode::FAILURE;
    }
    let quiet = report.quiet_classes();
    for (class, what) in &quiet {
        eprintln!("no {what} among the seeds of class {class}: they show nothing of it");
    }
    if report.violations == 0 && quiet.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all seeds, on all threads, until one violates something.
fn run_all(arguments: &Arguments, report: &mut Report) -> Vec<Violation> {
    let next = AtomicU64::new(arguments.seeds.start);
    let stop = AtomicBool::new(false);
    let found = Mutex::new((report, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.seeds.end {
                        return;
                    }
                    let plan = arguments.plan(seed);
                    let ran = simulate(seed, &plan);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    match ran {
                        Ok(summary) => found.0.add(seed, plan.paces, &summary),
                        Err(violation) => {
                            stop.store(true, Ordering::Relaxed);
                            found.1.push(violation);
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner).1
}

/// Tells of a violation by the shortest story of it, and how to see it again.
fn tell(arguments: &Arguments, violation: Violation) {
    let seed = violation.seed;
    println!("seed {seed} violates `{}`, looking for a shorter story ...", violation.invariant);
    let (plan, shortest) = shorten(&arguments.plan(seed), violation);
    println!("{shortest}");
    println!("to replay: cargo run -p tenure-sim --profile test --example simulate -- {}", {
        arguments::replay(seed, &plan)
    });
}

//! Random scripts against a reference model that is written in another way than any store.
//!
//! A script is ten thousand steps over few sessions and keys, with tickets used again and out of
//! order, beats that come late, declarations right and wrong, operations that come twice. Every
//! answer, and what is read after every step, is held against the [model](model::Model).

#![allow(dead_code, reason = "each test binary uses a part of it")]

mod concrete;
pub(crate) mod model;
pub(crate) mod mutants;
mod op;
mod runner;
mod step;
mod witness;

use std::{collections::BTreeMap, fmt, sync::Arc};

use tenure::{store::Store, testing::TestClock};

pub(crate) use step::{Step, script};

/// Steps spent on finding a shorter script when one fails: seconds in memory, minutes on a server.
const SHRINKING: usize = 60_000;

/// Error of a script, and its step.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) at: usize,
    pub(crate) what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.at, self.what)
    }
}

/// Counts of what a script met: answers by name, ends of grants, what was purged.
pub(crate) type Met = BTreeMap<String, u64>;

/// Runs a script in a namespace of its own.
pub(crate) async fn run(store: Arc<dyn Store>, script: &[Step]) -> Result<Met, Failure> {
    run_with(store, None, script).await
}

/// The same, on a store whose clock the script may turn.
pub(crate) async fn run_with(
    store: Arc<dyn Store>,
    clock: Option<Arc<TestClock>>,
    script: &[Step],
) -> Result<Met, Failure> {
    let mut runner = runner::Runner::new(store, clock);
    for (at, step) in script.iter().enumerate() {
        runner.step(step).await.map_err(|what| Failure { at, what: format!("{step:?}: {what}") })?;
    }
    Ok(runner.met())
}

/// A store to run a script on, and its clock if it can be turned.
pub(crate) type Subject = (Arc<dyn Store>, Option<Arc<TestClock>>);

/// Runs the script of a seed. If it fails, prints the seed and as short a script as is found soon.
///
/// # Panics
/// If the store does not answer as the model says.
pub(crate) async fn check(seed: u64, steps: usize, subject: impl AsyncFn() -> Subject) {
    let script = script(seed, steps);
    let (store, clock) = subject().await;
    if let Err(failure) = run_with(store, clock, &script).await {
        let (short, last) = shrink(&script, &failure, subject).await;
        let short: Vec<_> = short.iter().map(|step| format!("    {step:?},")).collect();
        let (was, many, short) = (failure.at + 1, short.len(), short.join("\n"));
        panic!("seed {seed}: {failure}\nshrunk from {was} steps to {many}:\n{short}\nwhich fails at {last}");
    }
}

/// Leaves out whatever can be left out: half of the script, a quarter, down to single steps.
async fn shrink(
    script: &[Step],
    failure: &Failure,
    subject: impl AsyncFn() -> Subject,
) -> (Vec<Step>, String) {
    let mut short = script[..=failure.at].to_vec();
    let mut last = failure.to_string();
    let mut spent = 0;
    let mut chunk = short.len().div_ceil(2);
    loop {
        let mut from = 0;
        let mut found = false;
        while from < short.len() && spent < SHRINKING {
            let to = (from + chunk).min(short.len());
            let without = [&short[..from], &short[to..]].concat();
            spent += without.len();
            let (store, clock) = subject().await;
            match run_with(store, clock, &without).await {
                Err(failure) => {
                    short = without[..=failure.at].to_vec();
                    last = failure.to_string();
                    found = true;
                }
                Ok(_) => from = to,
            }
        }
        if spent >= SHRINKING || (chunk == 1 && !found) {
            return (short, last);
        }
        chunk = chunk.div_ceil(2);
    }
}

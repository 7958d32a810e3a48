//! Cost of the SQLite store, beside bare transactions on a file of their own in the same folder, and the same run.
//!
//! `cargo bench --all-features --bench sqlite`; a word picks the stages that have it in their name. The floor of a
//! pair is two bare transactions that begin as writers (`BEGIN IMMEDIATE`), each of which changes one row and is
//! synced as the store's are (WAL, `synchronous=FULL`); that of a beat is one, which is not (`NORMAL`).
//!
//! A beat takes less time than a processor needs to wake up, so it matters where the kernel puts a thread that is woken:
//! on the caller's processor, or on an idle one. `taskset -c 1` leaves no choice, and compares like with like.
//!
//! The lines are those of the `store` benches. What is compared takes turns; a value is the median over the rounds, and
//! a ratio the median of the rounds' ratios.

#[path = "../common/mod.rs"]
mod common;

mod beat;
mod floor;
mod idle;
mod pairs;
mod place;
mod relay;

use self::common::{Wanted, figures, instances, many, measure};

const STAGES: [&str; 5] = ["one_task", "64_tasks", "beat", "handover", "idle"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if place::is_started_for(relay::RUNNER) {
        return relay::run().await;
    }
    if place::is_started_for(idle::BEATS) {
        return idle::beat().await;
    }
    if place::is_started_for(idle::WAITS) {
        return idle::wait().await;
    }
    let wanted = Wanted::of_arguments();
    for stage in STAGES {
        if wanted.has(stage) {
            // On a thread of the runtime, as programs have it: from another one each call would wake two more.
            tokio::spawn(run(stage)).await.expect("it does not panic");
        }
    }
}

async fn run(stage: &'static str) {
    match stage {
        "one_task" => pairs::one_task().await,
        "64_tasks" => pairs::by_64().await,
        "beat" => beat::with_10_000_keys().await,
        "handover" => relay::between_two_processes().await,
        "idle" => idle::processes().await,
        _ => unreachable!("every stage has its line here"),
    }
}

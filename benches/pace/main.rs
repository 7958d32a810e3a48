//! Cost of a fleet to its servers, each figure beside what plain clients cost them in the same run.
//!
//! `cargo bench --all-features --bench pace` starts its own servers, on three nodes and on one; a word picks the
//! stages that have it in their name, as `foreign_3`. An instance is an `Elect` over a store of its own, with
//! clients of its own, as another process would have it; all of them live in this process.
//!
//! The lines are those of the `store` benches. What is compared takes turns, and what has its turn is alone on the
//! servers: the others are closed. A value is the median over the rounds, and a ratio the median of the rounds'
//! ratios. The machine may be shared, so ratios are of processor time: of every mongod of the deployment, from
//! `/proc/<pid>/stat`. That of this process is shown beside it. Each stage ends with a line on the machine.

#[path = "../common/mod.rs"]
mod common;

mod bells;
mod foreign;
mod handover;
mod holder;
mod idle;
mod machine;
mod pairs;
mod rest;
mod stepdown;
mod table;
mod takeover;
mod turns;
mod waiting;

use self::common::{
    Wanted, events, figures, instances, many, measure, relay, support::mongod::Shape, world, world::World,
};

// What hurts the servers comes last.
const ON_3: [&str; 9] = [
    "idle_3",
    "handover_3",
    "turns_3",
    "bells_3",
    "foreign_3",
    "rest_3",
    "pairs64_3",
    "takeover_3",
    "stepdown_3",
];
const ON_1: [&str; 5] = ["handover_1", "turns_1", "bells_1", "foreign_1", "pairs64_1"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if holder::is_one().await {
        return;
    }
    let wanted = Wanted::of_arguments();
    for (shape, stages) in [(Shape::ReplicaSet, &ON_3[..]), (Shape::Single, &ON_1[..])] {
        let stages: Vec<&str> = stages.iter().copied().filter(|stage| wanted.has(stage)).collect();
        if stages.is_empty() {
            continue;
        }
        let world = World::start(shape).await;
        for stage in stages {
            let machine = measure::Machine::look();
            run(stage, &world).await;
            machine::print(&machine, stage);
        }
    }
}

async fn run(stage: &str, world: &World) {
    match stage {
        "idle_3" => idle::listeners(world).await,
        "handover_3" | "handover_1" => handover::back_and_forth(world).await,
        "turns_3" | "turns_1" => turns::of_32(world).await,
        "bells_3" | "bells_1" => bells::rung(world).await,
        "foreign_3" | "foreign_1" => foreign::writes(world).await,
        "rest_3" => rest::waiters(world).await,
        "pairs64_3" | "pairs64_1" => pairs::of_64(world).await,
        "takeover_3" => takeover::after_a_kill(world).await,
        "stepdown_3" => stepdown::and_on(world).await,
        _ => unreachable!("every stage has its line here"),
    }
}

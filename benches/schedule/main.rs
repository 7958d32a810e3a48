//! Figures of schedules on a replica set of three.
//!
//! `cargo bench --all-features --bench schedule` starts its own servers; a word picks the parts that have
//! it in their name. The lines are those of the `store` benches. All instances are in this process, each with
//! a client of its own; the servers are on this machine, so that their clock is its wall clock.

#[path = "../store/figures.rs"]
mod figures;
#[path = "../../tests/support/killable.rs"]
mod killable;
#[path = "../store/measure.rs"]
#[allow(dead_code, reason = "the store's benches use the rest")]
mod measure;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../store/world.rs"]
#[allow(dead_code, reason = "the store's benches use the rest")]
mod world;

mod crew;
mod idle;
mod lateness;
mod rate;
mod takeover;

use self::{support::mongod::Shape, world::World};

const PARTS: [&str; 4] = ["lateness", "rate", "idle", "takeover"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // cargo passes `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|word| part.contains(word.as_str()));
    println!("measured load_at_start {} of_1_minute", measure::load());
    if PARTS.iter().any(|part| wants(part)) {
        let world = World::start(Shape::ReplicaSet).await;
        if wants("lateness") {
            lateness::one(&world).await;
            lateness::a_hundred(&world).await;
        }
        if wants("rate") {
            rate::one_instance(&world).await;
        }
        if wants("idle") {
            idle::with_and_without(&world, 2_000).await;
            idle::with_and_without(&world, 10_000).await;
        }
        if wants("takeover") {
            takeover::after_a_kill(&world).await;
        }
    }
    println!("measured load_at_end {} of_1_minute", measure::load());
}

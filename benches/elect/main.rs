//! Figures of the engine on MongoDB, each a ratio to what bare commands cost in the same run.
//!
//! `cargo bench --all-features --bench elect` starts its own servers; a word picks the parts that have
//! it in their name. The lines are those of the `store` benches, and taken in the same way.

#[path = "../store/figures.rs"]
mod figures;
#[path = "../store/many.rs"]
mod many;
#[path = "../store/measure.rs"]
mod measure;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../store/world.rs"]
#[allow(dead_code, reason = "the store's benches use the rest")]
mod world;

mod contenders;
mod events;
mod fleet;
mod handover;
mod held;
mod outage;
mod pairs;
mod relay;

use std::sync::Arc;

use self::{support::mongod::Shape, world::World};

const PARTS: [&str; 5] = ["pairs", "handover", "contenders", "held", "outage"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|word| part.contains(word.as_str()));
    println!("measured load_at_start {} of_1_minute", measure::load());
    if PARTS.iter().any(|part| wants(part)) {
        let world = Arc::new(World::start(Shape::ReplicaSet).await);
        if wants("pairs") {
            pairs::one_task(&world).await;
            pairs::many_tasks(&world).await;
        }
        if wants("handover") {
            handover::one_waiter(&world).await;
            handover::many_waiters(&world).await;
        }
        if wants("contenders") {
            contenders::on_one_key(&world).await;
        }
        if wants("held") {
            held::keys(&world).await;
        }
        if wants("outage") {
            outage::come_back(&world).await;
        }
    }
    println!("measured load_at_end {} of_1_minute", measure::load());
}

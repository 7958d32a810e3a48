//! Figures of the engine on MongoDB, each a ratio to what bare commands cost in the same run.
//!
//! `cargo bench --all-features --bench elect` starts its own servers; a word picks the parts that have
//! it in their name. The lines are those of the `store` benches, and taken in the same way.

#[path = "../common/mod.rs"]
mod common;

mod contenders;
mod handover;
mod held;
mod outage;
mod pairs;

use std::sync::Arc;

use self::common::{
    Wanted, events, figures, instances, many, measure, relay, support::mongod::Shape, world, world::World,
};

const PARTS: [&str; 5] = ["pairs", "handover", "contenders", "held", "outage"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let wanted = Wanted::of_arguments();
    println!("measured load_at_start {} of_1_minute", measure::load());
    if wanted.has_any(&PARTS) {
        let world = Arc::new(World::start(Shape::ReplicaSet).await);
        if wanted.has("pairs") {
            pairs::one_task(&world).await;
            pairs::many_tasks(&world).await;
        }
        if wanted.has("handover") {
            handover::one_waiter(&world).await;
            handover::many_waiters(&world).await;
        }
        if wanted.has("contenders") {
            contenders::on_one_key(&world).await;
        }
        if wanted.has("held") {
            held::keys(&world).await;
        }
        if wanted.has("outage") {
            outage::come_back(&world).await;
        }
    }
    println!("measured load_at_end {} of_1_minute", measure::load());
}

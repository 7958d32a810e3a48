//! Figures of schedules on a replica set of three.
//!
//! `cargo bench --all-features --bench schedule` starts its own servers; a word picks the parts that have
//! it in their name. The lines are those of the `store` benches. All instances are in this process, each with
//! a client of its own; the servers are on this machine, so that their clock is its wall clock.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../tests/support/killable.rs"]
mod killable;

mod crew;
mod idle;
mod lateness;
mod rate;
mod takeover;

use self::common::{Wanted, figures, measure, support::mongod::Shape, world, world::World};

const PARTS: [&str; 4] = ["lateness", "rate", "idle", "takeover"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let wanted = Wanted::of_arguments();
    println!("measured load_at_start {} of_1_minute", measure::load());
    if wanted.has_any(&PARTS) {
        let world = World::start(Shape::ReplicaSet).await;
        if wanted.has("lateness") {
            lateness::one(&world).await;
            lateness::a_hundred(&world).await;
        }
        if wanted.has("rate") {
            rate::one_instance(&world).await;
        }
        if wanted.has("idle") {
            idle::with_and_without(&world, 2_000).await;
            idle::with_and_without(&world, 10_000).await;
        }
        if wanted.has("takeover") {
            takeover::after_a_kill(&world).await;
        }
    }
    println!("measured load_at_end {} of_1_minute", measure::load());
}

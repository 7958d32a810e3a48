//! Figures of the MongoDB store, each a ratio to what bare commands cost in the same run.
//!
//! `cargo bench --all-features` starts its own servers and prints two kinds of lines:
//!
//! ```text
//! measured <name> <value> <unit>
//! figure <name> <value> goal <goal> ok|short
//! ```
//!
//! What is compared takes turns, round by round, in an order that rotates; a value is the median
//! over the rounds, and a ratio the median of the rounds' ratios. Server CPU is the sum over all
//! rounds, from `/proc/<pid>/stat` of every mongod of the deployment.
//!
//! `floor2` is two bare majority `findAndModify` in a row, as a plain client with the driver's
//! defaults (and a pool of 64) does them; `floor2n` the same without the driver's retries.

#[path = "../common/mod.rs"]
mod common;

mod audit;
mod group;
mod losing;
mod pairs;
mod takes;

use std::sync::Arc;

use self::common::{Wanted, figures, many, measure, support::mongod::Shape, world, world::World};

const PARTS_ON_3: [&str; 3] = ["pairs_3", "losing_3", "beats_3"];
const PARTS_ON_1: [&str; 4] = ["pairs_1", "takes_1", "beats_1", "audit_1"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let wanted = Wanted::of_arguments();
    println!("measured load_at_start {} of_1_minute", measure::load());
    if wanted.has_any(&PARTS_ON_3) {
        let world = Arc::new(World::start(Shape::ReplicaSet).await);
        if wanted.has("pairs_3") {
            pairs::one_client(&world).await;
            pairs::many_tasks(&world).await;
        }
        if wanted.has("losing_3") {
            losing::tries(&world).await;
        }
        if wanted.has("beats_3") {
            audit::beats(&world, &[1, 10_000]).await;
        }
    }
    if wanted.has_any(&PARTS_ON_1) {
        let world = Arc::new(World::start(Shape::Single).await);
        if wanted.has("pairs_1") {
            pairs::one_client(&world).await;
            pairs::many_tasks(&world).await;
        }
        if wanted.has("takes_1") {
            takes::rates(&world).await;
        }
        if wanted.has("beats_1") {
            audit::beats(&world, &[1, 100, 10_000, 100_000]).await;
        }
        if wanted.has("audit_1") {
            audit::pages(&world).await;
        }
    }
    println!("measured load_at_end {} of_1_minute", measure::load());
}

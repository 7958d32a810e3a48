//! Figures of spreads: processes on a replica set of three, and how it goes on with size.
//!
//! `cargo bench --all-features --bench spread` starts its own servers; a word picks the parts that have
//! it in their name. The lines are those of the `store` benches. A member is this very program, started
//! once more: so it can be killed.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../tests/support/killable.rs"]
mod killable;

mod engines;
mod fleet;
mod joins;
mod kills;
mod member;
mod restarts;
mod scale;
mod steady;
mod view;

use self::{
    common::{
        Wanted, figures, measure,
        support::mongod::{Deployment, Options, Shape, Timing},
    },
    fleet::World,
};

/// Parts that need servers.
const PARTS: [&str; 4] = ["joins", "kills", "restarts", "steady"];

fn main() {
    if member::is_one() {
        return;
    }
    // What ends with its parent ends with the thread that started it: that is this one, which awaits all.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads can be started").block_on(run());
}

async fn run() {
    let wanted = Wanted::of_arguments();
    println!("measured load_at_start {} of_1_minute", measure::load());
    if wanted.has("plan") {
        scale::plan_alone();
    }
    if wanted.has_any(&PARTS) {
        let options = Options { test_commands: false, timing: Timing::Default, ..Options::default() };
        let world = World::new(Deployment::start(Shape::ReplicaSet, options).await);
        if wanted.has("joins") {
            joins::one_of_eleven(&world).await;
        }
        if wanted.has("kills") {
            kills::one_of_eleven(&world).await;
        }
        if wanted.has("restarts") {
            restarts::with_grace(&world).await;
            restarts::without(&world).await;
        }
        if wanted.has("steady") {
            steady::a_thousand_tasks(&world).await;
        }
    }
    if wanted.has("scale") {
        scale::events();
    }
    if wanted.has("engines_near") {
        engines::near();
    }
    if wanted.has("engines_far") {
        engines::far();
    }
    println!("measured load_at_end {} of_1_minute", measure::load());
}

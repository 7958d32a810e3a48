//! Figures of spreads: processes on a replica set of three, and how it goes on with size.
//!
//! `cargo bench --all-features --bench spread` starts its own servers; a word picks the parts that have
//! it in their name. The lines are those of the `store` benches. A member is this very program, started
//! once more: so it can be killed.

#[path = "../store/figures.rs"]
mod figures;
#[path = "../../tests/support/killable.rs"]
mod killable;
#[path = "../store/measure.rs"]
#[allow(dead_code, reason = "the store's benches use the rest")]
mod measure;
#[path = "../../tests/support/mod.rs"]
mod support;

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
    fleet::World,
    support::mongod::{Deployment, Options, Shape, Timing},
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
    // cargo passes `--bench`; a word picks the parts that have it in their name.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|word| part.contains(word.as_str()));
    println!("measured load_at_start {} of_1_minute", measure::load());
    if wants("plan") {
        scale::plan_alone();
    }
    if PARTS.iter().any(|part| wants(part)) {
        let options = Options { test_commands: false, timing: Timing::Default, ..Options::default() };
        let world = World::new(Deployment::start(Shape::ReplicaSet, options).await);
        if wants("joins") {
            joins::one_of_eleven(&world).await;
        }
        if wants("kills") {
            kills::one_of_eleven(&world).await;
        }
        if wants("restarts") {
            restarts::with_grace(&world).await;
            restarts::without(&world).await;
        }
        if wants("steady") {
            steady::a_thousand_tasks(&world).await;
        }
    }
    if wants("scale") {
        scale::events();
    }
    if wants("engines_near") {
        engines::near();
    }
    if wants("engines_far") {
        engines::far();
    }
    println!("measured load_at_end {} of_1_minute", measure::load());
}

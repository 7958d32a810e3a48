//! A fleet at rest.

use std::{collections::BTreeMap, time::Duration};

use mongodb::bson::doc;

use crate::{
    common::support::mongod::Node,
    figures::{figure, measured},
    fleet::{Fleet, World},
    measure::cpu,
    member::{config, now},
};

const MEMBERS: usize = 10;
const TASKS: usize = 1000;
const WINDOW: Duration = Duration::from_secs(30);
/// Commands of the server that write; it does none of these for itself in so short a time.
const WRITES: [&str; 4] = ["findAndModify", "update", "insert", "delete"];
const READS: [&str; 2] = ["find", "aggregate"];

pub(crate) async fn a_thousand_tasks(world: &World) {
    let mut fleet = Fleet::of(world, "steady", MEMBERS, TASKS, false).await;
    // Until nobody watches those any more whom it watched when the fleet came together.
    tokio::time::sleep(config("any", false).ttl() * 3).await;
    let primary = world.deployment.primary().await.expect("the set is healthy");
    let pids: Vec<_> = world.deployment.nodes().iter().map(Node::pid).collect();
    let before = fleet.view.places().await;
    let (asked, begun) = (fleet.asked().await, now());
    let (commands, spent) = (commands(primary).await, cpu(&pids));
    tokio::time::sleep(WINDOW).await;
    let (later, spent) = (self::commands(primary).await, cpu(&pids) - spent);
    let (asked_later, seconds) = (fleet.asked().await, now().since(begun).as_secs_f64());
    assert_eq!(before, fleet.view.places().await, "nothing happened");

    let interval = config("any", false).refresh_interval().as_secs_f64();
    let beats = MEMBERS as f64 * seconds / interval;
    let of = |names: &[&str]| names.iter().map(|name| later[*name] - commands[*name]).sum::<i64>() as f64;
    for (operation, (_, calls, keys)) in &asked_later {
        let (calls_before, keys_before) =
            asked.get(operation).map_or((0, 0), |(_, calls, keys)| (*calls, *keys));
        let name = operation.to_lowercase();
        measured(
            &format!("steady_{name}"),
            (calls - calls_before) as f64 / beats,
            "calls per instance and interval",
        );
        measured(
            &format!("steady_{name}_keys"),
            (keys - keys_before) as f64 / beats,
            "keys per instance and interval",
        );
    }
    measured("steady_writes", of(&WRITES) / seconds, "writes/s");
    measured("steady_reads", of(&READS) / seconds, "reads/s");
    measured("steady_reads_per_instance_and_interval", of(&READS) / beats, "reads");
    measured("steady_server_cpu", spent / seconds, "µs/s");
    figure("steady_writes_per_beat", of(&WRITES) / beats);
}

/// Number of each command that the server was sent.
async fn commands(node: &Node) -> BTreeMap<&'static str, i64> {
    let status = node.ask(doc! { "serverStatus": 1 }).await;
    let metrics = status.get_document("metrics").and_then(|metrics| metrics.get_document("commands"));
    let metrics = metrics.expect("the server counts its commands");
    let total = |name: &str| metrics.get_document(name).and_then(|one| one.get_i64("total")).unwrap_or(0);
    WRITES.iter().chain(&READS).map(|name| (*name, total(name))).collect()
}

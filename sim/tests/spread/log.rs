//! Log lines about many tasks: in proportion to what happens, not to how many they are.

use crate::captured::Log;
use crate::spread::team::{SECOND, Team};

#[tokio::test(start_paused = true)]
async fn a_spread_of_a_thousand_tasks_starts_and_loses_an_instance_in_a_few_lines() {
    let (log, _here) = Log::start();
    let team = Team::new(1000);
    let mut players = Vec::new();
    for name in ["pod-0", "pod-1", "pod-2"] {
        players.push(team.join_as(name, |spread| spread.cap(500)).await);
        tokio::time::sleep(SECOND / 2).await;
    }
    team.settled(&players).await;
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(log.with(&["has room for these"]), Vec::<String>::new(), "the others were only starting");
    let started = log.lines().len();
    assert!(started <= 25, "{started} lines to start: {:#?}", log.lines());
    assert!(!log.with(&["INFO", "acquired tasks", "spread=\"topics\"", "count=", "holder=pod-0"]).is_empty());

    players.remove(0).kill().await;
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(team.registry.running(), 1000);
    let crashed = log.lines().len() - started;
    assert!(crashed <= 12, "{crashed} lines for a crash: {:#?}", &log.lines()[started..]);
    assert!(
        !log.with(&["took over tasks from dead sessions", "from=\"pod-0\""]).is_empty(),
        "{:#?}",
        log.lines()
    );

    // The last one has room for half of them.
    players.remove(0).elect.close().await;
    tokio::time::sleep(SECOND * 30).await;
    let closed = log.lines().len() - started - crashed;
    assert!(closed <= 10, "{closed} lines for one that leaves: {:#?}", &log.lines()[started + crashed..]);
    let told = log.with(&["WARN", "no instance has room for these tasks"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("count=500"), "{told:?}");
    let _another = team.join_as("pod-3", |spread| spread.cap(500)).await;
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(log.with(&["there is room for all tasks again"]).len(), 1);
}

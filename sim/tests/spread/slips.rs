//! Errors about a spread that makes no sense, and cases that may look so and do.

use std::{sync::Arc, time::Duration};

use tenure::{Elect, ElectConfig, Lease, elect::Error, spread::Task, store::MemoryStore, testing::TestClock};

async fn elect() -> Elect {
    let clock = Arc::new(TestClock::new());
    let store = MemoryStore::new(clock.clone());
    let config = ElectConfig::new("test", "a").unwrap();
    Elect::builder(store, config).clock(clock).seed(1).start().await.unwrap()
}

async fn job<M>(_: Task<M>, lease: Lease) -> Result<(), String> {
    lease.cancelled().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_given_twice_is_refused_by_its_key() {
    let elect = elect().await;
    let twice = elect.spread("topics").tasks(["a", "b", "a"]).run(job).expect_err("one would go unheard");
    assert!(matches!(twice, Error::Twice { .. }) && twice.is_config(), "{twice:?}");
    assert_eq!(twice.to_string(), "the spread topics has the task \"a\" twice: list each key once");
    let empty = elect.spread("topics").tasks(["a", ""]).run(job).unwrap_err();
    assert_eq!(empty.to_string(), "key must not be empty");
    let spread = elect.spread("topics").tasks(["a", "b"]).run(job).expect("nothing of it was begun");
    spread.until(|status| status.share().len() == 2).await;
    elect.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_is_none_is_refused_with_the_least_it_may_be() {
    let elect = elect().await;
    let spread = elect.spread("topics").tasks(["a"]).again_after(Duration::ZERO).run(job);
    let error = spread.expect_err("it would spin");
    assert!(error.is_config());
    assert_eq!(error.to_string(), "again_after (0ns) of the spread topics must be at least 10ms");
    let ask = async || Ok::<_, String>(vec![Task::new("a", ()).unwrap()]);
    let spread = elect.spread("topics").tasks_by(Duration::from_millis(9), ask).run(job);
    let error = spread.expect_err("it would spin").to_string();
    assert_eq!(error, "tasks_by (9ms) of the spread topics must be at least 10ms");
    let shortest = elect.spread("topics").tasks(["a"]).again_after(Duration::from_millis(10)).run(job);
    shortest.expect("nothing of the others was begun").stop().await;
    elect.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_without_room_or_without_tasks_gets_tasks_when_that_changes() {
    let elect = elect().await;
    let spread = elect.spread("topics").tasks(["a", "b"]).cap(0).run(job).unwrap();
    tokio::time::sleep(elect.config().ttl()).await;
    assert!(spread.share().is_empty(), "{:?}", spread.share());
    spread.set_cap(1);
    spread.until(|status| status.share().len() == 1).await;

    let later = elect.spread("later").tasks([""; 0]).run(job).unwrap();
    later.add(Task::new("c", ()).unwrap());
    later.until(|status| status.share().len() == 1).await;
    elect.close().await;
}

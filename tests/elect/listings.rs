//! Listings of held locks.

use std::collections::BTreeSet;

use tenure::{
    Elect,
    model::{Kind, LockId},
};

use crate::elect::world::{SECOND, World};

fn held(locks: impl IntoIterator<Item = LockId>) -> BTreeSet<(String, String)> {
    locks.into_iter().map(|lock| (lock.kind.to_string(), lock.key.to_string())).collect()
}

async fn settled(elect: &Elect) {
    elect.schedules().until(tenure::spread::SpreadStatus::is_settled).await;
    tokio::time::sleep(SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn listings_have_locks_tasks_and_schedules_and_say_which_is_which() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let (other, _) = world.instance("b").await;
    let guard = elect.acquire("report").await.unwrap();
    let waits = |lease: tenure::Lease| async move {
        lease.cancelled().await;
        Ok::<_, String>(())
    };
    // A task of the same key as the lock.
    let spread = elect.spread("topics").tasks(["report", "x"]).run(move |_, lease| waits(lease)).unwrap();
    let schedule = elect.schedule("nightly", "@daily").run(async |_, _| Ok::<_, String>(())).unwrap();
    settled(&elect).await;

    let all = [("lock", "report"), ("schedule", "nightly"), ("task:topics", "report"), ("task:topics", "x")];
    let all: BTreeSet<_> = all.map(|(kind, key)| (kind.to_owned(), key.to_owned())).into();
    assert_eq!(held(elect.holding_keys().into_keys()), all);
    let listed = other.locked_keys().await.unwrap();
    assert_eq!(listed.refused, []);
    assert!(listed.held.iter().all(|held| held.holder.as_str() == "a" && !held.stale));
    let locks = listed.held.iter().filter(|held| held.lock.kind == Kind::Lock).count();
    assert_eq!(locks, 1, "those that were taken by name are told apart");
    assert_eq!(held(listed.into_iter().map(|held| held.lock)), all);
    assert!(other.holding_keys().is_empty());

    drop((guard, schedule));
    spread.stop().await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(held(elect.holding_keys().into_keys()), BTreeSet::new());
    assert_eq!(other.locked_keys().await.unwrap().held, []);
}

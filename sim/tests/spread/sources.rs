//! Sources of tasks, and instances that know different ones.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tenure::{
    Error, Lease,
    model::Key,
    spread::{SpreadStatus, Task},
};

use crate::spread::team::{SECOND, SPREAD, Team, counts};

fn task(key: &str) -> Task {
    Task::new(key, ()).unwrap()
}

/// Data that each task was started with.
type Reported = Arc<Mutex<BTreeMap<Key, u32>>>;

fn telling(
    told: &Reported,
) -> impl Fn(Task<u32>, Lease) -> futures::future::BoxFuture<'static, Result<(), String>> + use<> {
    let told = told.clone();
    move |task, lease| {
        told.lock().unwrap().insert(task.key().clone(), *task.meta());
        Box::pin(async move {
            lease.cancelled().await;
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_told_what_is_known_of_its_task() {
    let team = Team::new(0);
    let (elect, _, _) = team.elect("a").await;
    let told = Reported::default();
    let spread = elect.spread(SPREAD).tasks_with([("one", 1), ("two", 2)]).run(telling(&told)).unwrap();
    spread.until(|status| status.share().len() == 2).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(told.lock().unwrap().values().copied().collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_handle_adds_and_removes_tasks() {
    let team = Team::new(0);
    let (elect, _, _) = team.elect("a").await;
    let spread = elect.spread(SPREAD).run(team.job("a")).unwrap();
    let names = |status: &SpreadStatus| status.share().iter().map(ToString::to_string).collect::<Vec<_>>();
    spread.add(task("b"));
    spread.until(|status| names(status) == ["b"]).await;
    spread.replace([task("a"), task("b"), task("c")]);
    spread.until(|status| names(status) == ["a", "b", "c"]).await;
    assert_eq!(team.registry.starts(), 3, "the one that stays runs on");
    spread.remove("a").unwrap();
    spread.until(|status| names(status) == ["b", "c"]).await;
    assert_eq!(team.registry.running(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_closure_is_asked_again_and_what_it_cannot_tell_changes_nothing() {
    let team = Team::new(0);
    let (elect, _, _) = team.elect("a").await;
    let answers = Arc::new(Mutex::new(vec![Ok(vec!["a", "b"]), Err("no answer"), Ok(vec!["b"])].into_iter()));
    let (registry, seen) = (team.registry.clone(), Arc::<Mutex<Vec<usize>>>::default());
    let saw = seen.clone();
    let ask = move || {
        saw.lock().unwrap().push(registry.running());
        let answer = answers.lock().unwrap().next().unwrap_or(Err("no more"));
        std::future::ready(answer.map(|keys| keys.into_iter().map(task).collect::<Vec<_>>()))
    };
    let spread = elect.spread(SPREAD).tasks_by(SECOND * 10, ask).run(team.job("a")).unwrap();
    spread.until(|status| status.share().len() == 2).await;
    spread.until(|status| status.share().len() == 1).await;
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!((team.registry.running(), team.registry.starts()), (1, 2));
    let seen = seen.lock().unwrap();
    assert_eq!(seen[..3], [0, 2, 2], "an error changes nothing");
    assert!(seen.len() > 5, "it is asked for ever");
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_does_not_answer_is_a_trouble_after_a_minute_until_it_does() {
    for answered_first in [0, 1] {
        let team = Team::new(0);
        let (elect, _, _) = team.elect("a").await;
        let asked = Arc::new(AtomicUsize::new(0));
        let ask = move || {
            let before = asked.fetch_add(1, Ordering::Relaxed);
            async move {
                if before == answered_first {
                    tokio::time::sleep(SECOND * 600).await;
                }
                Ok::<_, String>(vec![task("a")])
            }
        };
        let spread = elect.spread(SPREAD).tasks_by(SECOND * 10, ask).run(team.job("a")).unwrap();
        tokio::time::sleep(SECOND * 55).await;
        assert_eq!(elect.health().troubles, []);
        tokio::time::sleep(SECOND * 30).await;
        let said = elect.health().to_string();
        assert!(said.contains("spread topics: its task source has not answered for 60 s"), "{said}");
        assert_eq!(spread.share().len(), answered_first);
        tokio::time::sleep(SECOND * 600).await;
        assert_eq!(elect.health().troubles, []);
        assert_eq!(spread.share().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_that_are_told_to_everybody_are_shared_out() {
    let team = Team::new(20);
    let players = team.of(2).await;
    tokio::time::sleep(SECOND * 5).await;
    let starts = team.registry.starts();
    for player in &players {
        for key in 20..30 {
            player.spread.add(task(&format!("task-{key:03}")));
        }
    }
    for player in &players {
        player.spread.until(|status| status.share().len() == 15).await;
    }
    team.settled(&players).await;
    assert_eq!(team.registry.starts() - starts, 10);
}

/// A deploy: the new version knows ten tasks more.
#[tokio::test(start_paused = true)]
async fn tasks_are_not_stopped_or_given_to_members_that_do_not_know_them_during_a_deploy() {
    let old = Team::new(40);
    let mut olds = old.of(4).await;
    tokio::time::sleep(SECOND * 5).await;
    let mut news = Vec::new();
    let new = Team::beside(&old, 50);
    for pod in 0..4 {
        news.push(new.join(&format!("new-{pod}")).await);
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(new.registry.running(), 50, "after {pod} came");
        for player in &olds {
            assert!(player.spread.share().keys().all(|key| key.as_str() < "task-040"));
        }
        olds.remove(0).elect.close().await;
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(new.registry.running(), 50, "after {pod} went");
    }
    new.settled(&news).await;
    assert!(counts(&news).iter().all(|count| (12..=13).contains(count)), "{:?}", counts(&news));
}

#[tokio::test(start_paused = true)]
async fn a_spread_that_cannot_be_joined_is_refused_with_the_reason() {
    let team = Team::new(1);
    let player = team.join("a").await;
    let twice = player.elect.spread(SPREAD).tasks(["x"]).run(team.job("a"));
    let twice = twice.err().unwrap();
    assert!(matches!(twice, Error::Joined(_)) && twice.is_config(), "{twice}");
    assert_eq!(twice.to_string(), "this instance has already joined the spread topics");
    let long = player.elect.spread("other").tasks(["k".repeat(513)]).run(team.job("a")).err().unwrap();
    assert!(matches!(long, Error::Limit(_)), "{long}");
    player.elect.close().await;
    let closed = player.elect.spread("other").tasks(["x"]).run(team.job("a")).err().unwrap();
    assert!(matches!(closed, Error::Closed), "{closed}");
}

#[tokio::test(start_paused = true)]
async fn a_spread_that_is_stopped_gives_all_back_and_can_be_joined_again() {
    let team = Team::new(10);
    let mut players = team.of(2).await;
    let leaves = players.remove(0);
    leaves.spread.stop().await;
    assert!(leaves.elect.health().is_ok(), "the instance goes on");
    players[0].spread.until(|status| status.share().len() == 10 && status.members.len() == 1).await;
    let again = leaves.elect.spread(SPREAD).tasks(team.keys()).run(team.job("pod-00")).unwrap();
    again.until(|status| status.share().len() == 5).await;
    // Dropped, it ends all the same.
    drop(again);
    players[0].spread.until(|status| status.share().len() == 10).await;
}

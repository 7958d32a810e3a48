//! Tests of the operator's commands, with engines of the library that are affected.

use std::{process::Output, time::Duration};

use tenure::{
    Elect, ElectConfig,
    model::{Loss, RunId, ScheduleId, SessionId, StoreTime, Term},
    schedule::Schedule,
    store::{Claim, StoreExt, sqlite::SqliteStore},
};

use crate::{
    cli::{Folder, output, stderr, stdout, tenure},
    wait::until,
};

async fn start(folder: &Folder, holder: &str) -> Elect {
    let store = SqliteStore::open(folder.join("tenure.db")).unwrap();
    let config =
        ElectConfig::new("default", holder).unwrap().with_refresh_interval(Duration::from_millis(500));
    Elect::start(store, config).await.unwrap()
}

async fn act(folder: &Folder, words: &[&str]) -> Output {
    let (store, words): (_, Vec<String>) =
        (folder.store(), words.iter().map(|word| (*word).to_owned()).collect());
    let run = move || output(tenure(&store).args(["--holder", "ops"]).args(words));
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn said(folder: &Folder, words: &[&str]) -> String {
    let acted = act(folder, words).await;
    assert_eq!(acted.status.code(), Some(0), "{}", stderr(&acted));
    stdout(&acted).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_asked_back_or_taken() {
    let folder = Folder::new("release");
    let elect = start(&folder, "pod-1").await;
    let guard = elect.acquire("report").await.unwrap();
    let lost = tokio::spawn(async move {
        let loss = guard.lost().await;
        guard.release().await.unwrap();
        loss
    });
    let told = said(&folder, &["release", "report", "--yes", "--why", "it hangs", "--wait", "30s"]).await;
    assert_eq!(told, "pod-1 has released lock \"report\" of default.");
    let Loss::Revoked { by, why } = lost.await.unwrap() else { panic!("it was not revoked") };
    assert_eq!((by.as_str(), why.as_str()), ("ops", "it hangs"));

    let guard = elect.acquire("report").await.unwrap();
    let told = said(&folder, &["release", "report", "--yes", "--force", "-o", "json"]).await;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["done"], &told["how"], &told["holder"]),
        (&true.into(), &"forced".into(), &"pod-1".into())
    );
    guard.lost().await;
    // The lock may be granted once more to a holder whose job has not stopped: until this has ended.
    let _ = guard.release().await;
    let acts = said(&folder, &["history", "--actions"]).await;
    let lines: Vec<_> = acts.lines().collect();
    assert!(
        lines.len() == 3 && lines[1].contains(" lost ") && lines[1].contains("forced: revoked by ops: "),
        "{acts}"
    );
    assert!(lines[2].contains(" released ") && lines[2].ends_with("revoked by ops: it hangs"), "{acts}");
    assert_eq!(
        said(&folder, &["release", "report", "--yes"]).await,
        "lock \"report\" of default is not held."
    );
    elect.close().await;
}

/// Standard error of a command line that was refused as usage.
async fn refused(folder: &Folder, words: &[&str]) -> String {
    let refused = act(folder, words).await;
    assert_eq!(refused.status.code(), Some(64), "{words:?}: {}", stdout(&refused));
    stderr(&refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_nothing_has_is_refused_with_those_there_are() {
    let folder = Folder::new("unknown");
    let elect = start(&folder, "pod-1").await;
    let none = refused(&folder, &["release", "nosuch", "--yes"]).await;
    assert!(none.contains("there is no lock, task or schedule \"nosuch\", nor any other"), "{none}");
    let none = refused(&folder, &["put-back", "eu", "--spread", "nosuch", "--yes"]).await;
    assert!(none.contains("there is no spread \"nosuch\", nor any other"), "{none}");
    elect.acquire("report").await.unwrap().release().await.unwrap();
    let spread = elect.spread("topics").tasks(["eu"]).run(|_, lease| async move {
        lease.cancelled().await;
        Err::<(), _>("told to stop")
    });
    spread.unwrap().until(|status| status.share().len() == 1).await;
    for (words, sentence) in [
        (
            &["release", "nosuch"][..],
            "no lock, task or schedule \"nosuch\"; there are lock \"report\", task \"eu\" of spread \"topics\"",
        ),
        (&["release", "us", "--task", "topics"], "no task \"us\" of spread \"topics\"; there are \"eu\""),
        (&["release", "eu", "--lock"], "no lock \"eu\"; there are \"report\""),
        (&["put-back", "eu", "--spread", "topic"], "no spread \"topic\"; there are \"topics\""),
        (&["put-back", "--all", "--spread", "topic"], "no spread \"topic\"; there are \"topics\""),
        (&["put-back", "us", "--spread", "topics"], "no task \"us\" of spread \"topics\"; there are \"eu\""),
    ] {
        let told = refused(&folder, &[words, &["--yes"]].concat()).await;
        assert!(told.contains(sentence), "{words:?}: {told}");
    }
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_released_and_shown_by_its_name_alone_unless_others_have_it() {
    let folder = Folder::new("namesakes");
    let elect = start(&folder, "pod-1").await;
    let (send, mut told) = tokio::sync::mpsc::unbounded_channel();
    let _spread = elect.spread("topics").tasks(["eu"]).run(move |_, lease| {
        let send = send.clone();
        async move {
            let _ = send.send("begun");
            lease.cancelled().await;
            Err::<(), _>("told to stop")
        }
    });
    assert_eq!(told.recv().await, Some("begun"));
    let released = said(&folder, &["release", "eu", "--yes"]).await;
    assert_eq!(released, "pod-1 was asked to release task:topics \"eu\" of default.");
    assert_eq!(told.recv().await, Some("begun"));
    assert!(said(&folder, &["show", "eu"]).await.starts_with("key        eu (task:topics)"));

    elect.acquire("eu").await.unwrap().release().await.unwrap();
    for words in [&["release", "eu", "--yes"][..], &["show", "eu"]] {
        let told = refused(&folder, words).await;
        let options = "add one of --lock (lock \"eu\"), --task=topics (task \"eu\" of spread \"topics\")";
        assert!(told.contains(options), "{told}");
    }
    assert!(said(&folder, &["show", "eu", "--lock"]).await.starts_with("key        eu (lock)"));
    assert!(said(&folder, &["show", "eu", "--task", "topics"]).await.contains("(task:topics)"));
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_does_not_release_its_key_keeps_it() {
    let folder = Folder::new("keeps");
    let elect = start(&folder, "pod-1").await;
    let _guard = elect.acquire("report").await.unwrap();
    let acted = act(&folder, &["release", "report", "--yes", "--wait", "200ms"]).await;
    assert_eq!(acted.status.code(), Some(75));
    assert!(
        stderr(&acted).contains("pod-1 was asked, and still holds lock \"report\" of default after 200ms")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_without_a_terminal_needs_yes() {
    let folder = Folder::new("agreed");
    let elect = start(&folder, "pod-1").await;
    let guard = elect.acquire("report").await.unwrap();
    let refused = act(&folder, &["release", "report"]).await;
    assert_eq!(refused.status.code(), Some(64));
    assert!(stderr(&refused).contains("add --yes to do it"), "{}", stderr(&refused));
    assert!(guard.is_valid() && guard.check().await.unwrap());
    let unknown = act(&folder, &["drain", "pod-2", "--yes"]).await;
    assert_eq!(unknown.status.code(), Some(64));
    assert!(stderr(&unknown).contains("no living instance is called \"pod-2\"; there are \"pod-1\""));
    drop(guard);
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_drained_and_has_tasks_again() {
    let folder = Folder::new("drain");
    let (first, second) = (start(&folder, "pod-1").await, start(&folder, "pod-2").await);
    let tasks: Vec<String> = (0..10).map(|task| format!("task {task}")).collect();
    let join = |elect: &Elect| {
        let spread = elect.spread("topics").tasks(&tasks);
        spread.run(|_, lease| async move {
            lease.cancelled().await;
            Err::<(), _>("told to stop")
        })
    };
    let (one, other) = (join(&first).unwrap(), join(&second).unwrap());
    one.until(|status| status.share().len() == 5 && status.is_settled()).await;
    said(&folder, &["drain", "pod-1", "--yes", "--why", "repair"]).await;
    one.until(|status| status.share().is_empty()).await;
    other.until(|status| status.share().len() == 10).await;
    let instances = said(&folder, &["instances", "-o", "json"]).await;
    let instances: serde_json::Value = serde_json::from_str(&instances).unwrap();
    let draining = |name: &str| {
        let items = instances["items"].as_array().unwrap();
        let item = items.iter().find(|item| item["about"]["holder"] == name).unwrap();
        item["shares"][0]["draining"].as_bool().unwrap()
    };
    assert!(draining("pod-1") && !draining("pod-2"), "{instances}");
    let acts = said(&folder, &["history", "--actions", "--since", "1m"]).await;
    assert!(acts.ends_with("pod-1 by ops: repair") && acts.contains(" drained "), "{acts}");
    assert!(said(&folder, &["instances"]).await.contains(" by ops: repair)"));
    said(&folder, &["undrain", "pod-1", "--yes"]).await;
    one.until(|status| status.share().len() == 5).await;
    first.close().await;
    second.close().await;
}

fn scheduled(elect: &Elect) -> (Schedule, tokio::sync::mpsc::UnboundedReceiver<bool>) {
    let (send, ran) = tokio::sync::mpsc::unbounded_channel();
    let schedule = elect.schedule("backup", "@yearly").run(move |tick, _| {
        let _ = send.send(tick.is_ordered());
        async { Ok::<_, String>(()) }
    });
    (schedule.unwrap(), ran)
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_paused_resumed_and_run() {
    let folder = Folder::new("schedules");
    let elect = start(&folder, "pod-1").await;
    let (schedule, mut ran) = scheduled(&elect);
    until("the definition", async || {
        let status = schedule.status().await.unwrap();
        status.and_then(|status| status.record.definition).ok_or("there is none")
    })
    .await;
    assert!(
        said(&folder, &["run", "backup", "--yes", "--why", "now"])
            .await
            .starts_with("\"backup\" was asked to run, as 2")
    );
    assert_eq!(ran.recv().await, Some(true));
    assert_eq!(
        said(&folder, &["pause", "--all", "--yes", "--why", "maintenance"]).await,
        "Paused: \"backup\"."
    );
    let pause = schedule.status().await.unwrap().unwrap().record.pause.unwrap();
    assert!(pause.is_on() && pause.why.as_str() == "maintenance" && pause.by.as_str() == "ops");
    assert_eq!(said(&folder, &["resume", "backup", "--yes"]).await, "Resumed: \"backup\".");
    assert!(!schedule.status().await.unwrap().unwrap().record.pause.unwrap().is_on());
    let unknown = act(&folder, &["run", "bakcup", "--yes"]).await;
    assert_eq!(unknown.status.code(), Some(64));
    assert!(stderr(&unknown).contains("there is no schedule \"bakcup\"; there are \"backup\""));
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_forgotten_with_its_history_once_no_instance_serves_it() {
    let folder = Folder::new("forget");
    let elect = start(&folder, "pod-1").await;
    let (schedule, mut ran) = scheduled(&elect);
    schedule.run_now("a test").await.unwrap();
    ran.recv().await.unwrap();
    assert!(refused(&folder, &["forget", "backup"]).await.contains("and this would delete the schedule"));
    let served = act(&folder, &["forget", "backup", "--yes"]).await;
    assert_eq!(served.status.code(), Some(75));
    assert!(stderr(&served).contains("pod-1 has the schedule backup"), "{}", stderr(&served));
    elect.close().await;
    assert_eq!(said(&folder, &["forget", "backup", "--yes"]).await, "Deleted: \"backup\".");
    let unknown = refused(&folder, &["forget", "backup", "--yes"]).await;
    assert!(unknown.contains("there is no schedule \"backup\""), "{unknown}");
    assert!(said(&folder, &["status"]).await.starts_with("no instance runs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_whose_deletion_was_interrupted_is_forgotten_whole() {
    let folder = Folder::new("half");
    let store = SqliteStore::open(folder.join("tenure.db")).unwrap();
    let schedule = ScheduleId { namespace: "default".parse().unwrap(), name: "backup".parse().unwrap() };
    // A deletion removes the record first: what it leaves is history without one.
    let claim = Claim {
        run: RunId::tick(schedule.clone(), StoreTime::from_millis(120_000)),
        session: SessionId::from_u128(1),
        holder: "pod-1".parse().unwrap(),
        term: Term::new(1),
        attempt: 1,
        instead_of: None,
        skipped: None,
    };
    let limit = Duration::from_secs(60);
    store.claim(claim, limit).await.unwrap();
    assert_eq!(said(&folder, &["forget", "backup", "--yes"]).await, "Deleted: \"backup\".");
    assert!(store.history(schedule, None, 1, limit).await.unwrap().items.is_empty());
    refused(&folder, &["forget", "backup", "--yes"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_rests_is_tried_again() {
    let folder = Folder::new("put-back");
    let elect = start(&folder, "pod-1").await;
    let (send, mut tried) = tokio::sync::mpsc::unbounded_channel();
    let spread = elect.spread("topics").tasks(["eu"]).tries(1).run(move |_, _| {
        let _ = send.send(());
        async { Err::<(), _>("the credentials have expired") }
    });
    let _spread = spread.unwrap();
    tried.recv().await.unwrap();
    // The task rests longer each time: until it rests in the moment in which it is put back.
    until("a rest", async || {
        let told = said(&folder, &["put-back", "eu", "--spread", "topics", "--yes"]).await;
        if told == "Tried again: \"eu\"." { Ok(()) } else { Err(told) }
    })
    .await;
    tried.recv().await.unwrap();
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_of_a_restored_store_are_raised_once_no_session_is_alive() {
    let folder = Folder::new("raise-terms");
    let absent = act(&folder, &["raise-terms", "--yes"]).await;
    assert_eq!(absent.status.code(), Some(69));
    assert!(stderr(&absent).contains("there is no store at"), "{}", stderr(&absent));

    let elect = start(&folder, "pod-1").await;
    let guard = elect.acquire("report").await.unwrap();
    let term = guard.term().get();
    assert!(refused(&folder, &["raise-terms"]).await.contains("add --yes to do it"));
    let alive = act(&folder, &["raise-terms", "--yes"]).await;
    assert_eq!(alive.status.code(), Some(69));
    let sentence = "sessions in it are alive: stop all processes that use it first";
    assert!(stderr(&alive).contains(sentence), "{}", stderr(&alive));
    assert!(guard.check().await.unwrap());
    guard.release().await.unwrap();
    elect.close().await;

    let raised = until("the end of the session", async || {
        let acted = act(&folder, &["raise-terms", "--yes"]).await;
        if acted.status.success() { Ok(stdout(&acted).trim().to_owned()) } else { Err(stderr(&acted)) }
    });
    let raised = raised.await;
    assert_eq!(raised, format!("Raised the terms of 1 lock in {}, and ended its sessions.", folder.store()));
    let raised: serde_json::Value =
        serde_json::from_str(&said(&folder, &["raise-terms", "--yes", "-o", "json"]).await).unwrap();
    assert_eq!((&raised["done"], &raised["raised"]), (&true.into(), &1.into()));
    let elect = start(&folder, "pod-2").await;
    let guard = elect.acquire("report").await.unwrap();
    let hours = (guard.term().get() - term) / 1000 / 3600;
    assert!(hours >= 23, "a term that is {hours} h ahead");
    guard.release().await.unwrap();
    elect.close().await;
}

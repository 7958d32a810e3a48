//! Output of `tenure check` for a monitor: the first word, the code, and the same as JSON.

use std::{fs::File, time::Duration};

use serde_json::Value;
use tenure::{
    model::{Kind, Rules, RunRecord, ScheduleId, SpreadName, Term},
    store::{Define, Share, StoreExt, Take},
};

use crate::{
    looking::{LIMIT, NAMESPACE, Ran, World, command, fields, lock},
    wait::until,
};

/// Checks that the line and the document say the same, and returns the document.
fn check(world: &World, arguments: &[&str]) -> (i32, String, Value) {
    let arguments = [&["check"], arguments].concat();
    let ran = world.run(&arguments);
    assert_eq!((ran.out.lines().count(), ran.err.as_str()), (1, ""), "{ran:?}");
    let as_json = world.run(&[&arguments[..], &["--output", "json"]].concat());
    let json = as_json.json();
    assert_eq!(as_json.code, ran.code);
    fields(&json, &[("state", "string"), ("code", "number"), ("line", "string"), ("findings", "array")]);
    for finding in json["findings"].as_array().unwrap() {
        fields(
            finding,
            &[("state", "string"), ("kind", "string"), ("about", "string|null"), ("says", "string")],
        );
    }
    assert_eq!(json["code"], ran.code);
    let word = ran.out.split(':').next().unwrap().to_lowercase();
    assert_eq!(json["state"], word);
    (ran.code, ran.out.trim_end().to_owned(), json)
}

fn kinds(json: &Value) -> Vec<&str> {
    json["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].as_str().unwrap()).collect()
}

async fn define(world: &World, name: &str, timing: &str) {
    let define = Define {
        schedule: ScheduleId { namespace: NAMESPACE.parse().unwrap(), name: name.parse().unwrap() },
        term: Term::new(1),
        timing: Rules::new(timing).unwrap(),
        policies: Rules::new("of a test").unwrap(),
        instead_of: None,
    };
    world.store.define(define, LIMIT).await.unwrap();
}

/// Monitors know the codes 0 to 3 alone.
#[test]
fn a_verdict_that_cannot_be_written_is_unknown() {
    let world = World::sqlite();
    let mut check = world.command(&["check"]);
    check.stdout(File::create("/dev/full").unwrap());
    assert_eq!(check.status().unwrap().code(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_well_fail_rest_and_are_missed() {
    let world = World::sqlite();
    assert_eq!(check(&world, &[]).1, "OK: 0 instances, 0 tasks, 0 schedules");
    let elect = world.engine("pod-1").await;
    let well = elect.schedule("well", "0 0 1 1 *").run(|_, _| async { Ok::<_, String>(()) }).unwrap();
    let failing = elect.schedule("failing", "0 0 1 1 *").run(|_, _| async { Err("disk full") }).unwrap();
    let fail = async |times: u32| {
        failing.run_now("a test").await.unwrap();
        until("a failure", async || {
            let status = failing.status().await.unwrap();
            if status.as_ref().is_some_and(|status| status.failures == times) { Ok(()) } else { Err(status) }
        })
        .await;
    };
    well.run_now("a test").await.unwrap();
    until("a run", async || {
        let last = well.status().await.unwrap().and_then(|status| status.last);
        if last.as_ref().is_some_and(RunRecord::has_succeeded) { Ok(()) } else { Err(last) }
    })
    .await;
    fail(1).await;

    assert_eq!(check(&world, &["well"]).1, "OK: 1 schedule");
    let (code, line, json) = check(&world, &[]);
    assert_eq!((code, line.as_str()), (1, "WARNING: failing has failed once: disk full"));
    assert_eq!((kinds(&json), &json["findings"][0]["about"]), (vec!["failures"], &"failing".into()));
    assert_eq!(check(&world, &["failing", "--failures", "1"]).0, 2);
    fail(2).await;
    assert_eq!(check(&world, &[]).0, 1);
    fail(3).await;
    // Beside a leader, schedules are checked if a limit is given.
    let guard = elect.key("queue").try_acquire().await.unwrap().guard().unwrap();
    assert_eq!(check(&world, &["--leader", "queue"]).0, 0);
    assert_eq!(check(&world, &["--leader", "queue", "--overdue", "10m"]).0, 2);
    guard.release().await.unwrap();
    assert_eq!(check(&world, &["failing"]).1, "CRITICAL: failing has failed 3 times in a row: disk full");

    well.pause("repairs\nfor now").await.unwrap();
    let (code, line, json) = check(&world, &["well"]);
    assert_eq!((code, kinds(&json)), (1, vec!["paused"]));
    assert!(
        line.starts_with("WARNING: well was paused ") && line.ends_with(" by pod-1: repairs\u{b7}for now"),
        "{line}"
    );

    let (code, line, json) = check(&world, &["well", "nothing"]);
    assert_eq!((code, kinds(&json)), (2, vec!["unknown_schedule", "paused"]));
    assert!(line.starts_with("CRITICAL: there is no schedule \"nothing\"; "), "{line}");
    elect.close().await;

    define(&world, "missed", "@every 1s").await;
    let overdue = ["check", "missed", "--overdue", "500ms"];
    let json = world.json_until(&overdue, |json| json["state"] == "critical").await;
    assert_eq!(kinds(&json), ["overdue"]);
    assert!(json["line"].as_str().unwrap().ends_with("without an owner"), "{json}");
    assert_eq!(check(&world, &["missed"]).0, 0, "ten minutes are allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_requires_a_leader_that_is_alive_and_enough_instances() {
    let world = World::sqlite();
    assert_eq!(check(&world, &["--leader", "queue"]).1, "CRITICAL: the key \"queue\" was never held");
    let elect = world.engine("pod-1").await;
    let guard = elect.key("queue").try_acquire().await.unwrap().guard().unwrap();
    assert_eq!(
        check(&world, &["--leader", "queue", "--instances", "1"]).1,
        "OK: pod-1 holds \"queue\"; 1 instance"
    );
    let (code, line, json) = check(&world, &["--instances", "2"]);
    assert_eq!((code, line.as_str()), (2, "CRITICAL: 1 instance alive, 2 required"));
    assert_eq!(kinds(&json), ["few_instances"]);
    guard.release().await.unwrap();
    assert_eq!(check(&world, &["--leader", "queue"]).1, "CRITICAL: the key \"queue\" is not held");

    let silent = world.silent(7, "pod-7").await;
    world.take(Kind::Lock, "mail", &silent).await;
    let (code, line, json) = check(&world, &["--leader", "mail", "--leader", "queue"]);
    assert_eq!((code, kinds(&json)), (2, vec!["leader_looks_dead", "no_leader"]));
    assert!(line.starts_with("CRITICAL: pod-7 holds \"mail\" and looks dead: its last beat is "), "{line}");
    assert_eq!(check(&world, &["--instances", "2"]).0, 2, "the silent one does not count");
    let (code, line, json) = check(&world, &["--spread", "topics"]);
    let says = "CRITICAL: no instance takes part in topics, and it has no tasks";
    assert_eq!((code, line.as_str(), kinds(&json)), (2, says, vec!["unknown_spread"]));
    let tasks = ["t1", "t2"].map(ToOwned::to_owned);
    let run = |_, lease: tenure::Lease| async move {
        lease.cancelled().await;
        Ok::<_, String>(())
    };
    let spread = elect.spread("topics").tasks(tasks).run(run).unwrap();
    spread.until(|status| status.held() == 2).await;
    assert_eq!(check(&world, &["--spread", "topics"]).1, "OK: topics runs");
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spread_that_is_too_large_to_be_read_whole_is_not_well() {
    let world = World::sqlite();
    let spread: SpreadName = "topics".parse().unwrap();
    let one = world.session(7, "pod-7", Duration::from_secs(3600), vec![Share::new(spread.clone())]).await;
    let take = |task| Take { lock: lock(Kind::of_tasks(&spread), &format!("task-{task}")), by: one.clone() };
    let takes: Vec<_> = (0..20_001).map(take).collect();
    for takes in takes.chunks(1000) {
        world.store.take(takes.to_vec(), Vec::new(), LIMIT).await.unwrap();
    }
    let (code, line, json) = check(&world, &["--spread", "topics"]);
    let says = "UNKNOWN: not all tasks of topics and all sessions were read";
    assert_eq!((code, line.as_str(), kinds(&json)), (3, says, vec!["unread"]));
}

#[test]
fn a_check_or_a_status_that_cannot_be_made_is_unknown() {
    let world = World::sqlite();
    let elsewhere = format!("{}-not", world.uri);
    for look in ["check", "status"] {
        let ran = Ran::of(&mut command(&["--store", &elsewhere], &[look]));
        assert_eq!((ran.code, ran.out.starts_with("UNKNOWN: there is no store at ")), (3, true), "{ran:?}");
    }
    let ran = Ran::of(&mut command(&["--store", &elsewhere], &["check", "--output", "json"]));
    assert_eq!((ran.code, &ran.json()["state"]), (3, &"unknown".into()));
    let ran = world.run(&["check", "--overdue", "soon"]);
    assert_eq!((ran.code, ran.out.starts_with("UNKNOWN: --overdue is \"soon\"")), (3, true), "{ran:?}");
}

#[cfg(feature = "mongodb")]
#[test]
#[allow(clippy::disallowed_methods, reason = "how long it takes is what is looked at")]
fn a_server_that_does_not_answer_is_unknown_in_time() {
    // No server listens there: the port is bound, and never accepted from.
    let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("mongodb://user:secret@{}/", bound.local_addr().unwrap());
    let begun = std::time::Instant::now();
    let ran = Ran::of(&mut command(&["--store", &uri], &["check", "--timeout", "1s"]));
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (3, "UNKNOWN: the store did not answer within 1 s\n"),
        "{ran:?}"
    );
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "it took {took:?}, twenty times what it may");
    assert!(!ran.out.contains("secret") && !ran.err.contains("secret"), "{ran:?}");
}

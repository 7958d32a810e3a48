//! `tenure demo`: to its end, ended early, with processes that are killed from outside, on a terminal, and on MongoDB.

mod run;
mod terminal;

use std::{path::Path, time::Instant};

use rustix::process::Signal;

use self::run::{Demo, PROMISES};
use crate::{support::rounds::rounds, wait};

#[test]
fn a_demo_comes_to_its_end_and_every_promise_held() {
    // On a machine that stands still not everything comes to its turn in ten seconds.
    let ended = ["10s", "30s", "90s"]
        .into_iter()
        .map(|time| Demo::start(&["--plain", "--time", time, "--keep"]).wait())
        .find(|ended| !ended.out.contains("not tried"))
        .expect("everything has its turn");
    assert_eq!(ended.code, Some(0), "{ended}");
    // Lines are as wide as a terminal.
    let words = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for promise in PROMISES {
        assert!(words.contains(&format!(" held {promise}")), "{promise}: {ended}");
    }
    for line in [
        "is killed (SIGKILL), with 20 tasks",
        "is frozen (SIGSTOP), with 25 tasks",
        "notices: expired: this process did not run for",
        "has given all its tasks away",
        "demo-6 (pid ",
        "never two at once, each under a larger term",
        "Every promise held.",
    ] {
        assert!(words.contains(line), "{line}: {ended}");
    }
    assert!(!ended.out.contains('\x1b'), "{ended}");
    // The kept file is a store.
    let (_, kept) = words.split_once("Kept: tenure ls --store sqlite:").unwrap();
    let store = kept.split(' ').next().unwrap();
    assert!(Path::new(store).is_file(), "{ended}");
    assert!(ended.processes().is_empty());
}

/// The end waits for no instance to close: the start takes long.
#[test]
fn a_demo_that_is_interrupted_is_gone_sooner_than_it_came() {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut demo = Demo::start(&["--plain", "--time", "1h"]);
        let begun = Instant::now();
        demo.wait_for("evenly");
        starts.push(begun.elapsed());
        let told = Instant::now();
        demo.signal(signal);
        let ended = demo.wait();
        ends.push(told.elapsed());
        assert_eq!(ended.code, Some(code), "{ended}");
        ended.assert_nothing_is_left();
    }
    // The quickest of each, for a machine may stand still for a while.
    assert!(ends.iter().min() < starts.iter().min(), "{ends:?} {starts:?}");
}

#[test]
fn instances_end_with_a_demo_that_is_killed_and_one_that_is_frozen_does_too() {
    let mut demo = Demo::start(&["--plain", "--time", "10s"]);
    demo.wait_for("is frozen (SIGSTOP)");
    demo.signal(Signal::KILL);
    let ended = demo.wait();
    wait::until_blocking("the end of all instances", || {
        let left = ended.processes();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_demo_ends_when_its_output_is_closed() {
    let mut demo = Demo::start(&["--plain", "--time", "10s"]);
    demo.wait_for("instances start");
    demo.close_output();
    let ended = demo.wait();
    assert_eq!(ended.code, Some(141), "{ended}");
    ended.assert_nothing_is_left();
}

/// `TENURE_ROUNDS=2` or more for all of them but one: tasks that lose holder after holder are tried one by one.
#[test]
fn processes_that_somebody_else_kills_break_no_promise() {
    let mut demo = Demo::start(&["--plain", "--time", "10s"]);
    demo.wait_for("evenly");
    demo.kill_one();
    if rounds() > 1 {
        demo.wait_for("(SIGSTOP)");
        // Too few are left then, so that others are started in their place.
        for pid in &demo.pids()[2..] {
            demo.kill(*pid);
        }
        demo.wait_for("joins");
    }
    let ended = demo.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.out.contains("Every promise held."), "{ended}");
    ended.assert_nothing_is_left();
}

#[test]
fn an_instance_that_is_frozen_and_thawed_from_outside_is_noticed() {
    let mut demo = Demo::start(&["--plain", "--time", "1h"]);
    demo.wait_for("evenly");
    let pid = demo.pids()[0];
    run::signal(pid, Signal::STOP);
    demo.wait_for("was frozen from outside");
    run::signal(pid, Signal::CONT);
    demo.wait_for("it was thawed from outside");
    demo.signal(Signal::INT);
    demo.wait().assert_nothing_is_left();
}

#[test]
fn a_time_that_is_too_short_is_refused() {
    let ended = Demo::start(&["--time", "2s"]).wait();
    assert_eq!(ended.code, Some(64));
    assert_eq!(ended.err, "tenure: --time is \"2s\", and has to be from 10s to 1h\n");
    ended.assert_nothing_is_left();
}

#[test]
fn a_store_that_is_not_there_is_named() {
    let ended = Demo::start(&["--plain", "--store", "sqlite:/nowhere/at/all.db"]).wait();
    assert_eq!(ended.code, Some(69), "{ended}");
    assert!(ended.err.starts_with("tenure: demo-") && ended.err.contains("/nowhere/at"), "{ended}");
    ended.assert_nothing_is_left();
}

#[tokio::test]
async fn on_mongodb_it_reports_as_json_and_leaves_nothing_there() {
    use tenure::store::mongo::driver::bson::{Document, doc};

    use crate::support::mongod::shared_single;

    let mongodb = shared_single().await;
    let uri = mongodb.uri_in("demo_of_tests");
    let run = move || Demo::start(&["--output", "json", "--time", "10s", "--store", &uri]).wait();
    let ended = tokio::task::spawn_blocking(run).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended}");
    let document: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(document["held"], true);
    let promises = document["promises"].as_array().unwrap();
    assert_eq!(promises.len(), PROMISES.len());
    // On a machine that stands still some may not come to their turn. That they do: the test on a file.
    assert!(promises.iter().all(|it| it["kept"] == "held" || it["kept"] == "not_tried"), "{ended}");
    assert_eq!(document["instances"].as_array().unwrap().len(), 6);
    assert!(document["store"].as_str().unwrap().ends_with("/demo_of_tests"), "{ended}");
    ended.assert_nothing_is_left();
    let database = mongodb.client().await.database("demo_of_tests");
    for collection in ["sessions", "locks", "waiters", "runs"] {
        let left = database.collection::<Document>(collection).count_documents(doc! {}).await.unwrap();
        assert_eq!(left, 0, "{collection}");
    }
}

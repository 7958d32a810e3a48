//! `tenure demo`: to its end, ended early, with processes that somebody else kills, on a terminal, and on MongoDB.

#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test asks for the time as everybody does, and may panic"
)]

mod pty;
#[path = "demo/run.rs"]
mod run;
#[cfg(feature = "mongodb")]
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "demo/terminal.rs"]
mod terminal;

use std::time::{Duration, Instant};

use run::{Demo, PROMISES};
use rustix::process::Signal;

#[test]
fn it_comes_to_its_end_and_every_promise_held() {
    let demo = Demo::start(&["--plain", "--time", "10s"]);
    let ended = demo.wait();
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
    ended.assert_nothing_is_left();
}

#[test]
fn it_says_as_json_what_it_says_in_words() {
    let demo = Demo::start(&["--output", "json", "--time", "10s", "--keep"]);
    let ended = demo.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    let document: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(document["held"], true);
    let promises = document["promises"].as_array().unwrap();
    assert_eq!(promises.len(), PROMISES.len());
    assert!(promises.iter().all(|it| it["kept"] == "held"), "{ended}");
    assert_eq!(document["instances"].as_array().unwrap().len(), 6);
    // What was kept is a store.
    let store = document["store"].as_str().unwrap().strip_prefix("sqlite:").unwrap();
    assert!(std::path::Path::new(store).is_file(), "{store}");
    assert!(ended.processes().is_empty());
}

#[test]
fn whoever_interrupts_it_has_it_gone_within_a_second() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut demo = Demo::start(&["--plain"]);
        demo.wait_for("evenly");
        let told = Instant::now();
        demo.signal(signal);
        let ended = demo.wait();
        assert!(told.elapsed() < Duration::from_secs(1), "{:?}: {ended}", told.elapsed());
        assert_eq!(ended.code, Some(code), "{ended}");
        ended.assert_nothing_is_left();
    }
}

#[test]
fn instances_end_with_a_demo_that_is_killed_and_one_that_is_frozen_does_too() {
    let mut demo = Demo::start(&["--plain", "--time", "10s"]);
    demo.wait_for("is frozen (SIGSTOP)");
    demo.signal(Signal::KILL);
    let ended = demo.wait();
    let begun = Instant::now();
    while !ended.processes().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}: {ended}", ended.processes());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_reads_only_its_beginning_ends_it() {
    let mut demo = Demo::start(&["--plain"]);
    demo.wait_for("instances start");
    demo.close_output();
    let ended = demo.wait();
    assert_eq!(ended.code, Some(141), "{ended}");
    ended.assert_nothing_is_left();
}

#[test]
fn processes_that_somebody_else_kills_break_no_promise() {
    let mut demo = Demo::start(&["--plain", "--time", "14s"]);
    demo.wait_for("evenly");
    let pids = demo.pids();
    run::signal(pids[1], Signal::KILL);
    demo.wait_for("was killed by somebody else");
    demo.wait_for("(SIGSTOP)");
    // Until too few are left, so that others are started in their place.
    for pid in demo.living(&pids[2..]) {
        run::signal(pid, Signal::KILL);
    }
    demo.wait_for("joins");
    let ended = demo.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.out.contains("Every promise held."), "{ended}");
    ended.assert_nothing_is_left();
}

#[test]
fn one_that_somebody_else_freezes_and_thaws_is_seen_to_be() {
    let mut demo = Demo::start(&["--plain", "--time", "30s"]);
    demo.wait_for("evenly");
    let pid = demo.pids()[0];
    run::signal(pid, Signal::STOP);
    demo.wait_for("was frozen by somebody else");
    run::signal(pid, Signal::CONT);
    demo.wait_for("somebody else has thawed it");
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

#[cfg(feature = "mongodb")]
#[tokio::test]
async fn it_works_on_mongodb_and_leaves_nothing_there() {
    use tenure::store::mongo::driver::bson::{Document, doc};

    let mongodb = support::mongod::shared_single().await;
    let uri = mongodb.uri().replacen("/?", "/demo_of_tests?", 1);
    assert!(uri.contains("/demo_of_tests?"), "{uri}");
    // Nothing else is to be done here meanwhile.
    let ended = Demo::start(&["--plain", "--time", "14s", "--store", &uri]).wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.out.contains("Every promise held."), "{ended}");
    ended.assert_nothing_is_left();
    let database = mongodb.client().await.database("demo_of_tests");
    for collection in ["sessions", "locks", "waiters", "runs"] {
        let left = database.collection::<Document>(collection).count_documents(doc! {}).await.unwrap();
        assert_eq!(left, 0, "{collection}");
    }
}

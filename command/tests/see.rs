//! Output of the read-only commands for a store on a file.

use std::time::Duration;

use serde_json::Value;
use tenure::{
    model::{Kind, Why},
    store::{Note, Share, StoreExt},
};

use crate::{
    looking::{
        CANDIDATE, LIFE, LIMIT, LOCK, LOCK_ID, PAST, RUN, Ran, SESSION, SHARE, World, and, command, fields,
        given_up, item, lead, listing, lock,
    },
    wait::until,
};

const HOUR: Duration = Duration::from_secs(3600);

fn topics() -> Kind {
    Kind::Task("topics".parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_tells_what_is_held_and_by_whom() {
    let world = World::sqlite();
    let empty = world.run(&["ls"]);
    assert_eq!(
        (empty.code, empty.out.starts_with("No key is held in namespace shop")),
        (0, true),
        "{empty:?}"
    );

    let elect = world.engine("pod-1").await;
    let guard = lead(&elect, "report").await;
    let silent = world.silent(7, "pod-7").await;
    world.take(Kind::Lock, "orphan", &silent).await;
    world.take(topics(), "topic-1", &silent).await;
    world.close_for(Kind::Lock, "closed", &silent, Some(Note::Done), HOUR).await;

    let ran = world.run(&["ls"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.row("KEY").starts_with("KEY"), "{ran:?}");
    let row = ran.row("report");
    assert!(row.contains("lock") && row.contains("pod-1") && row.ends_with("nightly report"), "{row}");
    assert!(!row.contains("dead"), "{row}");
    assert!(ran.row("orphan").contains("pod-7 (looks dead)"), "{}", ran.out);
    assert!(ran.row("topic-1").contains("task:topics"), "{}", ran.out);
    assert!(!ran.out.contains("closed"), "it is held by nobody: {}", ran.out);

    let json = world.json(&["ls"]);
    let items = listing(&json);
    assert_eq!(items.len(), 3);
    for one in items {
        fields(one, &and(LOCK, LIFE));
        fields(&one["id"], LOCK_ID);
        fields(&one["holding"], &[("by", "object"), ("value_set", "number"), ("acquired_at", "string")]);
        fields(&one["holding"]["by"], CANDIDATE);
    }
    let report = item(items, "/id/key", "report");
    assert_eq!(report["holding"]["by"]["value"], "10.0.0.1:80");
    assert_eq!((&report["life"], &report["looks_dead"]), (&"alive".into(), &false.into()));
    let orphan = item(items, "/id/key", "orphan");
    assert_eq!((&orphan["life"], &orphan["looks_dead"]), (&"silent".into(), &true.into()));

    let keys = |arguments: &[&str]| -> Vec<String> {
        let json = world.json(arguments);
        listing(&json).iter().map(|item| item["id"]["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&["ls", "--kind", "lock"]), ["orphan", "report"]);
    assert_eq!(keys(&["ls", "--kind", "task"]), ["topic-1"]);
    assert_eq!(keys(&["ls", "--kind", "task:topics"]), ["topic-1"]);
    assert_eq!(keys(&["ls", "--kind", "task:others"]), [""; 0]);
    assert_eq!(keys(&["ls", "--kind", "schedule"]), [""; 0]);
    assert_eq!(keys(&["ls", "--held-by", "pod-7"]), ["orphan", "topic-1"]);
    assert_eq!(keys(&["ls", "--free"]), ["closed"]);
    let free = world.run(&["ls", "--free"]);
    assert!(free.row("closed").contains("for ") && free.row("closed").contains("pod-7"), "{}", free.out);
    let limited = world.json(&["ls", "--limit", "2"]);
    assert_eq!((listing(&limited).len(), &limited["more"]), (2, &true.into()));
    assert!(world.run(&["ls", "--limit", "2"]).out.ends_with("There are more: --limit shows them.\n"));

    assert_eq!(world.run(&["ls", "--kind", "keys"]).code, 64);
    guard.release().await.unwrap();
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn show_tells_all_of_one_key() {
    let world = World::sqlite();
    let (first, second) = (world.engine("pod-1").await, world.engine("pod-2").await);
    lead(&first, "report").await.release().await.unwrap();
    let guard = lead(&first, "report").await;
    let waiting = tokio::spawn({
        let second = second.clone();
        async move { second.key("report").who("standby").acquire().await }
    });
    let id = lock(Kind::Lock, "report");
    until("a place in the queue", async || {
        let found = world.store.waiters(id.clone(), 5, LIMIT).await.unwrap();
        if found.waiters.is_empty() { Err(found) } else { Ok(()) }
    })
    .await;

    let ran = world.run(&["show", "report"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for line in [
        "key        report (lock)",
        "holder     pod-1",
        "program    shop 1.2",
        "who        mailer",
        "value      10.0.0.1:80",
    ] {
        assert!(ran.out.lines().any(|known| known == line), "{line} is not in\n{}", ran.out);
    }
    assert!(ran.row("1").contains("pod-2") && ran.row("1").contains("standby"), "{}", ran.out);
    assert!(ran.row("pod-1").contains("released"), "{}", ran.out);

    let shown = [
        ("id", "object"),
        ("record", "object|null"),
        ("refusal", "object|null"),
        ("session", "object|null"),
        ("life", "string|null"),
        ("looks_dead", "bool"),
        ("closed_left_ms", "number|null"),
        ("waiters", "array"),
        ("waiter_lives", "array"),
        ("waiters_unreadable", "string|null"),
        ("whole", "bool"),
        ("now", "string"),
    ];
    let json = world.json(&["show", "report"]);
    fields(&json, &shown);
    fields(&json["record"], LOCK);
    fields(&json["record"]["past"][0], PAST);
    fields(&json["session"], SESSION);
    fields(&json["waiters"][0], &[("lock", "object"), ("by", "object"), ("since", "string")]);
    assert_eq!(json["record"]["holding"]["by"]["holder"], "pod-1");
    assert_eq!(json["waiters"][0]["by"]["holder"], "pod-2");
    assert_eq!((&json["life"], &json["whole"]), (&"alive".into(), &true.into()));

    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());

    let silent = world.silent(9, "pod-9").await;
    let (by, why) = ("ops".parse().unwrap(), Why::new("hot\u{1b}[2J for good").unwrap());
    let note = Note::Revoked { by, why };
    world.close_for(topics(), "topic-1", &silent, Some(note), HOUR).await;
    let closed = world.run(&["show", "topic-1", "--task", "topics"]);
    assert_eq!(closed.code, 0, "{closed:?}");
    assert!(closed.row("closed").contains("for 59 min"), "{}", closed.out);
    assert!(
        closed.out.contains("revoked by ops: hot\u{b7}[2J for good") && !closed.out.contains('\u{1b}'),
        "{}",
        closed.out
    );
    assert!(
        world.json(&["show", "topic-1", "--task", "topics"])["closed_left_ms"].as_u64().unwrap() > 3_500_000
    );

    let never = world.run(&["show", "nothing"]);
    assert_eq!(never.code, 1);
    assert!(never.out.starts_with("The lock \"nothing\" was never held in namespace shop"), "{never:?}");
    let never = world.json(&["show", "nothing"]);
    fields(&never, &shown);
    assert_eq!(never["record"], Value::Null);
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_tells_who_beats_and_what_each_holds() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let guard = lead(&elect, "report").await;
    let mut share = Share::new("topics".parse().unwrap());
    (share.cap, share.weight, share.draining) = (5, 2, true);
    let other = world.session(8, "pod-8", HOUR, vec![share]).await;
    world.take(topics(), "topic-1", &other).await;
    world.take(topics(), "topic-2", &other).await;
    world.silent(7, "pod-7").await;
    let dead = world.silent(6, "pod-6").await;
    world.declare_dead(dead.session, "the node is gone").await;

    let ran = world.run(&["instances"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let first = ran.row("pod-1");
    assert!(
        first.contains("shop 1.2")
            && first.contains("alive")
            && first.contains(&std::process::id().to_string()),
        "{first}"
    );
    let other = ran.row("pod-8");
    assert!(
        other.contains("node-7:4711") && other.ends_with("topics (cap 5, weight 2, draining)"),
        "{other}"
    );
    assert!(ran.row("pod-7").contains("looks dead"), "{}", ran.out);
    assert!(!ran.out.contains("pod-6"), "it is dead: {}", ran.out);

    let all = world.run(&["instances", "--all"]);
    assert!(
        all.row("pod-6").contains("dead") && all.row("pod-6").ends_with("by ops: the node is gone"),
        "{}",
        all.out
    );

    let json = world.json(&["instances", "--all"]);
    let items = listing(&json);
    assert_eq!(items.len(), 4);
    for one in items {
        let more = [("held", "object"), ("failing", "array"), ("clock_ahead_ms", "number|null")];
        fields(one, &and(SESSION, &and(LIFE, &more)));
        fields(&one["held"], &[("locks", "number"), ("tasks", "number"), ("schedules", "number")]);
        fields(
            &one["about"],
            &[
                ("namespace", "string"),
                ("holder", "string"),
                ("host", "string"),
                ("pid", "number"),
                ("program", "string"),
                ("plan_version", "number"),
            ],
        );
    }
    let other = item(items, "/about/holder", "pod-8");
    fields(&other["shares"][0], SHARE);
    assert_eq!(other["held"]["tasks"], 2);
    assert_eq!(item(items, "/about/holder", "pod-1")["held"]["locks"], 1);
    let dead = item(items, "/about/holder", "pod-6");
    fields(&dead["death"], &[("at", "string"), ("by", "string"), ("why", "string")]);
    let lives =
        ["pod-1", "pod-6", "pod-7", "pod-8"].map(|name| item(items, "/about/holder", name)["life"].clone());
    assert_eq!(lives, ["alive", "dead", "silent", "alive"]);
    drop(guard);
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spreads_tells_members_tasks_and_what_rests() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let spread =
        elect.spread("topics").tasks(["good", "bad"]).tries(1).cap(9).run(|task, lease| async move {
            if task.key().as_str() == "bad" {
                return Err("no route to host");
            }
            lease.cancelled().await;
            Ok(())
        });
    let spread = spread.unwrap();
    let is_settled = |json: &Value| {
        let tasks = json["tasks"].as_array().unwrap().iter();
        ["resting", "running"].iter().all(|kind| tasks.clone().any(|task| task["state"]["kind"] == **kind))
    };
    let json = world.json_until(&["spreads", "topics"], is_settled).await;
    fields(
        &json,
        &[
            ("spread", "string"),
            ("members", "array"),
            ("tasks", "array"),
            ("orphans", "array"),
            ("wanted", "number|null"),
            ("never_ran", "number"),
            ("refused", "array"),
        ],
    );
    let members = json["members"].as_array().unwrap();
    fields(
        &members[0],
        &and(
            LIFE,
            &[
                ("session", "string"),
                ("holder", "string"),
                ("host", "string"),
                ("pid", "number"),
                ("share", "object"),
                ("drained", "object|null"),
                ("tasks", "number"),
                ("failing", "bool"),
                ("target", "null"),
            ],
        ),
    );
    fields(&members[0]["share"], SHARE);
    assert_eq!((members.len(), &members[0]["share"]["cap"]), (1, &9.into()));
    let tasks = json["tasks"].as_array().unwrap();
    for task in tasks {
        fields(
            task,
            &[
                ("key", "string"),
                ("state", "object"),
                ("looks_dead", "bool"),
                ("since", "string|null"),
                ("last", "object|null"),
                ("why", "array"),
            ],
        );
    }
    let bad = &item(tasks, "/key", "bad")["state"];
    fields(
        bad,
        &[
            ("kind", "string"),
            ("since", "string"),
            ("tries", "number"),
            ("by", "array"),
            ("error", "string"),
            ("left_ms", "number"),
        ],
    );
    assert_eq!(bad["error"], "no route to host");
    assert_eq!(item(tasks, "/key", "bad")["last"]["holder"], "pod-1");
    let good = item(tasks, "/key", "good");
    assert_eq!((&good["state"]["kind"], &good["state"]["holder"]), (&"running".into(), &"pod-1".into()));
    assert!(good["why"][0].as_str().unwrap().starts_with("running on pod-1, under term "), "{good}");
    // While the other rests.
    until("one task", async || {
        let row = world.run(&["spreads", "topics"]).row("good").to_owned();
        if row.ends_with("pod-1 has 1 task and a cap of 9") { Ok(()) } else { Err(row) }
    })
    .await;
    spread.stop().await;
    elect.close().await;
    let json = world.json(&["spreads", "topics"]);
    assert!(json["orphans"].as_array().unwrap().contains(&"good".into()), "nobody has it: {json:#}");
    assert!(world.run(&["spreads", "topics"]).row("good").contains("waiting for room"));
}

#[tokio::test(flavor = "multi_thread")]
async fn spreads_tells_of_tasks_that_never_ran_and_who_drained_a_member() {
    let world = World::sqlite();
    let mut share = Share::new("topics".parse().unwrap());
    (share.known, share.draining) = (Some(3), true);
    let member = world.session(7, "pod-7", HOUR, vec![share]).await;
    world.drain(&member, ("anna", "new kernel")).await;
    world.take(topics(), "one", &member).await;
    let ran = world.run(&["spreads", "topics"]);
    assert!(ran.out.contains("3 wanted, 1 ever ran, 2 never"), "{}", ran.out);
    assert!(
        ran.row("pod-7").contains("drained since 20") && ran.row("pod-7").contains("Z by anna: new kernel"),
        "{}",
        ran.out
    );
    assert!(world.run(&["spreads"]).row("topics").contains("2 never ran"));
    let json = world.json(&["spreads", "topics"]);
    assert_eq!((&json["wanted"], &json["never_ran"]), (&3.into(), &2.into()), "{json:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn spreads_tells_what_nobody_has_and_why() {
    let world = World::sqlite();
    let silent = world
        .session(7, "pod-7", Duration::from_millis(1), vec![Share::new("topics".parse().unwrap())])
        .await;
    world.take(topics(), "lost", &silent).await;
    world.close_for(topics(), "resting", &silent, Some(given_up()), HOUR).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let ran = world.run(&["spreads", "topics"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.row("pod-7").contains("looks dead"), "{}", ran.out);
    assert!(
        ran.row("resting").contains(" resting ")
            && ran.row("resting").ends_with("given up 3x: no route to host"),
        "{}",
        ran.out
    );
    assert!(ran.row("lost").contains("held, dead"), "{}", ran.out);
    let json = world.json(&["spreads", "topics"]);
    assert_eq!(json["orphans"], serde_json::json!(["lost"]), "what rests has no place to be");

    let all = world.json(&["spreads"]);
    let one = item(listing(&all), "/spread", "topics");
    fields(
        one,
        &[
            ("spread", "string"),
            ("members", "number"),
            ("silent", "number"),
            ("draining", "number"),
            ("failing", "number"),
            ("tasks", "number"),
            ("held", "number"),
            ("quarantined", "number"),
            ("orphans", "number"),
            ("wanted", "number|null"),
            ("never_ran", "number"),
        ],
    );
    assert_eq!((&one["members"], &one["silent"], &one["tasks"]), (&1.into(), &1.into(), &2.into()));
    assert!(world.run(&["spreads"]).row("topics").ends_with("1 look dead"));

    let why = world.run(&["spreads", "topics", "--explain", "resting"]);
    assert_eq!(why.code, 0, "{why:?}");
    assert!(why.out.starts_with("resting until ") && why.out.contains(", given up 3 times by "), "{why:?}");
    let why = world.json(&["spreads", "topics", "--explain", "lost"]);
    fields(&why, &[("key", "string"), ("sentences", "array")]);
    assert!(why["sentences"][0].as_str().unwrap().starts_with("pod-7 has it and looks dead"), "{why}");
    assert_eq!(world.run(&["spreads", "topics", "--explain", "nothing"]).code, 1);
    let unknown = world.run(&["spreads", "nothing"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.out.starts_with("No instance takes part in a spread \"nothing\""), "{unknown:?}");
}

const LOOKED: &[(&str, &str)] = &[
    ("record", "object"),
    ("last", "object|null"),
    ("failures", "number"),
    ("zone", "string|null"),
    ("paused", "bool"),
    ("running", "bool"),
    ("in_words", "string|null"),
    ("next", "array"),
    ("owner", "object|null"),
    ("due", "string|null"),
    ("overdue_ms", "number|null"),
    ("runs", "array"),
    ("runs_whole", "bool"),
    ("read_at", "string"),
];

#[tokio::test(flavor = "multi_thread")]
async fn schedules_and_history_tell_how_runs_went() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let failing = elect.schedule("failing", "0 0 1 1 *").run(|_, _| async { Err("disk full") }).unwrap();
    let paused = elect.schedule("paused", "30 2 * * *").zone("Europe/Berlin");
    let paused = paused.run(|_, _| async { Ok::<_, String>(()) }).unwrap();
    failing.run_now("a test").await.unwrap();
    failing.run_now("another").await.unwrap();
    paused.pause("repairs").await.unwrap();
    let of =
        |json: &Value, name: &str| item(json["items"].as_array().unwrap(), "/record/id/name", name).clone();
    let is_through = |json: &Value| {
        let items = json["items"].as_array().unwrap();
        // The owner defines it after it has its lock.
        let is_defined = items.len() == 2 && !of(json, "paused")["record"]["definition"].is_null();
        is_defined && of(json, "failing")["failures"] == 2
    };
    let json = world.json_until(&["schedules"], is_through).await;
    for one in listing(&json) {
        fields(one, LOOKED);
        fields(
            &one["record"],
            &[
                ("id", "object"),
                ("definition", "object|null"),
                ("pause", "object|null"),
                ("pauses_before", "array"),
                ("orders", "array"),
                ("mark", "string|null"),
            ],
        );
        fields(&one["owner"], &and(LIFE, &[("holder", "string"), ("session", "string"), ("term", "number")]));
    }
    let one = of(&json, "failing");
    fields(&one["last"], RUN);
    fields(
        &one["last"]["finish"],
        &[("at", "string"), ("outcome", "string"), ("error", "string|null"), ("last", "bool")],
    );
    assert_eq!((&one["last"]["finish"]["error"], &one["zone"]), (&"disk full".into(), &"UTC".into()));
    let next = one["next"].as_array().unwrap();
    assert!(next.len() == 3 && next[0].as_str().unwrap().ends_with("-01-01T00:00:00Z"), "{one:#}");
    assert_eq!((one["runs"].as_array().unwrap().len(), &one["runs_whole"]), (2, &true.into()));
    fields(&one["runs"][0], RUN);
    let other = of(&json, "paused");
    assert_eq!(
        (&other["paused"], &other["next"], &other["zone"]),
        (&true.into(), &serde_json::json!([]), &"Europe/Berlin".into())
    );

    let ran = world.run(&["schedules"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.row("failing").contains("failed: disk full") && ran.row("failing").ends_with("pod-1"),
        "{}",
        ran.out
    );
    assert!(ran.row("paused").contains("by pod-1: repairs"), "{}", ran.out);

    let history = world.json(&["history", "failing"]);
    fields(
        &history,
        &[
            ("schedule", "object"),
            ("items", "array"),
            ("refused", "array"),
            ("more", "bool"),
            ("mark", "string|null"),
        ],
    );
    let items = history["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    for run in items {
        fields(run, RUN);
    }
    assert_eq!((&items[0]["id"]["entry"], &history["more"]), (&"order".into(), &false.into()));
    let limited = world.json(&["history", "failing", "--limit", "1"]);
    assert_eq!((limited["items"].as_array().unwrap().len(), &limited["more"]), (1, &true.into()));
    let ran = world.run(&["history", "failing"]);
    assert_eq!(
        ran.out.lines().filter(|line| line.contains("failed") && line.ends_with("disk full")).count(),
        2,
        "{ran:?}"
    );
    assert_eq!(world.run(&["history", "paused"]).out, "\"paused\" has not run yet.\n");
    let unknown = world.run(&["history", "nothing"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.out.starts_with("There is no schedule \"nothing\""), "{unknown:?}");
    elect.close().await;
    let json = world.json(&["schedules"]);
    assert_eq!(of(&json, "failing")["owner"], Value::Null, "nobody has it");
}

#[test]
fn next_needs_no_store() {
    let json = |arguments: &[&str]| Ran::of(&mut command(&[], arguments)).json();
    let one = json(&["next", "0 0 1 1 *", "-n", "3", "--output", "json"]);
    fields(&one, &[("expression", "string"), ("zone", "string|null"), ("items", "array")]);
    let items = one["items"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    assert!(items.iter().all(|item| item.as_str().unwrap().ends_with("-01-01T00:00:00Z")), "{items:?}");
    let berlin = Ran::of(&mut command(&[], &["next", "0 12 1 1 *", "--zone", "Europe/Berlin", "-n", "1"]));
    let row = berlin.out.lines().nth(1).unwrap();
    assert!(row.contains("-01-01 12:00:00 CET") && row.contains("-01-01 11:00:00 UTC"), "{row}");
    let wrong = Ran::of(&mut command(&[], &["next", "0 0 31 2 *"]));
    assert_eq!((wrong.code, wrong.err.contains("names a day that does not exist")), (64, true), "{wrong:?}");
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let world = World::sqlite();
    let elsewhere = format!("{}-not", world.uri);
    for arguments in [
        &["ls"][..],
        &["show", "a"],
        &["instances"],
        &["spreads"],
        &["schedules"],
        &["history", "a"],
        &["watch"],
    ] {
        let ran = Ran::of(&mut command(&["--store", &elsewhere], arguments));
        assert_eq!(
            (ran.code, ran.err.contains("there is no store at")),
            (69, true),
            "{arguments:?}: {ran:?}"
        );
    }
    assert!(!std::path::Path::new(elsewhere.trim_start_matches("sqlite:")).exists());
}

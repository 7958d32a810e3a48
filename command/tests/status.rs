//! Output of `tenure status`: the troubles of a fleet on a file, and what a monitor reads of them.

use tenure::{Elect, schedule::Schedule};

use crate::{
    looking::{Ran, World, command, fields},
    wait::until,
};

/// A schedule whose run fails with that error.
async fn failed(elect: &Elect, name: &str, error: String) -> Schedule {
    let run = move |_, _| {
        let error = error.clone();
        async { Err(error) }
    };
    let schedule = elect.schedule(name, "0 0 1 1 *").run(run).unwrap();
    schedule.run_now("a test").await.unwrap();
    until("a failure", async || {
        let status = schedule.status().await.unwrap();
        if status.as_ref().is_some_and(|status| status.failures > 0) { Ok(()) } else { Err(status) }
    })
    .await;
    schedule
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_that_all_is_well_or_what_needs_somebody_and_what_to_do() {
    let world = World::sqlite();
    let well = world.run(&["status"]);
    assert_eq!((well.code, well.out.as_str()), (0, "no instance runs: 0 instances, 0 tasks, 0 schedules\n"));

    let elect = world.engine("pod-1").await;
    let _failing = failed(&elect, "failing", "disk full".to_owned()).await;
    let ran = world.run(&["status"]);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!((ran.code, lines.len()), (1, 3), "{ran:?}");
    let head = "1 trouble needs attention: 1 instance, 0 tasks, 1 schedule, last failure ";
    assert!(lines[0].starts_with(head), "{ran:?}");
    assert!(lines[1].starts_with("WARNING   failing has failed once: disk full ("), "{ran:?}");
    let store = &world.uri;
    assert_eq!(lines[2], format!("          -> tenure --store={store} --namespace=shop history failing"));
    assert_eq!(world.run(&["check"]).code, 1, "they agree");
    // Options that come from variables are not repeated.
    let mut by_variables = command(&[], &["status"]);
    let ran = Ran::of(by_variables.env("TENURE_STORE", store).env("TENURE_NAMESPACE", "shop"));
    assert_eq!(ran.out.lines().nth(2), Some("          -> tenure history failing"), "{ran:?}");

    let json = world.run(&["status", "--output", "json"]);
    assert_eq!(json.code, 1);
    let json = json.json();
    fields(
        &json,
        &[
            ("state", "string"),
            ("code", "number"),
            ("troubles", "array"),
            ("alive", "number"),
            ("tasks", "number"),
            ("schedules", "number"),
            ("waiting", "number"),
            ("last_failure", "string|null"),
            ("unread", "array"),
            ("now", "string"),
        ],
    );
    let trouble = &json["troubles"][0];
    fields(
        trouble,
        &[
            ("grade", "string"),
            ("sort", "string"),
            ("about", "object"),
            ("number", "number"),
            ("since", "string|null"),
            ("says", "string"),
            ("command", "string"),
        ],
    );
    assert_eq!((&trouble["grade"], &trouble["sort"]), (&"warning".into(), &"failures".into()));
    assert_eq!(
        (&trouble["about"]["kind"], &trouble["about"]["schedule"]),
        (&"schedule".into(), &"failing".into())
    );
    let pause = ["pause", "failing", "--yes", "--why", "repairs"];
    assert_eq!(world.run(&pause).code, 0);
    let ran = world.run(&["status"]);
    let paused = ran.out.lines().find(|line| line.contains(" was paused ")).unwrap();
    assert!(paused.ends_with(": repairs"), "the age is told once: {paused}");
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_lines_are_enough_and_say_how_many_more_there_are() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let mut kept = Vec::new();
    for number in 0..12 {
        kept.push(failed(&elect, &format!("job-{number:02}"), format!("error {number}")).await);
    }
    let ran = world.run(&["status"]);
    assert_eq!((ran.code, ran.out.lines().count()), (1, 20), "{ran:?}");
    let end = format!("and 3 more: tenure --store={} --namespace=shop status --all\n", world.uri);
    assert!(ran.out.ends_with(&end), "{ran:?}");
    let all = world.run(&["status", "--all"]);
    assert_eq!((all.code, all.out.lines().count()), (1, 25), "{all:?}");
    elect.close().await;
}

//! `tenure exec` while its key is taken away, or its store: on a file, and on a real MongoDB.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tenure::{
    model::{Holder, Key, Kind, LockId, Namespace, Why},
    store::{LockRecord, LockSeen, Request, Revocation, RevokeAnswer, StoreExt, sqlite::SqliteStore},
};

use crate::{
    cli::{
        Folder, Running, SHORT, STEADY, bare, output, stderr, stdout, tenure, until_lines, until_there,
        with_variable,
    },
    support::{
        mongod::{Deployment, Options, Shape, shared_replica_set},
        wait::{self, LIMIT},
    },
};

fn exec(store: &str, folder: &Folder, durations: &[&str], script: &str) -> Command {
    let mut command = tenure(store);
    command.args(durations).args(["exec", "--key", "k", "--", "sh", "-c", script]);
    command.env("TENURE_TEST", folder.path());
    command
}

fn script(folder: &Folder) -> String {
    format!(
        "trap 'echo told; exit 0' TERM; echo > {}; while :; do sleep 0.05; done",
        folder.join("begun").display()
    )
}

async fn lock(store: &SqliteStore) -> LockRecord {
    let id = LockId {
        namespace: Namespace::new("default").unwrap(),
        kind: Kind::Lock,
        key: Key::new("k").unwrap(),
    };
    match store.locks(vec![id], LIMIT).await.unwrap().pop() {
        Some(LockSeen::Found(record)) => record,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_child_whose_key_is_wanted_by_an_operator_is_told_and_ends() {
    let folder = Folder::new("revoked");
    let running = Running::start(
        exec(&folder.store(), &folder, &STEADY, &script(&folder))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    until_there(&folder.join("begun"));
    let store = SqliteStore::open(folder.join("tenure.db")).unwrap();
    let record = lock(&store).await;
    let request = Request {
        lock: record.id,
        term: record.term,
        by: Holder::new("ops").unwrap(),
        why: Why::new("maintenance").unwrap(),
    };
    let session = record.holding.unwrap().by.session;
    let asked = store.revoke(Revocation::Ask { session, request }, LIMIT).await.unwrap();
    assert_eq!(asked, RevokeAnswer::Asked);
    let (status, out, err) = running.output();
    assert_eq!((status.code(), out.as_str()), (Some(80), "told\n"), "{err}");
    assert!(err.contains("lost the key \"k\", so the child was ended: revoked by ops: maintenance"), "{err}");
    assert!(lock(&store).await.holding.is_none(), "it is given back");
    store.close().await;
}

/// The store does not answer any more: the child is ended in time, with everything that it started.
///
/// The child is killed half a ttl before the end, so that a machine that stands still for three seconds shows no other
/// end.
#[tokio::test]
async fn a_child_ends_before_its_lease_when_the_store_is_away() {
    const TTL: Duration = Duration::from_secs(9);
    let durations = ["--refresh-duration", "9s", "--refresh-interval", "500ms", "--stop-grace", "4500ms"];
    let folder = Folder::new("away");
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let script = format!(
        "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' &); {}",
        "echo > $TENURE_TEST/begun; while :; do sleep 1; done"
    );
    let mut command = tenure(deployment.uri());
    command.args(durations).args(["exec", "--key", "k", "--kill-after", "100ms", "--", "sh", "-c", &script]);
    let mut running = Running::start(command.env("TENURE_TEST", folder.path()).stderr(Stdio::piped()));
    until_there(&folder.join("begun"));
    let node = &deployment.nodes()[0];
    let frozen = Instant::now();
    deployment.freeze(node).await;
    wait::until_blocking("the end of all that the child started", || {
        // The process that is left then is tenure itself.
        let all = with_variable(&format!("TENURE_TEST={}", folder.path().display()));
        if all.iter().all(|pid| *pid == running.pid()) { Ok(()) } else { Err(all) }
    });
    let ended = frozen.elapsed();
    assert!(ended < TTL, "the lease may have ended: {ended:?}");
    deployment.thaw(node).await;
    let status = running.join();
    assert_eq!(status.code(), Some(80));
}

#[tokio::test]
async fn a_key_runs_one_program_at_a_time_on_a_replica_set() {
    let deployment = shared_replica_set().await;
    println!("mongod {} serves these tests", deployment.version());
    let folder = Folder::new("set");
    let uri = deployment.uri_in("exec_set");
    let mut first = Running::start(&mut exec(&uri, &folder, &SHORT, &script(&folder)));
    until_there(&folder.join("begun"));
    let mut busy = tenure(&uri);
    let busy = output(busy.args(["exec", "--key", "k", "-n", "--", "echo", "ran"]));
    assert_eq!((busy.status.code(), stdout(&busy).as_str()), (Some(75), ""), "{}", stderr(&busy));
    assert!(stderr(&busy).contains("the key \"k\" is held by "), "{}", stderr(&busy));
    // Killed, it is replaced a ttl after its last heartbeat, when nothing is left of its child.
    let second = format!(
        "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c '^TENURE_TEST={}$'",
        folder.path().display()
    );
    let mut second = exec(&uri, &folder, &SHORT, &second);
    let second = Running::start(second.env_remove("TENURE_TEST").stdout(Stdio::piped()));
    first.signal(Signal::KILL);
    first.join();
    let (status, out, _) = second.output();
    assert_eq!((status.code(), out.trim()), (Some(1), "0"));
}

/// A password is in no message, and in no variable of the child.
#[tokio::test]
async fn a_password_is_told_to_nobody() {
    let deployment = shared_replica_set().await;
    let folder = Folder::new("password");
    let wrong = deployment.uri().replace("mongodb://", "mongodb://somebody:s3cret@");
    let file = folder.join("uri");
    fs::write(&file, format!("{wrong}\n")).unwrap();
    for of_file in [false, true] {
        let mut command = if of_file { bare() } else { tenure(&wrong) };
        if of_file {
            command.env("TENURE_STORE_FILE", &file);
        }
        let refused = output(command.args(["exec", "--key", "k", "--", "echo", "ran"]));
        assert_eq!(refused.status.code(), Some(69), "{}", stderr(&refused));
        let said = stderr(&refused);
        assert!(!said.contains("s3cret") && said.lines().count() == 1, "{said}");
    }
}

/// As `flock` would: the file is waited for as the key is, up to `--wait`.
#[test]
fn a_file_that_another_process_keeps_locked_is_waited_for() {
    const BRIEF: [&str; 4] = ["--refresh-duration", "2s", "--refresh-interval", "500ms"];

    let folder = Folder::new("locked");
    assert!(output(&mut exec(&folder.store(), &folder, &BRIEF, "true")).status.success());
    let other = rusqlite::Connection::open(folder.join("tenure.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let said = folder.join("said");
    let mut command = exec(&folder.store(), &folder, &BRIEF, "exit 7");
    let mut waiting = Running::start(command.stderr(fs::File::create(&said).unwrap()));
    let locked = "tenure.db: another process keeps it locked";
    until_lines("the notice", &said, |said| {
        said.iter().any(|line| line.contains("waiting: ") && line.contains(locked))
    });
    for patience in [["--wait", "1s"].as_slice(), &["--nonblock"]] {
        let mut command = tenure(&folder.store());
        command.args(BRIEF).args(["exec", "--key", "k"]).args(patience).args(["--", "true"]);
        let ended = output(&mut command);
        assert_eq!(ended.status.code(), Some(69), "{}", stderr(&ended));
        assert!(stderr(&ended).contains(locked), "{}", stderr(&ended));
    }
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(waiting.join().code(), Some(7));
    let said = fs::read_to_string(&said).unwrap();
    assert_eq!(said.matches(locked).count(), 1, "{said}");
}

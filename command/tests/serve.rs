//! `tenure cron` and `tenure spread` on a file: what runs, where, and what becomes of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]
#![allow(clippy::disallowed_methods, reason = "processes run by the clock of the machine")]

mod cli;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
    time::Duration,
};

use cli::{
    Folder, Running, all, children, lines, output, running_tasks, signal, stderr, stdout, tenure, until,
};
use rustix::process::Signal;
use tenure::{
    model::{Namespace, Outcome, RunRecord, ScheduleId, ScheduleName},
    store::{Store, sqlite::SqliteStore},
};

fn quick(folder: &Folder) -> Command {
    let mut command = tenure(&folder.store());
    command.args(["--refresh-duration", "3s", "--refresh-interval", "300ms"]).stderr(Stdio::null());
    command
}

fn ledger(folder: &Folder, name: &str) -> Vec<RunRecord> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(folder.join("tenure.db")).unwrap();
        let schedule = ScheduleId {
            namespace: Namespace::new("default").unwrap(),
            name: ScheduleName::new(name).unwrap(),
        };
        let page = store.history(schedule, None, 1000, Duration::from_secs(5)).await.unwrap();
        store.close().await;
        page.page.items
    })
}

#[test]
fn a_tick_runs_once_per_fleet() {
    let folder = Folder::new("cron");
    let ran = folder.join("ran");
    let script = format!("echo $TENURE_TICK $TENURE_SCHEDULE $TENURE_ATTEMPT >> {}", ran.display());
    let mut fleet: Vec<_> = (0..3)
        .map(|_| {
            Running::start(quick(&folder).args([
                "cron",
                "@every 1s",
                "--name",
                "beat",
                "--",
                "sh",
                "-c",
                &script,
            ]))
        })
        .collect();
    until("four ticks", || (lines(&ran).len() >= 4).then_some(()));
    for running in &mut fleet {
        running.signal(Signal::TERM);
    }
    for running in &mut fleet {
        assert_eq!(running.join().code(), Some(0));
    }
    let mut ticks = BTreeMap::new();
    for line in lines(&ran) {
        let (tick, rest) = line.split_once(' ').unwrap();
        assert_eq!(rest, "beat 1");
        *ticks.entry(tick.to_owned()).or_insert(0) += 1;
    }
    assert!(ticks.values().all(|times| *times == 1), "{ticks:?}");
}

#[test]
fn a_failure_is_on_record_with_its_last_words() {
    let folder = Folder::new("cron-fails");
    let _running = Running::start(quick(&folder).args([
        "cron",
        "@every 1s",
        "--name",
        "backup",
        "--",
        "sh",
        "-c",
        "echo 'the disk is full' >&2; exit 3",
    ]));
    let failed = until("a failure on record", || {
        if !folder.join("tenure.db").exists() {
            return None;
        }
        ledger(&folder, "backup").into_iter().find_map(|run| run.finish)
    });
    assert_eq!(failed.error.unwrap().as_str(), "exit code 3: the disk is full");
}

/// A tick that takes too long is ended and tried again, and its zone is the one that was asked for.
#[test]
fn the_options_of_a_tick_hold() {
    let folder = Folder::new("cron-options");
    let ran = folder.join("ran");
    let script = format!("echo $TENURE_ATTEMPT >> {}; exec sleep 600", ran.display());
    let _running = Running::start(quick(&folder).args([
        "cron",
        "@every 1h",
        "--name",
        "slow",
        "--timeout",
        "200ms",
        "--retries",
        "2",
        "--retry-after",
        "100ms",
        "--",
        "sh",
        "-c",
        &script,
    ]));
    until("a ledger", || folder.join("tenure.db").exists().then_some(()));
    until("the schedule", || {
        let run = output(tenure(&folder.store()).args(["run", "slow", "--yes"]));
        run.status.success().then_some(())
    });
    until("both tries", || (lines(&ran) == ["1", "2"]).then_some(()));
    let failed =
        || ledger(&folder, "slow").into_iter().find_map(|run| run.finish.filter(|_| run.attempt == 2));
    assert_eq!(until("its end", failed).outcome, Outcome::TimedOut);
    let next = |zone: &[&str]| {
        let words = [&["cron", "30 2 1 1 *", "--name", "x", "--test", "-o", "json"], zone, &["--", "true"]];
        let shown = output(tenure(&folder.store()).args(words.concat()));
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["items"][0]["next"][0].as_str().unwrap().to_owned()
    };
    assert!(next(&[]).ends_with("-01-01T02:30:00Z"), "{}", next(&[]));
    assert!(next(&["--zone", "Europe/Berlin"]).ends_with("-01-01T01:30:00Z"));
}

#[test]
fn a_crontab_is_checked_and_read_again() {
    let folder = Folder::new("crontab");
    let crontab = folder.join("crontab");
    let (first, second) = (folder.join("first"), folder.join("second"));
    fs::write(&crontab, format!("WORD=hello\n# name: first\n@every 1s echo $WORD >> {}\n", first.display()))
        .unwrap();
    let file = crontab.display().to_string();
    let shown = output(tenure(&folder.store()).args(["cron", "--file", &file, "--test", "-o", "json"]));
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["items"][0]["name"], "first");
    assert_eq!(shown["items"][0]["next"].as_array().unwrap().len(), 3);
    let mut running = Running::start(quick(&folder).args(["cron", "--file", &file]));
    until("a tick", || lines(&first).first().map(|line| assert_eq!(line, "hello")));
    // One with a slip changes nothing.
    fs::write(&crontab, "* * * * *\n").unwrap();
    let count = lines(&first).len();
    until("another tick", || (lines(&first).len() > count).then_some(()));
    fs::write(&crontab, format!("# name: second\n@every 1s echo 2 >> {}\n", second.display())).unwrap();
    until("the new line", || (!lines(&second).is_empty()).then_some(()));
    running.signal(Signal::TERM);
    assert_eq!(running.join().code(), Some(0));
    let slip =
        output(tenure(&folder.store()).args(["cron", "61 * * * *", "--name", "x", "--test", "--", "true"]));
    assert_eq!(slip.status.code(), Some(64));
    assert!(stderr(&slip).contains("61"), "{}", stderr(&slip));
}

fn spread(folder: &Folder, tasks: &str) -> Command {
    let mut command = quick(folder);
    command.args(["spread", "--name", "topics", "--tasks", tasks, "--", "sh", "-c"]);
    command
        .arg("echo $TENURE_HOLDER $TENURE_KEY {} >> $TENURE_TEST/ran; exec sleep 600")
        .env("TENURE_TEST", folder.path());
    command
}

#[test]
fn tasks_move_as_instances_come_and_go() {
    let folder = Folder::new("spread");
    let file = folder.join("tasks");
    fs::write(&file, "# six\na\nb\nc\nd\ne\nf\n").unwrap();
    let tasks = file.display().to_string();
    let mut first = Running::start(spread(&folder, &tasks).env("TENURE_HOLDER", "first"));
    until("all tasks", || (all(&running_tasks(&folder)) == ["a", "b", "c", "d", "e", "f"]).then_some(()));
    let second = Running::start(spread(&folder, &tasks).env("TENURE_HOLDER", "second"));
    until("three each", || {
        let running = running_tasks(&folder);
        (running.len() == 2 && running.values().all(|tasks| tasks.len() == 3)).then_some(())
    });
    second.signal(Signal::KILL);
    until("all tasks on the first", || {
        running_tasks(&folder).get("first").is_some_and(|tasks| tasks.len() == 6).then_some(())
    });
    // Two are gone, one is new.
    fs::write(&file, "a\nb\nc\nd\ng\n").unwrap();
    until("the new tasks", || (all(&running_tasks(&folder)) == ["a", "b", "c", "d", "g"]).then_some(()));
    assert!(lines(&folder.join("ran")).iter().all(|line| {
        let words: Vec<_> = line.split(' ').collect();
        words.len() == 3 && words[1] == words[2]
    }));
    first.signal(Signal::TERM);
    assert_eq!(first.join().code(), Some(0));
    assert_eq!(all(&running_tasks(&folder)), [""; 0]);
}

/// From standard input, two at a time, each for good; a link's file is read again when somebody says so.
#[test]
fn tasks_that_are_done_do_not_come_back() {
    let folder = Folder::new("spread-once");
    let ran = folder.join("ran");
    let script = format!("echo {{}} >> {}", ran.display());
    let words = ["--once", "--cap", "2", "--", "sh", "-c", &script];
    let mut running = Running::start(
        quick(&folder).args(["spread", "--name", "once", "--tasks", "-"]).args(words).stdin(Stdio::piped()),
    );
    running.0.stdin.take().unwrap().write_all(b"a\nb\nc\nd\n").unwrap();
    let done = |count| {
        until("all tasks", || (lines(&ran).len() >= count).then_some(()));
        let mut done = lines(&ran);
        done.sort();
        done
    };
    assert_eq!(done(4), ["a", "b", "c", "d"]);
    running.signal(Signal::TERM);
    assert_eq!(running.join().code(), Some(0));
    // Nobody sees that a file of another folder changes.
    let there = Folder::new("spread-linked");
    fs::write(there.join("tasks"), "a\n").unwrap();
    std::os::unix::fs::symlink(there.join("tasks"), folder.join("tasks")).unwrap();
    let tasks = folder.join("tasks").display().to_string();
    let running =
        Running::start(quick(&folder).args(["spread", "--name", "once", "--tasks", &tasks]).args(words));
    let ready = || {
        let instances = output(tenure(&folder.store()).args(["spreads", "once"]));
        instances.status.success().then_some(())
    };
    until("the spread", ready);
    fs::write(there.join("tasks"), "a\ne\n").unwrap();
    running.signal(Signal::HUP);
    assert_eq!(done(5), ["a", "b", "c", "d", "e"], "what was done stays done");
}

/// As editors save: another file takes its place, and is empty at first.
#[test]
fn a_file_that_is_saved_again_disturbs_nobody() {
    let folder = Folder::new("spread-saved");
    let file = folder.join("tasks");
    fs::write(&file, "a\nb\n").unwrap();
    let _running = Running::start(&mut spread(&folder, &file.display().to_string()));
    until("both tasks", || (all(&running_tasks(&folder)) == ["a", "b"]).then_some(()));
    for _ in 0..3 {
        fs::rename(&file, folder.join("tasks~")).unwrap();
        let mut new = fs::File::create(&file).unwrap();
        // Whoever reads it now finds nothing.
        std::thread::sleep(Duration::from_millis(200));
        new.write_all(b"a\nb\n").unwrap();
    }
    fs::rename(&file, folder.join("tasks~")).unwrap();
    fs::write(&file, "a\nb\nc\n").unwrap();
    until("the new task", || (all(&running_tasks(&folder)) == ["a", "b", "c"]).then_some(()));
    let ran = folder.join("ran");
    until("the word of each", || (lines(&ran).len() >= 3).then_some(()));
    assert_eq!(lines(&ran).len(), 3, "none was started again");
}

#[test]
fn a_guardian_that_is_killed_costs_one_task_a_moment() {
    let folder = Folder::new("spread-guardian");
    let file = folder.join("tasks");
    fs::write(&file, "a\nb\n").unwrap();
    let running = Running::start(&mut spread(&folder, &file.display().to_string()));
    until("both tasks", || (all(&running_tasks(&folder)) == ["a", "b"]).then_some(()));
    signal(children(running.pid())[0], Signal::KILL);
    until("both tasks again", || {
        (lines(&folder.join("ran")).len() == 3 && all(&running_tasks(&folder)) == ["a", "b"]).then_some(())
    });
}

#[test]
fn what_a_file_of_tasks_breaks_is_named() {
    let folder = Folder::new("spread-slips");
    let file = folder.join("tasks");
    let run = |text: Option<&str>| {
        if let Some(text) = text {
            fs::write(&file, text).unwrap();
        }
        let output = output(spread(&folder, &file.display().to_string()).stderr(Stdio::piped()));
        assert_eq!(output.status.code(), Some(64));
        stderr(&output)
    };
    assert!(run(None).contains("cannot be read: No such file"));
    assert!(run(Some("a\nb\na\n")).contains("tasks:3: the task \"a\" is there twice"));
}

#[test]
fn whoever_started_it_learns_that_it_is_ready_and_how_it_is() {
    let folder = Folder::new("ready");
    let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
    socket.set_read_timeout(Some(cli::SOON)).unwrap();
    let mut command = quick(&folder);
    command.args(["cron", "@every 1s", "--name", "beat", "--metrics", "127.0.0.1:0", "--", "true"]);
    command.env("NOTIFY_SOCKET", folder.join("notify")).env("WATCHDOG_USEC", "200000").stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut said = [0; 64];
    let mut hear = |wanted: &str| loop {
        let heard = socket.recv(&mut said).unwrap();
        if &said[..heard] == wanted.as_bytes() {
            return;
        }
    };
    hear("READY=1");
    hear("WATCHDOG=1");
    let mut first = String::new();
    BufReader::new(running.0.stderr.take().unwrap()).read_line(&mut first).unwrap();
    let address =
        first.trim().strip_prefix("tenure: metrics at http://").unwrap().strip_suffix("/metrics").unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    assert!(get("/healthz").starts_with("HTTP/1.1 200 OK"), "{}", get("/healthz"));
    until("a tick among the metrics", || get("/metrics").contains("tenure_").then_some(()));
    running.signal(Signal::TERM);
    hear("STOPPING=1");
    assert_eq!(running.join().code(), Some(0));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let refused = output(tenure(&folder.store()).args([
        "cron",
        "@daily",
        "--name",
        "x",
        "--metrics",
        &taken,
        "--",
        "true",
    ]));
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(78), ""));
}

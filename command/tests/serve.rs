//! `tenure cron` and `tenure spread` on a file: what runs, where, and what becomes of it.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::symlink, net::UnixDatagram},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use tenure::{
    model::{Namespace, Outcome, RunRecord, ScheduleId, ScheduleName},
    store::{StoreExt, sqlite::SqliteStore},
};

use crate::{
    cli::{
        Folder, Running, STEADY, all, children, is_tenure, lines, output, running_tasks, signal, stderr,
        stdout, tenure, until_lines, until_tasks, until_there, with_variable,
    },
    wait::{LIMIT, until_blocking},
};

/// A command that serves, and hears soon of changes.
fn serving(folder: &Folder) -> Command {
    let mut command = tenure(&folder.store());
    command.args(STEADY).stderr(Stdio::null());
    command
}

/// Has what it says kept in a file of the folder.
fn heard<'a>(command: &'a mut Command, folder: &Folder) -> &'a mut Command {
    command.stderr(File::create(folder.join("said")).unwrap())
}

/// Waits until it has said that so many times.
fn until_said(folder: &Folder, words: &str, times: usize) {
    until_lines(words, &folder.join("said"), |said| {
        said.iter().filter(|line| line.contains(words)).count() >= times
    });
}

fn until_running(folder: &Folder, tasks: &[&str]) {
    until_tasks("these tasks", folder, |running| all(running) == tasks);
}

fn ledger(folder: &Folder, name: &str) -> Vec<RunRecord> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(folder.join("tenure.db")).unwrap();
        let schedule = ScheduleId {
            namespace: Namespace::new("default").unwrap(),
            name: ScheduleName::new(name).unwrap(),
        };
        let page = store.history(schedule, None, 1000, LIMIT).await.unwrap();
        store.close().await;
        page.items
    })
}

#[test]
fn a_tick_runs_once_per_fleet() {
    let folder = Folder::new("cron");
    let ran = folder.join("ran");
    let script = format!("echo $TENURE_TICK $TENURE_SCHEDULE $TENURE_ATTEMPT >> {}", ran.display());
    let mut fleet: Vec<_> = (0..3)
        .map(|_| {
            Running::start(serving(&folder).args([
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
    let mut begun = until_lines("three ticks", &ran, |ran| ran.len() >= 3);
    for running in &mut fleet {
        running.signal(Signal::TERM);
    }
    for running in &mut fleet {
        assert_eq!(running.join().code(), Some(0));
    }
    // The last one may have been told to stop, and be begun again by another.
    begun.pop();
    let ran = lines(&ran);
    for tick in begun.iter().map(|line| line.split(' ').next().unwrap()) {
        let runs: Vec<_> = ran.iter().filter_map(|line| line.strip_prefix(tick)).collect();
        assert_eq!(runs, [" beat 1"], "{tick}: {ran:?}");
    }
}

#[test]
fn a_failure_is_on_record_with_its_last_words() {
    let folder = Folder::new("cron-fails");
    let _running = Running::start(serving(&folder).args([
        "cron",
        "@every 1s",
        "--name",
        "backup",
        "--",
        "sh",
        "-c",
        "echo 'the disk is full' >&2; exit 3",
    ]));
    until_there(&folder.join("tenure.db"));
    let failed = until_blocking("a failure on record", || {
        let runs = ledger(&folder, "backup");
        runs.iter().find_map(|run| run.finish.clone()).ok_or(runs)
    });
    assert_eq!(failed.error.unwrap().as_str(), "exit code 3: the disk is full");
}

/// A tick that takes too long is ended and tried again, and its zone is the one that was asked for.
#[test]
fn the_options_of_a_tick_hold() {
    let folder = Folder::new("cron-options");
    let ran = folder.join("ran");
    let script = format!("echo $TENURE_ATTEMPT >> {}; exec sleep 600", ran.display());
    let _running = Running::start(serving(&folder).args([
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
    until_there(&folder.join("tenure.db"));
    until_blocking("the schedule", || {
        let run = output(tenure(&folder.store()).args(["run", "slow", "--yes"]));
        if run.status.success() { Ok(()) } else { Err(stderr(&run)) }
    });
    let second = until_blocking("the end of the second try", || {
        let runs = ledger(&folder, "slow");
        runs.iter().filter(|run| run.attempt == 2).find_map(|run| run.finish.clone()).ok_or(runs)
    });
    assert_eq!(second.outcome, Outcome::TimedOut);
    // A child that is slow to begin may be ended before it says a word.
    let told = lines(&ran);
    assert!(told.iter().all(|attempt| ["1", "2"].contains(&attempt.as_str())), "{told:?}");
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
    let mut running = Running::start(heard(&mut serving(&folder), &folder).args(["cron", "--file", &file]));
    let ticks = until_lines("a tick", &first, |ticks| !ticks.is_empty());
    assert_eq!(ticks[0], "hello");
    // One with a slip changes nothing.
    fs::write(&crontab, "* * * * *\n").unwrap();
    until_said(&folder, "the schedules stay as they are", 1);
    // The check of a crontab logs nothing.
    let said = lines(&folder.join("said")).join("\n");
    assert_eq!(said.matches("session opened").count(), 1, "{said}");
    let count = lines(&first).len();
    until_lines("another tick", &first, |ticks| ticks.len() > count);
    fs::write(&crontab, format!("# name: second\n@every 1s echo 2 >> {}\n", second.display())).unwrap();
    until_lines("the new line", &second, |ticks| !ticks.is_empty());
    until_said(&folder, "the crontab is read anew: 1 line", 1);
    running.signal(Signal::TERM);
    assert_eq!(running.join().code(), Some(0));
    let slip =
        output(tenure(&folder.store()).args(["cron", "61 * * * *", "--name", "x", "--test", "--", "true"]));
    assert_eq!(slip.status.code(), Some(64));
    assert!(stderr(&slip).contains("61"), "{}", stderr(&slip));
}

/// A run ends as it began, whatever is changed of its line; that is for the next tick.
#[test]
fn a_run_is_left_alone_when_its_line_is_edited() {
    let folder = Folder::new("crontab-edited");
    let (crontab, ran, go) = (folder.join("crontab"), folder.join("ran"), folder.join("go"));
    let write =
        |text: &str| fs::write(&crontab, text.replace("FOLDER", &folder.path().display().to_string()));
    let script = "echo begun $WORD >> FOLDER/ran; until [ -e FOLDER/go ]; do sleep 0.02; done; echo ended >> FOLDER/ran";
    write(&format!("WORD=old\n# name: long\n@every 1s {script}\n")).unwrap();
    let mut command = serving(&folder);
    let mut running = Running::start(heard(&mut command, &folder).args(["cron", "--file"]).arg(&crontab));
    until_lines("a run", &ran, |ran| ran.len() == 1);
    // A variable, the time, and at last the command; each reading is noticed by a line of its own that is gone.
    for (number, edit) in [
        format!("WORD=new\n# name: long\n@every 1s {script}\n"),
        format!("WORD=new\n# name: long\n@every 2s {script}\n"),
        "# name: long\n@every 1s echo other >> FOLDER/ran\n".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let marked = |marker: &str| write(&format!("{edit}# name: {marker}{number}\n@yearly true\n"));
        marked("first").unwrap();
        until_blocking("the edit", || {
            let known = stdout(&output(tenure(&folder.store()).args(["schedules"])));
            if known.contains(&format!("first{number}")) { Ok(()) } else { Err(known) }
        });
        marked("second").unwrap();
        until_said(&folder, &format!("\"first{number}\" is in the crontab no more"), 1);
    }
    assert_eq!(lines(&ran), ["begun old"]);
    fs::write(go, "").unwrap();
    let ran = until_lines("the next run", &ran, |ran| ran.len() >= 3);
    assert_eq!(ran[..3], ["begun old", "ended", "other"]);
    running.signal(Signal::TERM);
    assert_eq!(running.join().code(), Some(0));
}

/// As a deploy does that makes `current` lead to another folder; the kernel tells of no change there.
#[test]
fn a_crontab_behind_a_link_is_read_again() {
    let folder = Folder::new("crontab-linked");
    let current = folder.join("current");
    for release in ["one", "two"] {
        fs::create_dir(folder.join(release)).unwrap();
        let line =
            format!("# name: {release}\n@every 1s echo >> {}\n", folder.join("ran").join(release).display());
        fs::write(folder.join(release).join("crontab"), line).unwrap();
    }
    fs::create_dir(folder.join("ran")).unwrap();
    symlink(folder.join("one"), &current).unwrap();
    let _running = Running::start(serving(&folder).args(["cron", "--file"]).arg(current.join("crontab")));
    until_there(&folder.join("ran/one"));
    symlink(folder.join("two"), folder.join("new")).unwrap();
    fs::rename(folder.join("new"), &current).unwrap();
    until_there(&folder.join("ran/two"));
}

#[test]
fn a_crontab_without_lines_says_so_and_policies_are_checked_before_the_store() {
    let folder = Folder::new("crontab-none");
    let crontab = folder.join("crontab");
    fs::write(&crontab, "# nothing yet\n").unwrap();
    let test = |words: &[&str]| output(tenure(&folder.store()).args(["cron", "--test"]).args(words));
    let empty = test(&["--file", &crontab.display().to_string()]);
    assert_eq!(empty.status.code(), Some(0));
    assert!(stderr(&empty).contains("the crontab has no line, so nothing is run"), "{}", stderr(&empty));
    let policies = [("--timeout", "timeout: must be longer"), ("--misfire-window", "misfire: window")];
    for (option, rule) in policies {
        let words = ["@daily", "--name", "x", option, "0s", "--", "true"];
        let refused = [test(&words), output(tenure(&folder.store()).args(["cron"]).args(words))];
        for refused in refused {
            assert_eq!(refused.status.code(), Some(64));
            assert!(stderr(&refused).contains(rule), "{}", stderr(&refused));
        }
    }
    assert!(!folder.join("tenure.db").exists());
}

/// As systemd does by default, and `timeout`.
#[test]
fn a_stop_of_a_whole_service_cancels_its_runs() {
    let folder = Folder::new("cron-group");
    let ran = folder.join("ran");
    let lines_of =
        |number: u32| format!("# name: n{number}\n@every 1s echo >> {}; exec sleep 600\n", ran.display());
    let crontab = folder.join("crontab");
    fs::write(&crontab, (0..8).map(lines_of).collect::<String>()).unwrap();
    let mut command = serving(&folder);
    command.env("TENURE_TEST", folder.path()).args(["cron", "--file"]).arg(&crontab);
    let mut running = Running::start(&mut command);
    until_lines("all runs", &ran, |ran| ran.len() == 8);
    // Whichever tenure hears first: that its children were ended, or that it is to end.
    running.signal(Signal::STOP);
    until_blocking("the end of the children", || {
        let mut left = with_variable(&format!("TENURE_TEST={}", folder.path().display()));
        left.retain(|pid| !is_tenure(*pid));
        for pid in &left {
            signal(*pid, Signal::TERM);
        }
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    running.signal(Signal::TERM);
    running.signal(Signal::CONT);
    assert_eq!(running.join().code(), Some(0));
    for number in 0..8 {
        let runs = ledger(&folder, &format!("n{number}"));
        let outcomes: Vec<_> =
            runs.iter().filter_map(|run| run.finish.as_ref()).map(|end| end.outcome).collect();
        assert_eq!(outcomes, [Outcome::Cancelled], "n{number}");
    }
}

fn spread(folder: &Folder, tasks: &str) -> Command {
    let mut command = serving(folder);
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
    until_running(&folder, &["a", "b", "c", "d", "e", "f"]);
    let second = Running::start(spread(&folder, &tasks).env("TENURE_HOLDER", "second"));
    until_tasks("three each", &folder, |running| {
        running.len() == 2 && running.values().all(|tasks| tasks.len() == 3)
    });
    second.signal(Signal::KILL);
    until_tasks("all tasks on the first", &folder, |running| {
        running.get("first").is_some_and(|tasks| tasks.len() == 6)
    });
    // Two are gone, one is new.
    fs::write(&file, "a\nb\nc\nd\ng\n").unwrap();
    until_running(&folder, &["a", "b", "c", "d", "g"]);
    assert!(lines(&folder.join("ran")).iter().all(|line| {
        let words: Vec<_> = line.split(' ').collect();
        words.len() == 3 && words[1] == words[2]
    }));
    first.signal(Signal::TERM);
    assert_eq!(first.join().code(), Some(0));
    assert_eq!(all(&running_tasks(&folder)), [""; 0]);
}

/// From standard input, two at a time, each for good; a link's file is read again at SIGHUP.
#[test]
fn each_line_of_a_child_begins_with_its_task_if_that_is_wanted() {
    let folder = Folder::new("prefix");
    let tasks = folder.join("tasks.txt");
    fs::write(&tasks, "eu\nus\nasia\n").unwrap();
    let mut command = serving(&folder);
    command.args(["spread", "--name", "topics", "--once", "--prefix", "--tasks"]).arg(&tasks);
    // Each writes its line in two parts, the last without an end.
    let script =
        "for n in 1 2 3; do printf 'a line ' >&2; printf 'in parts\\n' >&2; done; printf 'no end' >&2";
    let running = Running::start(heard(command.args(["--", "sh", "-c", script]), &folder));
    let mut expected = Vec::new();
    for task in ["asia", "eu", "us"] {
        expected.extend([format!("{task}: a line in parts"), format!("{task}: a line in parts")]);
        expected.extend([format!("{task}: a line in parts"), format!("{task}: no end")]);
    }
    until_lines("all lines", &folder.join("said"), |said| {
        let mut of_tasks: Vec<_> =
            said.iter().filter(|line| line.contains("a line") || line.contains("no end")).collect();
        of_tasks.sort();
        of_tasks.iter().copied().eq(&expected)
    });
    running.signal(Signal::TERM);
}

#[test]
fn tasks_that_are_done_do_not_come_back() {
    let folder = Folder::new("spread-once");
    let ran = folder.join("ran");
    let script = format!("echo {{}} >> {}", ran.display());
    let words = ["--once", "--cap", "2", "--", "sh", "-c", &script];
    let mut running = Running::start(
        serving(&folder).args(["spread", "--name", "once", "--tasks", "-"]).args(words).stdin(Stdio::piped()),
    );
    running.0.stdin.take().unwrap().write_all(b"a\nb\nc\nd\n").unwrap();
    let done = |count| {
        let mut done = until_lines("all tasks", &ran, |ran| ran.len() >= count);
        done.sort();
        done
    };
    assert_eq!(done(4), ["a", "b", "c", "d"]);
    running.signal(Signal::TERM);
    assert_eq!(running.join().code(), Some(0));
    // A change of a file in another folder is not seen at once.
    let there = Folder::new("spread-linked");
    fs::write(there.join("tasks"), "a\n").unwrap();
    std::os::unix::fs::symlink(there.join("tasks"), folder.join("tasks")).unwrap();
    let tasks = folder.join("tasks").display().to_string();
    let running =
        Running::start(serving(&folder).args(["spread", "--name", "once", "--tasks", &tasks]).args(words));
    until_blocking("the spread", || {
        let seen = stdout(&output(tenure(&folder.store()).args(["spreads", "once", "-o", "json"])));
        let json: serde_json::Value = serde_json::from_str(&seen).unwrap_or_default();
        if json["members"].as_array().is_some_and(|members| members.len() == 1) { Ok(()) } else { Err(seen) }
    });
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
    let mut command = spread(&folder, &file.display().to_string());
    let running = Running::start(heard(&mut command, &folder));
    until_running(&folder, &["a", "b"]);
    for times in 1..=3 {
        fs::rename(&file, folder.join("tasks~")).unwrap();
        let mut new = File::create(&file).unwrap();
        // A read finds nothing in it now.
        running.signal(Signal::HUP);
        until_said(&folder, "tasks is empty, without even a comment", times);
        new.write_all(b"a\nb\n").unwrap();
    }
    fs::rename(&file, folder.join("tasks~")).unwrap();
    fs::write(&file, "a\nb\nc\n").unwrap();
    until_running(&folder, &["a", "b", "c"]);
    let ran = until_lines("the word of each", &folder.join("ran"), |ran| ran.len() >= 3);
    assert_eq!(ran.len(), 3, "none was started again");
}

#[test]
fn a_guardian_that_is_killed_costs_one_task_a_moment() {
    let folder = Folder::new("spread-guardian");
    let file = folder.join("tasks");
    fs::write(&file, "a\nb\n").unwrap();
    let running = Running::start(&mut spread(&folder, &file.display().to_string()));
    // A task has its lock before its child runs: a guardian killed in between costs no second start.
    until_lines("both have begun", &folder.join("ran"), |ran| ran.len() == 2);
    signal(children(running.pid())[0], Signal::KILL);
    until_lines("another start", &folder.join("ran"), |ran| ran.len() == 3);
    until_running(&folder, &["a", "b"]);
}

#[test]
fn a_file_of_tasks_that_is_missing_or_repeats_a_task_is_refused() {
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
    assert!(run(Some("a\nb\na\n")).contains("tasks:3: the task \"a\" is listed twice"));
}

#[test]
fn the_supervisor_is_notified_and_metrics_and_health_are_served() {
    let folder = Folder::new("ready");
    let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = serving(&folder);
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
    until_blocking("a tick among the metrics", || {
        let metrics = get("/metrics");
        if metrics.contains("tenure_") { Ok(()) } else { Err(metrics) }
    });
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

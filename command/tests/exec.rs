//! `tenure exec` on a file: what becomes of the program, of the key, and of what the program started.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tenure::model::Kind;

use crate::{
    cli::{
        Folder, Running, STEADY, output, set_variables, stderr, stdout, tenure, until_there, with_variable,
    },
    looking::World,
    wait::until_blocking,
};

fn exec(store: &str, key: &str) -> Command {
    let mut command = tenure(store);
    command.args(["exec", "--key", key]);
    command
}

fn sh(command: &mut Command, script: &str) -> std::process::Output {
    output(command.args(["--", "sh", "-c", script]))
}

/// Holds a key until it is dropped, and has begun when this returns.
fn holder(folder: &Folder, key: &str) -> Running {
    let begun = folder.join(&format!("begun-{key}"));
    let script = format!("echo begun > {}; exec sleep 600", begun.display());
    let mut command = exec(&folder.store(), key);
    let running = Running::start(command.args(["--why", "for a test", "--", "sh", "-c", &script]));
    until_there(&begun);
    running
}

#[test]
fn the_code_is_that_of_the_child() {
    let folder = Folder::new("exec-code");
    let store = folder.store();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        assert_eq!(sh(&mut exec(&store, "k"), script).status.code(), Some(code), "{script}");
    }
    let absent = output(exec(&store, "k").args(["--", "no-such-program-here"]));
    assert_eq!(absent.status.code(), Some(127));
    assert!(
        stderr(&absent).contains("no-such-program-here cannot be started: No such file"),
        "{}",
        stderr(&absent)
    );
    let folder_as_program = output(exec(&store, "k").args(["--", "/"]));
    assert_eq!(folder_as_program.status.code(), Some(126));
}

#[test]
fn the_child_knows_what_it_runs_under_and_no_password() {
    let folder = Folder::new("exec-variables");
    let said = sh(
        exec(&folder.store(), "report").args(["--holder", "pod-7"]),
        "echo $TENURE_KEY/$TENURE_HOLDER/$TENURE_TERM",
    );
    let said = stdout(&said);
    let mut parts = said.trim().split('/');
    assert_eq!((parts.next(), parts.next()), (Some("report"), Some("pod-7")));
    let term: u64 = parts.next().unwrap().parse().unwrap();
    let next = sh(&mut exec(&folder.store(), "report"), "echo $TENURE_TERM");
    assert!(stdout(&next).trim().parse::<u64>().unwrap() > term);
    // This one names a store with a password in a variable that is overruled.
    let mut command = exec("mongodb://u:secret@nowhere.invalid/x", "k");
    let said = sh(command.args(["--store", &folder.store()]), "echo store=$TENURE_STORE");
    assert_eq!(stdout(&said), "store=\n", "{}", stderr(&said));
}

#[test]
fn standard_input_and_output_are_those_of_the_child() {
    let folder = Folder::new("exec-stdin");
    let mut child = exec(&folder.store(), "k")
        .args(["--", "tr", "a-z", "A-Z"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"some words").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"SOME WORDS");
}

#[test]
fn a_child_that_takes_longer_than_its_timeout_is_ended_and_its_key_is_free() {
    let folder = Folder::new("exec-timeout");
    let limited = |time: &str| {
        let mut command = exec(&folder.store(), "k");
        command.args(["--timeout", time, "--kill-after", "100ms"]);
        command
    };
    // A program that heeds SIGTERM, and another that does not.
    for script in ["exec sleep 600", "trap '' TERM; sleep 600 & wait; sleep 600"] {
        let late = sh(&mut limited("300ms"), script);
        assert_eq!(late.status.code(), Some(124), "{script}: {}", stderr(&late));
        let said = stderr(&late);
        assert!(said.contains("the child took longer than --timeout (300ms), so it was ended"), "{said}");
        let next = sh(exec(&folder.store(), "k").arg("-n"), "exit 3");
        assert_eq!(next.status.code(), Some(3), "{}", stderr(&next));
    }
    assert_eq!(sh(&mut limited("1h"), "exit 7").status.code(), Some(7));
    let refused = sh(&mut limited("0s"), "echo ran");
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(64), String::new()));
    assert!(stderr(&refused).contains("--timeout is 0s, and must be longer"), "{}", stderr(&refused));
}

#[test]
fn an_exec_that_does_not_wait_names_the_holder_of_the_key() {
    let folder = Folder::new("exec-held");
    let holder = holder(&folder, "report");
    let busy = sh(exec(&folder.store(), "report").arg("-n"), "echo ran");
    assert_eq!(busy.status.code(), Some(75));
    assert_eq!(stdout(&busy), "");
    let said = stderr(&busy);
    assert!(
        said.starts_with("tenure: the key \"report\" is held by ") && said.contains(", why: for a test"),
        "{said}"
    );
    let busy = sh(exec(&folder.store(), "report").args(["-n", "-E", "9"]), "echo ran");
    assert_eq!(busy.status.code(), Some(9));
    let busy = sh(exec(&folder.store(), "report").args(["-n", "-E", "0"]), "echo ran");
    assert_eq!((busy.status.code(), stdout(&busy), stderr(&busy)), (Some(0), String::new(), String::new()));
    let begin = Instant::now();
    let busy = sh(exec(&folder.store(), "report").args(["--wait", "300ms"]), "echo ran");
    assert_eq!(busy.status.code(), Some(75), "{}", stderr(&busy));
    assert!(begin.elapsed() >= Duration::from_millis(300));
    drop(holder);
    let free = sh(exec(&folder.store(), "report").args(["--wait", "2m"]), "echo ran");
    assert_eq!(stdout(&free), "ran\n", "{}", stderr(&free));
}

/// A holder whose last heartbeat is older than its ttl may be gone: a single try must not be locked out for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_looks_dead_is_watched_even_without_waiting() {
    let world = World::sqlite();
    let living = world.session(7, "pod-7", Duration::from_secs(3600), Vec::new()).await;
    world.take(Kind::Lock, "held", &living).await;
    world.take(Kind::Lock, "left", &world.silent(8, "pod-8").await).await;
    let words = |key| [&STEADY[..], &["exec", "--key", key, "-n", "--", "echo", "ran"]].concat();
    let once = |key| world.run(&words(key));
    assert_eq!(once("held").code, 75, "its holder may live");
    let taken = once("left");
    assert_eq!(taken.out, "ran\n", "{taken:?}");
    assert!(taken.err.contains("; it may be dead, checking for up to "), "{taken:?}");
}

/// Several machines fire the same line after the holder has died: one of them runs the program.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_tries_runs_after_a_holder_has_died() {
    let world = World::sqlite();
    world.take(Kind::Lock, "left", &world.silent(8, "pod-8").await).await;
    // A lease so long that a try that waits for the next holder, too, does not end here.
    let durations = ["--refresh-duration", "10m", "--refresh-interval", "500ms"];
    let go = world.file("go");
    let script = format!("echo ran; until [ -e {} ]; do sleep 0.02; done", go.display());
    let once = |machine: &str| {
        let words = ["--holder", machine, "exec", "--key", "left", "-n", "--", "sh", "-c", &script];
        let mut command = world.command(&[&durations[..], &words].concat());
        Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let mut machines = ["a", "b", "c"].map(once);
    until_blocking("the end of two that do not run it", || {
        let ended = machines.each_mut().map(|machine| machine.0.try_wait().unwrap().is_some());
        if ended.iter().filter(|ended| **ended).count() == 2 { Ok(()) } else { Err(ended) }
    });
    fs::write(go, "").unwrap();
    let mut ended = machines.map(Running::output).map(|(status, out, _)| (status.code(), out));
    ended.sort();
    let gave_up = (Some(75), String::new());
    assert_eq!(ended, [(Some(0), "ran\n".to_owned()), gave_up.clone(), gave_up]);
}

/// The holder of the key's file is named, and waited for, whatever became of its tenure.
#[test]
fn a_former_child_that_lives_holds_up_the_next() {
    let folder = Folder::new("exec-former");
    assert_eq!(sh(&mut exec(&folder.store(), "k"), "exit 0").status.code(), Some(0));
    // The first one has removed the file as it ended.
    let file = folder.join("tenure.db-keys").join("default.lock.k");
    let file = fs::File::create_new(file).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let own = std::process::id().to_string();
    for words in [["-n"].as_slice(), &["--wait", "300ms"]] {
        let busy = sh(exec(&folder.store(), "k").args(words), "echo ran");
        assert_eq!((busy.status.code(), stdout(&busy).as_str()), (Some(75), ""));
        let said = stderr(&busy);
        assert!(
            said.contains("a former child of the key \"k\" is still there: pid") && said.contains(&own),
            "{said}"
        );
    }
    drop(file);
    assert_eq!(stdout(&sh(&mut exec(&folder.store(), "k"), "echo ran")), "ran\n");
    assert_eq!(fs::read_dir(folder.join("tenure.db-keys")).unwrap().count(), 0, "no key leaves a file");
}

#[test]
fn processes_that_the_child_leaves_behind_end_with_it() {
    let folder = Folder::new("exec-behind");
    let script = "(trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' &) ; echo done";
    let mut command = exec(&folder.store(), "k");
    command.args(["--kill-after", "100ms", "--", "sh", "-c", script]);
    let running = Running::start(command.env("TENURE_TEST", folder.path()).stdout(Stdio::piped()));
    assert_eq!(running.output().1, "done\n");
    let mark = format!("TENURE_TEST={}", folder.path().display());
    assert_eq!(with_variable(&mark), [0; 0], "it is gone before the key is given back");
}

#[test]
fn signals_reach_the_child() {
    let folder = Folder::new("exec-signals");
    for (signal, name) in
        [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1")]
    {
        let begun = folder.join(name);
        let script = format!(
            "trap 'echo got {name}; exit 3' {name}; echo > {}; while :; do sleep 0.01; done",
            begun.display()
        );
        let running = Running::start(
            exec(&folder.store(), "k").args(["--", "sh", "-c", &script]).stdout(Stdio::piped()),
        );
        until_there(&begun);
        running.signal(signal);
        let (status, out, _) = running.output();
        assert_eq!((status.code(), out.as_str()), (Some(3), format!("got {name}\n").as_str()));
    }
}

/// A signal that the parent of tenure had ignored cannot be seen any more.
#[test]
fn the_child_is_ended_by_sigpipe_also_where_that_was_ignored() {
    let folder = Folder::new("exec-sigpipe");
    let script = "trap '' PIPE; exec \"$0\" exec --key k -- grep SigIgn /proc/self/status";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tenure")]).stdin(Stdio::null());
    set_variables(&mut command, &tenure(&folder.store()));
    let said = stdout(&output(&mut command));
    let ignored = said.strip_prefix("SigIgn:").map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    assert_eq!(ignored.unwrap() & (1 << (13 - 1)), 0, "{said}");
}

#[test]
fn an_exec_that_waits_ends_by_a_signal_and_runs_nothing() {
    let folder = Folder::new("exec-waits");
    let _holder = holder(&folder, "k");
    let mut waiting = Running::start(
        exec(&folder.store(), "k").args(["--", "echo", "ran"]).stdout(Stdio::piped()).stderr(Stdio::piped()),
    );
    let mut said = String::new();
    let mut pipe = std::io::BufReader::new(waiting.0.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut pipe, &mut said).unwrap();
    assert!(said.starts_with("tenure: waiting: the key \"k\" is held by"), "{said}");
    waiting.signal(Signal::TERM);
    let (status, out, _) = waiting.output();
    assert_eq!((status.code(), out.as_str()), (Some(143), ""));
}

#[test]
fn a_patience_beyond_the_grace_is_refused() {
    let folder = Folder::new("exec-patience");
    let refused = sh(exec(&folder.store(), "k").args(["--kill-after", "1h"]), "echo ran");
    assert_eq!(refused.status.code(), Some(64));
    assert!(
        stderr(&refused).contains("--kill-after is 1h, and at most stop_grace (5s)"),
        "{}",
        stderr(&refused)
    );
    let refused = sh(exec(&folder.store(), "k").args(["--wait", "soon"]), "echo ran");
    assert_eq!(refused.status.code(), Some(64));
    let refused = sh(exec(&folder.store(), "k").args(["--refresh-interval", "1h"]), "echo ran");
    assert_eq!(refused.status.code(), Some(78), "{}", stderr(&refused));
    assert!(!folder.join("tenure.db").exists(), "nothing was made");
}

#[test]
fn a_store_that_cannot_be_used_is_told() {
    let folder = Folder::new("exec-store");
    let away = sh(&mut exec(&format!("sqlite:{}", folder.join("none/tenure.db").display()), "k"), "echo ran");
    assert_eq!(away.status.code(), Some(69), "{}", stderr(&away));
    fs::write(
        folder.join("tenure.db"),
        "something else, which is longer than the header of a database file is, by far",
    )
    .unwrap();
    let foreign = sh(&mut exec(&folder.store(), "k"), "echo ran");
    assert_eq!(foreign.status.code(), Some(69), "{}", stderr(&foreign));
    assert!(stderr(&foreign).contains("tenure.db"), "{}", stderr(&foreign));
}

/// A child that runs for months may leave many behind, in sessions of their own.
#[test]
fn orphans_that_have_ended_do_not_stay_as_zombies() {
    let folder = Folder::new("exec-zombies");
    let script = "(setsid true &); (setsid true &)
        i=0; while [ $i -lt 4000 ]; do
            zombies=0; orphans=0
            for child in $(cat /proc/$PPID/task/*/children); do
                [ $child = $$ ] || orphans=$((orphans+1))
                grep -qs '^State:.Z' /proc/$child/status && zombies=$((zombies+1))
            done
            [ $orphans = 0 ] && [ $i -gt 5 ] && exit 0
            i=$((i+1)); sleep 0.02
        done; echo $zombies zombies; exit 1";
    let ended = sh(&mut exec(&folder.store(), "k"), script);
    assert_eq!((ended.status.code(), stdout(&ended)), (Some(0), String::new()), "{}", stderr(&ended));
}

/// Files beside the store are the same for every link to it, so there is one second lock for all.
#[test]
fn a_link_to_the_store_is_the_store() {
    let folder = Folder::new("exec-link");
    let run = |store: &str| assert_eq!(stdout(&sh(&mut exec(store, "k"), "echo ran")), "ran\n");
    run(&folder.store());
    std::os::unix::fs::symlink(folder.join("tenure.db"), folder.join("link.db")).unwrap();
    run(&format!("sqlite:{}", folder.join("link.db").display()));
    assert!(folder.join("tenure.db-keys").exists() && !folder.join("link.db-keys").exists());
}

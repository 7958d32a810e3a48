//! `tenure cron` and `tenure spread` on a replica set, with operators and monitors beside them.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    cli::{
        Folder, Running, SHORT, all, lines, output, running_tasks, stderr, stdout, tenure, until_lines,
        until_tasks,
    },
    support::{mongod::shared_replica_set, wait::until_blocking},
};

/// A database of the shared replica set, and a folder for what children write.
struct Stage {
    uri: String,
    folder: Folder,
}

impl Stage {
    async fn new(name: &str) -> Self {
        let uri = shared_replica_set().await.uri_in(&format!("{name}-{}", std::process::id()));
        Self { uri, folder: Folder::new(name) }
    }

    /// Starts a long-running command.
    fn start(&self, holder: &str, words: &[&str]) -> Running {
        let mut command = self.command();
        command.args(SHORT).args(["--holder", holder]).args(words);
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log(holder)).unwrap();
        command.env("TENURE_TEST", self.folder.path()).stderr(log);
        Running::start(&mut command)
    }

    fn log(&self, holder: &str) -> PathBuf {
        self.folder.join(&format!("{holder}.log"))
    }

    fn command(&self) -> Command {
        tenure(&self.uri)
    }

    /// Runs the command to its end, and returns what it said.
    fn said(&self, words: &[&str]) -> String {
        let ended = output(self.command().args(words));
        assert_eq!(ended.status.code(), Some(0), "{words:?}: {} {}", stdout(&ended), stderr(&ended));
        stdout(&ended).trim().to_owned()
    }
}

#[tokio::test]
async fn tasks_move_away_from_whoever_is_killed_or_drained() {
    let stage = Stage::new("spread-server").await;
    let file = stage.folder.join("tasks");
    fs::write(&file, "a\nb\nc\nd\ne\nf\n").unwrap();
    let file = file.display().to_string();
    let words = ["spread", "--name", "topics", "--tasks", file.as_str(), "--", "sh", "-c", "exec sleep 600"];
    let until_shares = |first: usize, second: usize| {
        until_tasks(&format!("{first} tasks and {second}"), &stage.folder, |running| {
            let count = |holder| running.get(holder).map_or(0, Vec::len);
            let is_so = count("first") == first && count("second") == second;
            is_so && all(running) == ["a", "b", "c", "d", "e", "f"]
        });
    };
    let mut first = stage.start("first", &words);
    until_shares(6, 0);
    let second = stage.start("second", &words);
    until_shares(3, 3);
    stage.said(&["drain", "first", "--yes", "--why", "repair"]);
    until_shares(0, 6);
    stage.said(&["undrain", "first", "--yes"]);
    until_shares(3, 3);
    second.signal(Signal::KILL);
    until_shares(6, 0);
    first.signal(Signal::TERM);
    assert_eq!(first.join().code(), Some(0));
    assert_eq!(all(&running_tasks(&stage.folder)), [""; 0]);
}

#[tokio::test]
async fn tasks_whose_children_fail_on_one_machine_run_on_the_others_and_none_that_runs_is_stopped() {
    let stage = Stage::new("spread-bad").await;
    let file = stage.folder.join("tasks");
    let tasks: Vec<_> = (0..30).map(|number| format!("topic-{number:02}")).collect();
    fs::write(&file, tasks.join("\n")).unwrap();
    let file = file.display().to_string();
    for (name, fails, tries) in [("exits", "exit 3", 9), ("cannot-start", "exit 127", 1)] {
        let (ran, tried) =
            (stage.folder.join(&format!("{name}-ran")), stage.folder.join(&format!("{name}-tried")));
        let script = format!(
            "[ $TENURE_HOLDER = bad ] && echo $TENURE_KEY >> {} && {fails}; \
             echo $TENURE_KEY $TENURE_HOLDER >> {}; exec sleep 600",
            tried.display(),
            ran.display()
        );
        let words = ["spread", "--name", name, "--tasks", file.as_str(), "--cap", "20", "--tries", "3", "--"];
        let words = [&words[..], &["sh", "-c", script.as_str()]].concat();
        let good = ["good-1", "good-2"].map(|holder| stage.start(holder, &words));
        until_tasks("half on each", &stage.folder, |running| {
            running.values().all(|tasks| tasks.len() == 15) && all(running) == tasks
        });
        // A child is there before it has written its line.
        let settled = |time| {
            until_blocking("the last has run for a while", || {
                let age = fs::metadata(&ran).unwrap().modified().unwrap().elapsed().unwrap_or_default();
                if age >= time { Ok(()) } else { Err(age) }
            });
            lines(&ran)
        };
        until_lines("all have begun", &ran, |ran| ran.len() >= 30);
        // A task that came less than two seconds ago does not move on: for so long others go in its place, and each
        // instance counts from its own moment.
        let before = settled(Duration::from_secs(4)).len();
        let bad = stage.start("bad", &words);
        until_lines("what it is given is tried there", &tried, |tried| tried.len() >= tries);
        until_tasks("all on the good ones", &stage.folder, |running| {
            !running.contains_key("bad") && all(running) == tasks
        });
        let begun = settled(Duration::from_secs(1)).split_off(before);
        let logs = ["good-1", "good-2", "bad"].map(|holder| (holder, lines(&stage.log(holder))));
        assert!(
            begun.len() <= 10,
            "{name}: its part was moved to it and back, and nothing else: {begun:#?} {:#?} {logs:#?}",
            lines(&tried)
        );
        drop((good, bad));
        until_tasks("an end", &stage.folder, |running| all(running).is_empty());
    }
}

#[tokio::test]
async fn a_tick_runs_once_unless_an_operator_holds_the_schedule() {
    let stage = Stage::new("cron-server").await;
    let mut watch = stage.command();
    watch.args(["watch", "--every", "200ms", "-o", "json"]).stdout(Stdio::piped());
    let mut watch = Running::start(&mut watch);
    let mut told = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let ran = stage.folder.join("ran");
    let script = format!("echo $TENURE_TICK $TENURE_ATTEMPT >> {}", ran.display());
    let words = ["cron", "@every 1s", "--name", "beat", "--", "sh", "-c", script.as_str()];
    let mut fleet = ["first", "second"].map(|holder| stage.start(holder, &words));
    until_lines("three ticks", &ran, |ran| ran.len() >= 3);
    let ended = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["kind"] == "run_ended" && event["schedule"] == "beat" && event["outcome"] == "succeeded"
    };
    assert!(told.by_ref().map(Result::unwrap).any(|line| ended(&line)), "the watch tells of runs");
    assert!(stage.said(&["history", "beat"]).contains("succeeded"));
    assert_eq!(stage.said(&["check", "beat"]).split(':').next(), Some("OK"));
    assert_eq!(stage.said(&["pause", "beat", "--yes", "--why", "quiet"]), "Paused: \"beat\".");
    stage.said(&["run", "beat", "--yes", "--why", "now"]);
    stage.said(&["resume", "beat", "--yes"]);
    let count = lines(&ran).len();
    until_lines("ticks again", &ran, |ran| ran.len() > count + 1);
    fleet[0].signal(Signal::KILL);
    let count = lines(&ran).len();
    until_lines("ticks by who is left", &ran, |ran| ran.len() > count + 1);
    for running in [&mut fleet[1], &mut watch] {
        running.signal(Signal::TERM);
        assert_eq!(running.join().code(), Some(0));
    }
    let ran = lines(&ran);
    assert_eq!(ran.iter().collect::<BTreeSet<_>>().len(), ran.len(), "{ran:?}");
    // The run of the one that was killed may have been begun again.
    assert!(ran.iter().filter(|line| !line.ends_with(" 1")).count() <= 1, "{ran:?}");
}

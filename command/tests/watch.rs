//! Output of `tenure watch` while things happen.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};

use serde_json::Value;
use tenure::model::Kind;

use crate::{
    looking::{World, fields, lead},
    pty::{in_foreground, read_all, terminal},
    wait::{LIMIT, until},
};

/// A watch that is read line by line.
struct Watching {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn begin(world: &World, arguments: &[&str]) -> Self {
        let mut child = world.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line of that kind.
    fn next(&mut self, kind: &str) -> Value {
        loop {
            let line = self.lines.next().expect("it goes on").unwrap();
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["kind"] == kind {
                return value;
            }
        }
    }

    /// Asks it to end by that signal, and returns its code.
    fn end(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_tells_what_changes_until_it_is_interrupted() {
    let world = World::sqlite();
    let mut all = Watching::begin(&world, &["watch", "--every", "200ms", "--output", "json"]);
    let mut one = Watching::begin(&world, &["watch", "report", "--every", "200ms", "--output", "json"]);
    let begun = all.next("watching");
    fields(
        &begun,
        &[
            ("at", "string"),
            ("kind", "string"),
            ("namespace", "string"),
            ("key", "null"),
            ("held", "number"),
            ("instances", "number"),
        ],
    );
    one.next("watching");
    let elect = world.engine("pod-1").await;
    let started = all.next("instance_started");
    assert_eq!(started["holder"], "pod-1");
    let guard = lead(&elect, "report").await;
    for watching in [&mut all, &mut one] {
        let acquired = watching.next("acquired");
        fields(
            &acquired,
            &[
                ("at", "string"),
                ("kind", "string"),
                ("lock", "object"),
                ("holder", "string"),
                ("term", "number"),
                ("who", "string|null"),
                ("why", "string|null"),
                ("after", "object|null"),
            ],
        );
        assert_eq!(
            (&acquired["lock"]["key"], &acquired["why"]),
            (&"report".into(), &"nightly report".into())
        );
    }
    guard.release().await.unwrap();
    assert_eq!(one.next("released")["how"], "released");
    assert_eq!(all.next("released")["holder"], "pod-1");
    let job = elect.schedule("job", "0 0 1 1 *").run(|_, _| async { Err("disk full") }).unwrap();
    job.run_now("a test").await.unwrap();
    let ended = all.next("run_ended");
    assert_eq!(
        (&ended["outcome"], &ended["error"], &ended["schedule"]),
        (&"failed".into(), &"disk full".into(), &"job".into())
    );
    drop(job);
    elect.close().await;
    assert_eq!(all.next("instance_closed")["holder"], "pod-1");
    assert_eq!((all.end(), one.end()), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_nobody_reads_ends() {
    let world = World::sqlite();
    let silent = world.silent(1, "pod-1").await;
    let mut watching = Watching::begin(&world, &["watch", "report", "--every", "200ms", "--output", "json"]);
    watching.next("watching");
    let Watching { mut child, lines } = watching;
    drop(lines);
    // Again and again: a process that another test starts may keep the pipe open for a moment.
    let ended = until("its end", async || {
        world.close_for(Kind::Lock, "report", &silent, None, Duration::ZERO).await;
        child.try_wait().unwrap().ok_or("it goes on")
    });
    assert_eq!(ended.await.code(), Some(0));
}

/// On a terminal: a line for each thing, and Ctrl-C ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_on_a_terminal_tells_line_by_line_until_its_interrupt_key() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let (mut keys, device) = terminal();
    let command = world.command(&["watch", "--every", "200ms"]);
    let mut watching = in_foreground(&device, &command).spawn().unwrap();
    drop(device);
    let shown = read_all(keys.try_clone().unwrap());
    let mut text = String::new();
    let mut until_shown = |wanted: &str| {
        while !text.contains(wanted) {
            let more = shown.recv_timeout(LIMIT);
            text.push_str(&more.unwrap_or_else(|_| panic!("no {wanted:?} in {text}")));
        }
    };
    until_shown("1 instances alive");
    let guard = lead(&elect, "report").await;
    until_shown("acquired  report by pod-1");
    guard.release().await.unwrap();
    until_shown("released  report by pod-1");
    keys.write_all(b"\x03").unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    elect.close().await;
}

//! `tenure top` on a terminal: what stands there, what keys do, and that the terminal is left as it was found.

use std::{
    fs::File,
    io::Write,
    num::NonZeroU16,
    process::{Child, Command, ExitStatus},
    sync::mpsc,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    termios::{Termios, tcgetattr},
};

use crate::{
    cli::{children, set_variables},
    looking::{World, lead},
    pty::{in_foreground, read_all, resize, terminal_of},
    wait::{LIMIT, until_blocking},
};

fn nonzero(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

/// A `top` on a terminal of its own.
struct Top {
    child: Child,
    keys: File,
    /// Keeps the terminal there when the program is gone.
    device: File,
    before: Termios,
    said: mpsc::Receiver<String>,
    screen: vt100::Parser,
    /// All that was sent to the terminal.
    sent: String,
}

impl Top {
    fn begin(world: &World, size: (u16, u16), arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::begin_as(world.command(&["top"]), size, arguments, variables)
    }

    /// In a shell, which may let it go on.
    fn begin_in_shell(world: &World) -> Self {
        let (top, mut command) = (world.command(&["top"]), Command::new("sh"));
        command.args(["-c", "\"$@\"; exit $?", "sh"]).arg(top.get_program()).args(top.get_args());
        set_variables(&mut command, &top);
        Self::begin_as(command, (80, 24), &[], &[])
    }

    fn begin_as(
        mut command: Command,
        (columns, rows): (u16, u16),
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let (keys, device) = terminal_of(columns, rows);
        let before = tcgetattr(&device).unwrap();
        command.args(arguments).env_remove("NO_COLOR").env("TERM", "xterm-256color").env("TZ", "UTC");
        command.envs(variables.iter().copied());
        let child = in_foreground(&device, &command).spawn().unwrap();
        let said = read_all(keys.try_clone().unwrap());
        let screen = vt100::Parser::new(nonzero(rows), nonzero(columns), 0);
        Self { child, keys, device, before, said, screen, sent: String::new() }
    }

    fn hit(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn feed(&mut self, text: &str) {
        self.sent.push_str(text);
        self.screen.process(text.as_bytes());
    }

    /// Waits until the screen is as wanted. A part of a picture may come before the rest.
    fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        loop {
            let shown = self.screen.screen().contents();
            if is_so(&shown) {
                return shown;
            }
            let text = self.said.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("no {what}:\n{shown}"));
            self.feed(&text);
        }
    }

    fn until_it_has(&mut self, texts: &[&str]) -> String {
        self.until(&format!("{texts:?}"), |shown| texts.iter().all(|text| shown.contains(text)))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for its end, and looks at what it left.
    fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        let after = tcgetattr(&self.device).unwrap();
        drop(self.device);
        let said: Vec<_> = self.said.iter().collect();
        for text in said {
            self.sent.push_str(&text);
            self.screen.process(text.as_bytes());
        }
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen(), "the screen of before is back");
        assert!(!screen.hide_cursor(), "the cursor is back");
        assert_eq!(format!("{:?}", after.local_modes), format!("{:?}", self.before.local_modes));
        assert_eq!(format!("{:?}", after.input_modes), format!("{:?}", self.before.input_modes));
        assert_eq!(format!("{:?}", after.output_modes), format!("{:?}", self.before.output_modes));
        (status, self.sent)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_instances_and_keys_and_their_changes_until_q_is_hit() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let _guard = lead(&elect, "report").await;
    let mut top = Top::begin(&world, (80, 24), &[], &[]);
    let shown = top.until_it_has(&["> pod-1", " alive ", "[1 Instances]", "q quit"]);
    assert!(shown.lines().next().unwrap().starts_with("tenure top  shop in sqlite:"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("> pod-1") && line.contains(" alive ")), "{shown}");
    assert!(top.screen.screen().alternate_screen() && top.screen.screen().hide_cursor());
    // A change is seen while one looks.
    let other = world.engine("pod-2").await;
    top.until_it_has(&["pod-2"]);
    top.hit("3");
    top.until_it_has(&["report"]);
    top.hit("\r");
    top.until("what is read of the key", |shown| {
        let is_there = ["term", "report (lock)", "holder     pod-1"].iter().all(|text| shown.contains(text));
        is_there && !shown.contains("Loading")
    });
    top.hit("q");
    let (status, _) = top.ended();
    assert_eq!(status.code(), Some(0));
    other.close().await;
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn top_fills_a_larger_terminal_and_follows_when_it_is_resized() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let mut top = Top::begin(&world, (200, 60), &[], &[]);
    let shown = top.until_it_has(&["pod-1", "PROGRAM", "shop 1.2", "q quit"]);
    assert_eq!(shown.lines().count(), 60, "{shown}");
    resize(&top.keys, 80, 24);
    top.screen.screen_mut().set_size(nonzero(24), nonzero(80));
    top.until("a small screen", |shown| {
        let is_whole = shown.contains("pod-1") && shown.trim_end().ends_with("q quit");
        is_whole && !shown.contains("PROGRAM") && shown.lines().count() == 24
    });
    top.hit("\x03");
    assert_eq!(top.ended().0.code(), Some(0));
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_is_as_before_whatever_ends_it() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = Top::begin(&world, (80, 24), &[], &[]);
        top.until_it_has(&["pod-1"]);
        kill_process(top.pid(), signal).unwrap();
        assert_eq!(top.ended().0.code(), Some(0), "{signal:?}");
    }
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn top_restores_the_terminal_when_it_is_suspended_and_comes_back() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let mut top = Top::begin_in_shell(&world);
    top.until_it_has(&["pod-1"]);
    let pid = children(top.pid().as_raw_nonzero().get())[0];
    let pid = Pid::from_raw(pid).unwrap();
    top.hit("\x1a");
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    until_blocking("its stop", || {
        let stat = std::fs::read_to_string(&path).unwrap();
        if stat.contains(") T ") { Ok(()) } else { Err(stat) }
    });
    assert_eq!(tcgetattr(&top.device).unwrap().local_modes, top.before.local_modes);
    top.until("the screen of before", |shown| !shown.contains("pod-1"));
    kill_process(pid, Signal::CONT).unwrap();
    top.until_it_has(&["pod-1"]);
    assert!(top.screen.screen().alternate_screen());
    top.hit("q");
    assert_eq!(top.ended().0.code(), Some(0));
    elect.close().await;
}

/// As under `ssh -t host tenure top`.
#[tokio::test(flavor = "multi_thread")]
async fn top_is_not_suspended_where_no_shell_could_let_it_go_on() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let mut top = Top::begin(&world, (80, 24), &[], &[]);
    top.until_it_has(&["pod-1"]);
    top.hit("\x1a?");
    top.until_it_has(&["Keys"]);
    top.hit("qq");
    assert_eq!(top.ended().0.code(), Some(0));
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_color_has_none_and_a_filter_may_be_given() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let other = world.engine("pod-2").await;
    let is_coloured =
        |sent: &str| ["\x1b[31m", "\x1b[32m", "\x1b[38;5;"].iter().any(|colour| sent.contains(colour));
    for (variables, wanted) in [(&[("NO_COLOR", "1")][..], false), (&[][..], true)] {
        let mut top = Top::begin(&world, (80, 24), &["--filter", "pod-2"], variables);
        let shown = top.until_it_has(&["1 of 2 rows", "pod-2"]);
        assert!(!shown.contains("pod-1"), "{shown}");
        top.hit("q");
        let (_, sent) = top.ended();
        assert_eq!(is_coloured(&sent), wanted, "{sent:?}");
    }
    other.close().await;
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn once_prints_a_view_or_the_namespace_at_a_glance() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let _guard = lead(&elect, "report").await;
    for (view, has) in [
        ("instances", "pod-1"),
        ("spreads", "No spread is in this namespace."),
        ("locks", "report"),
        ("schedules", "No schedule is in this namespace."),
        ("changes", "report by pod-1"),
    ] {
        let ran = world.run(&["top", "--once", "--view", view]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.contains(has) && ran.out.starts_with("tenure top  shop in sqlite:"), "{}", ran.out);
        assert!(!ran.out.contains('\x1b'), "{:?}", ran.out);
    }
    let json = world.json(&["top", "--once"]);
    assert_eq!(
        (&json["namespace"], &json["instances"][0]["about"]["holder"]),
        (&"shop".into(), &"pod-1".into())
    );
    for wanted in ["now", "verdict", "spreads", "changes", "refused", "read"] {
        assert!(json.get(wanted).is_some(), "{wanted}: {json:#}");
    }
    elect.close().await;
}

#[test]
fn top_without_a_terminal_is_refused_with_what_to_do() {
    let world = World::sqlite();
    let ran = world.run(&["top"]);
    assert_eq!(ran.code, 64);
    assert!(
        ran.err.contains("standard output is not a terminal: add --once to print the view once"),
        "{}",
        ran.err
    );
    let ran = world.run(&["top", "--output", "json"]);
    assert_eq!(ran.code, 64);
    assert!(ran.err.contains("it needs --once"), "{}", ran.err);
}

//! `tenure ui`: access to it, its content, its actions, and its end.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Child, ChildStderr, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    looking::{World, lead},
    wait::{LIMIT, within},
};

/// A page that is served.
struct Served {
    child: Child,
    address: String,
    log: BufReader<ChildStderr>,
}

impl Served {
    fn begin(world: &World, arguments: &[&str]) -> Self {
        let arguments = [&["ui", "--listen", "127.0.0.1:0"], arguments].concat();
        Self::of(&mut world.command(&arguments))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        log.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("tenure: the page is at http://").expect(&line).to_owned();
        Self { child, address, log }
    }

    /// The status and the body of an answer.
    fn ask(&self, request: &str, headers: &[&str], body: &str) -> (u16, String) {
        let (status, answer) = self.ask_whole(request, headers, body);
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    fn ask_whole(&self, request: &str, headers: &[&str], body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let headers: String = headers.iter().flat_map(|header| [*header, "\r\n"]).collect();
        let (address, length) = (&self.address, body.len());
        let head = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
        stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), &["accept: text/html"], "")
    }

    /// The next line of the log.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).unwrap();
        line
    }

    /// Gives the token of the address in the log, and returns the header with the cookie.
    fn log_in(&mut self) -> String {
        let line = self.line();
        let (before, token) = line.split_once("/#").expect(&line);
        assert!(before.ends_with(&format!("to act, open http://{}", self.address)), "{line}");
        let token = token.split(' ').next().unwrap();
        let form = ["content-type: application/x-www-form-urlencoded"];
        let (status, answer) = self.ask_whole("POST /login", &form, &format!("token={token}"));
        assert_eq!(status, 303, "{answer}");
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect(&answer);
        assert!(self.line().contains("/#"), "the next one");
        assert!(self.line().contains("a visitor logged in"));
        format!("cookie: {}", cookie.split(';').next().unwrap())
    }

    fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_the_store_and_changes_nothing_until_a_signal_ends_it() {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let _guard = lead(&elect, "report").await;
    for signal in [Signal::TERM, Signal::INT] {
        let served = Served::begin(&world, &[]);
        assert_eq!(served.get("/healthz"), (200, "ok\n".to_owned()));
        let (status, page) = served.get("/");
        assert!(status == 200 && page.contains("1 alive") && page.contains("sqlite:"), "{page}");
        let (status, key) = served.get("/key?key=report");
        assert!(status == 200 && key.contains("pod-1") && !key.contains("<form"), "{key}");
        let act = served.ask(
            "POST /act/release",
            &["content-type: application/x-www-form-urlencoded"],
            "why=x&csrf=",
        );
        assert_eq!(act.0, 403);
        assert_eq!(served.end(signal), Some(0), "{signal:?}");
    }
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_goes_on_record_and_into_the_log_in_the_name_of_this_instance() {
    acts(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_done_also_if_the_log_is_closed() {
    acts(false).await;
}

async fn acts(with_log: bool) {
    let world = World::sqlite();
    let elect = world.engine("pod-1").await;
    let guard = lead(&elect, "report").await;
    let mut served = Served::begin(&world, &["--allow-actions", "--holder", "ops-1"]);
    assert!(!served.get("/key?key=report").1.contains("csrf"), "without a token, nothing is offered");
    let cookie = served.log_in();
    if !with_log {
        let (reader, _) = std::io::pipe().unwrap();
        served.log = BufReader::new(ChildStderr::from(std::os::fd::OwnedFd::from(reader)));
    }
    let (_, page) = served.ask("GET /key?key=report", &["accept: text/html", &cookie], "");
    let field = |name: &str| {
        let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let (csrf, term) = (field("csrf"), field("term"));
    let body = format!("csrf={csrf}&why=repairs&back=/&kind=lock&key=report&term={term}");
    let headers = ["content-type: application/x-www-form-urlencoded", "sec-fetch-site: same-origin"];
    assert_eq!(served.ask("POST /act/release", &headers, &body).0, 403, "without a token");
    let headers = [&headers[..], &[&cookie]].concat();
    let (status, done) = served.ask("POST /act/release", &headers, &body);
    assert!(status == 200 && done.contains("was asked to release"), "{status} {done}");
    if with_log {
        let line = served.line();
        assert!(
            ["an operator acted", "ops-1", "release", "repairs"].iter().all(|part| line.contains(part)),
            "{line}"
        );
    }
    let said = format!("{:?}", within("the holder's word of it", guard.lost()).await);
    assert!(said.contains("ops-1") && said.contains("repairs"), "{said}");
    elect.close().await;
}

#[test]
fn a_page_that_others_can_reach_needs_a_token() {
    let world = World::sqlite();
    let folder = std::env::temp_dir().join(format!("tenure-ui-token-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        folder.join(name).display().to_string()
    };
    let refused = [
        (vec!["--listen", "0.0.0.0:0"], 64, "--listen 0.0.0.0:0 is not a loopback address: add --token-file"),
        (vec!["--listen", "nowhere"], 64, "nowhere"),
        (vec!["--trust-header", "a b", "--host", "ops.example"], 64, "--trust-header"),
        (vec!["--trust-header", "Cookie", "--host", "ops.example"], 64, "Cookie does not name a user"),
        (vec!["--trust-header", "X-User"], 64, "--host"),
        (vec!["--host", "ops.example"], 64, "--trust-header"),
        (vec!["--trust-header", "X-User", "--host", "ops.example", "--host", " "], 64, "--host"),
        (vec!["--look-token-file", "/dev/null"], 64, "--token-file"),
        (vec!["--token-file", "/no/such/file"], 78, "/no/such/file"),
    ];
    for (arguments, code, says) in refused {
        let ran = world.run(&[&["ui"], arguments.as_slice()].concat());
        assert!(ran.code == code && ran.err.contains(says), "{arguments:?}: {} {}", ran.code, ran.err);
    }
    let short = file("short", "short\n");
    let ran = world.run(&["ui", "--token-file", &short]);
    assert!(
        ran.code == 78 && ran.err.contains("16") && !ran.err.contains("short\n"),
        "{} {}",
        ran.code,
        ran.err
    );
    let token = file("token", "0123456789abcdef0123456789abcdef\n");
    let ran = world.run(&["ui", "--token-file", &token, "--look-token-file", &short]);
    let says = format!("--look-token-file {short}: the token has 5 characters");
    assert!(ran.code == 78 && ran.err.contains(&says), "{} {}", ran.code, ran.err);
    let served = Served::begin(&world, &["--token-file", &token]);
    assert_eq!(served.get("/instances").0, 401);
    let bearer = ["accept: application/json", "authorization: Bearer 0123456789abcdef0123456789abcdef"];
    let (status, json) = served.ask("GET /instances", &bearer, "");
    assert!(status == 200 && json.contains("\"items\""), "{json}");
    let taken = served.address.clone();
    let ran = world.run(&["ui", "--listen", &taken]);
    assert!(ran.code == 78 && ran.err.contains(&taken), "{} {}", ran.code, ran.err);
    drop(served);

    // Kubernetes gives a secret rights like these, so they are only warned of.
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut open = world.command(&["ui", "--listen", "127.0.0.1:0", "--token-file", &token]);
    let mut open = open.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(open.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(
        ["WARN", "all users of this machine", &token, "644"].iter().all(|part| line.contains(part)),
        "{line}"
    );
    open.kill().unwrap();
    open.wait().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_wrong_token_is_in_the_log_with_its_address_and_a_flood_of_them_is_counted() {
    let world = World::sqlite();
    let token = std::env::temp_dir().join(format!("tenure-ui-wrong-{}", std::process::id()));
    std::fs::write(&token, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut served = Served::begin(&world, &["--token-file", token.to_str().unwrap()]);
    let wrong = ["accept: application/json", "authorization: Bearer 0123456789abcdef"];
    let mut said = Vec::new();
    while said.last() != Some(&429) {
        said.push(served.ask("GET /locks", &wrong, "").0);
    }
    assert_eq!(said.iter().filter(|status| **status == 401).count(), 100, "{said:?}");
    let right = ["accept: application/json", "authorization: Bearer 0123456789abcdef0123456789abcdef"];
    assert_eq!(served.ask("GET /locks", &right, "").0, 200);
    let line = served.line();
    assert!(
        ["WARN", "wrong tokens", "peer=127.0.0.1:", "count=1"].iter().all(|part| line.contains(part)),
        "{line}"
    );
    assert_eq!(served.end(Signal::TERM), Some(0));
    std::fs::remove_file(token).unwrap();
}

#[test]
fn idle_connections_make_room_and_the_log_has_a_line_of_it() {
    let world = World::sqlite();
    let page = world.command(&["ui", "--listen", "127.0.0.1:0"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 128; exec \"$0\" \"$@\""]).arg(page.get_program()).args(page.get_args());
    limited.envs(page.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut served = Served::of(&mut limited);
    let idle: Vec<_> = (0..300).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
    assert_eq!(served.get("/locks").0, 200);
    let line = served.line();
    assert!(["WARN", "connections", "there are 64"].iter().all(|part| line.contains(part)), "{line}");
    drop(idle);
    assert_eq!(served.end(Signal::TERM), Some(0));
}

#[test]
fn a_place_in_a_list_that_no_store_made_is_the_fault_of_the_address() {
    let world = World::sqlite();
    let served = Served::begin(&world, &["--no-values"]);
    for (address, status) in [
        ("/locks?after=ab", 400),
        ("/locks?after=abab", 400),
        ("/locks?after=xy", 400),
        ("/key?key=report&value=true", 404),
        ("/locks", 200),
    ] {
        assert_eq!(served.get(address).0, status, "{address}: {}", served.get(address).1);
    }
}

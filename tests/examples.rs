//! The examples, each run as a process, as its reader would.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use futures::future::join_all;
use mongodb::bson::{Document, doc};
use tenure::{
    Elect, ElectConfig,
    store::{
        Ended, LockSeen, StoreExt,
        mongo::{MongoOptions, MongoStore},
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, ChildStdout, Command},
    task::JoinHandle,
};

use crate::example::binary;
use crate::support::{
    mongod::shared_single,
    wait::{LIMIT, until, within},
};

/// Folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// An example that runs. It is killed when this is dropped.
struct Running {
    example: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: Vec<String>,
    errors: JoinHandle<String>,
}

/// An example that has ended.
struct Outcome {
    status: ExitStatus,
    said: Vec<String>,
    /// Text that it wrote to stderr.
    errors: String,
}

impl Outcome {
    /// Asserts that it ended well, and returns its lines.
    #[track_caller]
    fn well(self) -> Vec<String> {
        assert!(self.status.success(), "{} after {:#?}", self.status, self.said);
        self.said
    }
}

async fn all_of(errors: ChildStderr) -> String {
    let (mut lines, mut all) = (BufReader::new(errors).lines(), String::new());
    while let Some(line) = lines.next_line().await.unwrap() {
        eprintln!("{line}");
        all += &line;
    }
    all
}

impl Running {
    fn start(example: &'static str, store: Option<&str>) -> Self {
        let variables: Vec<_> = store.iter().map(|uri| ("TENURE_STORE", *uri)).collect();
        Self::start_with(example, &variables)
    }

    fn start_with(example: &'static str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary(example));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(name);
            }
        }
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let errors = tokio::spawn(all_of(child.stderr.take().unwrap()));
        Self { example, child, lines, said: Vec::new(), errors }
    }

    fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }

    async fn line(&mut self) -> Option<String> {
        let what = format!("{} says something more after {:#?}", self.example, self.said);
        let line = within(&what, self.lines.next_line()).await.unwrap();
        self.said.extend(line.clone());
        line
    }

    /// Waits for a line with this text.
    async fn says(&mut self, text: &str) -> String {
        loop {
            match self.line().await {
                Some(line) if line.contains(text) => return line,
                Some(_) => {}
                None => panic!("{} ended without {text:?} after {:#?}", self.example, self.said),
            }
        }
    }

    /// Waits for its end, by itself.
    async fn ends(mut self) -> Outcome {
        while self.line().await.is_some() {}
        let status = within("it ends", self.child.wait()).await.unwrap();
        Outcome { status, said: self.said, errors: self.errors.await.unwrap() }
    }

    /// SIGTERM.
    async fn terminate(&self) {
        let told = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().await.unwrap();
        assert!(told.success());
    }
}

/// The term a line tells of.
fn term(line: &str) -> u64 {
    let (_, term) = line.split_once("under term ").unwrap_or_else(|| panic!("no term in {line:?}"));
    term.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The seconds a line tells of, behind that word.
fn seconds(line: &str, word: &str) -> f64 {
    let (_, rest) = line.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {line:?}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// The lines with these texts, which an example has said in this order.
fn in_order(said: &[String], texts: &[&str]) -> Vec<String> {
    let mut rest = said.iter();
    let find = |text: &&str| rest.find(|line| line.contains(*text)).cloned();
    let lines: Vec<_> = texts.iter().map_while(find).collect();
    assert_eq!(lines.len(), texts.len(), "{texts:#?} in {said:#?}");
    lines
}

/// Runs an example to its end. Answers with its lines.
async fn runs(example: &'static str, on_server: bool) -> Vec<String> {
    for attempt in 0..5 {
        let store = if on_server { Some(database(&format!("{example}-{attempt}")).await) } else { None };
        let ended = Running::start(example, store.as_deref()).ends().await;
        // It gives up when its store does not answer in time.
        if !on_server || !ended.errors.contains("retryable: true") {
            return ended.well();
        }
    }
    panic!("the server does not answer {example}");
}

/// Runs an example in memory and on a server.
async fn runs_on_both(example: &'static str) -> Vec<Vec<String>> {
    join_all([false, true].map(|on_server| runs(example, on_server))).await
}

/// A database of its own on the server all of these tests share.
async fn database(name: &str) -> String {
    let uri = shared_single().await.uri();
    let (servers, options) = uri.split_once("/?").expect("the script's URIs have options");
    format!("{servers}/{name}?{options}")
}

#[test]
fn every_example_is_run_here() {
    let here = root().join("examples");
    let files = std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name());
    let names: BTreeSet<_> =
        files.map(|name| name.to_str().unwrap().trim_end_matches(".rs").to_owned()).collect();
    // `support` is what the others share.
    let run = [
        "cron",
        "fenced_transaction",
        "first_service",
        "guard",
        "leader_callbacks",
        "lock_job",
        "service",
        "support",
        "topics",
    ];
    assert_eq!(names, run.map(str::to_owned).into());
}

#[tokio::test]
async fn a_job_is_locked_and_the_second_instance_is_told_who_holds_it() {
    for said in runs_on_both("lock_job").await {
        let lines = in_order(
            &said,
            &[
                "pod-1 runs the report under term",
                "pod-2 does not: pod-1 holds it under term",
                "pod-1 unlocks the key: Released",
                "pod-2 goes on under term",
                "pod-2 has Finished(10)",
            ],
        );
        assert_eq!(term(&lines[0]), term(&lines[1]));
        assert!(term(&lines[3]) > term(&lines[0]), "{lines:#?}");
    }
}

#[tokio::test]
async fn a_guard_is_checked_and_lost_and_several_are_all_or_none() {
    for said in runs_on_both("guard").await {
        let lines = in_order(
            &said,
            &[
                "pod-1 has the key under term",
                "pod-2 does not: pod-1 holds it",
                "valid: true, and the store says: true",
                "pod-1 is told: revoked by pod-2: maintenance",
                "pod-2 has the key under term",
                "pod-2 wants both, and has none",
                "pod-2 has accounts under term",
                "pod-2 has savings under term",
            ],
        );
        assert!(term(&lines[4]) > term(&lines[0]), "{lines:#?}");
    }
}

#[tokio::test]
async fn a_standby_leads_when_the_leader_is_closed() {
    let said = runs("leader_callbacks", false).await;
    in_order(&said, &["pod-2 stands by: yes", "pod-2 has taken over under term"]);
    // What the callbacks say comes at its own time.
    for text in ["pod-1 works", "pod-1 leads no more: the engine is closing", "pod-2 works"] {
        in_order(&said, &[text]);
    }
    let lines = in_order(&said, &["pod-2 leads under term", "pod-2 leads no more: resigned"]);
    let led = in_order(&said, &["pod-1 leads under term"]);
    assert!(term(&lines[0]) > term(&led[0]), "{said:#?}");
}

#[tokio::test]
async fn a_standby_leads_when_the_leaders_process_is_killed() {
    let uri = database("leader_callbacks").await;
    let mut first = Running::start("leader_callbacks", Some(&uri));
    let led = first.says("leads under term").await;
    let mut second = Running::start("leader_callbacks", Some(&uri));
    let heard = second.says("leads under term").await;
    assert!(heard.contains("hears") && term(&heard) == term(&led), "{heard}");

    first.child.kill().await.unwrap(); // SIGKILL
    let me = format!("pod-{} leads under term", second.pid());
    let leads = second.says(&me).await;
    assert!(term(&leads) > term(&led), "{leads} after {led}");
    second.says("works").await;

    second.terminate().await;
    second.says("leads no more: resigned").await;
    second.ends().await.well();
}

#[tokio::test]
async fn a_transaction_under_an_old_term_aborts() {
    let lines = in_order(
        &runs("fenced_transaction", true).await,
        &[
            "pod-1 has booked 100 under term",
            "pod-2 does not get the key: pod-1 holds it",
            "pod-1 is too late",
            "pod-2 has booked 200 under term",
            "the ledger has 2 entries",
        ],
    );
    assert!(term(&lines[3]) > term(&lines[0]), "{lines:#?}");

    let ended = Running::start("fenced_transaction", None).ends().await;
    assert_eq!(ended.status.code(), Some(2), "it says what it needs");
}

#[tokio::test]
async fn a_service_ends_by_itself_on_the_memory_store() {
    let lines = in_order(
        &runs("service", false).await,
        &[
            "pod-1 is ready: true",
            "pod-1 is told to stop: healthy",
            "pod-1 has dispatched",
            "pod-1 has closed, and its keys are free",
            "pod-2 leads under term",
            "pod-2 has closed, and its keys are free",
        ],
    );
    assert!(lines[2].contains("stops: the engine is closing"), "{lines:#?}");
}

#[tokio::test]
async fn a_service_that_is_terminated_leaves_its_keys_free_at_once() {
    let uri = database("service").await;
    let store = MongoStore::connect(&uri, MongoOptions::new()).await.unwrap();
    let config = ElectConfig::new("examples", "the test").unwrap();
    let observer = Elect::start(store.clone(), config).await.unwrap();

    let mut service = Running::start("service", Some(&uri));
    let led = term(&service.says("dispatches orders under term").await);
    until("the store answers", async || match observer.key("dispatcher").try_acquire().await {
        Err(error) if error.is_retryable() => Err(error),
        answer => {
            assert!(answer.unwrap().busy().is_some(), "the service holds it");
            Ok(())
        }
    })
    .await;

    service.terminate().await;
    let said = service.ends().await.well();
    assert!(said.iter().any(|line| line.contains("stops: the engine is closing")), "{said:#?}");
    let guard = within("it is free", observer.acquire("dispatcher")).await.unwrap();
    // Given back, and not left to be found dead.
    let lock = vec![guard.lease().lock().clone()];
    let seen = store.locks(lock, LIMIT).await.unwrap().pop().and_then(LockSeen::found).unwrap();
    assert_eq!(seen.past.first().map(|last| (last.term.get(), last.how)), Some((led, Ended::Released)));
    guard.release().await.unwrap();
    observer.close().await;
}

#[tokio::test]
async fn subscriptions_run_once_each_whoever_crashes_leaves_or_joins() {
    let all_have = "pod-1 20  pod-2 20  pod-3 20  pod-4 20  pod-5 20 | 100 run";
    let lines = in_order(
        &runs("topics", false).await,
        &[
            all_have,
            "the cable of pod-3 is pulled out",
            "pod-3 has stopped all 20 by itself",
            "the others have taken over",
            "pod-2 is drained",
            "pod-2 has given all away, and leaves",
            "pod-6 joins",
            "pod-6 25 | 100 run",
            "all leave",
            "of 100 subscriptions: none ever ran twice at once",
        ],
    );
    assert!(lines[2].contains("(expired: "), "{lines:#?}");
    // It stopped before anybody else could begin.
    let [stopped, taken] = [2, 3].map(|line: usize| seconds(&lines[line], "after "));
    assert!(stopped < taken, "{lines:#?}");
}

#[tokio::test]
async fn subscriptions_are_halved_among_two_processes_and_all_go_to_the_one_that_stays() {
    let uri = database("topics").await;
    let mut first = Running::start("topics", Some(&uri));
    first.says("| 100 run here").await;
    let mut second = Running::start("topics", Some(&uri));
    let mut halves = [&first, &second].map(|one| format!("pod-{} 50", one.pid()));
    halves.sort();
    for one in [&mut first, &mut second] {
        one.says(&format!("{} | 50 run here", halves.join("  "))).await;
    }

    first.terminate().await;
    let said = first.ends().await.well();
    let left = said.last().is_some_and(|line| line.ends_with("has left: its 50 subscriptions are free"));
    assert!(left, "{said:#?}");
    let has_all = format!("pod-{} 100 | 100 run here", second.pid());
    second.says(&has_all).await;

    second.terminate().await;
    second.says("has left: its 100 subscriptions are free").await;
    second.ends().await.well();
}

/// The schedule and the time of day in the line of a run.
fn ran(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let (time, schedule) = (words.next()?, words.next()?);
    (time.ends_with('Z') && ["pulse", "digest", "invoices"].contains(&schedule)).then_some((schedule, time))
}

/// The second of the day of a time.
fn second_of_day(time: &str) -> u32 {
    let mut parts = time.trim_end_matches('Z').split(':').map(|part| part.parse::<u32>().unwrap());
    let mut next = || parts.next().unwrap();
    (next() * 60 + next()) * 60 + next()
}

/// Checks that each second of a schedule is there, from the first one to the last.
fn assert_no_gap(times: &BTreeSet<&str>, apart: u32, said: &[String]) {
    const DAY: u32 = 24 * 60 * 60;
    let mut seconds: Vec<_> = times.iter().map(|time| second_of_day(time)).collect();
    // Midnight may lie between.
    if seconds.last().zip(seconds.first()).is_some_and(|(last, first)| last - first > DAY / 2) {
        seconds.iter_mut().filter(|second| **second < DAY / 2).for_each(|second| *second += DAY);
        seconds.sort_unstable();
    }
    assert!(seconds.windows(2).all(|pair| pair[1] - pair[0] == apart), "{times:?} in {said:#?}");
}

#[tokio::test]
async fn ticks_of_cron_jobs_are_run_once_each_and_what_was_cut_off_is_begun_again() {
    let said = runs("cron", false).await;
    let judged = ["pulse", "digest", "invoices"].map(|schedule| format!("{schedule}: "));
    let texts = ["the cable of", "the others have its schedules", &judged[0], &judged[1], &judged[2]];
    let lines = in_order(&said, &texts);
    for judged in &lines[2..] {
        assert!(judged.contains("ticks, each in the ledger once"), "{judged}");
    }
    let pulled = &lines[0];
    let victim = pulled.split_whitespace().find(|word| word.starts_with("pod-")).unwrap();
    let first = |line: &&String| !line.contains(", attempt");
    for (schedule, apart) in [("pulse", 1), ("digest", 3), ("invoices", 2)] {
        let runs = said.iter().filter(first).filter_map(|line| ran(line));
        let times: Vec<_> = runs.filter(|(name, _)| *name == schedule).map(|(_, time)| time).collect();
        let once: BTreeSet<_> = times.iter().copied().collect();
        assert_eq!(once.len(), times.len(), "{schedule} ran a tick twice: {said:#?}");
        assert!(once.len() >= 3, "{said:#?}");
        assert_no_gap(&once, apart, &said);
    }
    // The digest was on when the cable was pulled out: another has begun it again, for a second time.
    let place = said.iter().position(|line| line == pulled).unwrap();
    let again = said[place..].iter().find(|line| line.contains("digest") && line.contains("attempt 2"));
    let again = again.unwrap_or_else(|| panic!("{said:#?}"));
    assert!(!again.contains(victim), "{again}");
    let (_, time) = ran(again).unwrap();
    let before = said[..place].iter().rev().find(|line| line.contains("digest")).unwrap();
    assert!(before.contains(time) && before.contains(victim), "{before}, then {again}");
}

#[tokio::test]
async fn cron_jobs_are_shared_among_two_processes_and_all_go_to_the_one_that_stays() {
    let uri = database("cron").await;
    let mut first = Running::start("cron", Some(&uri));
    first.says("invoices: ").await;
    first.says("pulse     pod-").await;
    let mut second = Running::start("cron", Some(&uri));
    // Whichever it gets.
    second.says(&format!("  pod-{}", second.pid())).await;
    first.says(&format!("  pod-{}", first.pid())).await;
    first.terminate().await;
    let first_said = first.ends().await.well();
    let left = first_said.last().is_some_and(|line| line.ends_with("has left, 0 runs go on"));
    assert!(left, "{first_said:#?}");
    // Until it has run a tick of each since then.
    for schedule in ["pulse", "digest", "invoices"] {
        second.says(&format!("Z  {schedule:8}  pod-{}", second.pid())).await;
    }
    second.terminate().await;
    let second_said = second.ends().await.well();
    let said = [first_said, second_said].concat();
    for (schedule, apart) in [("pulse", 1), ("digest", 3), ("invoices", 2)] {
        let of = |line: &&String| ran(line).is_some_and(|(name, _)| name == schedule);
        let runs: Vec<_> = said.iter().filter(of).filter(|line| !line.contains(", attempt")).collect();
        let times: BTreeSet<_> = runs.iter().filter_map(|line| ran(line)).map(|(_, time)| time).collect();
        assert_eq!(times.len(), runs.len(), "{schedule} ran a tick in both: {said:#?}");
        assert_no_gap(&times, apart, &said);
    }
}

/// The page about a first service.
fn page() -> String {
    let here = root();
    std::fs::read_to_string(here.join("docs/first-service.md")).unwrap()
}

/// The blocks of that language in it.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let block = |rest: &str| rest.split("```").next().unwrap().to_owned();
    page.split(&fence).skip(1).map(block).collect()
}

#[test]
fn the_page_about_a_first_service_shows_the_example_as_it_is() {
    let here = root();
    let example = std::fs::read_to_string(here.join("examples/first_service.rs")).unwrap();
    let blocks = blocks(&page(), "rust,ignore");
    assert!(blocks.len() >= 5, "{blocks:#?}");
    for block in blocks {
        assert!(example.contains(&block), "the example has nothing like this:\n{block}");
    }
}

#[test]
fn the_page_about_a_first_service_names_metrics_variables_and_versions_that_there_are() {
    let here = root();
    let text = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let page = page();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = || page.split(|c| !word(c));
    let operations = text("docs/operations.md");
    let metrics: BTreeSet<_> = words().filter(|name| name.starts_with("tenure_")).collect();
    assert!(metrics.len() >= 5, "{metrics:?}");
    for name in metrics {
        let name = name.trim_end_matches("_bucket");
        assert!(operations.contains(&format!("| `{name}` |")), "{name} is in no table of metrics");
    }
    let set: BTreeSet<_> = words().filter(|name| name.starts_with("TENURE_") && name.len() > 7).collect();
    assert_eq!(set, BTreeSet::from(["TENURE_HOLDER", "TENURE_NAMESPACE"]), "all that must be set");

    let constant = |path: &str, name: &str| {
        let text = text(path);
        let (_, rest) = text.split_once(&format!("const {name}: ")).unwrap();
        let (_, value) = rest.split_once(" = ").unwrap();
        value.split(';').next().unwrap().to_owned()
    };
    let layout = constant("src/store/mongo/documents/fields.rs", "LEASE_LAYOUT");
    let plan = constant("src/logic/plan.rs", "PLAN_VERSION");
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let version = manifest["package"]["version"].as_str().unwrap().rsplit_once('.').unwrap().0;
    let row = format!("| {version} | {layout} | {plan} |");
    assert!(page.contains(&row), "the table of versions has no row {row:?}");
}

/// The status and the body that a path is answered with.
async fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = within("it accepts", TcpStream::connect(address)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("it answers", stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap().trim_start_matches("HTTP/1.1 ");
    (status.to_owned(), body.to_owned())
}

#[tokio::test]
async fn a_first_service_says_how_it_is_follows_its_topics_and_leaves_them_to_others() {
    let uri = database("first-service").await;
    let shop = mongodb::Client::with_uri_str(&uri).await.unwrap().default_database().unwrap();
    let topics = ["bread", "milk"].map(|topic| doc! { "_id": topic, "url": format!("amqp://{topic}") });
    shop.collection::<Document>("topics").insert_many(topics).await.unwrap();
    let start = |holder| {
        let variables = [
            ("MONGODB_URI", &*uri),
            ("TENURE_NAMESPACE", "shop"),
            ("TENURE_HOLDER", holder),
            ("LISTEN", "127.0.0.1:0"),
        ];
        Running::start_with("first_service", &variables)
    };

    let mut first = start("pod-1");
    let address = first.says("listens on ").await.trim_start_matches("listens on ").to_owned();
    let mut follows = [first.says("follows ").await, first.says("follows ").await];
    follows.sort();
    assert_eq!(follows, ["follows bread at amqp://bread", "follows milk at amqp://milk"]);
    assert_eq!(get(&address, "/healthz").await, ("200 OK".to_owned(), "ok".to_owned()));
    until("it is healthy", async || match get(&address, "/readyz").await {
        (status, health) if status == "200 OK" && health.starts_with("healthy") => Ok(()),
        answer => Err(answer),
    })
    .await;
    // It leads the schedule a moment after its topics.
    until("it holds all", async || {
        let (code, status) = get(&address, "/tenure").await;
        assert_eq!(code, "200 OK");
        let parts = ["pod-1: 2 tasks", "clean-up", "pod-1 holds"];
        if parts.iter().all(|part| status.contains(part)) { Ok(()) } else { Err(status) }
    })
    .await;
    assert_eq!(get(&address, "/other").await.0, "404 Not Found");
    // Each topic has been written to under a term.
    let seen = shop.collection::<Document>("seen");
    let written = doc! { "messages": { "$gte": 1 }, "term": { "$gte": 1 } };
    until("both are written", async || match seen.count_documents(written.clone()).await.unwrap() {
        0 | 1 => Err(()),
        _ => Ok(()),
    })
    .await;

    let mut second = start("pod-2");
    second.says("listens on ").await;
    second.says("follows ").await;
    first.terminate().await;
    first.says("closed, with 0 jobs that go on").await;
    first.ends().await.well();
    second.says("follows ").await;
    second.terminate().await;
    second.says("closed, with 0 jobs that go on").await;
    second.ends().await.well();
}

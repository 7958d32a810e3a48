//! A process with one instance that stands for one key and says what happens, for tests that kill and
//! freeze processes.
//!
//! It is this very test binary, started once more for [`contends`] alone.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    task::Poll::Pending,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tenure::{Elect, Lease, clock::Moment};
use tokio::sync::watch;

use crate::elect_mongodb::{
    fleet::{Place, quick, until, when, within},
    polls::now,
};

const ORDER: &str = "TENURE_TEST_CONTENDER";
/// Time between two polls of its job.
const PACE: Duration = Duration::from_millis(10);

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    uri: String,
    database: String,
    holder: String,
    key: String,
}

/// Line of the process: what happened, when, and the rest of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) at: Moment,
    pub(crate) what: String,
    pub(crate) rest: String,
}

impl Said {
    pub(crate) fn number(&self) -> u64 {
        self.rest.parse().unwrap_or_else(|_| panic!("{self:?} says no number"))
    }
}

fn start() -> Moment {
    Moment::after_start(Duration::ZERO)
}

// ----- in the process

fn say(what: &str, rest: impl std::fmt::Display) {
    let nanos = now().since(start()).as_nanos();
    // In one write: a line is whole, also if the process is killed.
    let _ = std::io::stdout().write_all(format!("> {nanos} {what} {rest}\n").as_bytes());
}

#[test]
#[ignore = "not a test: the process that others start"]
fn contends() {
    let Ok(order) = std::env::var(ORDER) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let order: Order = serde_json::from_str(&order).unwrap();
    // The line the test harness has begun ends here.
    println!();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async move {
        let mut place = Place::on(&order.uri).await;
        place.name = order.database;
        let elect = place.instance(quick(&order.holder)).await;
        say("session", elect.health().session.expect("it has just started"));
        tokio::spawn(tell_events(elect.clone()));
        let campaign = elect.campaign(&order.key).run(job).unwrap();
        std::future::pending::<()>().await;
        drop(campaign);
    });
}

async fn tell_events(elect: Elect) {
    let mut events = elect.events();
    while let Some(event) = events.next().await {
        match event {
            tenure::Event::SessionOpened { session } => say("session", session),
            tenure::Event::SessionLost { loss, .. } => say("session-lost", loss.name()),
            tenure::Event::Acquired { term, .. } => say("acquired", term),
            tenure::Event::Lost { loss, .. } => say("lost", loss.name()),
            tenure::Event::Overran { by, .. } => say("overran", by.as_millis()),
            _ => {}
        }
    }
}

/// Never returns: it is polled until it is dropped.
async fn job(lease: Lease) -> Result<(), String> {
    struct Dropped(u64);
    impl Drop for Dropped {
        fn drop(&mut self) {
            say("dropped", self.0);
        }
    }
    let term = lease.term().get();
    let _dropped = Dropped(term);
    let mut tick = tokio::time::interval(PACE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    std::future::poll_fn(|cx| {
        say("poll", term);
        while tick.poll_tick(cx).is_ready() {}
        Pending
    })
    .await
}

// ----- in the test

/// Such a process. Killed when this is dropped, and when the thread ends that started it.
#[derive(Debug)]
pub(crate) struct Contender {
    child: Child,
    said: Arc<Mutex<Vec<Said>>>,
    news: watch::Receiver<usize>,
}

impl Contender {
    /// Starts one, and waits until it has a session.
    pub(crate) async fn start(place: &Place, holder: &str, key: &str) -> Self {
        let order = Order {
            uri: place.uri.clone(),
            database: place.name.clone(),
            holder: holder.to_owned(),
            key: key.to_owned(),
        };
        let (_, here) = module_path!().split_once("::").expect("it is in a crate");
        let test = format!("{here}::contends");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test.as_str(), "--ignored", "--nocapture", "--test-threads=1"])
            .env(ORDER, serde_json::to_string(&order).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = Arc::<Mutex<Vec<Said>>>::default();
        let (tell, news) = watch::channel(0);
        let list = said.clone();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some(line) = read(&line) {
                    let mut list = list.lock().unwrap();
                    list.push(line);
                    tell.send_replace(list.len());
                }
            }
        });
        let started = Self { child, said, news };
        started.until("session", |_| true).await;
        started
    }

    pub(crate) fn said(&self) -> Vec<Said> {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn all(&self, what: &str) -> Vec<Said> {
        self.said().into_iter().filter(|said| said.what == what).collect()
    }

    /// The first thing of this name it says, or has said, that is `wanted`.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Said) -> bool) -> Said {
        let mut news = self.news.clone();
        let heard = async {
            loop {
                news.borrow_and_update();
                if let Some(said) = self.all(what).into_iter().find(&wanted) {
                    return said;
                }
                assert!(news.changed().await.is_ok(), "it has ended: {:?}", self.said().last());
            }
        };
        within(&format!("a contender says {what:?}"), heard).await
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kill -9. Answers when it was done.
    pub(crate) fn kill(&mut self) -> Moment {
        let before = now();
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "it ran until then");
        before
    }

    /// SIGSTOP. Answers when all of it stood still.
    pub(crate) async fn freeze(&self) -> Moment {
        kill_process(self.pid(), Signal::STOP).unwrap();
        until("a process stands still", async || when(self.state() == Some('T'), self.state())).await;
        now()
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) -> Moment {
        assert_eq!(self.state(), Some('T'), "it stood still until now");
        let before = now();
        kill_process(self.pid(), Signal::CONT).unwrap();
        before
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(line: &str) -> Option<Said> {
    let (nanos, rest) = line.strip_prefix("> ")?.split_once(' ')?;
    let (what, rest) = rest.split_once(' ')?;
    let at = start() + Duration::from_nanos(nanos.parse().ok()?);
    Some(Said { at, what: what.to_owned(), rest: rest.to_owned() })
}

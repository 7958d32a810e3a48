//! Members in processes of their own, and what they say.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tenure::{clock::Moment, model::SessionId};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    common::support::mongod::Deployment,
    member::{Line, Order, Said, now},
    view::{Places, View, changed},
};

/// For what takes seconds at the worst.
const BOUND: Duration = Duration::from_secs(90);
/// Time between two looks at the store.
const PACE: Duration = Duration::from_millis(10);

/// The servers.
pub(crate) struct World {
    pub(crate) deployment: Deployment,
}

impl World {
    pub(crate) const fn new(deployment: Deployment) -> Self {
        Self { deployment }
    }
}

type Heard = Arc<Mutex<Vec<(usize, Line)>>>;

struct Member {
    number: usize,
    holder: String,
    child: Child,
    orders: ChildStdin,
    session: Option<SessionId>,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All members of one spread.
pub(crate) struct Fleet {
    uri: String,
    database: String,
    tasks: usize,
    quick: bool,
    members: BTreeMap<String, Member>,
    heard: Heard,
    news: watch::Sender<u64>,
    started: usize,
    pub(crate) view: View,
}

impl Fleet {
    /// Returns a fleet without members.
    pub(crate) async fn new(world: &World, database: &str, tasks: usize, quick: bool) -> Self {
        let uri = world.deployment.uri().to_owned();
        let view = View::open(&uri, database).await;
        Self {
            uri,
            database: database.to_owned(),
            tasks,
            quick,
            members: BTreeMap::new(),
            heard: Heard::default(),
            news: watch::Sender::new(0),
            started: 0,
            view,
        }
    }

    /// So many, called `pod-00` and so on, when they have shared out the tasks and these have been where they
    /// are for a while.
    pub(crate) async fn of(world: &World, database: &str, members: usize, tasks: usize, quick: bool) -> Self {
        let mut fleet = Self::new(world, database, tasks, quick).await;
        for number in 0..members {
            fleet.start(&name(number)).await;
        }
        for number in 0..members {
            fleet.tell(&name(number), "join");
        }
        fleet.settled().await;
        sleep(Duration::from_secs(4)).await;
        fleet
    }

    fn heard(&self) -> MutexGuard<'_, Vec<(usize, Line)>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process; answers when it has a session, with the moment of its start.
    pub(crate) async fn start(&mut self, holder: &str) -> Moment {
        let begun = now();
        let order = Order {
            uri: self.uri.clone(),
            database: self.database.clone(),
            holder: holder.to_owned(),
            tasks: self.tasks,
            quick: self.quick,
        };
        let (variable, value) = order.variable();
        self.started += 1;
        let number = self.started;
        let mut child = Command::new(std::env::current_exe().expect("a process has a program"))
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is this very program");
        let orders = child.stdin.take().expect("it is piped");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let (heard, news) = (self.heard.clone(), self.news.clone());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).expect("a member says nothing else");
                heard.lock().unwrap_or_else(PoisonError::into_inner).push((number, line));
                news.send_modify(|news| *news += 1);
            }
        });
        let member = Member { number, holder: holder.to_owned(), child, orders, session: None };
        self.members.insert(holder.to_owned(), member);
        let ready = self.hears(number, |said| matches!(said, Said::Ready { .. })).await;
        if let (Some(member), Said::Ready { session }) = (self.members.get_mut(holder), &ready.said) {
            member.session = session.parse().ok();
            assert!(member.session.is_some(), "it has a session");
        }
        begun
    }

    /// Waits until that member says so.
    async fn hears(&self, number: usize, mut is_it: impl FnMut(&Said) -> bool) -> Line {
        let mut news = self.news.subscribe();
        let wait = async {
            loop {
                news.borrow_and_update();
                let found =
                    self.heard().iter().rev().find(|(by, line)| *by == number && is_it(&line.said)).cloned();
                if let Some((_, line)) = found {
                    return line;
                }
                let _ = news.changed().await;
            }
        };
        timeout(BOUND, wait).await.expect("a member says it in time")
    }

    pub(crate) fn tell(&mut self, holder: &str, order: &str) {
        let member = self.members.get_mut(holder).expect("it runs");
        writeln!(member.orders, "{order}").expect("the process reads its orders");
    }

    /// Has it take part; answers with the moment before it did.
    pub(crate) async fn join(&mut self, holder: &str) -> Moment {
        self.tell(holder, "join");
        self.hears(self.members[holder].number, |said| *said == Said::Joins).await.at()
    }

    /// Closes it, and waits for the end of its process. Answers with the moments of the begin and the end.
    pub(crate) async fn close(&mut self, holder: &str, grace: Option<Duration>) -> (Moment, Moment) {
        let order = grace.map_or_else(|| "close".to_owned(), |grace| format!("close {}", grace.as_secs()));
        self.tell(holder, &order);
        let number = self.members[holder].number;
        let closed = self.hears(number, |said| matches!(said, Said::Closed { .. })).await;
        assert_eq!(closed.said, Said::Closed { overran: 0 });
        let begun = self.hears(number, |said| *said == Said::Closes).await.at();
        let mut member = self.members.remove(holder).expect("it ran until now");
        let waited = tokio::task::spawn_blocking(move || member.child.wait());
        waited.await.expect("nothing panics").expect("it was not waited for");
        (begun, closed.at())
    }

    /// Kill -9. Answers with the moment before.
    pub(crate) fn kill(&mut self, holder: &str) -> Moment {
        let mut member = self.members.remove(holder).expect("it runs");
        let begun = now();
        member.child.kill().expect("it runs");
        begun
    }

    // ----- how things stand

    pub(crate) fn holders(&self) -> Vec<String> {
        self.members.values().map(|member| member.holder.clone()).collect()
    }

    /// Returns whether every task is held by one who lives, and nobody has two more than another.
    fn is_settled(&self, places: &Places) -> bool {
        let mut counts: BTreeMap<SessionId, usize> =
            self.members.values().filter_map(|member| Some((member.session?, 0))).collect();
        let mut held = 0;
        for session in places.values().filter_map(|place| place.session) {
            if let Some(count) = counts.get_mut(&session) {
                *count += 1;
                held += 1;
            }
        }
        let (least, most) = (counts.values().min(), counts.values().max());
        held == self.tasks && most.zip(least).is_some_and(|(most, least)| most - least <= 1)
    }

    /// Waits until the store says so; answers with the moment of its answer.
    pub(crate) async fn settled(&self) -> (Moment, Places) {
        let wait = async {
            loop {
                let places = self.view.places().await;
                if self.is_settled(&places) {
                    return (now(), places);
                }
                sleep(PACE).await;
            }
        };
        timeout(BOUND, wait).await.expect("the spread settles in time")
    }

    /// Holdings before and now, after a while in which nothing more should happen; with the changes of term
    /// counted from the records, and the grants that were reported.
    pub(crate) async fn changes(&self, before: &Places, since: Moment, calm: Duration) -> Changes {
        sleep(calm).await;
        let after = self.view.places().await;
        assert!(self.is_settled(&after), "it was settled before");
        let mut of_task: BTreeMap<String, usize> = BTreeMap::new();
        for grant in self.view.grants(since) {
            *of_task.entry(grant.key).or_default() += 1;
        }
        let began = |(_, line): &(usize, Line)| match &line.said {
            Said::Began { key, .. } if line.at() >= since => Some((line.at(), key.clone())),
            _ => None,
        };
        let began: Vec<_> = self.heard().iter().filter_map(began).collect();
        Changes { terms: changed(before, &after), of_task, began, after }
    }

    /// Calls of all members until now, by operation: whether it writes, calls, keys.
    pub(crate) async fn asked(&mut self) -> BTreeMap<String, (bool, u64, u64)> {
        let begun = now();
        let mut sum: BTreeMap<String, (bool, u64, u64)> = BTreeMap::new();
        for holder in self.holders() {
            self.tell(&holder, "asked");
        }
        for holder in self.holders() {
            let number = self.members[&holder].number;
            let mut news = self.news.subscribe();
            let calls = loop {
                news.borrow_and_update();
                let found = self.heard().iter().rev().find_map(|(by, line)| match &line.said {
                    Said::Asked { calls } if *by == number && line.at() >= begun => Some(calls.clone()),
                    _ => None,
                });
                if let Some(calls) = found {
                    break calls;
                }
                timeout(BOUND, news.changed()).await.expect("a member answers").expect("the sender is here");
            };
            for (operation, writes, calls, keys) in calls {
                let one = sum.entry(operation).or_insert((writes, 0, 0));
                *one = (writes, one.1 + calls, one.2 + keys);
            }
        }
        sum
    }
}

/// Effects of an event.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Tasks whose term is another one.
    pub(crate) terms: usize,
    /// Grants of each task.
    pub(crate) of_task: BTreeMap<String, usize>,
    /// The jobs that were started.
    pub(crate) began: Vec<(Moment, String)>,
    pub(crate) after: Places,
}

impl Changes {
    /// All grants.
    pub(crate) fn grants(&self) -> usize {
        self.of_task.values().sum()
    }

    /// Start of the last of the jobs, after that moment.
    pub(crate) fn last_began(&self, since: Moment) -> Duration {
        self.began.iter().map(|(at, _)| at.since(since)).max().unwrap_or_default()
    }

    /// The most grants of one task.
    pub(crate) fn most(&self) -> usize {
        self.of_task.values().copied().max().unwrap_or(0)
    }
}

pub(crate) fn name(number: usize) -> String {
    format!("pod-{number:02}")
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

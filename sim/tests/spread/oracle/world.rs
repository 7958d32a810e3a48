//! A fleet, and all that may befall it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use tenure::{
    Lease,
    spread::{Spread, Task},
    testing::{Call, Course, Fault, Intercept},
};
use tokio::{sync::mpsc, time::Instant};

use crate::spread::team::{Player, SECOND, SPREAD, Team};

/// Circumstances of all jobs, and of each pod's way to the store.
#[derive(Debug, Default)]
pub(super) struct Circumstances {
    /// The broker that all jobs need is away.
    pub(super) no_broker: bool,
    /// Pods on whose machines no child can be started.
    pub(super) broken: BTreeSet<String>,
    /// The task that kills its process, and how long after it began.
    pub(super) killer: Option<(String, Duration)>,
    /// Pods that are cut off from the store.
    pub(super) cut: BTreeSet<String>,
    /// The store is away.
    pub(super) no_store: bool,
    /// Each call to the store takes so long.
    pub(super) slow: Duration,
}

pub(super) type Now = Arc<Mutex<Circumstances>>;

/// The way of one pod to the store.
#[derive(Debug)]
struct Way(String, Now);

impl Intercept for Way {
    fn decide(&self, _: &Call) -> Course {
        let now = self.1.lock().unwrap();
        if now.no_store || now.cut.contains(&self.0) {
            return Fault::Swallowed.into();
        }
        Course::PLAIN.late_by(now.slow)
    }
}

/// A pod, and the most tasks it may have.
pub(super) struct Pod {
    pub(super) player: Player,
    pub(super) cap: u32,
}

pub(super) struct World {
    pub(super) team: Team,
    pub(super) now: Now,
    pub(super) pods: BTreeMap<String, Pod>,
    /// Pods that are down, when they are back, and with which cap.
    down: BTreeMap<String, (Instant, u32)>,
    killed: (mpsc::UnboundedSender<String>, mpsc::UnboundedReceiver<String>),
    /// Processes that died.
    pub(super) deaths: usize,
    /// Time after which the pod of a process that a task killed is back.
    pub(super) back_after: Duration,
    named: usize,
    seed: u64,
}

impl World {
    pub(super) fn new(tasks: usize, seed: u64) -> Self {
        Self {
            team: Team::seeded(tasks, seed << 8),
            now: Now::default(),
            pods: BTreeMap::new(),
            down: BTreeMap::new(),
            killed: mpsc::unbounded_channel(),
            deaths: 0,
            back_after: SECOND * 10,
            named: 0,
            seed: seed << 8,
        }
    }

    pub(super) fn set<T>(&self, set: impl FnOnce(&mut Circumstances) -> T) -> T {
        set(&mut self.now.lock().unwrap())
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.pods.keys().cloned().collect()
    }

    pub(super) fn any(&self) -> &Spread {
        &self.pods.values().next().unwrap().player.spread
    }

    /// The name of the pod that joins next.
    pub(super) fn next_name(&self) -> String {
        format!("pod-{:02}", self.named + 1)
    }

    /// A pod of a name that none had.
    pub(super) async fn join(&mut self, cap: u32) -> String {
        let name = self.next_name();
        self.named += 1;
        self.start(name.clone(), cap).await;
        name
    }

    async fn start(&mut self, name: String, cap: u32) {
        self.seed += 1;
        let way = Way(name.clone(), self.now.clone()).around(Arc::new(self.team.memory.clone()));
        let (elect, gate, counts) = self.team.elect_on(way, &name, self.seed).await;
        let job = self.job(&name);
        let spread = elect.spread(SPREAD).tasks(self.team.keys()).cap(cap).tries(3).run(job).unwrap();
        self.pods.insert(name, Pod { player: Player { elect, spread, gate, counts }, cap });
    }

    fn job(
        &self,
        pod: &str,
    ) -> impl Fn(Task, Lease) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static + use<> {
        let (pod, now, killed) = (pod.to_owned(), self.now.clone(), self.killed.0.clone());
        let run = self.team.job(&pod);
        move |task, lease| {
            let (pod, now, killed) = (pod.clone(), now.clone(), killed.clone());
            let key = task.key().to_string();
            if now.lock().unwrap().broken.contains(&pod) {
                return Box::pin(async { Err("no such file".to_owned()) });
            }
            let running = run(task, lease);
            Box::pin(async move {
                let fails = async {
                    for second in 0_u32.. {
                        if now.lock().unwrap().no_broker {
                            break;
                        }
                        let killer = now.lock().unwrap().killer.clone();
                        if killer.is_some_and(|(killer, after)| killer == key && SECOND * second >= after) {
                            let _ = killed.send(pod.clone());
                        }
                        tokio::time::sleep(SECOND).await;
                    }
                };
                tokio::select! {
                    biased;
                    ended = running => ended,
                    () = fails => Err("no broker".to_owned()),
                }
            })
        }
    }

    /// The process of a pod dies, and is back under its name after so long, if at all.
    pub(super) async fn kill(&mut self, name: &str, back_after: Option<Duration>) {
        let Some(pod) = self.pods.remove(name) else { return };
        pod.player.kill().await;
        self.deaths += 1;
        if let Some(back_after) = back_after {
            self.down.insert(name.to_owned(), (Instant::now() + back_after, pod.cap));
        }
    }

    pub(super) async fn close(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            pod.player.elect.close().await;
        }
    }

    /// Lets one second go by.
    pub(super) async fn second(&mut self) {
        let end = Instant::now() + SECOND;
        loop {
            let back = self
                .down
                .iter()
                .min_by_key(|(_, (at, _))| *at)
                .map(|(name, (at, cap))| (name.clone(), *at, *cap));
            let next = back.as_ref().map_or(end, |(_, at, _)| end.min(*at));
            tokio::select! {
                biased;
                Some(name) = self.killed.1.recv() => {
                    let back_after = self.back_after;
                    self.kill(&name, Some(back_after)).await;
                }
                () = tokio::time::sleep_until(next) => match back {
                    Some((name, at, cap)) if at <= next => {
                        self.down.remove(&name);
                        self.start(name, cap).await;
                    }
                    _ => return,
                }
            }
        }
    }
}

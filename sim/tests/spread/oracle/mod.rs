//! An oracle: random lives of fleets, and a judge of what docs/spread.md promises does happen. The other tests ask about
//! safety, or about one case each; this one asks whether all that should run does, in time, evenly, undisturbed, and
//! whether what is said is true.

mod world;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use tenure::spread::TaskState;
use tenure_sim::{Dice, is_whole};
use tokio::time::Instant;

use self::world::World;
use crate::spread::team::{SECOND, Team};

/// Events that befall a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Joins,
    Leaves,
    Dies,
    Returns,
    CrashLoop,
    CutOff,
    StoreAway,
    StoreSlow,
    Drains,
    Pauses,
    BrokerAway,
    BadMachine,
    Killer,
    Deploy,
    ClockAhead,
    ClockBack,
}

use Event::*;

const EVENTS: [Event; 16] = [
    Joins, Leaves, Dies, Returns, CrashLoop, CutOff, StoreAway, StoreSlow, Drains, Pauses, BrokerAway,
    BadMachine, Killer, Deploy, ClockAhead, ClockBack,
];

/// A session that is silent is dead after so long.
const TTL: Duration = Duration::from_secs(30);

struct Life {
    world: World,
    dice: Dice,
    /// Events so far.
    story: String,
    /// A job failed, or a process died.
    failed: bool,
    died: bool,
    /// By so much later all may be well, for what befell it before.
    later: Duration,
}

impl Life {
    async fn begun(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let (pods, tasks) = (2 + dice.place(4), 4 + dice.place(36));
        let mut world = World::new(tasks, seed);
        // A quarter of the lives has less room than tasks.
        let cap = if dice.percent(25) { (tasks / (pods + 1)).max(1) } else { tasks };
        for _ in 0..pods {
            world.join(u32::try_from(cap).unwrap()).await;
        }
        let story = format!("{pods} pods with a cap of {cap}, {tasks} tasks");
        let mut life = Self { world, dice, story, failed: false, died: false, later: Duration::ZERO };
        life.calm(SECOND * 30).await;
        life
    }

    fn seconds(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_secs(least + self.dice.below(most - least))
    }

    fn one(&mut self) -> String {
        let names = self.world.names();
        names[self.dice.place(names.len())].clone()
    }

    async fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_secs() {
            self.world.second().await;
        }
    }

    /// Does it, and returns the time within which all is well again.
    async fn suffer(&mut self, event: Event) -> Duration {
        let (name, time) = (self.one(), self.seconds(5, 120));
        let cap = self.world.pods[&name].cap;
        let _ = write!(self.story, "; {event:?} {name} {time:?}");
        match event {
            Joins => {
                if self.world.pods.len() < 6 {
                    self.world.join(cap).await;
                }
                SECOND * 20
            }
            Leaves => {
                if self.world.pods.len() > 1 {
                    self.world.close(&name).await;
                }
                SECOND * 5
            }
            Dies if self.world.pods.len() > 1 => {
                self.dies(310);
                self.world.kill(&name, None).await;
                TTL + SECOND * 8
            }
            Dies | Returns => {
                self.dies(310);
                self.world.kill(&name, Some(time)).await;
                self.pass(time).await;
                TTL + SECOND * 25
            }
            CrashLoop => {
                self.dies(310);
                for _ in 0..2 + self.dice.below(6) {
                    self.world.kill(&name, Some(SECOND * 5)).await;
                    self.pass(SECOND * 25).await;
                }
                TTL + SECOND * 25
            }
            CutOff => {
                self.world.set(|now| now.cut.insert(name.clone()));
                self.pass(time).await;
                self.world.set(|now| now.cut.clear());
                SECOND * 25
            }
            StoreAway => {
                self.world.set(|now| now.no_store = true);
                self.pass(time).await;
                self.world.set(|now| now.no_store = false);
                SECOND * 15
            }
            StoreSlow => {
                let slow = Duration::from_millis(50 + self.dice.below(450));
                self.world.set(|now| now.slow = slow);
                self.pass(time).await;
                self.world.set(|now| now.slow = Duration::ZERO);
                SECOND * 20
            }
            BrokerAway => {
                self.failed = true;
                let time = time * 10;
                self.world.set(|now| now.no_broker = true);
                self.pass(time).await;
                self.world.set(|now| now.no_broker = false);
                time / 12 + SECOND * 15
            }
            BadMachine => self.bad_machine(&name, time * 10).await,
            Killer => self.killer(time).await,
            Deploy => self.deploy().await,
            Drains => self.drains(&name, time).await,
            Pauses => self.pauses(&name, time).await,
            ClockAhead => {
                // A large step is believed after five minutes, and rests are measured by the old time until then.
                self.later = self.later.max(SECOND * 120);
                self.world.team.clock.step_wall(time * 10);
                SECOND * 20
            }
            ClockBack => {
                // A large step is believed after five minutes, and rests are measured by the old time until then.
                self.later = self.later.max(SECOND * 120);
                self.world.team.clock.step_wall_back(time * 10);
                SECOND * 20
            }
        }
    }

    /// A process dies: what died three times in a row pauses for so many seconds.
    fn dies(&mut self, pauses: u32) {
        self.died = true;
        self.later = self.later.max(SECOND * pauses);
    }

    async fn drains(&mut self, name: &str, time: Duration) -> Duration {
        self.world.pods[name].player.spread.drain();
        self.pass(SECOND * 10).await;
        let pod = &self.world.pods[name];
        let (has, others) = (pod.player.count(), self.room() - pod.cap as usize);
        assert!(has == 0 || others < self.tasks(), "{name} has {has}: {}", self.told().await);
        self.pass(time).await;
        self.world.pods[name].player.spread.undrain();
        SECOND * 20
    }

    async fn pauses(&mut self, name: &str, time: Duration) -> Duration {
        let has = |life: &Self| life.world.pods[name].player.spread.share().into_keys().collect::<Vec<_>>();
        self.world.pods[name].player.spread.pause();
        let had = has(self);
        self.pass(time).await;
        assert_eq!(has(self), had, "{}", self.told().await);
        self.world.pods[name].player.spread.resume();
        SECOND * 20
    }

    /// Tasks that fail on one machine run on the others, and none of these is stopped but a probe at a time.
    async fn bad_machine(&mut self, name: &str, time: Duration) -> Duration {
        self.failed = true;
        let cap = self.world.pods[name].cap;
        if self.world.pods.len() > 1 {
            self.world.close(name).await;
        }
        let expected = self.expected();
        // A place that a probe left may be taken by what fails at the bad one.
        let least = expected - if self.tasks() > expected { 3 } else { 1 }.min(expected);
        let bad = self.world.next_name();
        self.world.set(|now| now.broken.insert(bad));
        self.world.join(cap).await;
        self.pass(SECOND * 60).await;
        for _ in 0..time.as_secs() {
            self.world.second().await;
            let running = self.world.team.registry.running();
            assert!(running >= least, "{running} of {expected} ran: {}", self.told().await);
        }
        self.world.set(|now| now.broken.clear());
        // A task for which no other had room rests for a twelfth of the time it has been failing.
        let rest =
            if self.tasks() > expected { (time + SECOND * 60) / 12 + SECOND * 15 } else { Duration::ZERO };
        rest.max(SECOND * 60)
    }

    /// A task that kills its process does not stop the others for long.
    async fn killer(&mut self, after: Duration) -> Duration {
        self.dies(610);
        let keys = self.world.team.keys();
        let killer = keys[self.dice.place(keys.len())].clone();
        let _ = write!(self.story, " kills by {killer}");
        let before = self.world.deaths;
        self.world.set(|now| now.killer = Some((killer.clone(), after)));
        let (mut ran, mut looks) = (0, 0);
        for _ in 0..1800 {
            self.world.second().await;
            let running = self.world.team.registry.keys();
            ran += running.iter().filter(|key| key.as_str() != killer).count();
            looks += 1;
        }
        self.world.set(|now| now.killer = None);
        let expected = (self.expected() - 1) * looks;
        let (deaths, least) = (self.world.deaths - before, [0, 35, 60, 85][self.world.pods.len().min(3)]);
        assert!(ran * 100 >= expected * least, "{ran} of {expected}, {deaths} deaths: {}", self.told().await);
        assert!(deaths <= 21, "{deaths} deaths: {}", self.told().await);
        self.world.any().put_back_all().await.unwrap();
        TTL + SECOND * 25
    }

    /// Every pod is exchanged for one of a version with other tasks.
    async fn deploy(&mut self) -> Duration {
        let tasks = self.tasks();
        let more = [0, 1, tasks.div_ceil(10)][self.dice.place(3)];
        let tasks = if self.dice.percent(50) { tasks + more } else { (tasks - more).max(2) };
        let _ = write!(self.story, " to {tasks} tasks");
        let gap = self.seconds(2, 60);
        self.world.team = Team::beside(&self.world.team, tasks);
        for name in self.world.names() {
            let cap = self.world.pods[&name].cap;
            self.world.join(cap).await;
            self.pass(gap).await;
            self.world.close(&name).await;
            self.pass(gap).await;
        }
        SECOND * 30
    }

    // ----- the judge

    fn tasks(&self) -> usize {
        self.world.team.keys().len()
    }

    fn room(&self) -> usize {
        self.world.pods.values().map(|pod| pod.cap as usize).sum()
    }

    /// Number of tasks that should run.
    fn expected(&self) -> usize {
        self.tasks().min(self.room())
    }

    /// Returns what does not run that should.
    fn stands_still(&self) -> Option<String> {
        let running = self.world.team.registry.running();
        if running != self.expected() {
            return Some(format!("{running} of {} run", self.expected()));
        }
        let status = self.world.any().status();
        let are = |word: &str| status.tasks.values().filter(|task| task.word() == word).count();
        let waiting = self.tasks() - self.expected();
        if are("waiting for room") + are("resting") != waiting
            || are("running") + are("failing") != self.expected()
        {
            return Some(format!("{waiting} wait: {status}"));
        }
        None
    }

    fn is_uneven(&self) -> Option<String> {
        let mut counts: Vec<_> = self.world.pods.values().map(|pod| pod.player.count()).collect();
        counts.sort_unstable();
        (counts[counts.len() - 1] - counts[0] > 1).then(|| format!("counts are {counts:?}"))
    }

    /// Waits until all is well, and sees that it stays so.
    async fn calm(&mut self, within: Duration) {
        // Jobs of a session that has just expired have not ended yet.
        self.pass(SECOND * 3).await;
        let begun = Instant::now();
        let within = within + self.later;
        // After failures of jobs the counts are even when it is known that they work; tasks with deaths stay where
        // they are.
        let even = if self.failed || !self.later.is_zero() { SECOND * 900 } else { Duration::ZERO };
        while let Some((wrong, within)) = self
            .stands_still()
            .map(|wrong| (wrong, within))
            .or_else(|| Some((self.is_uneven()?, within + even)))
        {
            assert!(begun.elapsed() < within, "{wrong} after {:?}: {}", begun.elapsed(), self.told().await);
            self.world.second().await;
        }
        let starts = self.world.team.registry.starts();
        // Rows of deaths end when all has run for five minutes, and a clock that was set is believed.
        self.pass(SECOND * if self.later.is_zero() { 60 } else { 330 }).await;
        self.later = Duration::ZERO;
        let starts = self.world.team.registry.starts() - starts;
        assert!(starts == 0 || self.failed && starts <= 3, "{starts} starts in peace: {}", self.told().await);
        for (key, note) in self.world.team.notes().await {
            let says = |words: &str| note.contains(words);
            assert!(self.failed || !says("failing since"), "{key}: {note}: {}", self.story);
            assert!(self.died || !says("holders died"), "{key}: {note}: {}", self.story);
        }
    }

    /// The story, and how things stand.
    async fn told(&self) -> String {
        let mut told = self.story.clone();
        for pod in self.world.pods.values() {
            let _ = write!(told, "\n{}", pod.player.spread.status());
        }
        let status = self.world.any().status();
        for (key, _) in status.tasks.iter().filter(|(_, task)| !matches!(task, TaskState::Running { .. })) {
            let _ = write!(told, "\n{}", self.world.any().explain(key).await.unwrap());
        }
        told
    }
}

#[tokio::test(start_paused = true)]
async fn all_tasks_run_in_time_and_evenly_after_random_events() {
    let only = std::env::var("LIFE").ok().map(|seed| seed.parse().unwrap());
    let seeds = only.map_or(1..if is_whole() { 151 } else { 11 }, |seed: u64| seed..seed + 1);
    let mut befell: BTreeMap<String, usize> = BTreeMap::new();
    for seed in seeds {
        println!("life {seed}");
        let mut life = Life::begun(seed).await;
        for _ in 0..5 {
            let event = EVENTS[life.dice.place(EVENTS.len())];
            *befell.entry(format!("{event:?}")).or_default() += 1;
            let within = life.suffer(event).await;
            life.calm(within).await;
        }
        println!("life {seed}: {}", life.story);
        for name in life.world.names() {
            life.world.close(&name).await;
        }
    }
    println!("{befell:?}");
}

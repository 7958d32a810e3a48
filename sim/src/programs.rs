//! Programs of a fleet: jobs that behave and jobs that do not, guards that are kept too long, waits that are
//! given up.

use std::{fmt, future::Future, panic::resume_unwind, time::Duration};

use tokio::time::sleep;

use super::{
    Dice, EventKind, Instance, Trouble, Watched, Witness, WorkKind, gate::block_for, instance::Pen,
    schedules, sharing::join,
};
use tenure::{
    Guard, Lease,
    elect::{Acquired, Campaign, KeyRequest, Locked, Unlocked},
    model::{Kind, Term},
    spread::Task,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Behaviour of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobBehaviour {
    /// Works for so many rounds, or until it is told to stop.
    Obeys(u32),
    /// Works until it is told to stop, and then for nearly all of its grace.
    Drains,
    /// Never stops.
    Ignores,
    /// Panics after a while.
    Panics,
    /// Returns at once.
    Returns,
    /// Fails after a while.
    Fails,
    /// Wakes itself again and again, until it is told to stop.
    Restless,
    /// Is polled every millisecond, and never stops.
    Relentless,
}

impl JobBehaviour {
    fn any(instance: &Instance, dice: &mut Dice) -> Self {
        let all = instance.fleet().plan().has(Trouble::Jobs);
        match dice.below(if all { 16 } else { 9 }) {
            0..6 => Self::Obeys(u32::try_from(1 + dice.below(30)).unwrap_or(1)),
            6..9 => Self::Drains,
            9..12 => Self::Ignores,
            12 => Self::Panics,
            13 => Self::Returns,
            14 => Self::Fails,
            _ => Self::Restless,
        }
    }
}

/// A job of that conduct, watched.
pub(super) fn job(
    instance: &Instance,
    lease: Lease,
    tag: &str,
    conduct: JobBehaviour,
    mut dice: Dice,
) -> impl Future<Output = Result<(), String>> + Send + use<> {
    let work = Work { instance: instance.clone(), key: key(&lease), term: lease.term() };
    instance.pen().begins(work.key, work.term, tag, WorkKind::Job, lease.token());
    let watch = Watch { pen: instance.pen().clone(), key: work.key, term: work.term };
    Watched::new(async move { conduct.run(&work, &lease, &mut dice).await }, watch)
}

fn key(lease: &Lease) -> usize {
    super::key_of(lease.key()).unwrap_or(usize::MAX)
}

impl JobBehaviour {
    async fn run(self, work: &Work, lease: &Lease, dice: &mut Dice) -> Result<(), String> {
        match self {
            Self::Obeys(rounds) => {
                for _ in 0..rounds {
                    let pause = dice.up_to(SECOND / 2);
                    tokio::select! {
                        biased;
                        () = lease.cancelled() => return Ok(()),
                        () = async { work.round(dice).await; work.pause(pause).await } => {}
                    }
                }
                Ok(())
            }
            Self::Drains => {
                while !lease.is_cancelled() {
                    work.round(dice).await;
                    tokio::select! {
                        biased;
                        () = lease.cancelled() => {}
                        () = work.pause(dice.up_to(SECOND / 4)) => {}
                    }
                }
                let drain = lease.remaining() * 4 / 5;
                let until = work.instance.now() + drain.min(4 * SECOND);
                while work.instance.now() < until {
                    work.round(dice).await;
                    work.pause(50 * MS).await;
                }
                Ok(())
            }
            Self::Ignores => loop {
                work.round(dice).await;
                work.pause(dice.between(20 * MS, SECOND / 4)).await;
            },
            Self::Panics => {
                sleep(dice.up_to(2 * SECOND)).await;
                // As a panic, without the hook's message.
                resume_unwind(Box::new("on purpose"))
            }
            Self::Returns => Ok(()),
            Self::Fails => {
                sleep(dice.up_to(2 * SECOND)).await;
                Err("on purpose".to_owned())
            }
            Self::Restless => {
                while !lease.is_cancelled() {
                    for _ in 0..5 {
                        tokio::task::yield_now().await;
                    }
                    work.pause(dice.between(5 * MS, 50 * MS)).await;
                }
                Ok(())
            }
            Self::Relentless => loop {
                sleep(MS).await;
            },
        }
    }
}

/// Work under a lock.
pub(super) struct Work {
    pub(super) instance: Instance,
    pub(super) key: usize,
    pub(super) term: Term,
}

impl Work {
    /// As long as a busy program would pause, or longer.
    pub(super) async fn pause(&self, time: Duration) {
        sleep(time * self.instance.fleet().plan().slower).await;
    }

    /// Reads the resource, and after a moment writes it.
    pub(super) async fn round(&self, dice: &mut Dice) {
        let version = self.read();
        sleep(dice.up_to(20 * MS)).await;
        self.write(version);
    }

    fn read(&self) -> u64 {
        let (key, term) = (self.key, self.term);
        let version = self.instance.fleet().resources().get(&key).copied().unwrap_or(0);
        self.instance.record(EventKind::Read { key, term, version });
        version
    }

    fn write(&self, over: u64) {
        let (key, term) = (self.key, self.term);
        if self.instance.pen().is_void(key, term) {
            return;
        }
        self.instance.fleet().resources().insert(key, over + 1);
        self.instance.record(EventKind::Wrote { key, term, over });
    }
}

struct Watch {
    pen: Pen,
    key: usize,
    term: Term,
}

impl Watch {
    fn record_poll(&self) {
        self.pen.record(EventKind::Polled { key: self.key, term: self.term });
    }
}

impl Witness for Watch {
    fn polls(&mut self) {
        self.record_poll();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.pen.record(EventKind::Ended { key: self.key, term: self.term });
    }
}

/// A guard and the code beside it, watched.
#[derive(Debug)]
pub struct Kept {
    /// Dropped before the guard, as the code beside it ends before.
    watch: Option<WatchOfGuard>,
    guard: Guard,
    work: WorkOfGuard,
}

// Named apart, so that their fields need no Debug of their own.
struct WatchOfGuard(Watch);
struct WorkOfGuard(Work);

impl fmt::Debug for WatchOfGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl fmt::Debug for WorkOfGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

impl Kept {
    /// The guard was acquired for that ticket.
    #[must_use]
    pub fn new(instance: &Instance, guard: Guard, tag: &str) -> Self {
        let (key, term) = (key(&guard.lease()), guard.term());
        instance.pen().begins(key, term, tag, WorkKind::Guard, guard.lease().token());
        let watch = WatchOfGuard(Watch { pen: instance.pen().clone(), key, term });
        let work = WorkOfGuard(Work { instance: instance.clone(), key, term });
        Self { watch: Some(watch), guard, work }
    }

    /// The guard.
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Works for a moment, if the guard says that it may.
    pub async fn work(&self, dice: &mut Dice) {
        let Self { watch: Some(WatchOfGuard(watch)), guard, work: WorkOfGuard(work) } = self else { return };
        if !guard.is_valid() {
            return;
        }
        watch.record_poll();
        let version = work.read();
        sleep(dice.up_to(20 * MS)).await;
        if guard.is_valid() {
            watch.record_poll();
            work.write(version);
        }
    }

    /// Gives it back, and says when that is done.
    pub async fn release(mut self) {
        let WorkOfGuard(Work { instance, key, term }) = self.work;
        self.watch = None;
        if self.guard.release().await.is_ok() {
            instance.record(EventKind::Returned { key, term });
        }
    }
}

/// Runs some programs in an instance, drawn by chance, until the fleet has had enough.
pub(super) fn run_some(instance: &Instance) {
    let mut dice = instance.fleet().dice();
    for number in 0..instance.fleet().plan().programs {
        let program = Program { instance: instance.clone(), dice: dice.split(number as u64) };
        instance.gate().spawn(program.run());
    }
}

struct Program {
    instance: Instance,
    dice: Dice,
}

impl Program {
    async fn run(mut self) {
        let enough = self.instance.fleet().enough();
        loop {
            tokio::select! {
                biased;
                () = enough.cancelled() => return,
                () = self.turn() => {}
            }
            tokio::select! {
                biased;
                () = enough.cancelled() => return,
                () = sleep(self.dice.up_to(self.instance.fleet().plan().rest)) => {}
            }
        }
    }

    fn some_key(&mut self) -> usize {
        // Some keys are wanted more than others.
        let keys = self.instance.fleet().plan().keys;
        self.dice.place(keys).min(self.dice.place(keys))
    }

    /// A ticket. Some keep their key for a while at least, some leave it closed if they die.
    fn ask(&mut self, key: usize) -> (KeyRequest, String) {
        let (ask, tag) = self.instance.ask(key);
        let ask = match self.dice.below(16) {
            0 => ask.at_least(self.dice.up_to(2 * SECOND)),
            1 => ask.lock_delay(self.dice.up_to(2 * SECOND)),
            _ => ask,
        };
        (ask, tag)
    }

    fn patience(&mut self) -> Duration {
        self.dice.between(10 * MS, 12 * SECOND)
    }

    async fn turn(&mut self) {
        // As often as every other way to hold something, or more.
        if self.instance.fleet().plan().tasks > 0 && self.dice.percent(12) {
            return self.share().await;
        }
        if self.instance.fleet().plan().schedules > 0 && self.dice.percent(6) {
            return schedules::instruct(&self.instance, &mut self.dice).await;
        }
        match self.dice.below(20) {
            0..5 => self.lock().await,
            5..8 => self.acquire().await,
            8 => self.give_up_half_way().await,
            9..13 => self.campaign().await,
            13..15 => self.many_waiters().await,
            15 => self.try_acquire().await,
            16 => self.with_lock().await,
            17 => self.lock_blocking().await,
            18 => self.several().await,
            _ => self.release_all().await,
        }
    }

    /// Takes its part in the spread for a while.
    async fn share(&mut self) {
        let cap = 1 + self.dice.below(8);
        let conducts: Vec<_> = (0..3).map(|_| JobBehaviour::any(&self.instance, &mut self.dice)).collect();
        let plan = self.instance.fleet().plan();
        let old = plan.has(Trouble::Versions) && self.dice.percent(40);
        let unknown = old.then(|| self.dice.place(plan.tasks));
        let joined = join(&self.instance, cap, conducts, unknown, &mut self.dice);
        let Some(spread) = joined else { return };
        for _ in 0..self.dice.below(6) {
            let pause = self.dice.up_to(30 * SECOND);
            sleep(pause).await;
            let tasks = self.instance.fleet().plan().tasks;
            let number = self.dice.place(tasks);
            let task = super::task_name(number);
            match self.dice.below(10) {
                0 => spread.drain(),
                1 => spread.undrain(),
                2 => spread.pause(),
                3 => spread.resume(),
                4 => {
                    let cap = self.dice.below(10);
                    spread.set_cap(u32::try_from(cap).unwrap_or(0));
                    self.instance.record(EventKind::Capped { cap: usize::try_from(cap).unwrap_or(0) });
                }
                5 => spread.set_weight(u32::try_from(self.dice.below(4)).unwrap_or(0)),
                6 => spread.remove(task).expect("it is a name"),
                7 => {
                    self.instance.record(EventKind::Knows { tasks: vec![number] });
                    spread.add(Task::new(task, ()).expect("it is a name"));
                }
                8 => {
                    let _ = spread.put_back(task).await;
                }
                _ => {
                    let _ = spread.explain(task).await;
                }
            }
        }
        if self.dice.percent(50) {
            spread.stop().await;
        }
    }

    async fn lock(&mut self) {
        let key = self.some_key();
        let (ask, tag) = self.ask(key);
        let (conduct, dice) = (JobBehaviour::any(&self.instance, &mut self.dice), self.dice.split(3));
        let instance = self.instance.clone();
        let locked = ask.lock(move |lease| job(&instance, lease, &tag, conduct, dice)).await;
        let Ok(Locked::Running(handle)) = locked else { return };
        let patience = self.patience();
        match self.dice.below(3) {
            0 => {}
            1 => {
                let _ = tokio::time::timeout(patience, handle.join()).await;
            }
            _ => {
                sleep(patience / 4).await;
                self.unlock(key).await;
            }
        }
    }

    async fn unlock(&self, key: usize) {
        let elect = self.instance.elect();
        let holding = elect.holding_keys();
        let lease = holding
            .values()
            .find(|lease| lease.lock().kind == Kind::Lock && super::key_of(lease.key()) == Some(key));
        let Some(term) = lease.map(Lease::term) else { return };
        drop(holding);
        if let Ok(Unlocked::Released) = elect.unlock(format!("k{key}")).await {
            self.instance.record(EventKind::Returned { key, term });
        }
    }

    async fn acquire(&mut self) {
        let key = self.some_key();
        let (ask, tag) = self.ask(key);
        let patience = self.patience();
        if let Ok(Some(guard)) = ask.acquire_within(patience).await {
            let kept = Kept::new(&self.instance, guard, &tag);
            self.keep(kept).await;
        }
    }

    async fn try_acquire(&mut self) {
        let key = self.some_key();
        let (ask, tag) = self.ask(key);
        if let Ok(Acquired::Guard(guard)) = ask.try_acquire().await {
            let kept = Kept::new(&self.instance, guard, &tag);
            self.keep(kept).await;
        }
    }

    /// The code beside a guard.
    async fn keep(&mut self, kept: Kept) {
        let ends = self.dice.below(4);
        let rounds = 1 + self.dice.below(40);
        for _ in 0..rounds {
            kept.work(&mut self.dice).await;
            if self.dice.percent(5) {
                let _ = kept.guard().lease().set_value([1, 2, 3]).await;
            }
            if self.dice.percent(2) {
                let _ = kept.guard().check().await;
            }
            let pause = self.dice.up_to(SECOND / 2);
            tokio::select! {
                biased;
                _ = kept.guard().lost(), if ends != 0 => break,
                () = kept.work.0.pause(pause) => {}
            }
        }
        match ends {
            // Kept far too long, also when it is lost.
            0 => {
                for _ in 0..self.dice.below(80) {
                    kept.work(&mut self.dice).await;
                    kept.work.0.pause(SECOND / 10).await;
                }
                drop(kept);
            }
            1 => drop(kept),
            _ => kept.release().await,
        }
    }

    async fn give_up_half_way(&mut self) {
        let key = self.some_key();
        for _ in 0..=self.dice.below(4) {
            let (ask, tag) = self.ask(key);
            let patience = self.dice.up_to(self.dice.clone().up_to(SECOND));
            tokio::select! {
                biased;
                guard = ask.acquire() => {
                    if let Ok(guard) = guard {
                        drop(Kept::new(&self.instance, guard, &tag));
                    }
                }
                () = sleep(patience) => {}
            }
        }
    }

    async fn campaign(&mut self) {
        let key = self.some_key();
        let (ask, tag) = self.ask(key);
        let conduct = JobBehaviour::any(&self.instance, &mut self.dice);
        let (instance, dice) = (self.instance.clone(), self.dice.split(4));
        let rest = self.dice.up_to(SECOND);
        let campaign = ask.campaign().rest_between(rest);
        let campaign = if self.dice.percent(80) {
            campaign.run(move |lease| {
                let dice = dice.clone().split(lease.term().get());
                job(&instance, lease, &tag, conduct, dice)
            })
        } else {
            campaign.start()
        };
        let Ok(campaign) = campaign else { return };
        for _ in 0..=self.dice.below(4) {
            let stand = self.dice.up_to(10 * SECOND);
            sleep(stand).await;
            if self.dice.percent(30) {
                let _ = campaign.resign();
            } else if self.dice.percent(15) {
                let to = self.dice.place(self.instance.fleet().plan().instances);
                let _ = campaign.resign_to(format!("pod-{to}")).await;
            }
        }
        if self.dice.percent(50) {
            campaign.stop().await;
        }
    }

    async fn many_waiters(&mut self) {
        let key = self.some_key();
        let mut waiters = Vec::new();
        for number in 0..2 + self.dice.below(3) {
            let mut one = Self { instance: self.instance.clone(), dice: self.dice.split(number) };
            waiters.push(self.instance.gate().spawn(async move {
                let (ask, tag) = one.ask(key);
                let patience = one.patience();
                if let Ok(Some(guard)) = ask.acquire_within(patience).await {
                    let kept = Kept::new(&one.instance, guard, &tag);
                    kept.work(&mut one.dice).await;
                    sleep(one.dice.up_to(SECOND / 2)).await;
                    kept.work(&mut one.dice).await;
                    kept.release().await;
                }
            }));
        }
        for waiter in waiters {
            let _ = waiter.await;
        }
    }

    async fn with_lock(&mut self) {
        let key = self.some_key();
        let (ask, tag) = self.ask(key);
        let (conduct, dice) = (JobBehaviour::any(&self.instance, &mut self.dice), self.dice.split(5));
        let instance = self.instance.clone();
        let patience = self.patience();
        let within = ask.with_lock(move |lease| job(&instance, lease, &tag, conduct, dice));
        let _ = tokio::time::timeout(patience, within).await;
    }

    async fn lock_blocking(&mut self) {
        let key = self.some_key();
        let (ask, tag) = self.ask(key);
        let pen = self.instance.pen().clone();
        let time = self.dice.up_to(6 * SECOND);
        let obeys = self.dice.percent(50);
        let locked = ask.lock_blocking(move |lease| {
            let (key, term) = (super::key_of(lease.key()).unwrap_or(usize::MAX), lease.term());
            pen.begins(key, term, &tag, WorkKind::Blocking, lease.token());
            let watch = Watch { pen, key, term };
            let step = time / 10;
            for _ in 0..10 {
                if obeys && lease.is_cancelled() || !block_for(step) {
                    break;
                }
            }
            drop(watch);
            Ok::<_, String>(())
        });
        if let Ok(Locked::Running(handle)) = locked.await {
            let patience = self.patience();
            let _ = tokio::time::timeout(patience, handle.join()).await;
        }
    }

    async fn several(&mut self) {
        let keys: Vec<_> = (0..2 + self.dice.below(2)).map(|_| self.some_key()).collect();
        let patience = self.patience();
        let names = keys.iter().map(|key| format!("k{key}"));
        // These tickets have no name of their own.
        if let Ok(Some(guards)) = self.instance.elect().acquire_all(names, patience).await {
            let pause = self.dice.up_to(SECOND);
            tokio::select! {
                biased;
                _ = guards.lost() => {}
                () = sleep(pause) => {}
            }
            let _ = guards.release().await;
        }
    }

    async fn release_all(&mut self) {
        if self.dice.percent(30) {
            self.instance.elect().release_all().await;
        }
    }
}

/// Contends for a key for good.
pub(super) fn stand(instance: &Instance, key: usize) -> Option<Campaign> {
    let (ask, tag) = instance.ask(key);
    let worker = instance.clone();
    let dice = instance.fleet().dice();
    let run = move |lease: Lease| {
        let dice = dice.clone().split(lease.term().get());
        job(&worker, lease, &tag, JobBehaviour::Obeys(u32::MAX), dice)
    };
    ask.campaign().run(run).ok()
}

impl Instance {
    /// Runs a job under a key if it is to be had now, and says under which term.
    pub async fn lock(&self, key: usize, conduct: JobBehaviour) -> Option<Term> {
        let (ask, tag) = self.ask(key);
        let (instance, dice) = (self.clone(), self.fleet().dice());
        let locked = ask.lock(move |lease| job(&instance, lease, &tag, conduct, dice)).await.ok()?;
        locked.running().map(|handle| handle.lease().term())
    }

    /// Waits for a key.
    pub async fn acquire(&self, key: usize) -> Option<Kept> {
        let (ask, tag) = self.ask(key);
        let guard = ask.acquire().await.ok()?;
        Some(Kept::new(self, guard, &tag))
    }

    /// Contends for a key with a job of that conduct, until the fleet [settles](super::Fleet::settle).
    pub fn stands(&self, key: usize, conduct: JobBehaviour) {
        let (ask, tag) = self.ask(key);
        let (worker, dice) = (self.clone(), self.fleet().dice());
        let run = move |lease: Lease| {
            let dice = dice.clone().split(lease.term().get());
            job(&worker, lease, &tag, conduct, dice)
        };
        if let Ok(campaign) = ask.campaign().run(run) {
            let enough = self.fleet().enough();
            self.gate().spawn(async move {
                let _keeps = campaign;
                enough.cancelled().await;
            });
        }
    }
}

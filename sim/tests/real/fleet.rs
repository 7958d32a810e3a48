//! A fleet of holders' processes on one database, and what is known of it: which member works under which lock,
//! and what all of them, and the store, have said.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tenure::{
    Clock, SystemClock,
    clock::Moment,
    model::{SessionId, Term},
};
use tenure_sim::{EventKind, FIRST_TASK, Life};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    court::{Court, Heard},
    holder::{ORDER, Order, Pace},
    ills::{How, Ill},
    ledger::Applied,
    lines::{self, Line},
    record::Record,
    support::wait::{LIMIT, until, within},
};

/// Time between two looks at the store.
const PACE: Duration = Duration::from_millis(20);
/// An entry that is younger is not judged while processes run: a thread may lose its processor between what it does
/// and the line that says so.
const LAG: Duration = Duration::from_secs(30);

/// The time by which leases are counted, in all processes of the machine.
pub(crate) fn now() -> Moment {
    SystemClock::new().now()
}

/// Parts of a fleet.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) members: usize,
    pub(crate) keys: usize,
    pub(crate) tasks: usize,
    pub(crate) database: String,
    /// True if the clocks of all servers agree. Where they do not, it is unknown which ticks there were.
    pub(crate) one_time: bool,
    pub(crate) pace: Pace,
    /// Parts that misbehave in the programs of the first half of its members.
    pub(crate) ills: Vec<Ill>,
    /// Some keys are worked at by threads, under guards.
    pub(crate) with_guards: bool,
}

impl Plan {
    /// Returns whether parts of this member's program misbehave.
    fn is_ill(&self, member: usize) -> bool {
        member < self.members / 2
    }

    /// Among several, a part that blocks for ever would end the others: the second member has them without.
    fn ills_of(&self, member: usize) -> Vec<Ill> {
        let mut ills = if self.is_ill(member) { self.ills.clone() } else { Vec::new() };
        if member == 1 && ills.len() > 1 {
            ills.retain(|ill| ill.1 != How::Blocks);
        }
        ills
    }

    /// Room for all when one is gone, or when half of them run nothing; a fleet that is looked at may lose more.
    fn cap(&self) -> usize {
        let are_left = match self.pace {
            Pace::Shown => 1,
            _ if self.ills.is_empty() => self.members - 1,
            _ => self.members / 2,
        };
        self.tasks.div_ceil(are_left)
    }

    /// All locks, by their numbers.
    fn locks(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.keys).chain(FIRST_TASK..FIRST_TASK + self.tasks)
    }
}

/// Site of one member of the fleet, and its way to the set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    pub(crate) uri: String,
    /// The network namespace, where it has one of its own.
    pub(crate) namespace: Option<String>,
}

/// Messages heard of the fleet's processes.
#[derive(Debug, Default)]
struct Ears {
    heard: Vec<Heard>,
    /// The last poll of each key.
    polled: BTreeMap<usize, (Moment, Life, Term)>,
    echoes: BTreeMap<Life, i64>,
    /// The session that each process opened last.
    sessions: BTreeMap<Life, SessionId>,
    overruns: u64,
    ticks: u64,
    commits: u64,
    /// The jobs that began and ended, by key.
    jobs: BTreeMap<usize, Vec<Job>>,
}

/// A job, as its process has told of it.
#[derive(Clone, Copy, Debug)]
struct Job {
    life: Life,
    term: Term,
    began: Moment,
    ended: Option<Moment>,
}

#[derive(Clone, Debug, Default)]
struct Hearing(Arc<Mutex<Ears>>);

impl Hearing {
    fn ears(&self) -> MutexGuard<'_, Ears> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, life: Life, at: Moment, line: Line) {
        let mut ears = self.ears();
        match &line {
            Line::Seen(EventKind::Polled { key, term }) => {
                ears.polled.insert(*key, (at, life, *term));
            }
            Line::Seen(EventKind::Began { key, term, .. }) => {
                let job = Job { life, term: *term, began: at, ended: None };
                ears.jobs.entry(*key).or_default().push(job);
            }
            Line::Seen(EventKind::Ended { key, term }) => {
                let jobs = ears.jobs.entry(*key).or_default();
                if let Some(job) = jobs.iter_mut().rfind(|job| job.life == life && job.term == *term) {
                    job.ended = Some(at);
                }
            }
            Line::Seen(EventKind::Opens { session }) => {
                ears.sessions.insert(life, *session);
            }
            Line::Seen(EventKind::Reported(tenure_sim::Reported::Overran { .. })) => ears.overruns += 1,
            Line::Ticked { .. } => ears.ticks += 1,
            Line::Committed { .. } => ears.commits += 1,
            Line::Echo(number) => {
                ears.echoes.insert(life, *number);
                return;
            }
            Line::Seen(_) => {}
        }
        ears.heard.push(Heard { at, life: Some(life), line });
    }
}

/// A process. Killed when this is dropped, and when the thread that started it ends.
#[derive(Debug)]
pub(crate) struct Process {
    life: Life,
    child: Child,
    orders: Option<ChildStdin>,
    ended: watch::Receiver<bool>,
}

impl Process {
    fn start(plan: &Plan, way: &Way, life: Life, hearing: Hearing) -> Self {
        let order = Order {
            uri: way.uri.clone(),
            database: plan.database.clone(),
            member: life.member,
            number: life.number,
            keys: plan.keys,
            tasks: plan.tasks,
            cap: plan.cap(),
            seed: plan.seed,
            pace: plan.pace,
            ills: plan.ills_of(life.member),
            with_guards: plan.with_guards,
        };
        let itself = std::env::current_exe().expect("a process has a program");
        let mut command = match &way.namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(itself);
                command
            }
            None => Command::new(itself),
        };
        if let Pace::Shown = plan.pace {
            command.stderr(Stdio::null());
        }
        let mut child = command
            .args(["--exact", "holder::is_a_holder", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ORDER, serde_json::to_string(&order).expect("it is plain data"))
            // A key that is typed here to end the run ends the harness first.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is this very program");
        let orders = child.stdin.take();
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let (tell, ended) = watch::channel(false);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some((at, line)) = lines::read(&line) {
                    hearing.hear(life, at, line);
                }
            }
            tell.send_replace(true);
        });
        Self { life, child, orders, ended }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn tell(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("it is there until the process ends");
        writeln!(orders, "{order}").expect("the process reads its orders");
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }

    /// Waits until it has said the last that it will say.
    async fn heard_out(&mut self) {
        let ended = within("a process has ended", self.ended.wait_for(|ended| *ended)).await;
        drop(ended.expect("its thread says so before it goes"));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A fleet.
pub(crate) struct Fleet {
    pub(crate) plan: Plan,
    ways: Vec<Way>,
    processes: Vec<Option<Process>>,
    lives: Vec<u32>,
    hearing: Hearing,
    pub(crate) record: Record,
    commits: mpsc::UnboundedReceiver<(Moment, Applied)>,
    follower: JoinHandle<()>,
    pub(crate) court: Court,
    marks: i64,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Fleet {
    /// Starts all its processes. `record` is the harness's own way to the store, which nothing is done to.
    pub(crate) async fn start(plan: Plan, record: Record, ways: Vec<Way>) -> Self {
        assert_eq!(ways.len(), plan.members);
        record.prepare(plan.locks()).await;
        let (send, commits) = mpsc::unbounded_channel();
        let follower = record.follow(send).await;
        let mut fleet = Self {
            court: Court::new(plan.seed, plan.members, plan.pace),
            processes: ways.iter().map(|_| None).collect(),
            lives: vec![0; plan.members],
            hearing: Hearing::default(),
            plan,
            ways,
            record,
            commits,
            follower,
            marks: 0,
        };
        for member in 0..fleet.plan.members {
            fleet.run(member);
        }
        fleet
    }

    /// Starts a process where none runs.
    pub(crate) fn run(&mut self, member: usize) {
        assert!(self.processes[member].is_none(), "member {member} runs already");
        self.lives[member] += 1;
        let life = Life { member, number: self.lives[member] };
        self.processes[member] =
            Some(Process::start(&self.plan, &self.ways[member], life, self.hearing.clone()));
    }

    fn process(&mut self, member: usize) -> &mut Process {
        self.processes[member].as_mut().unwrap_or_else(|| panic!("member {member} does not run"))
    }

    fn done_to(&self, life: Option<Life>, what: EventKind) {
        self.hearing.ears().heard.push(Heard { at: now(), life, line: Line::Seen(what) });
    }

    /// Records a fault outside of the members.
    pub(crate) fn trouble(&self, what: impl Into<String>) {
        self.done_to(None, EventKind::Fault(what.into()));
    }

    /// Kill -9.
    pub(crate) async fn kill(&mut self, member: usize) {
        let mut process = self.processes[member].take().expect("it runs");
        self.court.kills(process.life, now());
        process.child.kill().expect("it runs");
        let status = process.child.wait().expect("it was not waited for");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "it ran until then");
        process.heard_out().await;
        self.done_to(Some(process.life), EventKind::Crashed);
    }

    /// Takes note of members that somebody else has killed. Returns them, and the session of each.
    pub(crate) async fn killed_by_others(&mut self) -> Vec<(usize, Option<SessionId>)> {
        let mut killed = Vec::new();
        for member in 0..self.plan.members {
            let Some(process) = &mut self.processes[member] else { continue };
            let Some(status) = process.child.try_wait().expect("it is a child") else { continue };
            let mut process = self.processes[member].take().expect("checked");
            process.heard_out().await;
            if std::os::unix::process::ExitStatusExt::signal(&status) != Some(9) {
                self.court.violate("process", format!("member {member} ended by itself: {status}"));
            }
            let (session, last) = {
                let ears = self.hearing.ears();
                let mut of_it = ears.heard.iter().rev().filter(|heard| heard.life == Some(process.life));
                (
                    ears.sessions.get(&process.life).copied(),
                    of_it.next().map_or(lines::start(), |last| last.at),
                )
            };
            self.court.kills(process.life, last);
            self.done_to(Some(process.life), EventKind::Crashed);
            killed.push((member, session));
        }
        killed
    }

    /// Closes its engine, and lets it end.
    pub(crate) async fn close(&mut self, member: usize) {
        self.process(member).tell("close");
        self.has_closed(member).await;
    }

    async fn has_closed(&mut self, member: usize) {
        let mut process = self.processes[member].take().expect("it runs");
        process.heard_out().await;
        let status = process.child.wait().expect("it was not waited for");
        assert!(status.success(), "member {member} ended with {status}");
        // Its events may come after it has said that it is closed, and its last lines with them.
        self.done_to(Some(process.life), EventKind::Crashed);
    }

    /// SIGSTOP. Returns when all of it stands still.
    pub(crate) async fn freeze(&mut self, member: usize) {
        let process = self.process(member);
        let life = process.life;
        kill_process(process.pid(), Signal::STOP).expect("it runs");
        until("a process stands still", async || match process.state() {
            Some('T') => Ok(()),
            other => Err(other),
        })
        .await;
        self.done_to(Some(life), EventKind::Froze);
    }

    /// The same, but not in the middle of a write to the file: no other process could write for as long as it stands
    /// still.
    pub(crate) async fn freeze_between_writes(&mut self, member: usize) {
        loop {
            self.freeze(member).await;
            if self.record.is_writable() {
                return;
            }
            self.thaw(member);
        }
    }

    /// SIGCONT.
    pub(crate) fn thaw(&mut self, member: usize) {
        let process = self.process(member);
        let life = process.life;
        assert_eq!(process.state(), Some('T'), "it stood still until now");
        let pid = process.pid();
        self.done_to(Some(life), EventKind::Thawed);
        kill_process(pid, Signal::CONT).expect("it runs");
    }

    /// The member whose jobs have the most keys, by their polls since then, and which keys.
    pub(crate) fn busiest(&self, since: Moment) -> Option<(usize, Vec<usize>)> {
        let ears = self.hearing.ears();
        let mut held = BTreeMap::<usize, Vec<usize>>::new();
        for (key, (at, life, _)) in &ears.polled {
            if *at > since {
                held.entry(life.member).or_default().push(*key);
            }
        }
        held.into_iter().max_by_key(|(_, keys)| keys.len())
    }

    /// The same, once a member has worked within that time.
    pub(crate) async fn until_busiest(&self, recent: Duration) -> (usize, Vec<usize>) {
        until("somebody works", async || self.busiest(now() - recent).ok_or("nobody")).await
    }

    /// Last poll of a key: its time, its instance, its term.
    pub(crate) fn last_poll(&self, key: usize) -> Option<(Moment, Life, Term)> {
        self.hearing.ears().polled.get(&key).copied()
    }

    /// Waits until others have worked at each of these keys after that moment. A task may rest instead.
    pub(crate) async fn others_work(&self, keys: &[usize], member: usize, after: Moment) {
        until(&format!("others work at {keys:?}"), async || {
            let is_left = |key: &usize| {
                let last = self.last_poll(*key);
                *key < FIRST_TASK && !last.is_some_and(|(at, life, _)| at > after && life.member != member)
            };
            let left: Vec<_> = keys.iter().copied().filter(is_left).collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }

    /// The keys at which a member worked at that moment, as far as it is known.
    pub(crate) fn works_at(&self, member: usize, moment: Moment) -> Vec<usize> {
        let ears = self.hearing.ears();
        let works = |(_, jobs): &(&usize, &Vec<Job>)| {
            let last = jobs.iter().filter(|job| job.began <= moment).max_by_key(|job| job.began);
            last.is_some_and(|job| job.life.member == member && job.ended.is_none_or(|ended| ended > moment))
        };
        ears.jobs.iter().filter(works).map(|(key, _)| *key).collect()
    }

    /// Time at which a job of another member first began at that key after that moment.
    pub(crate) fn began_elsewhere(&self, key: usize, member: usize, after: Moment) -> Option<Moment> {
        let ears = self.hearing.ears();
        let jobs = ears.jobs.get(&key).into_iter().flatten();
        jobs.filter(|job| job.began > after && job.life.member != member).map(|job| job.began).min()
    }

    /// Number of jobs that ran on after their lease had ended.
    pub(crate) fn overruns(&self) -> u64 {
        self.hearing.ears().overruns
    }

    /// The largest term of all locks.
    pub(crate) async fn largest_term(&self) -> Option<u64> {
        let locks = self.record.locks().await?;
        locks.values().map(|lock| lock.term.get()).max()
    }

    /// The session that a member opened last.
    pub(crate) fn session(&self, member: usize) -> Option<SessionId> {
        let life = self.processes[member].as_ref()?.life;
        self.hearing.ears().sessions.get(&life).copied()
    }

    /// The process of a member, if there is one, and whether it stands still.
    pub(crate) fn process_of(&self, member: usize) -> Option<(u32, bool)> {
        let process = self.processes[member].as_ref()?;
        Some((process.child.id(), process.state() == Some('T')))
    }

    /// Number of tasks that each member has, and of those that no member has; without tasks that rest.
    pub(crate) async fn shares(&self) -> Option<(Vec<usize>, usize)> {
        let locks = self.record.locks().await?;
        let ears = self.hearing.ears();
        let has = |session: SessionId| {
            let life = |process: &Process| ears.sessions.get(&process.life) == Some(&session);
            self.processes.iter().position(|process| process.as_ref().is_some_and(life))
        };
        let (mut shares, mut left) = (vec![0; self.plan.members], 0);
        for task in FIRST_TASK..FIRST_TASK + self.plan.tasks {
            let lock = locks.get(&task);
            match lock.filter(|lock| lock.is_held).and_then(|lock| has(lock.session?)) {
                Some(member) => shares[member] += 1,
                None => left += usize::from(lock.is_none_or(|lock| !lock.rests)),
            }
        }
        Some((shares, left))
    }

    /// Number of attempts at ticks.
    pub(crate) fn ticks(&self) -> u64 {
        self.hearing.ears().ticks
    }

    /// The keys that are not held, or not worked under since then by the very term that the store has, and the tasks
    /// that no living session holds. `None` if the store does not answer.
    ///
    /// A task that died with several processes rests: no member need work at it.
    async fn not_held(&self, since: Moment) -> Option<Vec<usize>> {
        let polled = |key: usize| self.last_poll(key).filter(|(at, ..)| *at > since);
        let quiet: Vec<_> = (0..self.plan.keys).filter(|key| polled(*key).is_none()).collect();
        if !quiet.is_empty() {
            return Some(quiet);
        }
        let locks = self.record.locks().await?;
        let is_missing = |key: &usize| {
            let Some(lock) = locks.get(key) else { return true };
            let is_worked = || polled(*key).is_some_and(|(.., term)| term == lock.term);
            if *key < FIRST_TASK { !lock.is_held || !is_worked() } else { !lock.is_held && !lock.rests }
        };
        Some(self.plan.locks().filter(is_missing).collect())
    }

    /// Waits until every key was held and worked under after that moment, each at some time: keys change
    /// hands all the time. Answers how long that took.
    ///
    /// # Errors
    /// The locks that are missing when it takes too long.
    pub(crate) async fn converges(&self, since: Moment) -> Result<Duration, Vec<usize>> {
        self.none_is_missing(since, async |_| self.not_held(since).await).await
    }

    /// Looks until no lock is missing any more. A look is told those that were, and answers nothing if the store does
    /// not.
    async fn none_is_missing(
        &self,
        since: Moment,
        look: impl AsyncFn(&[usize]) -> Option<Vec<usize>>,
    ) -> Result<Duration, Vec<usize>> {
        let mut missing: Vec<_> = self.plan.locks().collect();
        let wait = async {
            while !missing.is_empty() {
                sleep(PACE).await;
                if let Some(left) = look(&missing).await {
                    missing = left;
                }
            }
        };
        let waited = timeout(LIMIT, wait).await;
        waited.map(|()| now().since(since)).map_err(|_| missing)
    }

    /// Keys of these that are not held now, by a member that works since then, or by one of which parts
    /// misbehave, and which need not get to work. Nothing, if the store does not answer.
    async fn not_held_by_any(&self, keys: &[usize], since: Moment) -> Option<Vec<usize>> {
        let locks = self.record.locks().await?;
        let is_ill = |session: SessionId| {
            let ears = self.hearing.ears();
            let found = ears.sessions.iter().find(|(_, opened)| **opened == session);
            found.is_some_and(|(life, _)| self.plan.is_ill(life.member))
        };
        let is_held = |key: &usize| {
            let Some(lock) = locks.get(key) else { return false };
            let is_worked = || self.last_poll(*key).is_some_and(|(at, ..)| at > since);
            (lock.is_held && (lock.session.is_some_and(is_ill) || is_worked())) || lock.rests
        };
        Some(keys.iter().copied().filter(|key| !is_held(key)).collect())
    }

    /// Waits until every key was held after that moment, each at some time. Answers how long that took.
    ///
    /// # Errors
    /// The locks that are missing when it takes too long.
    pub(crate) async fn holds_all(&self, since: Moment) -> Result<Duration, Vec<usize>> {
        self.none_is_missing(since, async |missing| self.not_held_by_any(missing, since).await).await
    }

    /// Ends the work of threads under guards, and waits until none of their keys is held or waited for.
    pub(crate) async fn lets_go_of(&mut self, keys: &[usize]) {
        for process in self.processes.iter_mut().flatten() {
            process.tell("idle");
        }
        until("nothing is held or waited for where nobody asks", async || {
            let locks = self.record.locks().await.ok_or_else(|| "no answer".to_owned())?;
            let is_left = |key: &&usize| locks.get(key).is_some_and(|lock| lock.is_held);
            let held: Vec<_> = keys.iter().filter(is_left).collect();
            let waited_for = self.record.waited_for(keys).await.ok_or_else(|| "no answer".to_owned())?;
            if held.is_empty() && waited_for.is_empty() {
                Ok(())
            } else {
                Err(format!("held {held:?}, waited for {waited_for:?}"))
            }
        })
        .await;
    }

    /// Has all heard that was said and applied until now.
    async fn catch_up(&mut self) {
        self.marks += 1;
        let number = self.marks;
        for process in self.processes.iter_mut().flatten() {
            process.tell(&format!("echo {number}"));
        }
        for process in self.processes.iter().flatten() {
            let (hearing, life) = (&self.hearing, process.life);
            until(&format!("holder {life} echoes"), async || {
                let last = hearing.ears().echoes.get(&life).copied();
                if last == Some(number) { Ok(()) } else { Err(last) }
            })
            .await;
        }
        until("a marker is written", async || {
            self.record.mark(number).await.then_some(()).ok_or("no answer")
        })
        .await;
        within("the marker is in the stream of changes", async {
            loop {
                let (at, applied) = self.commits.recv().await.expect("the stream goes on");
                let last = applied == Applied::Mark(number);
                self.court.apply([(at, applied)]);
                if last {
                    return;
                }
            }
        })
        .await;
        let heard = std::mem::take(&mut self.hearing.ears().heard);
        self.court.hear(heard);
    }

    /// Has all judged of which every line was heard for certain.
    pub(crate) async fn judge(&mut self) -> Option<tenure_sim::Violation> {
        self.catch_up().await;
        self.court.judge_until(now() - LAG)
    }

    /// Waits until a write behind the fence was acknowledged.
    pub(crate) async fn has_written(&self) {
        until("a fenced write is acknowledged", async || match self.hearing.ears().commits {
            0 => Err("none"),
            _ => Ok(()),
        })
        .await;
    }

    /// Closes all, and has the rest judged.
    pub(crate) async fn end(&mut self) -> Option<tenure_sim::Violation> {
        until("a tick is run", async || match self.hearing.ears().ticks {
            0 => Err("none"),
            _ => Ok(()),
        })
        .await;
        let run: Vec<_> = (0..self.plan.members).filter(|member| self.processes[*member].is_some()).collect();
        for member in &run {
            self.process(*member).tell("close");
        }
        for member in run {
            self.has_closed(member).await;
        }
        self.catch_up().await;
        if let Some(violation) = self.court.judge_until(now()) {
            return Some(violation);
        }
        let ledger =
            until("the ledger is read", async || self.record.ledger().await.ok_or("no answer")).await;
        let entries = ledger.len();
        let (ticks, violation) = self.court.judge_ledger(ledger, self.plan.one_time);
        println!("{ticks} ticks run, {entries} entries in their ledger");
        violation
    }
}

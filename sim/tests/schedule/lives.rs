//! Random lives of schedules, and a judge of what docs/schedule.md promises: that what is due happens, within its window
//! or not at all; that what is paused does not; and that nothing happens twice but as documented.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use tenure::{
    Lease,
    model::{Entry, Outcome, RunRecord, StoreTime, Why},
    schedule::{Misfire, OnCrash, Overlap, Retries, ScheduleBuilder, Tick},
    testing::{Course, Fault, Operation},
};
use tenure_sim::{Dice, is_whole};
use tokio::time::Instant;

use crate::schedule::crew::{Crew, HOUR, MINUTE, Member, SECOND, pass};

/// Events that befall the instances; each lasts for a while, and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Dies,
    Closes,
    CutOff,
    StoreAway,
    Claims,
    Finishes,
    Paused,
    Ordered,
    Drained,
    ClockSteps,
    ClockJumps,
}

use Event::*;

const EVENTS: [Event; 10] =
    [Dies, Closes, CutOff, StoreAway, Claims, Finishes, Paused, Ordered, Drained, ClockSteps];

/// Events of a few lives: while the clock jumps by hours, lateness cannot be judged.
const JUMPS: [Event; 3] = [Dies, Dies, ClockJumps];

/// Span of time; without an end it lasts.
type Span = (Instant, Option<Instant>);

/// End of one run, as its job saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ok,
    Failed,
    Told,
    /// The job was dropped, or its process died.
    Dropped,
}

/// A run.
#[derive(Clone, Debug)]
struct Begun {
    instant: StoreTime,
    attempt: u32,
    ordered: bool,
    by: String,
    /// By the store's clock, and by that of the test.
    at: StoreTime,
    moment: Instant,
    end: Option<(End, Instant)>,
}

type Log = Arc<Mutex<Vec<Begun>>>;

/// Notes the end of a run, however it comes.
struct Noted(Log, usize, End);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.lock().unwrap()[self.1].end = Some((self.2, Instant::now()));
    }
}

/// The rules of the schedule.
#[derive(Clone, Copy, Debug)]
struct Rules {
    every: u64,
    takes: Duration,
    fails: u64,
    misfire: Misfire,
    overlap: Overlap,
    on_crash: OnCrash,
    tries: u32,
}

impl Rules {
    fn of(dice: &mut Dice) -> Self {
        let pick = |dice: &mut Dice, of: &[u64]| of[dice.place(of.len())];
        let window = Duration::from_secs(pick(dice, &[5, 30, 600]));
        Self {
            every: pick(dice, &[10, 20, 60]),
            takes: Duration::from_secs(pick(dice, &[0, 0, 3, 15, 70])),
            fails: pick(dice, &[0, 0, 30]),
            misfire: match dice.place(3) {
                0 => Misfire::Skip { tolerance: window },
                1 => Misfire::One { window },
                _ => Misfire::All { window, at_most: 5 },
            },
            overlap: [Overlap::Skip, Overlap::Queue, Overlap::Cancel][dice.place(3)],
            on_crash: [OnCrash::AtMostOnce, OnCrash::AtLeastOnce { attempts: 3 }][dice.place(2)],
            tries: if dice.percent(50) { 1 } else { 3 },
        }
    }

    fn expression(&self) -> String {
        if self.every == 60 { "* * * * *".to_owned() } else { format!("*/{} * * * * *", self.every) }
    }

    fn set(self, schedule: ScheduleBuilder) -> ScheduleBuilder {
        let retries = Retries { tries: self.tries, first: SECOND, longest: 5 * SECOND };
        schedule.misfire(self.misfire).overlap(self.overlap).on_crash(self.on_crash).retries(retries)
    }

    const fn window(&self) -> Duration {
        match self.misfire {
            Misfire::Skip { tolerance: window } | Misfire::One { window } | Misfire::All { window, .. } => {
                window
            }
            _ => Duration::ZERO,
        }
    }

    /// No run comes to its end, and what is ordered waits for that.
    fn never_ends(&self) -> bool {
        self.overlap == Overlap::Cancel && self.takes.as_secs() >= self.every
    }
}

struct Life {
    crew: Crew,
    dice: Dice,
    rules: Rules,
    log: Log,
    members: BTreeMap<String, Member>,
    operator: Member,
    named: usize,
    story: String,
    /// Pauses: when they were known to the store, and when they ended.
    pauses: Vec<Span>,
    orders: Vec<StoreTime>,
    /// Events of this life.
    events: &'static [Event],
    /// Times in which the store may not have learned how a run ended.
    unsaid: Vec<Span>,
    /// Most by which the clock was stepped, and whether it was by hours.
    stepped: Duration,
    jumped: bool,
}

impl Life {
    async fn begun(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let rules = Rules::of(&mut dice);
        let crew = if dice.percent(50) { Crew::short() } else { Crew::new() }.seeded(seed << 8);
        let operator = crew.member("op").await;
        let mut life = Self {
            crew,
            dice,
            rules,
            log: Log::default(),
            members: BTreeMap::new(),
            operator,
            named: 0,
            story: format!("{rules:?}"),
            pauses: Vec::new(),
            orders: Vec::new(),
            events: if seed.is_multiple_of(5) { &JUMPS } else { &EVENTS },
            unsaid: Vec::new(),
            stepped: Duration::ZERO,
            jumped: false,
        };
        for _ in 0..=life.dice.place(3) {
            life.join().await;
        }
        pass(3 * MINUTE).await;
        life
    }

    async fn join(&mut self) {
        self.named += 1;
        let name = format!("pod-{:02}", self.named);
        let (rules, job) = (self.rules, self.job(&name));
        let expression = rules.expression();
        let member = self.crew.with_job(&name, &expression, |schedule| rules.set(schedule), job).await;
        self.members.insert(name, member);
    }

    fn job(
        &self,
        name: &str,
    ) -> impl Fn(Tick, Lease) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
        let (log, clock, rules, name) =
            (self.log.clone(), self.crew.clock.clone(), self.rules, name.to_owned());
        move |tick, lease| {
            let (log, clock, by) = (log.clone(), clock.clone(), name.clone());
            Box::pin(async move {
                let number = {
                    let mut log = log.lock().unwrap();
                    assert!(log.iter().all(|run| run.end.is_some()), "{tick} runs at {by}, too: {log:?}");
                    log.push(Begun {
                        instant: tick.scheduled_at(),
                        attempt: tick.attempt(),
                        ordered: tick.is_ordered(),
                        by,
                        at: tenure::Clock::wall(&*clock),
                        moment: Instant::now(),
                        end: None,
                    });
                    log.len() - 1
                };
                let mut noted = Noted(log, number, End::Dropped);
                if !rules.takes.is_zero() {
                    tokio::select! {
                        biased;
                        () = lease.cancelled() => {
                            noted.2 = End::Told;
                            return Err("told to stop".to_owned());
                        }
                        () = tokio::time::sleep(rules.takes) => {}
                    }
                }
                let chance = number as u64 * 7919 % 100;
                noted.2 = if chance < rules.fails { End::Failed } else { End::Ok };
                if chance < rules.fails { Err("the broker is away".to_owned()) } else { Ok(()) }
            })
        }
    }

    fn one(&mut self) -> String {
        let names: Vec<_> = self.members.keys().cloned().collect();
        names[self.dice.place(names.len())].clone()
    }

    fn all(&self, operations: &[Operation], course: impl Into<Course> + Copy) {
        for member in self.members.values() {
            member.faulty.intercept().always(operations, course);
        }
    }

    fn course(&mut self) -> Course {
        let late = Duration::from_millis(100 + self.dice.below(6000));
        match self.dice.place(8) {
            0 => Fault::Refused.into(),
            1 => Fault::RequestLost.into(),
            2 => Fault::AnswerLost.into(),
            3 => Fault::Swallowed.into(),
            4 => Fault::Hang.into(),
            5 => Fault::Twice.into(),
            6 => Course::PLAIN.late_by(late),
            _ => Course::PLAIN.answered_after(late),
        }
    }

    /// Does it; returns the name of the instance that it befell.
    async fn begin(&mut self, event: Event) -> String {
        let name = self.one();
        let _ = write!(self.story, "; {} {event:?} {name}", self.crew.now());
        if matches!(event, Dies | CutOff | StoreAway | Finishes) {
            self.unsaid.push((Instant::now(), (event == Dies).then(Instant::now)));
        }
        match event {
            Dies => {
                self.members.remove(&name).unwrap().kill().await;
            }
            Closes => {
                self.members.remove(&name).unwrap().elect.close().await;
            }
            CutOff => {
                self.members[&name].faulty.intercept().always(Operation::ALL, Fault::Swallowed);
            }
            StoreAway => self.all(Operation::ALL, Fault::Swallowed),
            Claims | Finishes => {
                let course = self.course();
                let _ = write!(self.story, " {course:?}");
                let operation = if event == Claims { Operation::Claim } else { Operation::Finish };
                self.all(&[operation], course);
            }
            Paused => {
                self.operator.elect.schedules().pause("report", Why::new("quiet").unwrap()).await.unwrap();
                self.pauses.push((Instant::now(), None));
            }
            Ordered => {
                for _ in 0..=self.dice.place(3) {
                    let schedules = self.operator.elect.schedules();
                    self.orders.push(schedules.run_now("report", Why::new("now").unwrap()).await.unwrap());
                }
            }
            Drained => self.members[&name].elect.schedules().drain(),
            ClockSteps | ClockJumps => {
                self.jumped |= event == ClockJumps;
                let most = if event == ClockJumps { 3 * HOUR } else { 20 * SECOND };
                let by = Duration::from_secs(1 + self.dice.below(most.as_secs()));
                self.stepped = self.stepped.max(by);
                if self.dice.percent(50) {
                    self.crew.clock.step_wall(by);
                } else {
                    self.crew.clock.step_wall_back(by);
                }
            }
        }
        if self.members.is_empty() {
            self.join().await;
        }
        name
    }

    async fn end(&mut self, event: Event, name: &str) {
        let _ = write!(self.story, "; {} end of {event:?}", self.crew.now());
        match event {
            Dies | Closes => self.join().await,
            CutOff | StoreAway | Claims | Finishes => {
                for member in self.members.values() {
                    member.faulty.intercept().heal();
                }
                for (_, end) in &mut self.unsaid {
                    end.get_or_insert_with(Instant::now);
                }
            }
            Paused => {
                if let Some((_, end @ None)) = self.pauses.last_mut() {
                    *end = Some(Instant::now());
                }
                self.operator.elect.schedules().resume("report").await.unwrap();
            }
            Drained => {
                if let Some(member) = self.members.get(name) {
                    member.elect.schedules().undrain();
                }
            }
            Ordered | ClockSteps | ClockJumps => {}
        }
    }

    /// Lets one or two events happen at a time, and some peace.
    async fn suffer(&mut self) {
        let [first, second] = [(), ()].map(|()| self.events[self.dice.place(self.events.len())]);
        let wait = |dice: &mut Dice, most: u64| Duration::from_millis(dice.below(most * 1000));
        let name = self.begin(first).await;
        pass(wait(&mut self.dice, 60)).await;
        let other = if self.dice.percent(50) && second != first {
            let other = self.begin(second).await;
            pass(wait(&mut self.dice, 60)).await;
            Some(other)
        } else {
            None
        };
        self.end(first, &name).await;
        if let Some(other) = other {
            pass(wait(&mut self.dice, 30)).await;
            self.end(second, &other).await;
        }
        pass(wait(&mut self.dice, 180)).await;
    }

    // ----- the judge

    async fn judge(&self, since: StoreTime) {
        let wrong = self.wrong(since).await;
        if !wrong.is_empty() {
            for run in self.log.lock().unwrap().iter() {
                println!("  {run:?}");
            }
            for entry in self.crew.told().await {
                println!("  {entry}");
            }
            panic!("{}\n{}", wrong.join("\n"), self.story);
        }
    }

    async fn wrong(&self, since: StoreTime) -> Vec<String> {
        let mut wrong = self.late();
        wrong.extend(self.twice());
        wrong.extend(self.paused());
        let ledger = self.crew.ledger().await;
        // A run that was on just now may still be on.
        let lately = self.crew.now().minus(self.rules.takes * 2 + MINUTE);
        // And what was due before it may wait for its turn.
        let settled = lately.minus(self.rules.window());
        for run in &ledger {
            // A new owner does not look for entries that a jump of the clock has left behind.
            if run.finish.is_none() && run.started <= lately && !self.jumped {
                wrong.push(format!(
                    "open at the end: {} attempt {} of {}",
                    run.id.instant, run.attempt, run.holder
                ));
            }
            let is_given_up = run.finish.as_ref().is_some_and(|finish| finish.outcome == Outcome::Abandoned);
            if is_given_up && self.unsaid.is_empty() && self.rules.takes.is_zero() {
                wrong.push(format!("abandoned for no reason: {run:?}"));
            }
        }
        for order in &self.orders {
            let is_it = |run: &RunRecord| run.id.entry == Entry::Order && run.id.instant == *order;
            let has_end = ledger.iter().any(|run| is_it(run) && run.finish.is_some() && !run.was_not_begun());
            if *order <= settled && !has_end && !self.rules.never_ends() {
                wrong.push(format!("the order of {order} has no end"));
            }
        }
        if !self.jumped {
            let every = i64::try_from(self.rules.every * 1000).unwrap();
            let first = since.as_millis().div_euclid(every) * every + every;
            for at in (first..settled.as_millis()).step_by(usize::try_from(every).unwrap()) {
                let at = StoreTime::from_millis(at);
                let has = |run: &RunRecord| match &run.skipped {
                    Some(skipped) => (skipped.from..=run.id.instant).contains(&at),
                    None => run.id.entry == Entry::Tick && run.id.instant == at && !run.was_not_begun(),
                };
                if !ledger.iter().any(has) {
                    wrong.push(format!("not in the ledger: {at}"));
                }
            }
        }
        wrong
    }

    /// No tick begins beyond its window.
    fn late(&self) -> Vec<String> {
        if self.jumped {
            return Vec::new();
        }
        let log = self.log.lock().unwrap();
        let mut wrong = Vec::new();
        for (place, run) in log.iter().enumerate().filter(|(_, run)| !run.ordered) {
            let is_first = log[..place].iter().all(|other| other.ordered || other.instant != run.instant);
            let late = run.at.since(run.instant);
            if is_first && run.attempt == 1 && late > self.rules.window() + self.stepped + SECOND {
                wrong.push(format!("{late:?} late: {run:?}"));
            }
        }
        wrong
    }

    /// Lists runs that must not have begun again. A run may if it failed, was told to stop, or was cut short; if it
    /// returned Ok, only where the store may not know. Nothing may begin more often than the policies allow.
    fn twice(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        let mut runs: BTreeMap<(bool, StoreTime), Vec<&Begun>> = BTreeMap::new();
        for run in log.iter() {
            runs.entry((run.ordered, run.instant)).or_default().push(run);
        }
        let tries = self.rules.tries as usize;
        let (at_least_once, most) = match self.rules.on_crash {
            OnCrash::AtLeastOnce { attempts } => (true, tries.max(attempts as usize)),
            _ => (false, tries),
        };
        let is_unsaid = |at: Instant| {
            let about =
                |(from, to): &Span| at + 5 * SECOND >= *from && to.is_none_or(|to| at <= to + 5 * SECOND);
            self.unsaid.iter().any(about)
        };
        let mut wrong: Vec<_> = runs
            .values()
            .filter(|runs| runs.len() > most)
            .map(|runs| format!("begun {} times of {most}: {runs:?}", runs.len()))
            .collect();
        for pair in runs.values().flat_map(|runs| runs.windows(2)) {
            let (before, again) = (pair[0], pair[1]);
            let Some((end, ended)) = before.end else { continue };
            let may = match end {
                End::Ok => is_unsaid(ended) && before.by != again.by && at_least_once,
                End::Failed => tries > 1 || is_unsaid(ended) && at_least_once,
                End::Told | End::Dropped => at_least_once,
            };
            if !may {
                wrong.push(format!("twice: {before:?} and {again:?}"));
            }
        }
        wrong
    }

    /// No run begins while it is paused, once its owner may know of it.
    fn paused(&self) -> Vec<String> {
        let heard = self.operator.elect.config().poll_interval() * 2 + SECOND;
        let log = self.log.lock().unwrap();
        let is_within = |run: &&Begun| {
            let within =
                |(from, to): &Span| run.moment > *from + heard && to.is_none_or(|to| run.moment < to);
            !run.ordered && self.pauses.iter().any(within)
        };
        log.iter().filter(is_within).map(|run| format!("begun while it is paused: {run:?}")).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn due_ticks_run_in_time_and_once_whatever_befalls_their_instances() {
    let only = std::env::var("LIFE").ok().map(|seed| seed.parse().unwrap());
    let seeds = only.map_or(1..=if is_whole() { 150 } else { 10 }, |seed: u64| seed..=seed);
    for seed in seeds {
        println!("life {seed}");
        let mut life = Life::begun(seed).await;
        let since = life.crew.now();
        for _ in 0..8 {
            life.suffer().await;
        }
        // Time enough for a clock to be believed, a dead owner to be replaced, and what waits to be run.
        pass(12 * MINUTE + life.rules.takes * 10).await;
        life.judge(since).await;
        for (_, member) in std::mem::take(&mut life.members) {
            member.elect.close().await;
        }
    }
}

//! Troubles of a namespace, the worst first: one judgement for people, monitors, the page and the screen. Pure.

mod instances;
mod schedules;
mod spreads;

use std::{collections::BTreeSet, fmt::Display, time::Duration};

use serde::Serialize;

use crate::{Picture, ScheduleView, ago, count, length, one_line, picture, schedule::patience, shell_word};
use tenure::model::{Holder, LockId, ScheduleName, SessionId, SpreadName, StoreTime};

/// A hand-over in order takes no longer: what is younger is no more than passing.
const BRIEF: Duration = Duration::from_secs(5);
/// Time for which failures and deaths are told after the last one.
const RECENT: Duration = Duration::from_secs(10 * 60);
/// Troubles of one sort that are told one by one.
const APART: usize = 3;
/// Names in one sentence.
const NAMED: usize = 5;

/// Severity of a trouble. A warning has lasted for longer than its longest pause, concerns more than 1 % of the tasks,
/// or does not end by itself, as a pause; what is passing ends by itself, or is only to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words of monitors")]
pub enum Grade {
    Passing,
    Warning,
    Critical,
}

/// Subject of a trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs, reason = "they are the things of a namespace")]
#[non_exhaustive]
pub enum Subject {
    Store,
    Instance { holder: Holder, session: SessionId },
    Spread { spread: SpreadName },
    Schedule { schedule: ScheduleName },
    Key { lock: LockId },
}

/// Something that is not as it should be: its sort in a word, its subject (of several alike the first one), the number
/// of what is concerned, its start if that is on record, what is wrong and why in a sentence, and the command that
/// mends or explains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "said above")]
#[non_exhaustive]
pub struct Trouble {
    pub grade: Grade,
    pub sort: &'static str,
    pub about: Subject,
    pub number: usize,
    pub since: Option<StoreTime>,
    pub says: String,
    pub command: String,
    /// Troubles of one sort that have it in common belong together.
    #[serde(skip)]
    detail: String,
}

/// Limits beyond which a trouble is critical: for ticks that are due, failed runs in a row, and spreads whose tasks have
/// to run.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "said above")]
pub struct Limits {
    pub overdue: Duration,
    pub failures: u32,
    pub spreads: BTreeSet<SpreadName>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { overdue: RECENT, failures: 3, spreads: BTreeSet::new() }
    }
}

/// Judgement of a namespace: its troubles, the worst first; the numbers of living instances, tasks, schedules and
/// waiters; the last failure of a run or a task on record; and the parts that were not read whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "said above")]
#[non_exhaustive]
pub struct Verdict {
    pub troubles: Vec<Trouble>,
    pub alive: usize,
    pub tasks: usize,
    pub schedules: usize,
    pub waiting: usize,
    pub last_failure: Option<StoreTime>,
    pub unread: Vec<String>,
    pub now: StoreTime,
}

impl Grade {
    /// Returns the word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
        }
    }
}

impl Subject {
    /// Returns its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Instance { holder, .. } => Some(holder.as_str()),
            Self::Spread { spread } => Some(spread.as_str()),
            Self::Schedule { schedule } => Some(schedule.as_str()),
            Self::Key { lock } => Some(lock.key.as_str()),
            Self::Store => None,
        }
    }
}

impl Trouble {
    /// Returns its start, unless its sentence says how long ago that was.
    #[must_use]
    pub fn untold(&self, now: StoreTime) -> Option<StoreTime> {
        self.since.filter(|since| !self.says.contains(&format!(" {}", length(now.since(*since)))))
    }

    /// Returns the troubles of a schedule, by its own records. `ttl` is that of its fleet.
    #[must_use]
    pub fn of_schedule(schedule: &ScheduleView, limits: &Limits, ttl: Duration, now: StoreTime) -> Vec<Self> {
        let mut found = Found::new("tenure", ttl, now);
        found.schedule(schedule, true, limits);
        found.merged()
    }
}

impl Verdict {
    /// Returns the number of troubles that need attention.
    #[must_use]
    pub fn needing(&self) -> usize {
        self.troubles.iter().filter(|trouble| trouble.grade > Grade::Passing).count()
    }

    /// Returns the worst grade; none if there is no trouble.
    #[must_use]
    pub fn worst(&self) -> Option<Grade> {
        self.troubles.first().map(|trouble| trouble.grade)
    }

    /// Returns it in a few words: `2 troubles need attention`.
    #[must_use]
    pub fn head(&self) -> String {
        match self.needing() {
            // No record tells whether there should be some.
            0 if self.alive == 0 => "no instance runs".to_owned(),
            0 => "all is well".to_owned(),
            1 => "1 trouble needs attention".to_owned(),
            needing => format!("{needing} troubles need attention"),
        }
    }

    /// Returns what there is: `3 instances, 30 tasks, 4 schedules, 2 in line, last failure 2 h ago`.
    #[must_use]
    pub fn sums(&self) -> String {
        let failure = self.last_failure.map(|at| format!(", last failure {}", ago(at, self.now)));
        let counts = [(self.alive, "instance"), (self.tasks, "task"), (self.schedules, "schedule")];
        let waiting = if self.waiting > 0 { format!(", {} in line", self.waiting) } else { String::new() };
        counts.map(|(number, what)| count(number, what)).join(", ") + &waiting + &failure.unwrap_or_default()
    }
}

impl Picture {
    /// Judges the namespace by limits of its reader's.
    #[must_use]
    pub fn verdict_by(&self, limits: &Limits) -> Verdict {
        let mut found = Found::new(&self.program, self.ttl(), self.now);
        let unread = found.store(self);
        let tasks = found.spreads(self, limits);
        found.schedules(self, limits);
        let waiting = found.queues(self);
        let alive = found.instances(self, tasks);
        let last_failure = schedules::last_failure(self).max(spreads::last_failure(self));
        let (troubles, schedules) = (found.merged(), self.schedules.len());
        Verdict { troubles, alive, tasks, schedules, waiting, last_failure, unread, now: self.now }
    }
}

/// Troubles that were found so far.
struct Found<'a> {
    /// Begins each command.
    program: &'a str,
    now: StoreTime,
    /// The longest ttl of the fleet.
    ttl: Duration,
    troubles: Vec<Trouble>,
}

impl<'a> Found<'a> {
    fn new(program: &'a str, ttl: Duration, now: StoreTime) -> Self {
        Self { program, now, ttl, troubles: Vec::new() }
    }

    /// Grades what has lasted since then, and concerns so many tasks of so many.
    fn grade(&self, since: Option<StoreTime>, concerned: usize, of: usize) -> Grade {
        let is_much = concerned * 100 > of;
        self.lasting(since, if is_much { BRIEF } else { patience(self.ttl) })
    }

    /// Grades what has lasted since then, and passes by itself within that time.
    fn lasting(&self, since: Option<StoreTime>, pause: Duration) -> Grade {
        if since.is_none_or(|since| self.now.since(since) > pause) { Grade::Warning } else { Grade::Passing }
    }

    fn tell(
        &mut self,
        (grade, sort): (Grade, &'static str),
        about: Subject,
        since: Option<StoreTime>,
        says: &str,
        command: &str,
    ) -> &mut Trouble {
        let (says, detail) = (one_line(says), String::new());
        let command = format!("{} {command}", self.program);
        let trouble = Trouble { grade, sort, about, number: 1, since, says, command, detail };
        self.troubles.push(trouble);
        self.troubles.last_mut().expect("it was pushed")
    }

    /// Returns the worst first, and of more than three alike the first one with the names of the others.
    fn merged(mut self) -> Vec<Trouble> {
        let mut merged = Vec::new();
        self.troubles.sort_by_key(|trouble| std::cmp::Reverse(trouble.grade));
        while let Some(Trouble { sort, detail, .. }) = self.troubles.first().cloned() {
            let is_like = |one: &mut Trouble| one.sort == sort && one.detail == detail;
            let mut like: Vec<_> = self.troubles.extract_if(.., is_like).collect();
            if like.len() > APART {
                let mut names: Vec<_> = like.iter().filter_map(|one| one.about.name()).collect();
                // Of tasks of one spread the first says it all.
                names.dedup();
                let names = names.get(1..).unwrap_or_default();
                let names = if names.is_empty() { String::new() } else { format!(": {}", listed(names)) };
                let says = format!("{}; so with {} more{names}", like[0].says, like.len() - 1);
                like[0].number = like.iter().map(|one| one.number).sum();
                like[0].says = says;
                like.truncate(1);
            }
            merged.extend(like);
        }
        // Of the same grade the store first: the rest may come of it.
        merged.sort_by_key(|one| (std::cmp::Reverse(one.grade), one.about != Subject::Store));
        merged
    }
}

/// The first names, and how many more there are.
fn listed(names: &[impl Display]) -> String {
    let first: Vec<_> = names.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if names.len() > NAMED { format!(", {} more", names.len() - NAMED) } else { String::new() };
    first.join(", ") + &more
}

/// Says that so many others are alike, as far as they are kept.
fn others(number: usize) -> String {
    let or_more = if number + 1 < picture::REFUSED { "" } else { ", or others" };
    if number > 0 { format!("; so with {number} more{or_more}") } else { String::new() }
}

/// The words of a command, and the name that it is on, which may begin with a dash.
pub(crate) fn command(words: &[&str], name: &str) -> String {
    let (dashes, name) = (name.starts_with('-').then_some("--"), (!name.is_empty()).then_some(name));
    words.iter().copied().chain(dashes).chain(name).map(shell_word).collect::<Vec<_>>().join(" ")
}

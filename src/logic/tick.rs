//! Choice of the next tick of a schedule, and of the ticks that are not run.
//!
//! ```text
//!        since                cursor                    now
//!  ────────┼───────────────────┼─────────────────────────┼──────────▶ the store's time
//!           ticks dealt with      ticks that are due       ticks to come
//!           (the ledger knows)    run, run late, or not
//! ```

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

pub use self::policies::{Misfire, OnCrash, Overlap, Retries};
use self::{busy::RunSpans, hold::PauseView};
pub(crate) use self::{
    overdue::{Unowned, unowned},
    policies::Policies,
};
use super::calendar::Calendar;
use crate::{
    model::{Entry, Outcome, RunRecord, Skipped, StoreTime, Term},
    store::{Definition, RunNow, ScheduleRecord},
};

mod busy;
mod hold;
mod overdue;
mod policies;

/// Most by which the ledger may be ahead of the clock before the clock is taken to have gone back.
const AHEAD: Duration = Duration::from_secs(60);
/// Most time until another instance goes on with what an owner did not end.
const TAKING_OVER: Duration = Duration::from_secs(5 * 60);
/// Skipped ticks are counted no further.
const COUNTED: usize = Skipped::MOST;

/// Why a tick is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum NotRun {
    /// Was too late, or one of several.
    Late,
    /// The run before it was on.
    Overlapped,
    /// The schedule was held back.
    Paused,
    /// The schedule got another timing before they were run.
    Retimed,
}

impl NotRun {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Late, Self::Overlapped, Self::Paused, Self::Retimed];

    /// The words in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Late => "too late",
            Self::Overlapped => "previous run still active",
            Self::Paused => "paused",
            Self::Retimed => "rescheduled",
        }
    }
}

/// An attempt that is to be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) entry: Entry,
    pub(crate) instant: StoreTime,
    /// From 1.
    pub(crate) number: u32,
    pub(crate) instead_of: Option<(Term, u32)>,
}

impl Attempt {
    const fn first(entry: Entry, instant: StoreTime) -> Self {
        Self { entry, instant, number: 1, instead_of: None }
    }

    /// Returns the attempt that follows this run. One that was not begun is no attempt: the same one is made.
    fn after(run: &RunRecord) -> Self {
        Self {
            entry: run.id.entry,
            instant: run.id.instant,
            number: run.attempt.saturating_add(u32::from(!run.was_not_begun())),
            instead_of: Some((run.term, run.attempt)),
        }
    }

    /// Returns whether it is the first attempt at a tick.
    pub(crate) fn is_first_of_a_tick(&self) -> bool {
        self.entry == Entry::Tick && self.number == 1
    }

    /// The next one of the same tick, under that term.
    pub(crate) const fn again(self, term: Term) -> Self {
        Self { number: self.number.saturating_add(1), instead_of: Some((term, self.number)), ..self }
    }
}

/// The next step of a schedule's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TickStep {
    /// Begin this attempt, and say when it has ended.
    Run(Attempt),
    /// Write that these ticks are not run.
    Skip { from: StoreTime, to: StoreTime, count: u64, why: NotRun },
    /// Write that no instance runs this any more.
    Abandon(Box<RunRecord>),
    /// The clock has gone back behind the ledger: read it again.
    Reload,
    /// The record says something else than this owner has written, or read: put it right, and go on.
    Overwritten,
    /// Wait until then, or for news.
    Wait(Option<StoreTime>),
}

/// The ticks of one schedule, as its owner goes through them.
#[derive(Clone, Debug)]
pub(crate) struct Ticks {
    calendar: Calendar,
    policies: Policies,
    /// Definition in the record when this began.
    definition: Option<Definition>,
    /// And says so no more.
    is_overwritten: bool,
    /// Since when it has this timing.
    since: StoreTime,
    /// Ticks up to here are dealt with.
    cursor: StoreTime,
    /// The last instant in the ledger, also of a clock that was ahead.
    last: Option<StoreTime>,
    /// No tick up to here is ever run: the ledger does not know any more which were.
    mark: Option<StoreTime>,
    hold: PauseView,
    orders: VecDeque<StoreTime>,
    /// Ticks that are late and to be run, earliest first.
    backlog: VecDeque<StoreTime>,
    /// Runs that have not come to their end.
    unsettled: Vec<RunRecord>,
    /// Spans of runs: ticks that fell due meanwhile are not run.
    busy: RunSpans,
    /// Number of ticks in a row that have failed in the end.
    failures: u32,
}

impl Ticks {
    /// Goes on from what the ledger says: `runs` are its last entries, last first, [enough](Self::are_enough) of them.
    /// A single instant that was past already when it was stored, and is not in the ledger, is late.
    pub(crate) fn load(
        calendar: Calendar,
        policies: Policies,
        record: &ScheduleRecord,
        runs: &[RunRecord],
        now: StoreTime,
    ) -> Self {
        let is_order = |run: &RunRecord| run.id.entry == Entry::Order;
        let is_ahead = |run: &RunRecord| !is_believable(run.id.instant, now);
        let defined = record.definition.as_ref().map(|definition| definition.since);
        let dealt_with = runs.iter().filter(|run| run.id.entry != Entry::Order).map(|run| run.id.instant);
        let cursor = dealt_with.chain(defined).filter(|at| is_believable(*at, now)).max().unwrap_or(now);
        let overlooked = calendar.only(defined.unwrap_or(now)).filter(|only| {
            let is_it = |run: &RunRecord| !is_order(run) && run.id.instant == *only;
            *only <= cursor && Some(*only) > record.mark && !runs.iter().any(is_it)
        });
        let mut ticks = Self {
            calendar,
            policies,
            definition: record.definition.clone(),
            is_overwritten: false,
            since: defined.unwrap_or(now),
            cursor: record.mark.map_or(cursor, |mark| mark.max(cursor)),
            last: runs.iter().filter(|run| !is_order(run) || is_ahead(run)).map(|run| run.id.instant).max(),
            mark: record.mark,
            hold: PauseView::load(record, runs, cursor, now),
            orders: VecDeque::new(),
            backlog: overlooked.into_iter().collect(),
            unsettled: Vec::new(),
            busy: RunSpans::default(),
            failures: 0,
        };
        ticks.hear(record, now);
        // A run written by a clock that was ahead hides no run that came after it.
        let (open, past): (Vec<_>, Vec<_>) = runs
            .iter()
            .filter(|run| run.finish.is_none() || !is_ahead(run))
            .cloned()
            .partition(|run| ticks.is_unsettled(run, runs.iter().filter(|run| !is_ahead(run)), now));
        ticks.failures = failures(&past);
        for run in open {
            ticks.settle(run);
        }
        ticks
    }

    /// A run that has not come to its end. A tick that was claimed last and not begun is due as if it had not been
    /// claimed: it may be one of several that are late.
    fn settle(&mut self, run: RunRecord) {
        if run.was_not_begun()
            && run.attempt == 1
            && run.id.entry == Entry::Tick
            && run.id.instant == self.cursor
        {
            self.cursor = just_before(self.cursor);
        }
        self.unsettled.push(run);
    }

    /// Returns whether that is one of the ticks that are not dealt with.
    fn is_ahead(&self, run: &RunRecord) -> bool {
        run.id.entry == Entry::Tick && run.id.instant > self.cursor
    }

    /// Returns whether the last entries of a ledger, last first, go back far enough to go on from: to one that is not
    /// ahead of the clock, and to the only instant there is.
    pub(crate) fn are_enough(runs: &[RunRecord], only: Option<StoreTime>, now: StoreTime) -> bool {
        runs.iter().any(|run| {
            let at = run.id.instant;
            run.id.entry != Entry::Order && is_believable(at, now) && only.is_none_or(|only| at <= only)
        })
    }

    /// Takes in the record: a pause, its end, or orders to run now.
    pub(crate) fn hear(&mut self, record: &ScheduleRecord, now: StoreTime) {
        let was_held_back = self.is_held_back();
        self.is_overwritten = record.definition != self.definition;
        self.hold.hear(record, now);
        self.orders = record.orders.iter().map(|order: &RunNow| order.at).collect();
        if was_held_back && !self.is_held_back() {
            // Ticks that waited meanwhile may be too late now.
            self.look_again_at_the_backlog();
        }
    }

    /// Makes the backlog due as if it had never been looked at.
    fn look_again_at_the_backlog(&mut self) {
        if let Some(first) = self.backlog.front() {
            self.cursor = just_before(*first);
            self.backlog.clear();
        }
    }

    /// Returns whether nothing is to be begun, but what is ordered.
    pub(crate) fn is_held_back(&self) -> bool {
        self.hold.is_on()
    }

    /// Returns whether the ledger was purged up to an instant that the clock has not reached: nothing is run until
    /// then.
    pub(crate) fn is_silenced(&self, now: StoreTime) -> bool {
        self.mark.is_some_and(|mark| !is_believable(mark, now))
    }

    /// A tick that was to be begun is in the ledger already: it may not have come to its end.
    pub(crate) fn found(&mut self, run: RunRecord, now: StoreTime) {
        if self.is_unsettled(&run, [&run], now) {
            self.settle(run);
        }
    }

    /// Returns whether that is to be begun again, or given up.
    pub(crate) fn is_to_be_settled(&self, entry: Entry, instant: StoreTime) -> bool {
        self.unsettled.iter().any(|run| run.id.entry == entry && run.id.instant == instant)
    }

    /// The last moment at which an attempt may begin; nothing, if any moment will do: for orders, and for ticks that
    /// were begun before.
    pub(crate) fn latest_begin(&self, attempt: &Attempt) -> Option<StoreTime> {
        attempt.is_first_of_a_tick().then(|| self.latest(attempt.instant))
    }

    /// The last moment at which a tick is not too late.
    fn latest(&self, instant: StoreTime) -> StoreTime {
        let (window, _) = self.policies.misfire.bounds();
        instant.plus(window)
    }

    /// Returns whether the ledger may be purged: not while it is ahead of its owner. A purge goes by the store's
    /// clock, and may arrive late; what is still to be reached must not be forgotten.
    pub(crate) fn may_purge(&self) -> bool {
        self.last.is_none_or(|last| last <= self.cursor)
    }

    /// The ledger does not know any more what was up to there. A purge goes by the store's clock, which may
    /// be ahead of the time that the owner goes by, as long as it does not believe it.
    pub(crate) fn purged(&mut self, mark: Option<StoreTime>) {
        self.mark = self.mark.max(mark);
        if let Some(mark) = self.mark {
            self.cursor = self.cursor.max(mark);
            self.backlog.retain(|instant| *instant > mark);
        }
    }

    /// The order is in the ledger.
    pub(crate) fn ordered(&mut self, at: StoreTime) {
        self.orders.retain(|order| *order != at);
    }

    /// Returns whether a run is to be begun again, or to be given up; these were the last.
    fn is_unsettled<'a>(
        &self,
        run: &RunRecord,
        runs: impl IntoIterator<Item = &'a RunRecord> + Clone,
        now: StoreTime,
    ) -> bool {
        let was_recorded = {
            let from = |run: &RunRecord| run.skipped.as_ref().map(|skipped| skipped.from);
            let records_it = |other: &RunRecord| {
                from(other).is_some_and(|from| (from..=other.id.instant).contains(&run.id.instant))
            };
            run.id.entry == Entry::Tick && runs.clone().into_iter().any(records_it)
        };
        let is_last = || {
            let last = runs.into_iter().find(|other| other.id.entry == run.id.entry);
            last.is_some_and(|last| last.id == run.id)
        };
        let Some(finish) = &run.finish else { return true };
        if finish.last {
            // A run that was through by the policies of its time is not begun again by those of another.
            return false;
        }
        match finish.outcome {
            Outcome::Cancelled => self.may_begin_again(run) && is_last(),
            Outcome::NotBegun => !self.is_forgotten(run) && !was_recorded,
            Outcome::Failed | Outcome::TimedOut => {
                let (window, _) = self.policies.misfire.bounds();
                let may_be_tried = run.attempt < self.policies.retries.tries && !self.is_forgotten(run);
                let Retries { first, longest, .. } = self.policies.retries;
                let late = window.saturating_add(longest.max(first)).saturating_add(TAKING_OVER);
                let held = self.hold.pause().map_or(Duration::ZERO, |pause| {
                    pause.until.unwrap_or(now).since(pause.since.max(finish.at))
                });
                may_be_tried && finish.at.plus(late).plus(held) >= now && is_last()
            }
            _ => false,
        }
    }

    /// Returns whether the ledger may not know any more what became of it: a claim that came late, after the purge,
    /// stands there as if nothing had been run.
    fn is_forgotten(&self, run: &RunRecord) -> bool {
        run.id.entry == Entry::Tick && self.mark.is_some_and(|mark| run.id.instant <= mark)
    }

    fn may_begin_again(&self, run: &RunRecord) -> bool {
        !self.is_forgotten(run) && self.policies.may_begin_again(run.attempt)
    }

    /// Returns whether another calendar says the same of what is not dealt with yet.
    pub(crate) fn agree_with(&self, other: &Calendar, now: StoreTime) -> bool {
        self.backlog.is_empty() && self.calendar.agrees(other, self.cursor, now, self.since, COUNTED)
    }

    /// Returns what was due and not run when the timing in the record was stored.
    pub(crate) fn left_behind(&mut self, record: &ScheduleRecord, now: StoreTime) -> Option<TickStep> {
        let since = record.definition.as_ref()?.since;
        if since == self.since {
            return None;
        }
        self.left_until(if is_believable(since, now) { since } else { now })
    }

    /// Returns what is due until then and not run, as the schedule gets another timing.
    pub(crate) fn left_until(&mut self, to: StoreTime) -> Option<TickStep> {
        self.look_again_at_the_backlog();
        let first = self.calendar.next(self.cursor, self.since).filter(|first| *first <= to)?;
        Some(self.skip(first, to, NotRun::Retimed))
    }

    /// The record was read again, and says by what this goes.
    pub(crate) fn define(&mut self, record: &ScheduleRecord, now: StoreTime) {
        self.definition.clone_from(&record.definition);
        self.hear(record, now);
    }

    /// Returns what to do at this time of the store.
    pub(crate) fn next(&mut self, now: StoreTime) -> TickStep {
        if self.is_overwritten {
            return TickStep::Overwritten;
        }
        let is_lost = |run: &RunRecord| run.finish.is_none() && !self.may_begin_again(run);
        if let Some(place) = self.unsettled.iter().position(is_lost) {
            return TickStep::Abandon(Box::new(self.unsettled.swap_remove(place)));
        }
        // Before orders: one of these may be the same.
        let is_order = |run: &RunRecord| run.id.entry == Entry::Order;
        let is_next = |run: &RunRecord| is_order(run) || !self.is_held_back() && !self.is_ahead(run);
        if let Some(place) = self.unsettled.iter().position(is_next) {
            let run = self.unsettled.swap_remove(place);
            let (again, instant) = (Attempt::after(&run), run.id.instant);
            if again.is_first_of_a_tick() && now > self.latest(instant) {
                return TickStep::Skip { from: instant, to: instant, count: 1, why: NotRun::Late };
            }
            return TickStep::Run(again);
        }
        if !self.goes_before_orders(now)
            && let Some(at) = self.orders.pop_front()
        {
            return TickStep::Run(Attempt::first(Entry::Order, at));
        }
        if !is_believable(self.cursor, now) && self.mark.is_none_or(|mark| self.cursor > mark) {
            return TickStep::Reload;
        }
        if self.is_held_back() {
            return self.overlapped_before_the_pause().unwrap_or(TickStep::Wait(None));
        }
        self.next_of_backlog(now).unwrap_or_else(|| self.due(now))
    }

    /// Returns what becomes of the first ticks that wait for the end of others: meanwhile they may be too late.
    fn next_of_backlog(&mut self, now: StoreTime) -> Option<TickStep> {
        let late = self.backlog.iter().take_while(|instant| now > self.latest(**instant)).count();
        let late: Vec<_> = self.backlog.drain(..late).collect();
        if let (Some(from), Some(to)) = (late.first(), late.last()) {
            self.unsettled.retain(|run| run.id.entry != Entry::Tick || !late.contains(&run.id.instant));
            return Some(TickStep::Skip {
                from: *from,
                to: *to,
                count: late.len() as u64,
                why: NotRun::Late,
            });
        }
        let instant = self.backlog.pop_front()?;
        Some(TickStep::Run(self.begin(instant)))
    }

    /// Returns whether a tick is due for which runs make way: it does not wait for what is ordered.
    fn goes_before_orders(&self, now: StoreTime) -> bool {
        self.policies.overlap == Overlap::Cancel
            && self.backlog.is_empty()
            && !self.is_held_back()
            && is_believable(self.cursor, now)
            && self.calendar.next(self.cursor, self.since).is_some_and(|next| next <= now)
    }

    /// Returns the attempt at a tick that was not begun; it may have been claimed.
    fn begin(&mut self, instant: StoreTime) -> Attempt {
        let is_it = |run: &RunRecord| run.id.entry == Entry::Tick && run.id.instant == instant;
        match self.unsettled.iter().position(is_it) {
            Some(place) => Attempt::after(&self.unsettled.swap_remove(place)),
            None => Attempt::first(Entry::Tick, instant),
        }
    }

    /// Returns what becomes of the ticks that are due.
    fn due(&mut self, now: StoreTime) -> TickStep {
        let first = self.calendar.next(self.cursor, self.since);
        let Some(first) = first.filter(|first| *first <= now) else {
            self.busy.clear();
            return TickStep::Wait(first);
        };
        let mut to = now;
        if let Some(pause) = self.hold.before(first) {
            return self.skip(first, now.min(just_before(pause.until)), NotRun::Paused);
        }
        if let Some(since) = self.hold.next_before(first) {
            to = to.min(just_before(since));
        }
        if let Some(pause) = self.hold.pause() {
            if let Some(until) = pause.until.filter(|_| pause.covers(first)) {
                return self.skip(first, now.min(just_before(until)), NotRun::Paused);
            }
            if first < pause.since {
                to = to.min(just_before(pause.since));
            }
        }
        if let Some(ended) = self.busy.end_of(first) {
            return self.skip(first, to.min(ended), NotRun::Overlapped);
        }
        to = self.busy.next_from(first).map_or(to, |begun| to.min(begun));
        let (window, at_most) = self.policies.misfire.bounds();
        let in_time = just_before(now.minus(window));
        let from = self.cursor.max(in_time);
        let run = self.calendar.latest(from, to, self.since, at_most.max(1));
        match run.first() {
            None => self.skip(first, to, NotRun::Late),
            Some(run) if *run != first => self.skip(first, just_before(*run), NotRun::Late),
            Some(_) => {
                self.cursor = *run.last().expect("it has a first");
                self.backlog = run.into();
                let instant = self.backlog.pop_front().expect("it has a first");
                TickStep::Run(self.begin(instant))
            }
        }
    }

    /// Reports it now: the instance that has the schedule when the pause ends does not know of it.
    fn overlapped_before_the_pause(&mut self) -> Option<TickStep> {
        let since = self.hold.pause()?.since;
        let first = self.calendar.next(self.cursor, self.since)?;
        let ended = self.busy.end_of(first).filter(|_| first < since && self.backlog.is_empty())?;
        Some(self.skip(first, ended.min(just_before(since)), NotRun::Overlapped))
    }

    fn skip(&mut self, from: StoreTime, to: StoreTime, why: NotRun) -> TickStep {
        let count = self.calendar.count(self.cursor, to, self.since, COUNTED) as u64;
        let last = self.calendar.latest(self.cursor, to, self.since, 1).pop().unwrap_or(from);
        let Self { cursor, unsettled, .. } = self;
        unsettled
            .retain(|run| run.id.entry != Entry::Tick || run.id.instant <= *cursor || run.id.instant > to);
        self.cursor = to;
        TickStep::Skip { from, to: last, count, why }
    }

    /// First tick after that instant for which a run must make way.
    pub(crate) fn displaced_at(&self, after: StoreTime) -> Option<StoreTime> {
        if self.policies.overlap != Overlap::Cancel || !self.backlog.is_empty() || self.is_held_back() {
            return None;
        }
        // A tick that was due before is late: it waits for the run's end.
        let next = self.calendar.next(self.cursor.max(after), self.since)?;
        // A tick that was held back is not run.
        match self.hold.pause().filter(|pause| pause.covers(next)).and_then(|pause| pause.until) {
            Some(until) => self.calendar.next(just_before(until), self.since),
            None => Some(next),
        }
    }

    /// A run was on from then to then. While ticks that were late are made up for, others wait their turn.
    pub(crate) fn ended(&mut self, begun: StoreTime, ended: StoreTime) {
        if self.policies.overlap == Overlap::Skip && self.backlog.is_empty() {
            let first = self.calendar.next(begun, self.since);
            if first.is_some_and(|first| first <= ended && !self.is_held_back_at(first)) {
                // Ticks that are dealt with are not asked about any more.
                self.busy.forget(self.cursor);
                self.busy.add(begun, ended);
            }
        }
    }

    /// Returns whether the pause that goes on covers it.
    fn is_held_back_at(&self, instant: StoreTime) -> bool {
        self.is_held_back() && self.hold.pause().is_some_and(|pause| pause.covers(instant))
    }

    /// A tick came to its end like this.
    pub(crate) const fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Succeeded => self.failures = 0,
            Outcome::Failed | Outcome::TimedOut | Outcome::Abandoned => self.failures += 1,
            // The outcome tells nothing of the job.
            Outcome::Cancelled | Outcome::Displaced | Outcome::NotBegun | Outcome::Skipped => {}
        }
    }

    /// Returns how many ticks in a row have failed in the end.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }
}

/// Returns whether an instant can be of now: what is further ahead was written while the clock was.
fn is_believable(at: StoreTime, now: StoreTime) -> bool {
    at <= now.plus(AHEAD)
}

/// Returns how many of the last runs failed, with none between them that did not. Last first.
pub(crate) fn failures(runs: &[RunRecord]) -> u32 {
    let mut failures = 0;
    for run in runs {
        match run.finish.as_ref().map(|finish| finish.outcome) {
            Some(Outcome::Failed | Outcome::TimedOut | Outcome::Abandoned) => failures += 1,
            Some(Outcome::Succeeded) => break,
            _ => {}
        }
    }
    failures
}

const fn just_before(at: StoreTime) -> StoreTime {
    StoreTime::from_millis(at.as_millis().saturating_sub(1))
}

#[cfg(test)]
mod tests;

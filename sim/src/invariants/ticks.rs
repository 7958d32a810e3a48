use std::{collections::BTreeMap, time::Duration};

use super::{Census, Invariant, Stage};
use crate::{Entry, EventKind, FIRST_SCHEDULE, Habits, Life, Registry, TickId};
use tenure::model::{Entry as Of, SessionId, StoreTime, Term};

/// Largest error of an instance about the store's clock, beside half of the longest time that a call may take,
/// which is a lease, where it is frozen meanwhile: the difference that clocks reach while the store does not
/// answer.
const UNSURE: Duration = Duration::from_secs(3);
/// And for as long as it does not believe what the store's clock shows since it was set.
const UNSURE_WHILE_DOUBTED: Duration = Duration::from_secs(10);
/// Time after which all instances go by what the store's clock shows since it was set.
const ADOPTED: Duration = Duration::from_secs(600);
/// Distance from the latest time that its clock showed, beyond which the store's time is certain.
const AHEAD: Duration = Duration::from_secs(120);
/// Largest delay of a schedule in quiet, besides two of its ticks.
const BEHIND: Duration = Duration::from_secs(10);

/// The ticks of schedules. An attempt begins when its claim is on record, and once; they are counted up; none
/// follows one that succeeded, nor, at most once, one that did not fail; what was given back as not begun was not
/// begun, and is claimed again under its number. Runs of one lease do not overlap,
/// none begins before its time, no more are made up for after a change of owner than were to be, and no tick
/// is missing from the ledger. In quiet all schedules run.
#[derive(Default)]
pub(super) struct Ticks {
    schedules: BTreeMap<usize, Schedule>,
    clock: Option<StoreClock>,
}

/// Knowledge about the store's clock.
#[derive(Clone, Copy)]
struct StoreClock {
    /// Milliseconds that it is ahead of the reference.
    ahead: i64,
    /// The most it ever was: an instance may go by that yet.
    most: i64,
    /// The most that an instance may go by while it does not believe yet that the clock was set: a clock that was set again
    /// before all believed it is one of several.
    doubted: i64,
    /// Time at which it was set last.
    set: Option<Duration>,
    /// The latest that an instance went by that did not believe yet that it was set: the ledger may tell of ticks
    /// up to there.
    latest: Option<i64>,
}

#[derive(Default)]
struct Schedule {
    /// Since when it has ticks.
    since: Option<StoreTime>,
    /// Up to which one they are in the ledger without a gap, from the first on.
    covered: Option<StoreTime>,
    entries: BTreeMap<TickId, Claims>,
    /// Mark: ticks up to it may have been purged.
    mark: Option<StoreTime>,
    running: BTreeMap<TickId, (Life, Term, u32)>,
    /// Ticks that are made up for under the term of a new owner: the last instant due when it became the owner, and the
    /// number begun.
    catching_up: BTreeMap<Term, (StoreTime, u32)>,
    was_paused: bool,
    /// Time at which a tick began last.
    begun: Option<Duration>,
    wanted: Option<TickId>,
}

/// The attempts at one entry.
#[derive(Default)]
struct Claims {
    claimed: Vec<(u32, Term)>,
    /// The outcome of the last.
    outcome: Option<&'static str>,
    /// The last that has begun.
    begun: u32,
}

impl Claims {
    /// The last was given back: it may be claimed once more.
    fn was_not_begun(&self) -> bool {
        self.outcome == Some("not begun")
    }

    fn has_failed(&self) -> bool {
        matches!(self.outcome, Some("failed" | "timed out"))
    }
}

impl Invariant for Ticks {
    fn name(&self) -> &'static str {
        "ticks"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        match (&entry.what, entry.life) {
            (EventKind::StoreClock { shows }, _) => {
                self.set_clock(entry.at, *shows);
                Ok(())
            }
            (EventKind::Scheduled { schedule, since }, _) => {
                // Another definition of the same timing changes nothing.
                self.schedule(*schedule).since.get_or_insert(*since);
                Ok(())
            }
            (EventKind::Paused { schedule }, _) => {
                self.schedule(*schedule).was_paused = true;
                Ok(())
            }
            (EventKind::Purged { schedule, mark }, _) => {
                let schedule = self.schedule(*schedule);
                schedule.mark = schedule.mark.max(Some(*mark));
                Ok(())
            }
            (EventKind::Ordered { tick }, _) => {
                self.schedule(tick.schedule).wanted = Some(*tick);
                Ok(())
            }
            (EventKind::Claimed { tick, attempt, term, session, from }, _) => {
                let Some(habits) = registry.schedule(tick.schedule) else { return Ok(()) };
                let schedule = self.schedule(tick.schedule);
                is_the_owner(registry, *tick, *term, *session)?;
                schedule.claimed(habits, *tick, *attempt, *term)?;
                schedule.covers(habits, *tick, from.unwrap_or(tick.instant))
            }
            (EventKind::Finished { tick, attempt, outcome }, _) => {
                let entry = self.schedule(tick.schedule).entries.entry(*tick).or_default();
                if entry.claimed.last().is_some_and(|(last, _)| last == attempt) {
                    entry.outcome = Some(outcome);
                }
                if entry.was_not_begun() && entry.begun >= *attempt {
                    return Err(format!(
                        "attempt {attempt} at {tick:?} was given back as not begun, and it has"
                    ));
                }
                Ok(())
            }
            (EventKind::TickBegan { tick, attempt, term, lateness }, Some(life)) => {
                self.is_due(registry, entry.at, *tick)?;
                let is_sure = self.clock.is_some_and(|clock| clock.is_settled(entry.at));
                let schedule = self.schedule(tick.schedule);
                schedule.begins(registry, life, *tick, *attempt, *term)?;
                if let (true, Some(habits)) = (is_sure, registry.schedule(tick.schedule)) {
                    schedule.catches_up(registry, entry, habits, (*tick, *attempt, *term), *lateness)?;
                }
                if tick.entry == Of::Tick {
                    schedule.begun = Some(entry.at);
                }
                Ok(())
            }
            (EventKind::TickEnded { tick, attempt, .. }, Some(life)) => {
                let running = &mut self.schedule(tick.schedule).running;
                if running.get(tick).is_some_and(|(of, _, number)| *of == life && number == attempt) {
                    running.remove(tick);
                }
                Ok(())
            }
            (EventKind::Crashed, Some(life)) => {
                for schedule in self.schedules.values_mut() {
                    schedule.running.retain(|_, (of, ..)| *of != life);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn judge(&mut self, registry: &Registry, stage: &Stage) -> Result<(), (String, Option<usize>)> {
        let (Stage::Settled(census) | Stage::Closed(census)) = stage;
        for number in 0..registry.schedules() {
            let says = |says: String| (format!("schedule {number}: {says}"), Some(FIRST_SCHEDULE + number));
            self.is_kept(census, number).map_err(says)?;
            if let Stage::Settled(_) = stage {
                self.is_alive(registry, census, number).map_err(says)?;
            }
        }
        Ok(())
    }
}

/// Checks that a tick is claimed by the owner of the schedule, as far as that is known.
fn is_the_owner(registry: &Registry, tick: TickId, term: Term, session: SessionId) -> Result<(), String> {
    match registry.grant(FIRST_SCHEDULE + tick.schedule, term) {
        Some(grant) if grant.session == session => Ok(()),
        Some(_) => Err(format!("{tick:?} was claimed by a session that does not have term {term}")),
        None => Err(format!("{tick:?} was claimed under term {term}, which nobody was granted")),
    }
}

impl StoreClock {
    fn is_settled(self, at: Duration) -> bool {
        self.set.is_none_or(|set| at > set + ADOPTED)
    }

    /// All instances go by it, and it shows what it never showed: what the ledger tells of is over, and so is
    /// whatever was held back.
    fn is_beyond_all(self, at: Duration) -> bool {
        self.is_settled(at)
            && self.latest.is_none_or(|latest| self.ahead + millis(at) > latest + millis(AHEAD))
    }
}

impl Ticks {
    fn schedule(&mut self, schedule: usize) -> &mut Schedule {
        self.schedules.entry(schedule).or_default()
    }

    fn set_clock(&mut self, at: Duration, shows: StoreTime) {
        let ahead = shows.as_millis() - millis(at);
        self.clock = Some(match self.clock {
            None => StoreClock { ahead, most: ahead, doubted: ahead, set: None, latest: None },
            Some(before) => {
                let all_believe = before.is_settled(at);
                let doubted = if all_believe { before.ahead } else { before.doubted.max(before.ahead) };
                StoreClock {
                    ahead,
                    most: before.most.max(ahead),
                    doubted,
                    set: Some(at),
                    latest: before.latest.max(Some(doubted + millis(at + ADOPTED))),
                }
            }
        });
        // Ticks that were due by the clock before say nothing of now.
        for schedule in self.schedules.values_mut() {
            schedule.catching_up.clear();
        }
    }

    /// No tick begins before its instant, by any time that the store's clock has shown.
    fn is_due(&self, registry: &Registry, at: Duration, tick: TickId) -> Result<(), String> {
        let Some(clock) = self.clock else { return Ok(()) };
        let unsure = if clock.set.is_some() { UNSURE_WHILE_DOUBTED } else { UNSURE };
        let latest = clock.most + millis(at + unsure + registry.longest_ttl() / 2);
        // An instance that wants one run now names it by a time that it may be less sure of: it may have no lease.
        if tick.entry == Of::Tick && tick.instant.as_millis() > latest {
            let early = tick.instant.as_millis() - latest;
            return Err(format!("{tick:?} begins {early} ms before it may by any clock"));
        }
        Ok(())
    }

    /// Checks that ticks that ran are in the ledger, unless they were purged.
    fn is_kept(&self, census: &Census, number: usize) -> Result<(), String> {
        let (Some(schedule), Some(ledger)) = (self.schedules.get(&number), census.ledgers.get(&number))
        else {
            return Ok(());
        };
        let begun = schedule.entries.iter().filter(|(_, claims)| claims.begun > 0);
        for (tick, claims) in begun {
            let is_purged = ledger.mark.is_some_and(|mark| tick.instant <= mark);
            match ledger.entries.get(tick) {
                Some(attempt) if *attempt >= claims.begun => {}
                _ if is_purged => {}
                found => {
                    let begun = claims.begun;
                    return Err(format!(
                        "attempt {begun} at {tick:?} has begun, and its ledger has {found:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// In quiet it runs: at its ticks, and when it is wanted.
    fn is_alive(&self, registry: &Registry, census: &Census, number: usize) -> Result<(), String> {
        // A census that looks at schedules has a clock.
        let Some(shows) = census.store_shows else { return Ok(()) };
        let habits = registry.schedule(number).ok_or("nobody knows it")?;
        let schedule = self.schedules.get(&number).ok_or("it was never run")?;
        let wanted = schedule.wanted.ok_or("nobody was told that it is wanted")?;
        if schedule.entries.get(&wanted).is_none_or(|claims| claims.begun == 0) {
            return Err(format!("it was wanted in quiet, and has not begun: {wanted:?}"));
        }
        let (Some(clock), Some(calm)) = (self.clock, registry.calm()) else { return Ok(()) };
        // After the clock has gone back there may be no tick for so long; nor while some instances do not yet believe
        // the time by which a pause has ended.
        if clock.is_beyond_all(calm) && schedule.begun.is_none_or(|begun| begun < calm) {
            return Err("no tick has begun since nothing is done to anybody".to_owned());
        }
        if clock.set.is_none() {
            let due = shows.minus(habits.every * 2 + BEHIND);
            if schedule.covered.is_none_or(|covered| covered < due) {
                let covered = schedule.covered;
                return Err(format!(
                    "its ticks are in the ledger up to {covered:?}, and {due} was due long ago"
                ));
            }
        }
        Ok(())
    }
}

impl Schedule {
    fn claimed(&mut self, habits: &Habits, tick: TickId, attempt: u32, term: Term) -> Result<(), String> {
        let is_purged = self.mark.is_some_and(|mark| tick.instant <= mark);
        let claims = self.entries.entry(tick).or_default();
        if let Some((last, _)) = claims.claimed.last() {
            let is_the_same = claims.was_not_begun() && attempt == *last;
            // A claim that came late, after the purge: nothing begins by it.
            if is_purged && attempt <= *last && !is_the_same {
                return Ok(());
            }
            if attempt <= *last && !is_the_same {
                return Err(format!("attempt {attempt} at {tick:?} was claimed after attempt {last}"));
            }
            if claims.outcome == Some("succeeded") {
                return Err(format!("attempt {attempt} at {tick:?} was claimed, which had succeeded"));
            }
            let may_be_tried = claims.has_failed() && attempt <= habits.tries;
            if habits.at_most_once && !may_be_tried && !claims.was_not_begun() {
                let outcome = claims.outcome;
                return Err(format!(
                    "attempt {attempt} at {tick:?} was claimed, which is run at most once, and whose last ended so: {outcome:?}"
                ));
            }
            if attempt > habits.attempts.max(habits.tries) {
                return Err(format!("attempt {attempt} at {tick:?} is one too many"));
            }
        }
        claims.claimed.push((attempt, term));
        claims.outcome = None;
        Ok(())
    }

    /// Ticks are written down without a gap, whichever instance does.
    fn covers(&mut self, habits: &Habits, tick: TickId, from: StoreTime) -> Result<(), String> {
        if tick.entry == Of::Order {
            return Ok(());
        }
        // The schedule has none before it was defined, but for instances that go by an earlier time yet.
        let Some(before) = self.covered.max(self.since) else { return Ok(()) };
        if from > before.plus(habits.every) {
            return Err(format!("ticks are missing between {before} and {from}"));
        }
        self.covered = Some(self.covered.map_or(tick.instant, |covered| covered.max(tick.instant)));
        Ok(())
    }

    fn begins(
        &mut self,
        registry: &Registry,
        life: Life,
        tick: TickId,
        attempt: u32,
        term: Term,
    ) -> Result<(), String> {
        let claims = self.entries.entry(tick).or_default();
        if !claims.claimed.contains(&(attempt, term)) {
            return Err(format!(
                "attempt {attempt} at {tick:?} begins under term {term}, which is not on record"
            ));
        }
        // An owner whose lock was deleted by hand, or taken by force, may begin late what it claimed before.
        let key = FIRST_SCHEDULE + tick.schedule;
        let is_void = registry.grant(key, term).is_none_or(|grant| grant.void);
        if !is_void {
            if claims.outcome == Some("succeeded") || claims.was_not_begun() {
                let outcome = claims.outcome;
                return Err(format!("attempt {attempt} at {tick:?} begins, which had ended so: {outcome:?}"));
            }
            if attempt <= claims.begun {
                let begun = claims.begun;
                return Err(format!("attempt {attempt} at {tick:?} begins after attempt {begun}"));
            }
        }
        claims.begun = claims.begun.max(attempt);
        let other = self.running.iter().find(|(_, (of, under, _))| *of == life && *under == term);
        if let Some((other, _)) = other {
            return Err(format!("{tick:?} begins while {other:?} is on, in one lease"));
        }
        self.running.insert(tick, (life, term, attempt));
        Ok(())
    }

    /// Of what was due when its owner became it, no more is run than was to be.
    fn catches_up(
        &mut self,
        registry: &Registry,
        entry: &Entry,
        habits: &Habits,
        (tick, attempt, term): (TickId, u32, Term),
        lateness: Duration,
    ) -> Result<(), String> {
        let (Of::Tick, 1, Some(life)) = (tick.entry, attempt, entry.life) else { return Ok(()) };
        let Some(owned) = registry.noticed(life, FIRST_SCHEDULE + tick.schedule, term) else { return Ok(()) };
        let unsure = UNSURE + registry.longest_ttl() / 2;
        let due = tick.instant.plus(lateness).minus(entry.local.since(owned) + unsure);
        let (due, begun) = self.catching_up.entry(term).or_insert((due, 0));
        if tick.instant > *due {
            return Ok(());
        }
        *begun += 1;
        // Ticks before a pause, and those after it.
        let most = habits.at_most * if self.was_paused { 2 } else { 1 };
        if *begun > most {
            return Err(format!("{begun} ticks are made up for under term {term}, of {most} at most"));
        }
        Ok(())
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

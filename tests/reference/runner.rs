//! Runs a script: performs each step, and reads what came of it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tenure::{
    model::{Kind, LockId, ScheduleId, SessionId},
    store::{Open, Store, StoreExt},
    testing::TestClock,
};
use tenure_conformance::{Fixture, LIMIT};

use super::{
    model::{Check, Model, ensure},
    op::{Op, all_pages, all_runs, came},
    step::{KEYS, SCHEDULES, SESSIONS, Step, Turn},
    witness::Witness,
};

/// A time that is not over before the script is, unless the clock is turned by days.
pub(crate) const LONG: Duration = Duration::from_secs(240 * 3600);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
const WEEK: Duration = Duration::from_secs(8 * 24 * 3600);
/// Years: whatever is kept for so long is never purged.
pub(super) const YEARS: Duration = Duration::from_secs(10_000 * 24 * 3600);

pub(crate) struct Runner {
    store: Arc<dyn Store>,
    pub(super) fixture: Fixture,
    clock: Option<Arc<TestClock>>,
    /// Hours by which the clock was turned, weeks aside: never beyond half a day.
    hours: i32,
    pub(super) model: Model,
    /// The session of each slot, and the one before.
    pub(super) sessions: Vec<[SessionId; 2]>,
    pub(super) openings: HashMap<SessionId, Open>,
    pub(super) keys: Vec<LockId>,
    pub(super) schedules: Vec<ScheduleId>,
    moves: u64,
    sent: VecDeque<Op>,
    witness: Witness,
}

impl Runner {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Option<Arc<TestClock>>) -> Self {
        let fixture = Fixture::new(Arc::clone(&store));
        let sessions = (0..SESSIONS).map(|_| [fixture.session(), fixture.session()]).collect();
        let schedules =
            (0..SCHEDULES).map(|number| fixture.schedule(&format!("schedule {number}"))).collect();
        let mut runner = Self {
            store,
            fixture,
            clock,
            hours: 0,
            model: Model::default(),
            sessions,
            openings: HashMap::new(),
            keys: Vec::new(),
            schedules,
            moves: 0,
            sent: VecDeque::new(),
            witness: Witness::default(),
        };
        runner.keys = (0..KEYS).map(|slot| runner.fresh_key(slot)).collect();
        runner
    }

    /// Each slot has a kind of its own; two have the same spread.
    fn fresh_key(&mut self, slot: usize) -> LockId {
        self.moves += 1;
        let key = format!("$key.{} 👑", self.moves / 2);
        match slot {
            0 => self.fixture.lock(&key),
            1 => self.fixture.lock_of(Kind::Schedule, &key),
            2 => self.fixture.task("other spread", &key),
            _ => self.fixture.task("spread", &key),
        }
    }

    /// Counts of what the script met.
    pub(crate) fn met(mut self) -> BTreeMap<String, u64> {
        self.model.meet_ends();
        self.model.met
    }

    pub(crate) async fn step(&mut self, step: &Step) -> Check {
        let op = match step {
            Step::Restart(slot) => {
                let [current, _] = self.sessions[*slot];
                self.sessions[*slot] = [self.fixture.session(), current];
                return Ok(());
            }
            Step::Move(slot) => {
                self.keys[*slot] = self.fresh_key(*slot);
                return Ok(());
            }
            Step::Clock(turn) => {
                self.turn(*turn);
                return Ok(());
            }
            Step::Again(_) if self.sent.is_empty() => return Ok(()),
            Step::Again(back) => self.sent[self.sent.len() - 1 - back % self.sent.len()].clone(),
            step => match self.write(step) {
                Some(op) => op,
                None => return self.read(step).await,
            },
        };
        let place = self.keys[0].clone();
        let performed = op.perform(&*self.store, &mut self.model, &place).await;
        performed.map_err(|why| format!("{op:?}: {why}"))?;
        match op {
            Op::Release(_) => self.fixture.settle().await,
            // Whoever was purged is forgotten: a late opening finds no grave.
            Op::Purge(_) => self.witness.forget(|id| self.model.lives.contains_key(id)),
            _ => {}
        }
        self.look(&op).await.map_err(|why| format!("after {op:?}: {why}"))?;
        self.sent.push_back(op);
        if self.sent.len() > 20 {
            self.sent.pop_front();
        }
        Ok(())
    }

    fn turn(&mut self, turn: Turn) {
        let Some(clock) = &self.clock else { return };
        let turn = match turn {
            Turn::HourAhead if self.hours >= 12 => Turn::HourBack,
            Turn::HourBack if self.hours <= -12 => Turn::HourAhead,
            turn => turn,
        };
        // A tick is over before anything but a moment is: it upsets nothing.
        self.model.turns += u64::from(!matches!(turn, Turn::Tick));
        match turn {
            Turn::Tick => clock.step_wall(Duration::from_millis(5)),
            Turn::HourAhead => {
                self.hours += 1;
                clock.step_wall(HOUR);
            }
            Turn::HourBack => {
                self.hours -= 1;
                clock.step_wall_back(HOUR);
            }
            Turn::WeekAhead => {
                self.model.weeks += 1;
                clock.step_wall(WEEK);
            }
        }
    }

    /// Reads the keys and sessions at hand, and those the operation named.
    async fn look(&mut self, op: &Op) -> Check {
        let mut locks: Vec<_> = op.locks().into_iter().collect();
        if op.is_of_the_queue() {
            for lock in &locks {
                let queue = came(self.store.waiters(lock.clone(), usize::from(u16::MAX), LIMIT).await)?;
                self.model.queue_seen(lock, usize::MAX, &queue)?;
            }
        }
        locks.extend(self.keys.iter().cloned());
        for (lock, seen) in locks.iter().zip(came(self.store.locks(locks.clone(), LIMIT).await)?) {
            self.witness.lock(lock, &seen)?;
            self.model.lock_seen(lock, &seen)?;
        }
        if op.is_of_a_schedule() {
            self.look_at_schedules().await?;
        }
        let mut sessions: Vec<_> = op.session().into_iter().collect();
        sessions.extend(self.sessions.iter().flatten());
        for (session, seen) in sessions.iter().zip(came(self.store.observe(sessions.clone(), LIMIT).await)?) {
            self.witness.session(*session, &seen)?;
            self.model.sighting(*session, &seen)?;
        }
        Ok(())
    }

    async fn look_at_schedules(&mut self) -> Check {
        let seen = came(self.store.schedules(self.schedules.clone(), LIMIT).await)?;
        ensure!(seen.len() == self.schedules.len(), "each schedule is read once: {seen:?}");
        let mut all = self.schedules.iter().zip(&seen);
        all.try_for_each(|(schedule, seen)| self.model.schedule_seen(schedule, seen))
    }

    /// Steps that only read.
    async fn read(&mut self, step: &Step) -> Check {
        let (store, namespace) = (Arc::clone(&self.store), self.fixture.namespace().clone());
        match step {
            Step::Waiters { key, at_most } => {
                let lock = &self.keys[*key];
                let queue = came(store.waiters(lock.clone(), *at_most, LIMIT).await)?;
                self.model.queue_seen(lock, *at_most, &queue)?;
                let (places, stand): (Vec<_>, Vec<_>) = self.model.places(&self.keys).into_iter().unzip();
                let seen = came(store.places(places.clone(), LIMIT).await)?;
                ensure!(seen == stand, "of {places:?} there are {stand:?}, not {seen:?}");
                Ok(())
            }
            Step::History { schedule, at_most } => {
                let schedule = &self.schedules[*schedule];
                let runs = all_runs(&*store, schedule, *at_most).await?;
                let mark = came(store.history(schedule.clone(), None, 1, LIMIT).await)?.mark;
                self.model.history(schedule, &runs, mark)?;
                let pages = came(store.last_runs(self.schedules.clone(), *at_most, LIMIT).await)?;
                ensure!(pages.len() == self.schedules.len(), "each ledger is read once: {pages:?}");
                let mut all = self.schedules.iter().zip(&pages);
                all.try_for_each(|(schedule, page)| self.model.last_runs(schedule, *at_most, page))
            }
            Step::Schedules => self.look_at_schedules().await,
            Step::ListLocks { kind_of, at_most } => {
                let kind = kind_of.map(|slot| self.keys[slot].kind.clone());
                let at_most = (*at_most).max(self.model.locks.len() / 8);
                let records = all_pages(async |after| {
                    came(store.list_locks(namespace.clone(), kind.clone(), after, at_most, LIMIT).await)
                })
                .await?;
                let wanted = |id: &LockId| kind.as_ref().is_none_or(|kind| id.kind == *kind);
                self.model.listed(wanted, &records)
            }
            Step::HeldBy { who, at_most } => {
                let session = self.session(*who);
                let held =
                    all_pages(async |after| came(store.held_by(session, after, *at_most, LIMIT).await))
                        .await?;
                self.model.held_by(session, held)?;
                let sessions: Vec<_> = self.sessions.iter().flatten().copied().collect();
                let latest = came(store.latest_grants(sessions.clone(), *at_most, LIMIT).await)?;
                self.model.latest_grants(&sessions, *at_most, &latest)
            }
            Step::Sessions { at_most } => {
                let at_most = (*at_most).max(self.model.lives.len() / 8);
                let records = all_pages(async |after| {
                    came(store.sessions(namespace.clone(), after, at_most, LIMIT).await)
                })
                .await?;
                let mut expected: Vec<_> = self.model.lives.keys().copied().collect();
                expected.sort_unstable();
                let listed: Vec<_> = records.iter().map(|record| record.id).collect();
                ensure!(expected == listed, "there are the sessions {expected:?}, not {listed:?}");
                for record in &records {
                    let life = self.model.lives.get_mut(&record.id);
                    life.map_or(Ok(()), |life| life.meet(record.id, record))?;
                }
                Ok(())
            }
            other => Err(format!("the script has a step that does nothing: {other:?}")),
        }
    }
}

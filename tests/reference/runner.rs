//! Runs a script: makes each step concrete, performs it, and reads what came of it.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tenure::{
    model::{
        Beat, Candidate, Holder, Kind, LockId, Outcome, Request, RunId, ScheduleId, SessionId, Share,
        SpreadName, StoreTime, Term, Value, Who as WhoName, Why, Wish,
    },
    store::{
        BeatWrite, Claim, Declaration, FinishRun, Ground, LockSeen, Open, Release, Retention, Revocation,
        SetValue, Sighting, Store, Take, Then, Wait,
    },
    testing::{
        TestClock,
        conformance::{Fixture, LIMIT},
    },
};

use super::{
    model::{Check, Life, Model, ensure},
    op::{Op, all_pages, all_runs, came},
    step::{
        Caller, Giving, Hears, Instead, KEYS, OnGround, Onward, SCHEDULES, SESSIONS, Span, Step, Turn,
        Wanted, WhichTerm, Who,
    },
};

/// A time that is not over before the script is, unless the clock is turned by days.
pub(crate) const LONG: Duration = Duration::from_secs(240 * 3600);
const HOUR: Duration = Duration::from_secs(3600);
const WEEK: Duration = Duration::from_secs(8 * 24 * 3600);
/// Years: whatever is kept for so long is never purged.
const YEARS: Duration = Duration::from_secs(10_000 * 24 * 3600);

pub(crate) struct Runner {
    store: Arc<dyn Store>,
    fixture: Fixture,
    clock: Option<Arc<TestClock>>,
    /// How far the clock was turned, weeks aside: never beyond half a day.
    hours: i32,
    model: Model,
    /// The session of each slot, and the one before.
    sessions: Vec<[SessionId; 2]>,
    openings: HashMap<SessionId, Open>,
    keys: Vec<LockId>,
    schedules: Vec<ScheduleId>,
    moves: u64,
    sent: VecDeque<Op>,
    witness: Witness,
}

/// What must hold whatever the model thinks.
#[derive(Default)]
struct Witness {
    terms: HashMap<LockId, Term>,
    grants: HashMap<(LockId, Term), (SessionId, Wish)>,
    dead: HashSet<SessionId>,
}

impl Witness {
    fn lock(&mut self, id: &LockId, seen: &LockSeen) -> Check {
        let LockSeen::Found(record) = seen else { return Ok(()) };
        let last = self.terms.insert(id.clone(), record.term);
        ensure!(last <= Some(record.term), "the term of {id} fell from {last:?} to {}", record.term);
        if let Some(held) = &record.holding {
            let grant = (held.by.session, held.by.wish);
            let known = *self.grants.entry((id.clone(), record.term)).or_insert(grant);
            ensure!(known == grant, "term {} of {id} was given to {known:?} and {grant:?}", record.term);
        }
        Ok(())
    }

    fn session(&mut self, id: SessionId, seen: &Sighting) -> Check {
        match seen {
            Sighting::Dead(_) => {
                self.dead.insert(id);
            }
            // Purged: whoever opens it again gets a fresh one.
            Sighting::Missing => {
                self.dead.remove(&id);
            }
            _ => ensure!(!self.dead.contains(&id), "session {id} was dead, and is {seen:?}"),
        }
        Ok(())
    }
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

    /// What the script met, and how often.
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
            Op::Purge(_) => self.witness.dead.retain(|id| self.model.lives.contains_key(id)),
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
                let line = came(self.store.waiters(lock.clone(), usize::from(u16::MAX), LIMIT).await)?;
                self.model.line_seen(lock, usize::MAX, &line)?;
            }
        }
        locks.extend(self.keys.iter().cloned());
        for (lock, seen) in locks.iter().zip(came(self.store.locks(locks.clone(), LIMIT).await)?) {
            self.witness.lock(lock, &seen)?;
            self.model.lock_seen(lock, &seen)?;
        }
        let mut sessions: Vec<_> = op.session().into_iter().collect();
        sessions.extend(self.sessions.iter().flatten());
        for (session, seen) in sessions.iter().zip(came(self.store.observe(sessions.clone(), LIMIT).await)?) {
            self.witness.session(*session, &seen)?;
            self.model.sighting(*session, &seen)?;
        }
        Ok(())
    }

    /// Steps that only read.
    async fn read(&mut self, step: &Step) -> Check {
        let (store, namespace) = (Arc::clone(&self.store), self.fixture.namespace().clone());
        match step {
            Step::Waiters { key, at_most } => {
                let lock = &self.keys[*key];
                let line = came(store.waiters(lock.clone(), *at_most, LIMIT).await)?;
                self.model.line_seen(lock, *at_most, &line)
            }
            Step::History { schedule, at_most } => {
                let schedule = &self.schedules[*schedule];
                let runs = all_runs(&*store, schedule, *at_most).await?;
                let mark = came(store.history(schedule.clone(), None, 1, LIMIT).await)?.mark;
                self.model.history(schedule, &runs, mark)
            }
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
                self.model.held_by(session, held)
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

    fn session(&self, who: Who) -> SessionId {
        self.sessions[who.slot][usize::from(who.before)]
    }

    fn caller(&self, key: usize, caller: Caller) -> SessionId {
        let holder = self.model.locks.get(&self.keys[key]).and_then(|lock| lock.holder());
        match caller {
            Caller::Holder => holder.map_or(self.sessions[0][0], |by| by.session),
            Caller::Other(who) => self.session(who),
        }
    }

    fn term(&self, key: usize, which: WhichTerm) -> Term {
        let known = self.model.locks.get(&self.keys[key]);
        let terms: Vec<_> =
            known.into_iter().flat_map(|lock| &lock.grants).filter_map(|one| one.term).collect();
        let last = terms.last().copied().unwrap_or(Term::new(1));
        match which {
            WhichTerm::Last => last,
            WhichTerm::Earlier(back) => {
                terms.len().checked_sub(back + 1).map_or(Term::new(1), |place| terms[place])
            }
            WhichTerm::NeverGiven => Term::new(last.get() + 1),
        }
    }

    fn candidate(&self, who: Who, wish: u64, says: u8, delay: Span) -> Candidate {
        Candidate {
            session: self.session(who),
            wish: Wish::new(wish),
            ttl: LONG,
            holder: holder(&format!("pod-{}", who.slot)),
            who: (says & 1 == 1).then(|| WhoName::new("$part").expect("a short name")),
            why: (says & 2 == 2).then(|| why(says)),
            value: (says & 4 == 4).then(|| value(says)),
            lock_delay: time(delay),
        }
    }

    fn wanted(&self, wanted: &Wanted) -> (LockId, Candidate) {
        let Wanted { key, who, wish, says, delay } = *wanted;
        (self.keys[key].clone(), self.candidate(who, wish, says, delay))
    }

    fn release(&self, giving: &Giving) -> Release {
        let Giving { key, caller, term, onward, note } = *giving;
        let then = match onward {
            Onward::Free => Then::Free,
            Onward::ClosedFor(span) => Then::ClosedFor(time(span)),
            Onward::HandTo { who, wish, says } => {
                Then::HandTo(Box::new(self.candidate(who, wish, says, Span::None)))
            }
        };
        Release {
            lock: self.keys[key].clone(),
            session: self.caller(key, caller),
            term: self.term(key, term),
            note: note.then(|| why(7)),
            then,
        }
    }

    /// The operation of a step that writes.
    fn write(&mut self, step: &Step) -> Option<Op> {
        Some(match step.clone() {
            Step::Open { who, same_nonce, consents, shares } => {
                let open = self.opening(self.session(who), same_nonce, consents, shares);
                Op::Open(open)
            }
            Step::Beat { who, ahead, same_nonce, shares, hears } => {
                Op::Beat(self.beat(self.session(who), ahead, same_nonce, shares, hears))
            }
            Step::Declare { who, ground, says } => {
                let session = self.session(who);
                let ground = self.ground(session, ground);
                Op::Declare(Declaration { session, ground, by: holder("watcher"), why: why(says) })
            }
            Step::Take { wanted, name_the_dead } => {
                let mut takes: Vec<_> = wanted.iter().map(|wanted| self.wanted(wanted)).collect();
                // One step a key: the order within a batch is the store's to choose.
                takes.sort_by(|(one, _), (other, _)| one.cmp(other));
                takes.dedup_by(|(one, _), (other, _)| one == other);
                let takes: Vec<_> = takes.into_iter().map(|(lock, by)| Take { lock, by }).collect();
                let mut dead: Vec<_> = self.sessions.iter().flatten().copied().collect();
                dead.retain(|id| {
                    name_the_dead
                        && self.model.lives.get(id).is_some_and(Life::is_dead)
                        && takes.iter().all(|take| take.by.session != *id)
                });
                Op::Take(takes, dead)
            }
            Step::Release(giving) => {
                let mut releases: Vec<_> = giving.iter().map(|giving| self.release(giving)).collect();
                releases.sort_by(|one, other| one.lock.cmp(&other.lock));
                releases.dedup_by(|one, other| one.lock == other.lock);
                Op::Release(releases)
            }
            Step::Wait(wanted) => {
                let waits = wanted.iter().map(|wanted| self.wanted(wanted));
                Op::Wait(waits.map(|(lock, by)| Wait { lock, by }).collect())
            }
            Step::StopWaiting(wanted) => Op::StopWaiting(wanted.iter().map(|one| self.place(one)).collect()),
            Step::SetValue { key, caller, term, says } => Op::SetValue(SetValue {
                lock: self.keys[key].clone(),
                session: self.caller(key, caller),
                term: self.term(key, term),
                value: says.map(value),
            }),
            Step::Ask { key, caller, term, says } => Op::Revoke(Revocation::Ask {
                session: self.caller(key, caller),
                request: self.request(key, term, says),
            }),
            Step::Force { key, term, says } => Op::Revoke(Revocation::Force(self.request(key, term, says))),
            Step::Claim { schedule, instant, who, term, attempt, instead } => {
                let run = self.run(schedule, instant);
                let on_record = self.model.ticks.get(&run).map(|known| &known.claim);
                let on_record = on_record.map_or((Term::new(1), 1), |known| (known.term, known.attempt));
                let instead_of = match instead {
                    Instead::Nobody => None,
                    Instead::TheOneOnRecord => Some(on_record),
                    Instead::Another => Some((on_record.0, on_record.1 + 1)),
                };
                let (session, holder) = (self.session(who), holder(&format!("pod-{}", who.slot)));
                Op::Claim(Claim { run, session, holder, term: Term::new(term), attempt, instead_of })
            }
            Step::Finish { schedule, instant, right, outcome, who, attempt } => {
                Op::Finish(self.finish(self.run(schedule, instant), right, outcome, who, attempt))
            }
            Step::PurgeRuns { schedule, old_only, keep } => {
                let older_than = if old_only { YEARS } else { Duration::ZERO };
                Op::PurgeRuns(self.schedules[schedule].clone(), older_than, keep)
            }
            Step::Purge { old_only: true } => Op::Purge(Retention { locks: YEARS, sessions: YEARS }),
            Step::Purge { old_only: false } => {
                Op::Purge(Retention { locks: Duration::ZERO, sessions: Duration::ZERO })
            }
            _ => return None,
        })
    }

    fn opening(&mut self, session: SessionId, same: bool, consents: bool, says: u8) -> Open {
        let fresh = Open {
            session,
            ttl: LONG,
            store_clock: consents.then_some(HOUR),
            shares: shares(says),
            ..self.fixture.opening()
        };
        let known = self.openings.entry(session).or_insert_with(|| fresh.clone());
        if same { known.clone() } else { fresh }
    }

    fn beat(
        &self,
        session: SessionId,
        ahead: i64,
        same: bool,
        says: Option<u8>,
        hearing: Hears,
    ) -> BeatWrite {
        let life = self.model.lives.get(&session);
        let last = life.map_or(Beat::new(0), |life| life.beat);
        let fresh = self.fixture.beat(session, last.get().saturating_add_signed(ahead));
        // A nonce is never used for two attempts: the same one is the same beat, sent again.
        let nonce = life.filter(|_| same && ahead == 0).map_or(fresh.nonce, |life| life.nonce);
        let requests = life.map(|life| life.requests.clone()).unwrap_or_default();
        let about = |request: &Request| (request.lock.clone(), request.term);
        let heard = match hearing {
            Hears::Nothing => Vec::new(),
            Hears::First => requests.first().map(about).into_iter().collect(),
            Hears::All => requests.iter().map(about).collect(),
            Hears::WrongTerm => requests
                .iter()
                .map(|request| (request.lock.clone(), Term::new(request.term.get() + 1)))
                .collect(),
        };
        BeatWrite { nonce, shares: says.map(shares), heard, ..fresh }
    }

    fn ground(&self, session: SessionId, ground: OnGround) -> Ground {
        let last = self.model.lives.get(&session).map(|life| life.nonce);
        match ground {
            OnGround::Watched => Ground::Unbeaten { nonce: last.unwrap_or_else(|| self.fixture.nonce()) },
            OnGround::OtherNonce => Ground::Unbeaten { nonce: self.fixture.nonce() },
            OnGround::Missing => Ground::Missing {
                namespace: self.fixture.namespace().clone(),
                holder: holder("pod-gone"),
                ttl: LONG,
            },
            OnGround::StoreClock => Ground::StoreClock,
            OnGround::Closed => Ground::Closed,
            OnGround::Operator => Ground::Operator,
        }
    }

    /// A place somebody stands in, or mostly does not.
    fn place(&self, wanted: &Wanted) -> (LockId, SessionId, Wish) {
        let (lock, by) = self.wanted(wanted);
        let mut line = self.model.line.iter().filter(|place| place.lock == lock);
        match line.nth(usize::from(wanted.says % 4)) {
            Some(place) => (lock, place.by.session, place.by.wish),
            None => (lock, by.session, by.wish),
        }
    }

    fn request(&self, key: usize, term: WhichTerm, says: u8) -> Request {
        let (lock, term) = (self.keys[key].clone(), self.term(key, term));
        Request { lock, term, by: holder("admin"), why: why(says) }
    }

    fn run(&self, schedule: usize, instant: i64) -> RunId {
        let instant = StoreTime::from_millis(instant * 60_000);
        RunId { schedule: self.schedules[schedule].clone(), instant }
    }

    fn finish(&self, run: RunId, right: bool, outcome: u8, who: Who, attempt: u32) -> FinishRun {
        let on_record = self.model.ticks.get(&run).map(|known| known.claim.clone()).filter(|_| right);
        let (session, term, attempt) = match on_record {
            Some(claim) => (claim.session, claim.term, claim.attempt),
            None => (self.session(who), Term::new(u64::from(attempt)), attempt),
        };
        let outcomes = [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Abandoned];
        let error = (outcome % 2 == 1).then(|| why(outcome));
        FinishRun { run, session, term, attempt, outcome: outcomes[usize::from(outcome % 4)], error }
    }
}

fn time(span: Span) -> Duration {
    match span {
        Span::None => Duration::ZERO,
        Span::Moment => Duration::from_millis(1),
        Span::Long => LONG,
    }
}

fn holder(name: &str) -> Holder {
    Holder::new(name).expect("a short name")
}

fn why(says: u8) -> Why {
    Why::new(format!("$because.{says} \"{{}}\"\n")).expect("a short reason")
}

fn value(says: u8) -> Value {
    Value::new(vec![says; usize::from(says)]).expect("a short value")
}

fn shares(says: u8) -> Vec<Share> {
    let share = |number: u8| Share {
        spread: SpreadName::new(format!("$spread.{number}")).expect("a short name"),
        cap: number.into(),
        weight: 1,
        draining: says.is_multiple_of(2),
        digest: u64::MAX - u64::from(says),
    };
    (0..says).map(share).collect()
}

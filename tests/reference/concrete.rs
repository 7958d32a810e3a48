//! Makes steps concrete: "the holder" and "the term before" become the names they stand for now.

use std::time::Duration;

use tenure::{
    model::{
        Entry, Holder, LockId, Outcome, Retention, Rules, RunId, SessionId, Skipped, SpreadName, StoreTime,
        Term, Value, Who as WhoName, Why,
    },
    store::{
        Beat, BeatWrite, Candidate, Claim, Declaration, Define, Evidence, FinishRun, Instruction, Note, Open,
        Release, ReleaseTo, Request, Revocation, RunNow, SetValue, Share, Take, Ticket, Topic, Wait,
    },
};

use super::{
    model::Life,
    op::Op,
    runner::{LONG, Runner, YEARS},
    step::{Caller, Giving, Hears, Instead, OnGround, Onward, Saying, Span, Step, Wanted, WhichTerm, Who},
};

impl Runner {
    pub(super) fn session(&self, who: Who) -> SessionId {
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

    fn candidate(&self, who: Who, ticket: u64, says: u8, delay: Span) -> Candidate {
        let (session, holder) = (self.session(who), holder(&format!("pod-{}", who.slot)));
        let mut candidate = Candidate::new(session, Ticket::new(ticket), LONG, holder);
        candidate.who = (says & 1 == 1).then(|| WhoName::new("$part").expect("a short name"));
        candidate.why = (says & 2 == 2).then(|| why(says));
        candidate.value = (says & 4 == 4).then(|| value(says));
        candidate.lock_delay = time(delay);
        candidate
    }

    fn wanted(&self, wanted: &Wanted) -> (LockId, Candidate) {
        let Wanted { key, who, ticket, says, delay } = *wanted;
        (self.keys[key].clone(), self.candidate(who, ticket, says, delay))
    }

    fn release(&self, giving: &Giving) -> Release {
        let Giving { key, caller, term, onward, note } = *giving;
        let then = match onward {
            Onward::Free => ReleaseTo::Free,
            Onward::FreeUnlessWanted => ReleaseTo::FreeUnlessWanted,
            Onward::ClosedFor(span) => ReleaseTo::ClosedFor(time(span)),
            Onward::HandTo { who, ticket, says } => {
                ReleaseTo::HandTo(Box::new(self.candidate(who, ticket, says, Span::None)))
            }
        };
        Release {
            lock: self.keys[key].clone(),
            session: self.caller(key, caller),
            term: self.term(key, term),
            note: note.then(|| Note::Revoked { by: holder("ops"), why: why(7) }),
            then,
        }
    }

    /// The operation of a step that writes.
    pub(super) fn write(&mut self, step: &Step) -> Option<Op> {
        Some(match step.clone() {
            Step::Open { who, same_nonce, shares } => {
                let open = self.opening(self.session(who), same_nonce, shares);
                Op::Open(open)
            }
            Step::Beat { who, ahead, same_nonce, shares, hears } => {
                Op::Beat(self.beat(self.session(who), ahead, same_nonce, shares, hears))
            }
            Step::Declare { who, ground, says } => {
                let session = self.session(who);
                let ground = self.ground(session, ground);
                Op::Declare(Declaration {
                    session,
                    ground,
                    by: holder("watcher"),
                    why: why(says),
                    tell: Vec::new(),
                })
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
                // Few numbers, so that many come late.
                number: u64::from(says.unwrap_or(3) % 8) + 1,
                value: says.map(value),
            }),
            Step::Ask { key, caller, term, says } => Op::Revoke(Revocation::Ask {
                session: self.caller(key, caller),
                request: self.request(key, term, says),
            }),
            Step::Drain { who, says } => Op::Revoke(self.drain(who, says)),
            Step::Force { key, term, says } => Op::Revoke(Revocation::Force(self.request(key, term, says))),
            Step::Reopen { key, term, says } => Op::Revoke(Revocation::Reopen(self.request(key, term, says))),
            Step::Define { schedule, term, timing, policies } => Op::Define(Define {
                schedule: self.schedules[schedule].clone(),
                term: Term::new(term),
                timing: rules("$timing", timing),
                policies: rules("policy.", policies),
                // Of the timings there are, the one before: at times that is the one on record.
                instead_of: (term % 3 == 0).then(|| rules("$timing", timing.saturating_sub(1))),
            }),
            Step::Instruct { schedule, saying } => {
                Op::Instruct(self.schedules[schedule].clone(), instruction(saying))
            }
            Step::Claim { schedule, instant, entry, says, who, term, attempt, instead } => {
                let run = self.run(schedule, instant, entry);
                let on_record = self.model.ticks.get(&run).map(|known| &known.claim);
                let on_record = on_record.map_or((Term::new(1), 1), |known| (known.term, known.attempt));
                let instead_of = match instead {
                    Instead::Nobody => None,
                    Instead::TheOneOnRecord => Some(on_record),
                    Instead::Another => Some((on_record.0, on_record.1 + 1)),
                };
                let (session, holder) = (self.session(who), holder(&format!("pod-{}", who.slot)));
                // Mostly: a store must not conclude from the one that it has the other.
                let skipped = (entry == Entry::Skipped && says % 8 > 0).then(|| Skipped {
                    from: StoreTime::from_millis(instant * 60_000 - i64::from(says)),
                    count: says.into(),
                    why: why(says),
                });
                Op::Claim(Claim { run, session, holder, term: Term::new(term), attempt, instead_of, skipped })
            }
            Step::Finish { schedule, instant, entry, right, outcome, who, attempt, last } => {
                let finish = self.finish(self.run(schedule, instant, entry), right, outcome, who, attempt);
                Op::Finish(FinishRun { last: last || finish.last, ..finish })
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

    fn opening(&mut self, session: SessionId, same: bool, says: u8) -> Open {
        let fresh = Open { session, ttl: LONG, shares: shares(says), ..self.fixture.opening() };
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
        BeatWrite { nonce, shares: says.map(shares), left: Vec::new(), heard, ..fresh }
    }

    fn ground(&self, session: SessionId, ground: OnGround) -> Evidence {
        let last = self.model.lives.get(&session).map(|life| life.nonce);
        match ground {
            OnGround::Watched => Evidence::Unbeaten { nonce: last.unwrap_or_else(|| self.fixture.nonce()) },
            OnGround::OtherNonce => Evidence::Unbeaten { nonce: self.fixture.nonce() },
            OnGround::Missing => Evidence::Missing {
                namespace: self.fixture.namespace().clone(),
                holder: holder("pod-gone"),
                ttl: LONG,
            },
            OnGround::Operator => Evidence::Operator,
        }
    }

    /// A place somebody stands in, or mostly does not.
    fn place(&self, wanted: &Wanted) -> (LockId, SessionId, Ticket) {
        let (lock, by) = self.wanted(wanted);
        let mut queue = self.model.queue.iter().filter(|place| place.lock == lock);
        match queue.nth(usize::from(wanted.says % 4)) {
            Some(place) => (lock, place.by.session, place.by.ticket),
            None => (lock, by.session, by.ticket),
        }
    }

    fn drain(&self, who: Who, says: Option<u8>) -> Revocation {
        let session = self.session(who);
        let order = says.map(|says| (holder("ops"), why(says)));
        Revocation::Drain { session, order, tell: Topic::Session(session) }
    }

    fn request(&self, key: usize, term: WhichTerm, says: u8) -> Request {
        let (lock, term) = (self.keys[key].clone(), self.term(key, term));
        Request { lock, term, by: holder("admin"), why: why(says) }
    }

    fn run(&self, schedule: usize, instant: i64, entry: Entry) -> RunId {
        let instant = StoreTime::from_millis(instant * 60_000);
        RunId { schedule: self.schedules[schedule].clone(), instant, entry }
    }

    fn finish(&self, run: RunId, right: bool, outcome: u8, who: Who, attempt: u32) -> FinishRun {
        let on_record = self.model.ticks.get(&run).map(|known| known.claim.clone()).filter(|_| right);
        let (session, term, attempt) = match on_record {
            Some(claim) => (claim.session, claim.term, claim.attempt),
            None => (self.session(who), Term::new(u64::from(attempt)), attempt),
        };
        let error = (outcome % 2 == 1).then(|| why(outcome));
        let outcome = Outcome::ALL[usize::from(outcome) % Outcome::ALL.len()];
        let last = !matches!(outcome, Outcome::NotBegun | Outcome::Failed | Outcome::Cancelled);
        FinishRun { run, session, term, attempt, outcome, error, last }
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

fn rules(text: &str, number: u8) -> Rules {
    Rules::new(format!("{text}{number}")).expect("a short line")
}

fn instruction(saying: Saying) -> Instruction {
    let by = |says| holder(&format!("operator {}", says % 4));
    match saying {
        Saying::Pause(says) => Instruction::Pause { by: by(says), why: why(says) },
        Saying::Resume => Instruction::Resume,
        Saying::Run { at, says } => {
            Instruction::Run(RunNow { at: StoreTime::from_millis(at), by: by(says), why: why(says) })
        }
        Saying::Ran { at } => Instruction::Ran { at: StoreTime::from_millis(at) },
    }
}

fn value(says: u8) -> Value {
    Value::new(vec![says; usize::from(says)]).expect("a short value")
}

fn shares(says: u8) -> Vec<Share> {
    let share = |number: u8| {
        let mut share = Share::new(SpreadName::new(format!("$spread.{number}")).expect("a short name"));
        share.cap = number.into();
        share.draining = says.is_multiple_of(2);
        share.paused = says.is_multiple_of(3);
        share.reserved = Duration::from_secs(says.into());
        share.digest = u64::MAX - u64::from(says);
        share
    };
    (0..says).map(share).collect()
}

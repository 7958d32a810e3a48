//! Stores that break the contract in one way each: a model that does not notice is worth nothing.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, stream::BoxStream};
use tenure::{
    StoreError,
    model::{Entry, Kind, LockId, MAX_NUMBER, Namespace, Retention, Rules, ScheduleId, SessionId, StoreTime},
    store::{
        Answer, BeatWrite, Capabilities, Claim, ClaimAnswer, Define, Evidence, Hint, Instruction, LockRecord,
        MemoryStore, Op, Open, Pause, Presence, Release, ReleaseTo, Reply, Revocation, ScheduleRecord,
        ScheduleSeen, SessionRecord, SessionSeen, SetValue, Store, StoreExt, Take, TakeAnswer, Ticket,
        Topics,
    },
};
use tenure_conformance::LIMIT;

/// Faults of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    // locks
    TermNotRaised,
    TakesFromTheLiving,
    EqualTicketGetsANewTerm,
    EarlierTicketTakes,
    LaterTicketIsIgnored,
    LosingTakeTouchesTheRecord,
    BatchAnswersOutOfOrder,
    ReleaseIgnoresTerm,
    ReleaseIgnoresSession,
    ReleaseForgetsItsNote,
    ClosingIsIgnored,
    HandsOverToTheWrongTicket,
    HandOverForgetsTheValue,
    HandOverFrees,
    ValueIgnoresTerm,
    ForceIgnoresTerm,
    ReopenIgnoresTerm,
    ReadsOutOfOrder,
    ListingSkips,
    AuditForgets,
    LatestGrantsComeByKey,
    // sessions
    TwinOverwrites,
    LateBeatCounts,
    BeatInserts,
    BeatForgetsShares,
    HearsTooMuch,
    DeclaresByAnyNonce,
    BuriesTheLivingAsMissing,
    LaterDeclarationIsKept,
    DeadLive,
    SightingsOutOfOrder,
    // the queue
    WaitingAgainLosesThePlace,
    LeavingTakesOthersAlong,
    NobodyLeaves,
    // schedules
    SinceIsNotMoved,
    SinceMovesWithThePolicies,
    SmallerTermDefines,
    PausingAgainPausesAnew,
    ResumingAgainEndsLater,
    OrderedAgainIsAnother,
    OrderedAgainTakesTheNewWords,
    RanIsForgotten,
    RanTakesOthersAlong,
    PlacesOutOfOrder,
    SchedulesOutOfOrder,
    // runs and upkeep
    EntriesMeet,
    SkippedIsForgotten,
    AnyClaimReplaces,
    AnybodyFinishes,
    PurgeForgetsToKeep,
    PurgesTheYoung,
    LastRunsAreAll,
}

impl Mutation {
    pub(crate) const ALL: &[Self] = &[
        Self::TermNotRaised,
        Self::TakesFromTheLiving,
        Self::EqualTicketGetsANewTerm,
        Self::EarlierTicketTakes,
        Self::LaterTicketIsIgnored,
        Self::LosingTakeTouchesTheRecord,
        Self::BatchAnswersOutOfOrder,
        Self::ReleaseIgnoresTerm,
        Self::ReleaseIgnoresSession,
        Self::ReleaseForgetsItsNote,
        Self::ClosingIsIgnored,
        Self::HandsOverToTheWrongTicket,
        Self::HandOverForgetsTheValue,
        Self::HandOverFrees,
        Self::ValueIgnoresTerm,
        Self::ForceIgnoresTerm,
        Self::ReopenIgnoresTerm,
        Self::ReadsOutOfOrder,
        Self::ListingSkips,
        Self::AuditForgets,
        Self::LatestGrantsComeByKey,
        Self::TwinOverwrites,
        Self::LateBeatCounts,
        Self::BeatInserts,
        Self::BeatForgetsShares,
        Self::HearsTooMuch,
        Self::DeclaresByAnyNonce,
        Self::BuriesTheLivingAsMissing,
        Self::LaterDeclarationIsKept,
        Self::DeadLive,
        Self::SightingsOutOfOrder,
        Self::WaitingAgainLosesThePlace,
        Self::LeavingTakesOthersAlong,
        Self::NobodyLeaves,
        Self::SinceIsNotMoved,
        Self::SinceMovesWithThePolicies,
        Self::SmallerTermDefines,
        Self::PausingAgainPausesAnew,
        Self::ResumingAgainEndsLater,
        Self::OrderedAgainIsAnother,
        Self::OrderedAgainTakesTheNewWords,
        Self::RanIsForgotten,
        Self::RanTakesOthersAlong,
        Self::PlacesOutOfOrder,
        Self::SchedulesOutOfOrder,
        Self::EntriesMeet,
        Self::SkippedIsForgotten,
        Self::AnyClaimReplaces,
        Self::AnybodyFinishes,
        Self::PurgeForgetsToKeep,
        Self::PurgesTheYoung,
        Self::LastRunsAreAll,
    ];
}

/// A memory store with one fault.
#[derive(Debug)]
pub(crate) struct Mutant {
    store: MemoryStore,
    mutation: Mutation,
}

impl Mutant {
    pub(crate) fn new(store: MemoryStore, mutation: Mutation) -> Self {
        Self { store, mutation }
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == mutation
    }

    async fn lock(&self, id: &LockId) -> Result<Option<LockRecord>, StoreError> {
        Ok(self.store.locks(vec![id.clone()], LIMIT).await?.remove(0).found())
    }

    async fn session(&self, id: SessionId) -> Result<Option<SessionRecord>, StoreError> {
        Ok(self.store.observe(vec![id], LIMIT).await?.remove(0).record().cloned())
    }

    async fn schedule(&self, id: &ScheduleId) -> Result<ScheduleRecord, StoreError> {
        Ok(match self.store.schedules(vec![id.clone()], LIMIT).await?.remove(0) {
            ScheduleSeen::Found(record) => record,
            _ => ScheduleRecord::new(id.clone()),
        })
    }

    async fn before_instruct(
        &self,
        known: &ScheduleRecord,
        instruction: &mut Instruction,
    ) -> Result<(), StoreError> {
        let instruct = |first| self.store.instruct(known.id.clone(), first, LIMIT);
        let is_on = known.pause.as_ref().is_some_and(Pause::is_on);
        let has = |at| known.orders.iter().any(|order| order.at == at);
        match (self.mutation, instruction) {
            (Mutation::PausingAgainPausesAnew, Instruction::Pause { .. }) if is_on => {
                instruct(Instruction::Resume).await?;
            }
            (Mutation::ResumingAgainEndsLater, Instruction::Resume) if !is_on => {
                if let Some(Pause { by, why, .. }) = known.pause.clone() {
                    instruct(Instruction::Pause { by, why }).await?;
                }
            }
            (Mutation::OrderedAgainIsAnother, Instruction::Run(order)) if has(order.at) => {
                order.at = StoreTime::from_millis(order.at.as_millis() + 1000);
            }
            (Mutation::OrderedAgainTakesTheNewWords, Instruction::Run(order)) => {
                instruct(Instruction::Ran { at: order.at }).await?;
            }
            (Mutation::RanIsForgotten, Instruction::Ran { at }) => {
                *at = StoreTime::from_millis(at.as_millis() + 1000);
            }
            (Mutation::RanTakesOthersAlong, Instruction::Ran { .. }) => {
                for order in &known.orders {
                    instruct(Instruction::Ran { at: order.at }).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether a session holds a lock, and for which ticket.
    async fn held(
        &self,
        id: &LockId,
        session: SessionId,
    ) -> Result<Option<(LockRecord, Ticket)>, StoreError> {
        let record = self.lock(id).await?.filter(|record| record.is_held_by(session));
        Ok(record.and_then(|record| {
            record.holding.as_ref().map(|held| held.by.ticket).map(|ticket| (record, ticket))
        }))
    }

    async fn free(&self, record: &LockRecord, session: SessionId) -> Result<(), StoreError> {
        let (lock, term) = (record.id.clone(), record.term);
        let release = Release { lock, session, term, note: None, then: ReleaseTo::Free };
        self.store.release(vec![release], LIMIT).await.map(drop)
    }

    async fn before_take(&self, take: &mut Take, dead: &mut Vec<SessionId>) -> Result<(), StoreError> {
        let by = &mut take.by;
        if self.is(Mutation::TakesFromTheLiving)
            && let Some(held) = self.lock(&take.lock).await?.and_then(|record| record.holding)
        {
            dead.push(held.by.session);
        }
        if let Some((record, ticket)) = self.held(&take.lock, by.session).await? {
            let wrong = match self.mutation {
                Mutation::EqualTicketGetsANewTerm => ticket == by.ticket,
                Mutation::EarlierTicketTakes => ticket > by.ticket,
                _ => false,
            };
            if wrong {
                self.free(&record, by.session).await?;
            }
            if self.is(Mutation::LaterTicketIsIgnored) {
                by.ticket = by.ticket.min(ticket);
            }
        }
        Ok(())
    }

    async fn after_take(&self, answer: &mut TakeAnswer) -> Result<(), StoreError> {
        match answer {
            TakeAnswer::Taken(record) if self.is(Mutation::TermNotRaised) => {
                record.term = record.past.first().map_or(record.term, |past| past.term);
            }
            TakeAnswer::Held(record) if self.is(Mutation::LosingTakeTouchesTheRecord) => {
                let session = record.holding.as_ref().map(|held| held.by.session);
                if let Some(session) = session {
                    let (lock, term) = (record.id.clone(), record.term);
                    self.store
                        .set_value(SetValue { lock, session, term, number: MAX_NUMBER, value: None }, LIMIT)
                        .await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn before_release(&self, release: &mut Release) -> Result<(), StoreError> {
        if let Some(record) = self.lock(&release.lock).await? {
            match (&record.holding, self.mutation) {
                (Some(_), Mutation::ReleaseIgnoresTerm) => release.term = record.term,
                (Some(held), Mutation::ReleaseIgnoresSession) => release.session = held.by.session,
                _ => {}
            }
        }
        match (&mut release.then, self.mutation) {
            (_, Mutation::ReleaseForgetsItsNote) => release.note = None,
            (ReleaseTo::ClosedFor(_), Mutation::ClosingIsIgnored)
            | (ReleaseTo::HandTo(_), Mutation::HandOverFrees) => {
                release.then = ReleaseTo::Free;
            }
            (ReleaseTo::HandTo(next), Mutation::HandsOverToTheWrongTicket) => {
                next.ticket = Ticket::new(next.ticket.get() + 1);
            }
            (ReleaseTo::HandTo(next), Mutation::HandOverForgetsTheValue) => next.value = None,
            _ => {}
        }
        Ok(())
    }

    /// Spoils a call on its way to the store.
    async fn before(&self, op: &mut Op, limit: Duration) -> Result<(), StoreError> {
        match op {
            Op::Beat(beat) => self.before_beat(beat, limit).await?,
            Op::Declare(declaration) => {
                let wrong = match (&declaration.ground, self.mutation) {
                    (Evidence::Unbeaten { .. }, Mutation::DeclaresByAnyNonce) => true,
                    (Evidence::Missing { .. }, Mutation::BuriesTheLivingAsMissing) => {
                        self.session(declaration.session).await?.is_some()
                    }
                    _ => false,
                };
                if wrong {
                    declaration.ground = Evidence::Operator;
                }
            }
            Op::Wait(waits) if self.is(Mutation::WaitingAgainLosesThePlace) => {
                let places = waits.iter().map(|wait| (wait.lock.clone(), wait.by.session, wait.by.ticket));
                self.store.stop_waiting(places.collect(), limit).await?;
            }
            Op::StopWaiting(waits) if self.is(Mutation::NobodyLeaves) => waits.clear(),
            Op::StopWaiting(waits) if self.is(Mutation::LeavingTakesOthersAlong) => {
                for (lock, session, _) in waits.clone() {
                    let queue = self.store.waiters(lock.clone(), usize::MAX, limit).await?;
                    let same = queue.waiters.into_iter().filter(|waiter| waiter.by.session == session);
                    waits.extend(same.map(|waiter| (lock.clone(), session, waiter.by.ticket)));
                }
            }
            Op::SetValue(set) if self.is(Mutation::ValueIgnoresTerm) => {
                if let Some((record, _)) = self.held(&set.lock, set.session).await? {
                    set.term = record.term;
                }
            }
            Op::Revoke(revocation) => {
                let meant = match revocation {
                    Revocation::Force(request) if self.is(Mutation::ForceIgnoresTerm) => Some(request),
                    Revocation::Reopen(request) if self.is(Mutation::ReopenIgnoresTerm) => Some(request),
                    _ => None,
                };
                if let Some(request) = meant
                    && let Some(record) = self.lock(&request.lock).await?
                {
                    request.term = record.term;
                }
            }
            Op::Define(define) => {
                let known = self.schedule(&define.schedule).await?.definition;
                match (self.mutation, known) {
                    (Mutation::SmallerTermDefines, Some(known)) => define.term = define.term.max(known.term),
                    (Mutation::SinceMovesWithThePolicies, Some(known))
                        if known.policies != define.policies =>
                    {
                        let other = Rules::new("another").expect("a short line");
                        self.store.define(Define { timing: other, ..define.clone() }, limit).await?;
                    }
                    _ => {}
                }
            }
            Op::Instruct(schedule, instruction) => {
                let known = self.schedule(schedule).await?;
                self.before_instruct(&known, instruction).await?;
            }
            Op::Claim(claim) => match self.mutation {
                Mutation::EntriesMeet => claim.run.entry = Entry::Tick,
                Mutation::SkippedIsForgotten => claim.skipped = None,
                Mutation::AnyClaimReplaces if claim.instead_of.is_some() => {
                    let answer = self.store.claim(Claim { instead_of: None, ..claim.clone() }, limit).await?;
                    if let ClaimAnswer::Others(record) = answer {
                        claim.instead_of = Some((record.term, record.attempt));
                    }
                }
                _ => {}
            },
            Op::Finish(finish) if self.is(Mutation::AnybodyFinishes) => {
                if let ClaimAnswer::Others(record) = self.store.finish(finish.clone(), limit).await? {
                    (finish.session, finish.term, finish.attempt) =
                        (record.session, record.term, record.attempt);
                }
            }
            Op::PurgeRuns(_, _, keep) if self.is(Mutation::PurgeForgetsToKeep) => *keep = 0,
            Op::Purge(_, retention, _) if self.is(Mutation::PurgesTheYoung) => {
                *retention = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };
            }
            _ => {}
        }
        Ok(())
    }

    async fn before_beat(&self, beat: &mut BeatWrite, limit: Duration) -> Result<(), StoreError> {
        let known = self.session(beat.session).await?;
        match (self.mutation, &known) {
            (Mutation::LateBeatCounts, Some(known)) if beat.beat < known.beat => {
                beat.beat = tenure::store::Beat::new(known.beat.get() + 1);
            }
            (Mutation::HearsTooMuch, Some(known)) if !beat.heard.is_empty() => {
                let all = known.requests.iter();
                beat.heard = all.map(|request| (request.lock.clone(), request.term)).collect();
            }
            (Mutation::BeatForgetsShares, Some(_)) if beat.shares.is_none() => {
                beat.shares = Some(Vec::new());
            }
            (Mutation::BeatInserts, None) => {
                let namespace = Namespace::new("inserted by a beat").expect("a short name");
                let holder = tenure::model::Holder::new("nobody").expect("a short name");
                let about = tenure::store::About::new(namespace, holder);
                let (session, nonce, ttl) = (beat.session, beat.nonce, LIMIT);
                let open = Open { session, nonce, about, ttl, shares: Vec::new(), drained: None };
                self.store.open(open, limit).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Spoils the reply to a call.
    fn after(&self, op: Op, reply: &mut Reply) {
        match (self.mutation, op, reply) {
            (Mutation::TwinOverwrites, Op::Open(open), Reply::Open(SessionSeen::Alive(record))) => {
                (record.nonce, record.about) = (open.nonce, open.about);
            }
            (Mutation::DeadLive, _, Reply::Open(seen)) => {
                if let SessionSeen::Dead(record) = seen {
                    record.death = None;
                    *seen = SessionSeen::Alive(record.clone());
                }
            }
            (Mutation::SightingsOutOfOrder, _, Reply::Observe(seen)) => seen.reverse(),
            (
                Mutation::LaterDeclarationIsKept,
                Op::Declare(declaration),
                Reply::Declare(SessionSeen::Dead(record)),
            ) => {
                if let Some(death) = &mut record.death {
                    (death.by, death.why) = (declaration.by, declaration.why);
                }
            }
            (Mutation::PlacesOutOfOrder, _, Reply::Places(stand)) => stand.reverse(),
            (Mutation::ReadsOutOfOrder, _, Reply::Locks(seen)) => seen.reverse(),
            (Mutation::ListingSkips, Op::ListLocks(_, _, Some(_), _), Reply::ListLocks(page))
                if !page.items.is_empty() =>
            {
                page.items.remove(0);
            }
            (Mutation::AuditForgets, _, Reply::HeldBy(page)) => {
                page.items.retain(|held| !matches!(held.lock.kind, Kind::Schedule));
            }
            (Mutation::LatestGrantsComeByKey, _, Reply::LatestGrants(latest)) => {
                latest.sort_by(|one, other| one.id.cmp(&other.id));
            }
            (Mutation::SchedulesOutOfOrder, _, Reply::Schedules(seen)) => seen.reverse(),
            (Mutation::LastRunsAreAll, _, Reply::LastRuns(pages)) => {
                for page in pages {
                    page.next = None;
                }
            }
            _ => {}
        }
    }

    async fn take(
        &self,
        takes: Vec<Take>,
        dead: Vec<SessionId>,
        limit: Duration,
    ) -> Result<Reply, StoreError> {
        let mut answers = Vec::new();
        for mut take in takes {
            let mut dead = dead.clone();
            self.before_take(&mut take, &mut dead).await?;
            let mut answer = self.store.take(vec![take], dead, limit).await?.remove(0);
            self.after_take(&mut answer).await?;
            answers.push(answer);
        }
        if self.is(Mutation::BatchAnswersOutOfOrder) {
            answers.reverse();
        }
        Ok(Reply::Take(answers))
    }

    async fn release(&self, releases: Vec<Release>, limit: Duration) -> Result<Reply, StoreError> {
        let mut answers = Vec::new();
        for mut release in releases {
            self.before_release(&mut release).await?;
            answers.extend(self.store.release(vec![release], limit).await?);
        }
        Ok(Reply::Release(answers))
    }
}

impl Store for Mutant {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, mut op: Op, limit: Duration) -> Answer<'_, Reply> {
        async move {
            match op {
                Op::Take(takes, dead) => return self.take(takes, dead, limit).await,
                Op::Release(releases) => return self.release(releases, limit).await,
                _ => {}
            }
            let known = match &op {
                Op::Define(define) => self.schedule(&define.schedule).await?.definition,
                _ => None,
            };
            self.before(&mut op, limit).await?;
            let mut reply = self.store.call(op.clone(), limit).await?;
            self.after(op, &mut reply);
            if let (Reply::Define(ScheduleSeen::Found(record)), Some(known)) = (&mut reply, known)
                && let Some(definition) = record.definition.as_mut()
                && self.is(Mutation::SinceIsNotMoved)
            {
                definition.since = known.since;
            }
            Ok(reply)
        }
        .boxed()
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
        self.store.presence(session)
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        self.store.dedicated()
    }
}

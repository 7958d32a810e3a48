//! Stores that break the contract in one way each: a model that does not notice is worth nothing.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, stream::BoxStream};
use tenure::{
    StoreError,
    model::{
        Entry, Kind, LockId, MAX_NUMBER, Namespace, Retention, Rules, RunRecord, ScheduleId, SessionId,
        StoreTime,
    },
    store::{
        Answer, BeatWrite, Capabilities, Claim, ClaimAnswer, Cursor, Declaration, Define, Evidence,
        FinishRun, Held, Hint, Instruction, LockRecord, LockSeen, MemoryStore, Open, Page, Pause, Presence,
        Purged, Release, ReleaseAnswer, ReleaseTo, Revocation, RevokeAnswer, RunPage, ScheduleRecord,
        ScheduleSeen, SessionRecord, SessionSeen, SetAnswer, SetValue, Store, Take, TakeAnswer, Ticket,
        Topics, Wait,
    },
    store_methods,
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
}

fn alive(sighting: SessionSeen) -> SessionSeen {
    match sighting {
        SessionSeen::Dead(mut record) => {
            record.death = None;
            SessionSeen::Alive(record)
        }
        other => other,
    }
}

impl Store for Mutant {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    store_methods! { to store: sessions waiters list_schedules delete_schedule history }

    fn open(&self, open: Open, limit: Duration) -> Answer<'_, SessionSeen> {
        async move {
            let answer = self.store.open(open.clone(), limit).await?;
            Ok(match (answer, self.mutation) {
                (SessionSeen::Alive(mut record), Mutation::TwinOverwrites) => {
                    (record.nonce, record.about) = (open.nonce, open.about);
                    SessionSeen::Alive(record)
                }
                (answer, Mutation::DeadLive) => alive(answer),
                (answer, _) => answer,
            })
        }
        .boxed()
    }

    fn beat(&self, mut beat: BeatWrite, limit: Duration) -> Answer<'_, SessionSeen> {
        async move {
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
                    let open = Open { session, nonce, about, ttl, shares: Vec::new() };
                    self.store.open(open, limit).await?;
                }
                _ => {}
            }
            self.store.beat(beat, limit).await
        }
        .boxed()
    }

    fn observe(&self, sessions: Vec<SessionId>, limit: Duration) -> Answer<'_, Vec<SessionSeen>> {
        async move {
            let mut seen = self.store.observe(sessions, limit).await?;
            if self.is(Mutation::SightingsOutOfOrder) {
                seen.reverse();
            }
            Ok(seen)
        }
        .boxed()
    }

    fn declare(&self, mut declaration: Declaration, limit: Duration) -> Answer<'_, SessionSeen> {
        async move {
            let known = self.session(declaration.session).await?.is_some();
            let wrong = match (&declaration.ground, self.mutation) {
                (Evidence::Unbeaten { .. }, Mutation::DeclaresByAnyNonce) => true,
                (Evidence::Missing { .. }, Mutation::BuriesTheLivingAsMissing) => known,
                _ => false,
            };
            if wrong {
                declaration.ground = Evidence::Operator;
            }
            let answer = self.store.declare(declaration.clone(), limit).await?;
            Ok(match answer {
                SessionSeen::Dead(mut record) if self.is(Mutation::LaterDeclarationIsKept) => {
                    if let Some(death) = &mut record.death {
                        (death.by, death.why) = (declaration.by, declaration.why);
                    }
                    SessionSeen::Dead(record)
                }
                answer => answer,
            })
        }
        .boxed()
    }

    fn take(&self, takes: Vec<Take>, dead: Vec<SessionId>, limit: Duration) -> Answer<'_, Vec<TakeAnswer>> {
        async move {
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
            Ok(answers)
        }
        .boxed()
    }

    fn release(&self, releases: Vec<Release>, limit: Duration) -> Answer<'_, Vec<ReleaseAnswer>> {
        async move {
            let mut answers = Vec::new();
            for mut release in releases {
                self.before_release(&mut release).await?;
                answers.extend(self.store.release(vec![release], limit).await?);
            }
            Ok(answers)
        }
        .boxed()
    }

    fn wait(&self, waits: Vec<Wait>, limit: Duration) -> Answer<'_, ()> {
        async move {
            if self.is(Mutation::WaitingAgainLosesThePlace) {
                let places = waits.iter().map(|wait| (wait.lock.clone(), wait.by.session, wait.by.ticket));
                self.store.stop_waiting(places.collect(), limit).await?;
            }
            self.store.wait(waits, limit).await
        }
        .boxed()
    }

    fn stop_waiting(&self, mut waits: Vec<(LockId, SessionId, Ticket)>, limit: Duration) -> Answer<'_, ()> {
        async move {
            match self.mutation {
                Mutation::NobodyLeaves => waits.clear(),
                Mutation::LeavingTakesOthersAlong => {
                    for (lock, session, _) in waits.clone() {
                        let queue = self.store.waiters(lock.clone(), usize::MAX, limit).await?;
                        let same = queue.waiters.into_iter().filter(|waiter| waiter.by.session == session);
                        waits.extend(same.map(|waiter| (lock.clone(), session, waiter.by.ticket)));
                    }
                }
                _ => {}
            }
            self.store.stop_waiting(waits, limit).await
        }
        .boxed()
    }

    fn places(&self, places: Vec<(LockId, SessionId, Ticket)>, limit: Duration) -> Answer<'_, Vec<bool>> {
        async move {
            let mut stand = self.store.places(places, limit).await?;
            if self.is(Mutation::PlacesOutOfOrder) {
                stand.reverse();
            }
            Ok(stand)
        }
        .boxed()
    }

    fn set_value(&self, mut set: SetValue, limit: Duration) -> Answer<'_, SetAnswer> {
        async move {
            if self.is(Mutation::ValueIgnoresTerm)
                && let Some((record, _)) = self.held(&set.lock, set.session).await?
            {
                set.term = record.term;
            }
            self.store.set_value(set, limit).await
        }
        .boxed()
    }

    fn locks(&self, locks: Vec<LockId>, limit: Duration) -> Answer<'_, Vec<LockSeen>> {
        async move {
            let mut seen = self.store.locks(locks, limit).await?;
            if self.is(Mutation::ReadsOutOfOrder) {
                seen.reverse();
            }
            Ok(seen)
        }
        .boxed()
    }

    fn list_locks(
        &self,
        namespace: Namespace,
        kind: Option<Kind>,
        after: Option<Cursor>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Page<LockRecord>> {
        async move {
            let first = after.is_none();
            let mut page = self.store.list_locks(namespace, kind, after, at_most, limit).await?;
            if self.is(Mutation::ListingSkips) && !first && !page.items.is_empty() {
                page.items.remove(0);
            }
            Ok(page)
        }
        .boxed()
    }

    fn held_by(
        &self,
        session: SessionId,
        after: Option<Cursor>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Page<Held>> {
        async move {
            let mut page = self.store.held_by(session, after, at_most, limit).await?;
            if self.is(Mutation::AuditForgets) {
                page.items.retain(|held| !matches!(held.lock.kind, Kind::Schedule));
            }
            Ok(page)
        }
        .boxed()
    }

    fn latest_grants(
        &self,
        sessions: Vec<SessionId>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Vec<LockRecord>> {
        async move {
            let mut latest = self.store.latest_grants(sessions, at_most, limit).await?;
            if self.is(Mutation::LatestGrantsComeByKey) {
                latest.sort_by(|one, other| one.id.cmp(&other.id));
            }
            Ok(latest)
        }
        .boxed()
    }

    fn revoke(&self, mut revocation: Revocation, limit: Duration) -> Answer<'_, RevokeAnswer> {
        async move {
            let meant = match &mut revocation {
                Revocation::Force(request) if self.is(Mutation::ForceIgnoresTerm) => Some(request),
                Revocation::Reopen(request) if self.is(Mutation::ReopenIgnoresTerm) => Some(request),
                _ => None,
            };
            if let Some(request) = meant
                && let Some(record) = self.lock(&request.lock).await?
            {
                request.term = record.term;
            }
            self.store.revoke(revocation, limit).await
        }
        .boxed()
    }

    fn define(&self, mut define: Define, limit: Duration) -> Answer<'_, ScheduleSeen> {
        async move {
            let known = self.schedule(&define.schedule).await?.definition;
            match (self.mutation, &known) {
                (Mutation::SmallerTermDefines, Some(known)) => define.term = define.term.max(known.term),
                (Mutation::SinceMovesWithThePolicies, Some(known)) if known.policies != define.policies => {
                    let other = Rules::new("another").expect("a short line");
                    self.store.define(Define { timing: other, ..define.clone() }, limit).await?;
                }
                _ => {}
            }
            let mut answer = self.store.define(define, limit).await?;
            if let (ScheduleSeen::Found(record), Some(known)) = (&mut answer, known)
                && let Some(definition) = record.definition.as_mut()
                && self.is(Mutation::SinceIsNotMoved)
            {
                definition.since = known.since;
            }
            Ok(answer)
        }
        .boxed()
    }

    fn instruct(
        &self,
        schedule: ScheduleId,
        mut instruction: Instruction,
        limit: Duration,
    ) -> Answer<'_, ScheduleSeen> {
        async move {
            let known = self.schedule(&schedule).await?;
            self.before_instruct(&known, &mut instruction).await?;
            self.store.instruct(schedule, instruction, limit).await
        }
        .boxed()
    }

    fn schedules(&self, schedules: Vec<ScheduleId>, limit: Duration) -> Answer<'_, Vec<ScheduleSeen>> {
        async move {
            let mut seen = self.store.schedules(schedules, limit).await?;
            if self.is(Mutation::SchedulesOutOfOrder) {
                seen.reverse();
            }
            Ok(seen)
        }
        .boxed()
    }

    fn claim(&self, mut claim: Claim, limit: Duration) -> Answer<'_, ClaimAnswer> {
        async move {
            if self.is(Mutation::EntriesMeet) {
                claim.run.entry = Entry::Tick;
            }
            if self.is(Mutation::SkippedIsForgotten) {
                claim.skipped = None;
            }
            if self.is(Mutation::AnyClaimReplaces) && claim.instead_of.is_some() {
                let answer = self.store.claim(Claim { instead_of: None, ..claim.clone() }, limit).await?;
                if let ClaimAnswer::Others(record) = answer {
                    claim.instead_of = Some((record.term, record.attempt));
                }
            }
            self.store.claim(claim, limit).await
        }
        .boxed()
    }

    fn finish(&self, mut finish: FinishRun, limit: Duration) -> Answer<'_, ClaimAnswer> {
        async move {
            if self.is(Mutation::AnybodyFinishes)
                && let ClaimAnswer::Others(record) = self.store.finish(finish.clone(), limit).await?
            {
                let (session, term, attempt) = (record.session, record.term, record.attempt);
                finish = FinishRun { session, term, attempt, ..finish };
            }
            self.store.finish(finish, limit).await
        }
        .boxed()
    }

    fn last_runs(
        &self,
        schedules: Vec<ScheduleId>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Vec<Page<RunRecord>>> {
        async move {
            let mut pages = self.store.last_runs(schedules, at_most, limit).await?;
            if self.is(Mutation::LastRunsAreAll) {
                for page in &mut pages {
                    page.next = None;
                }
            }
            Ok(pages)
        }
        .boxed()
    }

    fn purge_runs(
        &self,
        schedule: ScheduleId,
        older_than: Duration,
        keep: usize,
        limit: Duration,
    ) -> Answer<'_, RunPage> {
        let keep = if self.is(Mutation::PurgeForgetsToKeep) { 0 } else { keep };
        self.store.purge_runs(schedule, older_than, keep, limit)
    }

    fn purge(
        &self,
        namespace: Namespace,
        retention: Retention,
        after: Option<Cursor>,
        limit: Duration,
    ) -> Answer<'_, Purged> {
        let nothing = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };
        let retention = if self.is(Mutation::PurgesTheYoung) { nothing } else { retention };
        self.store.purge(namespace, retention, after, limit)
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

//! Absorbing of reads and hints into the view of a spread.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    actor::SpreadActor,
    reading::{self, Listed, Reading},
    shared::{ActorState, TaskWork},
    startup,
};
use crate::{
    clock::Moment,
    elect::Engine,
    error::chain,
    logic::view::PeerSeen,
    model::{Key, SessionId, StoreTime},
    store::{Held, LockSeen, SessionRecord, SessionSeen},
    words,
};

/// A pass over the state, by the clocks as they stood when it began.
struct Absorption<'a> {
    engine: &'a Arc<Engine>,
    state: &'a mut ActorState,
    own: Option<SessionId>,
    now: Moment,
    store_now: Option<StoreTime>,
    /// Something has changed that the plan depends on.
    changed: bool,
    /// Tasks that this instance holds and has no use for: handed to tickets that were given up meanwhile.
    strays: Vec<(SessionId, Held)>,
}

impl<'a> Absorption<'a> {
    fn new(engine: &'a Arc<Engine>, state: &'a mut ActorState) -> Self {
        let (now, store_now) = (engine.clock.now(), engine.store_now());
        let own = engine.current().map(|session| session.id);
        Self { engine, state, own, now, store_now, changed: false, strays: Vec::new() }
    }

    /// Absorbs records of a listing. Returns their session ids.
    fn absorb_sessions(&mut self, records: Vec<SessionRecord>) -> BTreeSet<SessionId> {
        let mut listed = BTreeSet::new();
        for record in records {
            let (id, seen) = (record.id, SessionSeen::of(record));
            listed.insert(id);
            self.state.learn_of(id, &seen);
            if Some(id) != self.own {
                self.changed |= self.state.view.saw(id, &seen, self.now, self.store_now);
            }
        }
        listed
    }

    /// Absorbs a look at one session.
    fn absorb_sighting(&mut self, asked: Moment, session: SessionId, seen: &SessionSeen) {
        self.state.learn_of(session, seen);
        if Some(session) == self.own {
            return;
        }
        if seen.is_dead() {
            self.engine.watcher.saw(self.engine, session, asked, seen);
        }
        self.changed |= self.state.view.saw(session, seen, self.now, self.store_now);
    }

    /// Absorbs a listing: its records, and that there are none between them.
    fn absorb_listing(&mut self, listing: Listed) {
        let Listed { asked, after, before, records, refused } = listing;
        let mut found = BTreeSet::new();
        for record in records {
            let key = record.id.key.clone();
            self.absorb_record(asked, &key, &LockSeen::Found(record));
            found.insert(key);
        }
        let between = self.state.view.between(after.as_ref(), before.as_ref());
        for key in between.into_iter().filter(|key| !found.contains(key)) {
            if refused {
                // Its record may be the one that cannot be used.
                self.state.view.forget_place(&key, self.now);
                self.changed = true;
            } else {
                let view = &mut self.state.view;
                self.changed |= view.read(&key, &LockSeen::Absent, asked, self.now, self.store_now);
            }
        }
    }

    /// Absorbs a look at one task.
    fn absorb_task(&mut self, asked: Moment, key: &Key, seen: &LockSeen) {
        if let LockSeen::Found(record) = seen
            && let Some(held) = &record.holding
            && self.state.view.session(held.by.session) == Some(&PeerSeen::Missing)
            && reading::watch_missing(self.engine, record, held)
        {
            self.changed |= self.state.view.mark_dead(held.by.session, self.now);
        }
        self.absorb_record(asked, key, seen);
    }

    fn absorb_record(&mut self, asked: Moment, key: &Key, seen: &LockSeen) {
        if let LockSeen::Found(record) = seen
            && let Some(held) = &record.holding
            && Some(held.by.session) == self.own
            && !self.state.mine.contains_key(key)
        {
            let stray = Held { lock: record.id.clone(), term: record.term, ticket: held.by.ticket };
            self.strays.push((held.by.session, stray));
        }
        self.changed |= self.state.view.read(key, seen, asked, self.now, self.store_now);
    }
}

/// Returns the sessions that take part.
fn members(state: &ActorState) -> BTreeSet<SessionId> {
    state.view.members().map(|(session, _)| session).collect()
}

impl SpreadActor {
    /// Absorbs a reading, and notes what is to be read next.
    pub(super) fn absorb_reading(&mut self, reading: Reading) {
        let engine = self.engine().clone();
        if let Some(error) = &reading.error {
            words::debug!(spread = %self.shared.spread, error = chain(error), "could not read the spread");
            self.pause = engine.clock.now() + self.failures.next(engine.entropy.roll());
            // Records that were read count all the same; all that was asked for is asked for again.
            self.ask.and(std::mem::take(&mut self.asked));
        } else {
            self.failures.reset();
        }
        let shared = self.shared.clone();
        let mut state = shared.state();
        let before = members(&state);
        let mut pass = Absorption::new(&engine, &mut state);
        let own = pass.own;
        let is_first = reading.everything && !pass.state.complete;
        let listed = pass.absorb_sessions(reading.sessions);
        if is_first {
            pass.state.begin_startup_hold(&engine);
        }
        if reading.all_sessions {
            // A session that is not listed came just now, or its record is gone: another look will show which.
            let gone = before.difference(&listed).filter(|session| Some(**session) != own);
            self.ask.sessions.extend(gone.copied());
        }
        for (session, seen) in reading.sightings {
            pass.absorb_sighting(reading.asked, session, &seen);
        }
        for listing in reading.listed {
            pass.absorb_listing(listing);
        }
        let changed = std::mem::take(&mut pass.changed);
        for (key, seen) in reading.tasks {
            pass.absorb_task(reading.asked, &key, &seen);
        }
        let (touched, strays) = (pass.changed, pass.strays);
        let complete = reading.everything && !state.complete;
        state.complete |= reading.everything;
        state.news |= complete;
        if let Some(own) = own
            && before != members(&state)
        {
            self.ask.ring = Some(state.view.after(own));
        }
        drop(state);
        for (session, stray) in strays {
            engine.lock_found(reading.asked, session, &stray);
        }
        if let Some(place) = reading.place {
            self.rolling = place;
        }
        if changed || complete {
            self.mark_changed();
        } else if touched {
            self.mark_touched();
        }
    }

    /// Absorbs the news of the inbox: hints, and sessions as other parts of this instance saw them.
    pub(super) fn absorb_news(&mut self) {
        let engine = self.engine().clone();
        let news = self.inbox.take();
        let shared = self.shared.clone();
        let mut state = shared.state();
        let renewed = std::mem::take(&mut state.news);
        if renewed {
            self.renew_share(&mut state);
        }
        let mut pass = Absorption::new(&engine, &mut state);
        for key in &news.tasks {
            pass.state.view.doubt(key, pass.now);
        }
        for (session, seen) in news.sightings {
            pass.state.learn_of(session, &seen);
            if Some(session) != pass.own && pass.state.view.session(session).is_some() {
                pass.changed |= pass.state.view.saw(session, &seen, pass.now, pass.store_now);
            }
        }
        for key in news.queues {
            if let Some(TaskWork::Has(worker)) = pass.state.mine.get(&key) {
                worker.queue.notify_waiters();
            }
        }
        let Absorption { now, mut changed, .. } = pass;
        changed |= renewed;
        if startup::admit(&engine, &mut state, now) {
            changed = true;
            self.renew_share(&mut state);
        }
        drop(state);
        self.ask.everything |= news.resync;
        self.ask.sessions.extend(news.sessions);
        self.ask.tasks.extend(news.tasks);
        if changed {
            self.mark_changed();
        }
    }
}

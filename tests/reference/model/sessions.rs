use tenure::{
    model::{Holder, SessionId, StoreTime, Why},
    store::{
        About, Beat, BeatWrite, Death, Declaration, Drained, Evidence, Nonce, Open, Request, SessionRecord,
        SessionSeen, Share,
    },
};

use super::{Check, Model, Once, ensure};

/// A session, from its opening to its grave.
#[derive(Debug)]
pub(crate) struct Life {
    /// As it was opened; nothing for a tombstone.
    opening: Option<Open>,
    pub(crate) shares: Vec<Share>,
    pub(crate) requests: Vec<Request>,
    /// The order to drain; its time is the store's.
    pub(crate) drained: Option<(Holder, Why)>,
    /// The last beat that counted.
    pub(crate) beat: Beat,
    pub(crate) nonce: Nonce,
    beat_at: Once<StoreTime>,
    stalled_since: Option<StoreTime>,
    /// The clock's turns at that beat.
    beat_turns: u64,
    started: Once<StoreTime>,
    death: Option<(Holder, Why)>,
    /// Record as it was when it was first found dead: so it stays.
    grave: Once<SessionRecord>,
}

impl Life {
    pub(crate) fn is_dead(&self) -> bool {
        self.death.is_some()
    }

    fn expected(&self, id: SessionId, seen: &SessionRecord) -> Result<SessionRecord, String> {
        let Some(open) = self.opening.as_ref() else {
            // The tombstone's other fields are the store's to choose.
            return Ok(seen.clone());
        };
        ensure!(open.session == id, "the model mixes up sessions");
        let death = match (&self.death, &seen.death) {
            (None, _) => None,
            (Some((by, why)), seen) => {
                let at = seen.as_ref().map_or(StoreTime::from_millis(0), |death| death.at);
                Some(Death { at, by: by.clone(), why: why.clone() })
            }
        };
        let mut expected = SessionRecord::opened(id, open.about.clone(), self.nonce, open.ttl, seen.started);
        expected.beat = self.beat;
        expected.beat_at = seen.beat_at;
        expected.stalled_since = self.stalled_since;
        expected.death = death;
        expected.shares.clone_from(&self.shares);
        expected.requests.clone_from(&self.requests);
        let since = seen.drained.as_ref().map_or(seen.started, |order| order.since);
        expected.drained = self.drained.clone().map(|(by, why)| Drained { by, since, why });
        Ok(expected)
    }

    /// Checks that the record is that of this life.
    pub(crate) fn meet(&mut self, id: SessionId, seen: &SessionRecord) -> Check {
        let expected = self.expected(id, seen)?;
        ensure!(expected == *seen, "session {id} must be {expected:?}, and is {seen:?}");
        self.started.meet("the start of a session", &seen.started)?;
        self.beat_at.meet("the time of a beat", &seen.beat_at)?;
        if let Some((by, why)) = &self.death {
            let death = seen.death.as_ref().map(|death| (&death.by, &death.why));
            ensure!(death == Some((by, why)), "session {id} died by {by}, not {death:?}");
            self.grave.meet("a dead session", seen)?;
        }
        Ok(())
    }
}

impl Model {
    pub(crate) fn sighting(&mut self, id: SessionId, seen: &SessionSeen) -> Check {
        let Some(life) = self.lives.get_mut(&id) else {
            ensure!(*seen == SessionSeen::Missing, "session {id} was never opened, and is {seen:?}");
            return Ok(());
        };
        match seen {
            SessionSeen::Alive(record) if !life.is_dead() => life.meet(id, record),
            SessionSeen::Dead(record) if life.is_dead() => life.meet(id, record),
            other => Err(format!("session {id} must be {life:?}, and is {other:?}")),
        }
    }

    pub(crate) fn open(&mut self, open: &Open, answer: &SessionSeen) -> Check {
        let turns = self.turns;
        self.lives.entry(open.session).or_insert_with(|| Life {
            opening: Some(open.clone()),
            shares: open.shares.clone(),
            requests: Vec::new(),
            drained: open.drained.clone().map(|order| (order.by, order.why)),
            beat: Beat::new(0),
            nonce: open.nonce,
            beat_at: Once::default(),
            stalled_since: None,
            beat_turns: turns,
            started: Once::default(),
            death: None,
            grave: Once::default(),
        });
        self.sighting(open.session, answer)
    }

    pub(crate) fn beat(&mut self, write: &BeatWrite, answer: &SessionSeen) -> Check {
        if let Some(life) = self.lives.get_mut(&write.session)
            && !life.is_dead()
            && write.beat > life.beat
        {
            (life.beat, life.nonce, life.stalled_since) = (write.beat, write.nonce, write.stalled_since);
            (life.beat_at, life.beat_turns) = (Once::default(), self.turns);
            if let Some(shares) = &write.shares {
                life.shares.clone_from(shares);
            }
            for (lock, term) in &write.heard {
                life.requests.retain(|request| !(request.lock == *lock && request.term == *term));
            }
        }
        self.sighting(write.session, answer)
    }

    pub(crate) fn declare(&mut self, declaration: &Declaration, answer: &SessionSeen) -> Check {
        let Declaration { session, ground, by, why, tell: _ } = declaration;
        let death = Some((by.clone(), why.clone()));
        match (self.lives.get_mut(session), ground) {
            (None, Evidence::Missing { namespace, holder, ttl }) => {
                let SessionSeen::Dead(record) = answer else {
                    return Err(format!("missing session {session} must get a tombstone, not {answer:?}"));
                };
                let About { namespace: found, holder: name, .. } = &record.about;
                ensure!((found, name) == (namespace, holder), "a tombstone of another: {record:?}");
                ensure!(record.ttl == *ttl && record.id == *session, "a tombstone of another: {record:?}");
                ensure!(
                    record.requests.is_empty() && record.shares.is_empty(),
                    "a busy tombstone: {record:?}"
                );
                let life = Life {
                    opening: None,
                    shares: Vec::new(),
                    requests: Vec::new(),
                    drained: None,
                    beat: record.beat,
                    nonce: record.nonce,
                    beat_at: Once::default(),
                    stalled_since: record.stalled_since,
                    beat_turns: self.turns,
                    started: Once::default(),
                    death,
                    grave: Once::default(),
                };
                self.lives.insert(*session, life);
            }
            (Some(life), ground) if !life.is_dead() => {
                let holds = match ground {
                    Evidence::Unbeaten { nonce } => *nonce == life.nonce,
                    Evidence::Operator => true,
                    _ => false,
                };
                if holds {
                    life.death = death;
                }
            }
            _ => {}
        }
        self.sighting(*session, answer)
    }

    /// After a purge that keeps nothing: whoever is gone was dead, and no lock names it.
    pub(crate) fn purged_session(&mut self, id: SessionId, seen: &SessionSeen) -> Check {
        if *seen != SessionSeen::Missing {
            return self.sighting(id, seen);
        }
        let dead = self.lives.get(&id).is_some_and(Life::is_dead);
        ensure!(dead, "session {id} was purged, and was not dead");
        let named = self.locks.values().any(|lock| lock.holder().is_some_and(|by| by.session == id));
        ensure!(!named, "session {id} was purged, and a lock names it");
        self.lives.remove(&id);
        *self.met.entry("purge: session".to_owned()).or_default() += 1;
        self.queue.retain(|place| place.by.session != id);
        Ok(())
    }
}

//! Sessions: opened, beaten, observed, declared dead, listed.

use std::time::Duration;

use super::{State, page};
use crate::{
    model::{About, Death, Holder, Namespace, Nonce, SessionId, SessionRecord},
    store::{BeatWrite, Bell, Cursor, Declaration, Evidence, Open, Page, SessionSeen},
};

impl State {
    pub(super) fn open(&self, open: Open) -> SessionSeen {
        let now = self.clock.wall();
        let mut records = self.records();
        let record = records.sessions.entry(open.session).or_insert_with(|| {
            let opened = SessionRecord::opened(open.session, open.about, open.nonce, open.ttl, now);
            let record = SessionRecord { shares: open.shares, ..opened };
            self.ring_of_member(&record);
            record
        });
        SessionSeen::of(record.clone())
    }

    pub(super) fn beat(&self, write: BeatWrite) -> SessionSeen {
        let now = self.clock.wall();
        let mut records = self.records();
        let Some(record) = records.sessions.get_mut(&write.session) else { return SessionSeen::Missing };
        if record.is_alive() && write.beat > record.beat {
            record.beat = write.beat;
            record.nonce = write.nonce;
            record.beat_at = now;
            record
                .requests
                .retain(|request| !write.heard.iter().any(|(lock, term)| request.is_about(lock, *term)));
            if let Some(shares) = write.shares
                && shares != record.shares
            {
                record.shares = shares;
                self.ring_of_member(record);
                self.ring(Bell::member(&record.about.namespace, record.id, &write.left));
            }
        }
        SessionSeen::of(record.clone())
    }

    pub(super) fn observe(&self, sessions: Vec<SessionId>) -> Vec<SessionSeen> {
        let records = self.records();
        let seen = |id| records.sessions.get(id).cloned().map_or(SessionSeen::Missing, SessionSeen::of);
        sessions.iter().map(seen).collect()
    }

    pub(super) fn declare(&self, declaration: Declaration) -> SessionSeen {
        let now = self.clock.wall();
        let mut records = self.records();
        let Declaration { session, ground, by, why, tell } = declaration;
        let death = Death { at: now, by, why };
        let Some(record) = records.sessions.get_mut(&session) else {
            let Evidence::Missing { namespace, holder, ttl } = ground else { return SessionSeen::Missing };
            let tombstone = tombstone(session, namespace, holder, ttl, death);
            self.ring(Bell::died(&tombstone, &tell));
            records.sessions.insert(session, tombstone.clone());
            return SessionSeen::Dead(tombstone);
        };
        let holds = match ground {
            Evidence::Unbeaten { nonce } => record.nonce == nonce,
            Evidence::Missing { .. } => false,
            Evidence::Operator => true,
        };
        if record.is_alive() && holds {
            record.death = Some(death);
            self.ring(Bell::died(record, &tell));
        }
        SessionSeen::of(record.clone())
    }

    pub(super) fn sessions(
        &self,
        namespace: Namespace,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Page<SessionRecord> {
        let records = self.records();
        let all = records.sessions.values().filter(|session| session.about.namespace == namespace);
        page(all.map(|s| (s.id.to_string().into_bytes(), s.clone())), after.as_ref(), at_most)
    }
}

/// Tombstone of a session that was never seen.
fn tombstone(
    id: SessionId,
    namespace: Namespace,
    holder: Holder,
    ttl: Duration,
    death: Death,
) -> SessionRecord {
    let about = About::new(namespace, holder);
    let opened = SessionRecord::opened(id, about, Nonce::new(0), ttl, death.at);
    SessionRecord { death: Some(death), ..opened }
}

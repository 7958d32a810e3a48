//! Sessions: opened, beaten, observed, declared dead, listed.

use std::time::Duration;

use super::{Rows, Step, and_one, each, kept, kept_shares, page};
use crate::{
    model::{Holder, Namespace, SessionId},
    store::{
        About, BeatWrite, Bell, Cursor, Death, Declaration, Evidence, Nonce, Open, Page, SessionRecord,
        SessionSeen,
    },
};

/// The locks of a dead session that are read at a time.
const TOLD_AT_ONCE: usize = 500;
/// The places in the queue of a dead session that are given up at once; a purge finds the others.
const PLACES_AT_ONCE: usize = 10_000;
/// More bells than a store keeps are a gap, after which a listener looks everywhere.
const BELLS_KEPT: usize = 4096;
/// The waiters in the queue of each lock that are notified: the first may have died with it.
const FIRST_IN_QUEUE: usize = 4;

impl<R: Rows> Step<'_, R> {
    pub(in crate::store) fn open(&mut self, open: Open) -> Result<SessionSeen, R::Failure> {
        match self.rows.session(open.session)? {
            Err(refusal) => return Ok(SessionSeen::Refused(refusal)),
            Ok(Some(record)) => return Ok(SessionSeen::of(record)),
            Ok(None) => {}
        }
        let opened = SessionRecord::opened(open.session, open.about, open.nonce, kept(open.ttl), self.now);
        let record = SessionRecord { shares: kept_shares(open.shares), drained: open.drained, ..opened };
        self.rows.put_session(&record)?;
        self.ring_of_member(&record);
        Ok(SessionSeen::of(record))
    }

    pub(in crate::store) fn beat(&mut self, write: BeatWrite) -> Result<SessionSeen, R::Failure> {
        let mut record = match self.rows.session(write.session)? {
            Err(refusal) => return Ok(SessionSeen::Refused(refusal)),
            Ok(None) => return Ok(SessionSeen::Missing),
            Ok(Some(record)) => record,
        };
        if record.is_alive() && write.beat > record.beat {
            record.beat = write.beat;
            record.nonce = write.nonce;
            record.beat_at = self.now;
            record.stalled_since = write.stalled_since;
            record
                .requests
                .retain(|request| !write.heard.iter().any(|(lock, term)| request.is_about(lock, *term)));
            if let Some(shares) = write.shares.map(kept_shares)
                && shares != record.shares
            {
                record.shares = shares;
                self.ring_of_member(&record);
                self.ring(Bell::member(&record.about.namespace, record.id, &write.left));
            }
            self.rows.put_session(&record)?;
        }
        Ok(SessionSeen::of(record))
    }

    pub(in crate::store) fn observe(
        &mut self,
        sessions: Vec<SessionId>,
    ) -> Result<Vec<SessionSeen>, R::Failure> {
        each(sessions, |id| {
            Ok(match self.rows.session(id)? {
                Ok(found) => found.map_or(SessionSeen::Missing, SessionSeen::of),
                Err(refusal) => SessionSeen::Refused(refusal),
            })
        })
    }

    pub(in crate::store) fn declare(&mut self, declaration: Declaration) -> Result<SessionSeen, R::Failure> {
        let Declaration { session, ground, by, why, tell } = declaration;
        let death = Death { at: self.now, by, why };
        let known = match self.rows.session(session)? {
            Err(refusal) => return Ok(SessionSeen::Refused(refusal)),
            Ok(known) => known,
        };
        let record = match (known, ground) {
            (None, Evidence::Missing { namespace, holder, ttl }) => {
                tombstone(session, namespace, holder, kept(ttl), death)
            }
            (None, Evidence::Unbeaten { .. } | Evidence::Gone | Evidence::Operator) => {
                return Ok(SessionSeen::Missing);
            }
            (Some(record), ground) => {
                let holds = match ground {
                    Evidence::Unbeaten { nonce } => record.nonce == nonce,
                    Evidence::Missing { .. } => false,
                    Evidence::Gone => record.is_alive() && self.rows.is_gone(session)?,
                    Evidence::Operator => true,
                };
                if !record.is_alive() || !holds {
                    return Ok(SessionSeen::of(record));
                }
                if ground == Evidence::Gone {
                    // First: a queue whose head is dead would be told to no living session.
                    self.rows.delete_waiters_of(session, PLACES_AT_ONCE)?;
                    self.ring_of_what_it_held(session)?;
                }
                SessionRecord { death: Some(death), ..record }
            }
        };
        self.rows.put_session(&record)?;
        self.ring(Bell::died(&record, &tell));
        Ok(SessionSeen::of(record))
    }

    /// Rings for the locks of a session that is proven dead: no other instance declares it dead and takes them.
    fn ring_of_what_it_held(&mut self, dead: SessionId) -> Result<(), R::Failure> {
        let mut after = None;
        loop {
            let page = self.rows.held_by(dead, after.as_deref(), TOLD_AT_ONCE)?;
            let last =
                if page.len() < TOLD_AT_ONCE { None } else { page.last().map(|row| row.place.clone()) };
            for held in page.into_iter().filter_map(|row| row.record.ok()) {
                let queue = self.rows.queue(&held.lock, FIRST_IN_QUEUE)?.waiters;
                let queue: Vec<_> = queue.iter().map(|waiter| waiter.by.session).collect();
                self.ring(Bell::bereft(&held.lock, dead, &queue));
            }
            after = last;
            if after.is_none() || self.bells.len() > BELLS_KEPT {
                return Ok(());
            }
        }
    }

    pub(in crate::store) fn sessions(
        &mut self,
        namespace: Namespace,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<SessionRecord>, R::Failure> {
        let after = after.as_ref().map(Cursor::place);
        Ok(page(self.rows.sessions(&namespace, after, and_one(at_most))?, at_most))
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

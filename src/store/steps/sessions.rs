//! Sessions: opened, beaten, observed, declared dead, listed.

use std::time::Duration;

use super::{Rows, Step, and_one, each, kept, kept_shares, page};
use crate::{
    model::{About, Death, Holder, Namespace, Nonce, SessionId, SessionRecord},
    store::{BeatWrite, Bell, Cursor, Declaration, Evidence, Open, Page, SessionSeen},
};

impl<R: Rows> Step<'_, R> {
    pub(in crate::store) fn open(&mut self, open: Open) -> Result<SessionSeen, R::Failure> {
        match self.rows.session(open.session)? {
            Err(refusal) => return Ok(SessionSeen::Refused(refusal)),
            Ok(Some(record)) => return Ok(SessionSeen::of(record)),
            Ok(None) => {}
        }
        let opened = SessionRecord::opened(open.session, open.about, open.nonce, kept(open.ttl), self.now);
        let record = SessionRecord { shares: kept_shares(open.shares), ..opened };
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
            (None, Evidence::Unbeaten { .. } | Evidence::Operator) => return Ok(SessionSeen::Missing),
            (Some(record), ground) => {
                let holds = match ground {
                    Evidence::Unbeaten { nonce } => record.nonce == nonce,
                    Evidence::Missing { .. } => false,
                    Evidence::Operator => true,
                };
                if !record.is_alive() || !holds {
                    return Ok(SessionSeen::of(record));
                }
                SessionRecord { death: Some(death), ..record }
            }
        };
        self.rows.put_session(&record)?;
        self.ring(Bell::died(&record, &tell));
        Ok(SessionSeen::of(record))
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

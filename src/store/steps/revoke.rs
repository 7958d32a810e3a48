//! Revocations: what an operator wants of a session, or of a lock.

use super::{Change, Rows, Step};
use crate::{
    model::{Holder, SessionId, Why},
    store::{Bell, Drained, Ended, MAX_REQUESTS, Refusal, Request, Revocation, RevokeAnswer, Topic},
};

impl<R: Rows> Step<'_, R> {
    pub(in crate::store) fn revoke(&mut self, revocation: Revocation) -> Result<RevokeAnswer, R::Failure> {
        match revocation {
            Revocation::Ask { session, request } => self.ask(session, request),
            Revocation::Drain { session, order, tell } => self.drain(session, order, &tell),
            Revocation::Force(request) => self.force(request),
            Revocation::Reopen(request) => self.reopen(request),
        }
    }

    fn ask(&mut self, session: SessionId, request: Request) -> Result<RevokeAnswer, R::Failure> {
        let mut record = match self.rows.session(session)? {
            Err(refusal) => return Ok(RevokeAnswer::Refused(refusal)),
            Ok(Some(record)) if record.is_alive() => record,
            Ok(_) => return Ok(RevokeAnswer::NotHeld),
        };
        if record.has_request(&request) {
            return Ok(RevokeAnswer::Asked);
        }
        if record.requests.len() >= MAX_REQUESTS {
            let full = Refusal::Full { what: "requests", most: MAX_REQUESTS };
            return Ok(RevokeAnswer::Refused(full));
        }
        self.ring([Bell::asked(session, &request.lock)]);
        record.requests.push(request);
        self.rows.put_session(&record)?;
        Ok(RevokeAnswer::Asked)
    }

    fn drain(
        &mut self,
        session: SessionId,
        order: Option<(Holder, Why)>,
        tell: &Topic,
    ) -> Result<RevokeAnswer, R::Failure> {
        let mut record = match self.rows.session(session)? {
            Err(refusal) => return Ok(RevokeAnswer::Refused(refusal)),
            Ok(Some(record)) if record.is_alive() => record,
            Ok(_) => return Ok(RevokeAnswer::NotHeld),
        };
        let since = self.now;
        record.drained = order.map(|(by, why)| Drained { by, since, why });
        self.rows.put_session(&record)?;
        self.ring([Bell::ordered(session, tell)]);
        Ok(RevokeAnswer::Asked)
    }

    fn force(&mut self, request: Request) -> Result<RevokeAnswer, R::Failure> {
        let now = self.now;
        let forced = self.rows.change_lock(&request.lock, |record| {
            if record.term != request.term {
                return Change::Keep((None, false));
            }
            let is_held = record.holding.is_some();
            record.end(now, Ended::Forced, Some(request.note()));
            let freed = record.was_forced_from(request.term).then(|| record.clone());
            if is_held { Change::Put((freed, true)) } else { Change::Keep((freed, false)) }
        })?;
        let (freed, has_changed) = match forced {
            Err(refusal) => return Ok(RevokeAnswer::Refused(refusal)),
            Ok(forced) => forced.unwrap_or_default(),
        };
        if has_changed {
            self.ring(Bell::revoked(&request.lock));
        }
        Ok(freed.map_or(RevokeAnswer::NotHeld, RevokeAnswer::Freed))
    }

    fn reopen(&mut self, request: Request) -> Result<RevokeAnswer, R::Failure> {
        let opened = self.rows.change_lock(&request.lock, |record| {
            if !record.was_left_by(request.term) {
                return Change::Keep((None, false));
            }
            let was_closed = record.closed.take().is_some();
            let freed = Some(record.clone());
            if was_closed { Change::Put((freed, true)) } else { Change::Keep((freed, false)) }
        })?;
        let (freed, has_changed) = match opened {
            Err(refusal) => return Ok(RevokeAnswer::Refused(refusal)),
            Ok(opened) => opened.unwrap_or_default(),
        };
        if has_changed {
            self.ring(Bell::changed(&request.lock));
        }
        Ok(freed.map_or(RevokeAnswer::NotHeld, RevokeAnswer::Freed))
    }
}

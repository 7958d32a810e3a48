//! Revocations: what an operator wants of a session, or of a lock.

use super::State;
use crate::{
    model::Ended,
    store::{Bell, MAX_REQUESTS, Refusal, Revocation, RevokeAnswer},
};

impl State {
    pub(super) fn revoke(&self, revocation: Revocation) -> RevokeAnswer {
        let now = self.clock.wall();
        let mut records = self.records();
        match revocation {
            Revocation::Ask { session, request } => {
                let Some(record) = records.sessions.get_mut(&session).filter(|record| record.is_alive())
                else {
                    return RevokeAnswer::NotHeld;
                };
                if record.has_request(&request) {
                    return RevokeAnswer::Asked;
                }
                if record.requests.len() >= MAX_REQUESTS {
                    return RevokeAnswer::Refused(Refusal::Full { what: "requests", most: MAX_REQUESTS });
                }
                self.ring([Bell::asked(session, &request.lock)]);
                record.requests.push(request);
                RevokeAnswer::Asked
            }
            Revocation::Force(request) => {
                let Some(record) = records.locks.get_mut(&request.lock) else { return RevokeAnswer::NotHeld };
                if record.term != request.term {
                    return RevokeAnswer::NotHeld;
                }
                if record.holding.is_some() {
                    record.end(now, Ended::Forced, Some(request.note()));
                    self.ring(Bell::revoked(&record.id));
                }
                if record.was_forced_from(request.term) {
                    RevokeAnswer::Freed(record.clone())
                } else {
                    RevokeAnswer::NotHeld
                }
            }
            Revocation::Reopen(request) => {
                let Some(record) = records.locks.get_mut(&request.lock) else { return RevokeAnswer::NotHeld };
                if !record.was_left_by(request.term) {
                    return RevokeAnswer::NotHeld;
                }
                if record.closed.take().is_some() {
                    self.ring(Bell::changed(&record.id));
                }
                RevokeAnswer::Freed(record.clone())
            }
        }
    }
}

//! The queue before a lock.

use super::{Change, Rows, Step, each, kept_candidate};
use crate::{
    model::{LockId, SessionId},
    store::{Bell, Queue, Ticket, Wait, Waiter},
};

impl<R: Rows> Step<'_, R> {
    pub(in crate::store) fn wait(&mut self, waits: Vec<Wait>) -> Result<(), R::Failure> {
        waits.into_iter().try_for_each(|wait| self.wait_for(wait))
    }

    fn wait_for(&mut self, Wait { lock, by }: Wait) -> Result<(), R::Failure> {
        if lock.kind.spread().is_none() {
            // A lock that cannot be read may be waited for, too.
            let _marked = self.rows.change_lock(&lock, |record| {
                if record.holding.is_none() || record.wanted {
                    return Change::Keep(());
                }
                record.wanted = true;
                Change::Put(())
            })?;
        }
        let place = (lock, by.session, by.ticket);
        if !self.rows.has_waiter(&place)? {
            let (lock, ..) = place;
            self.ring(Bell::queue(&lock));
            self.rows.put_waiter(&Waiter { lock, by: kept_candidate(by), since: self.now })?;
        }
        Ok(())
    }

    pub(in crate::store) fn stop_waiting(
        &mut self,
        waits: Vec<(LockId, SessionId, Ticket)>,
    ) -> Result<(), R::Failure> {
        waits.iter().try_for_each(|place| self.rows.delete_waiter(place))
    }

    pub(in crate::store) fn waiters(&mut self, lock: LockId, at_most: usize) -> Result<Queue, R::Failure> {
        self.rows.queue(&lock, at_most)
    }

    pub(in crate::store) fn places(
        &mut self,
        places: Vec<(LockId, SessionId, Ticket)>,
    ) -> Result<Vec<bool>, R::Failure> {
        each(places, |place| self.rows.has_waiter(&place))
    }
}

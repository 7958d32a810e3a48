//! Delay of hints, measured on the takes of this instance.
//!
//! It is the time from sending a take to the hint of its grant, both by the instance's own clock: whatever
//! clock the store uses, and however many servers are in between, no other machine's time is involved.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    clock::Moment,
    model::{LockId, SessionId, Ticket},
    sync::locked,
};

/// Most takes that are remembered. A hint may be lost: the oldest take is forgotten.
const KEPT: usize = 1024;

type TakeId = (LockId, SessionId, Ticket);

/// Takes whose hint has not arrived yet.
#[derive(Debug, Default)]
pub(crate) struct Echoes {
    registry: Mutex<EchoRegistry>,
}

#[derive(Debug, Default)]
struct EchoRegistry {
    sent: BTreeMap<TakeId, (u64, Moment)>,
    order: VecDeque<(u64, TakeId)>,
    next: u64,
}

impl EchoRegistry {
    fn waits_for(&self, number: u64, take: &TakeId) -> bool {
        self.sent.get(take).is_some_and(|(known, _)| *known == number)
    }

    /// Removes a take, and returns when it was sent. Entries at the front that are no longer awaited are
    /// removed from the order.
    fn remove(&mut self, take: &TakeId) -> Option<Moment> {
        let (_, sent) = self.sent.remove(take)?;
        while self.order.front().is_some_and(|(number, take)| !self.waits_for(*number, take)) {
            self.order.pop_front();
        }
        Some(sent)
    }
}

impl Echoes {
    fn registry(&self) -> MutexGuard<'_, EchoRegistry> {
        locked(&self.registry)
    }

    /// Records a take. One that is sent again counts from its first sending.
    pub(crate) fn sent(&self, take: TakeId, now: Moment) {
        let mut registry = self.registry();
        if registry.sent.contains_key(&take) {
            return;
        }
        let number = registry.next;
        registry.next += 1;
        registry.sent.insert(take.clone(), (number, now));
        registry.order.push_back((number, take));
        if registry.order.len() > KEPT {
            let forgotten = registry.order.pop_front();
            if let Some((_, take)) = forgotten.filter(|(number, take)| registry.waits_for(*number, take)) {
                registry.sent.remove(&take);
            }
        }
    }

    /// Forgets a take that was answered without a grant: no hint follows.
    pub(crate) fn lost(&self, take: &TakeId) {
        self.registry().remove(take);
    }

    /// Records the hint of a grant. Returns how long it took, if the take is known.
    pub(crate) fn heard(&self, take: &TakeId, now: Moment) -> Option<Duration> {
        self.registry().remove(take).map(|sent| now.since(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    fn at(millis: u64) -> Moment {
        Moment::after_start(Duration::from_millis(millis))
    }

    fn take(ticket: u64) -> TakeId {
        let lock = LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: "k".parse().unwrap() };
        (lock, SessionId::from_u128(7), Ticket::new(ticket))
    }

    #[test]
    fn the_time_counts_from_the_first_sending_and_each_grant_once() {
        let echoes = Echoes::default();
        echoes.sent(take(1), at(100));
        echoes.sent(take(1), at(200));
        assert_eq!(echoes.heard(&take(1), at(350)), Some(Duration::from_millis(250)));
        assert_eq!(echoes.heard(&take(1), at(360)), None, "a hint that comes twice is one");
    }

    #[test]
    fn what_was_lost_or_never_heard_of_is_not_kept() {
        let echoes = Echoes::default();
        echoes.sent(take(0), at(0));
        echoes.lost(&take(0));
        assert_eq!(echoes.heard(&take(0), at(1)), None);
        assert!(echoes.registry().order.is_empty(), "nothing of it stays");
        for ticket in 1..5000 {
            echoes.sent(take(ticket), at(ticket));
        }
        let registry = echoes.registry();
        assert!(
            registry.sent.len() <= KEPT && registry.order.len() <= KEPT,
            "{} {}",
            registry.sent.len(),
            registry.order.len()
        );
    }
}

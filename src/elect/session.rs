//! Session of this instance, as the whole process sees it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::hold::LeaseCell;
use crate::{
    clock::Moment,
    logic::{
        flaw::{Flaw, Flaws},
        session::Times,
    },
    model::{LockId, Loss, SessionId, StoreTime, Term},
    store::{MAX_REQUESTS, Presence, Request, Ticket},
    sync::locked,
};

/// Session of this instance, alive or over. Its validity is computed from the clock at each call: no caller
/// has to be notified that it is over.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) times: Times,
    pub(crate) flaws: Flaws,
    /// The local end (R2), in nanoseconds of the clock. Only grows.
    end: AtomicU64,
    /// Time by which its keeper looks at the clock, in the same unit.
    looks_by: AtomicU64,
    over: OnceLock<Loss>,
    reported: AtomicBool,
    /// Set while the session is expiring, with the loss its jobs were cancelled with; a confirmed heartbeat
    /// clears it for new jobs.
    expiring: Mutex<Option<Loss>>,
    /// Revocations by operators of locks that are not known here (yet).
    asked: Mutex<Vec<Request>>,
    next_ticket: AtomicU64,
    first_ticket: u64,
    leases: Mutex<BTreeMap<Ticket, Arc<LeaseCell>>>,
    /// Number of leases that have not ended.
    inside: watch::Sender<usize>,
    /// Time of its opening, by the store's clock.
    started: OnceLock<StoreTime>,
    /// Kept until it is over in the store, too. Each lease keeps it for itself until nothing runs under it.
    presence: Mutex<Option<Presence>>,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        times: Times,
        flaws: Flaws,
        first_ticket: u64,
        presence: Option<Presence>,
    ) -> Self {
        Self {
            id,
            times,
            flaws,
            end: AtomicU64::new(0),
            looks_by: AtomicU64::new(u64::MAX),
            over: OnceLock::new(),
            reported: AtomicBool::new(false),
            expiring: Mutex::default(),
            asked: Mutex::default(),
            next_ticket: AtomicU64::new(first_ticket),
            first_ticket,
            leases: Mutex::default(),
            inside: watch::Sender::new(0),
            started: OnceLock::new(),
            presence: Mutex::new(presence),
        }
    }

    pub(crate) fn end(&self) -> Moment {
        let end = moment(&self.end);
        if self.flaws.has(Flaw::EndIncluded) {
            return end + Duration::from_nanos(1);
        }
        if self.flaws.has(Flaw::LateEnd) { end + self.times.stop_grace * 2 } else { end }
    }

    /// Extends the session, as a heartbeat was confirmed.
    pub(crate) fn extend(&self, end: Moment) {
        self.end.fetch_max(nanos(end), Ordering::AcqRel);
    }

    fn expiring(&self) -> MutexGuard<'_, Option<Loss>> {
        locked(&self.expiring)
    }

    /// Returns whether the end is so near that a new job would be cancelled at once.
    pub(crate) fn is_expiring(&self) -> bool {
        self.expiring().is_some()
    }

    /// Clears the mark that the session is expiring: jobs may begin. Returns whether it was set.
    pub(crate) fn clear_expiring(&self) -> bool {
        self.expiring().take().is_some()
    }

    /// Records that the keeper will look at the clock by then, if this process runs.
    pub(crate) fn looks_by(&self, at: Moment) {
        self.looks_by.store(nanos(at), Ordering::Release);
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        self.over.get().is_none() && now < self.end()
    }

    /// Returns why it is over, if it is.
    pub(crate) fn loss(&self, now: Moment) -> Option<Loss> {
        if let Some(loss) = self.over.get() {
            return Some(loss.clone());
        }
        let end = self.end();
        (now >= end).then(|| Loss::Expired {
            unreachable_for: self.times.validity() + now.since(end),
            not_running_for: now.since(moment(&self.looks_by)),
        })
    }

    /// Returns when what runs under it is to be told to stop, unless the end moves.
    pub(crate) fn told_at(&self) -> Moment {
        let early = if self.flaws.has(Flaw::NoEarlyCancel) { Duration::ZERO } else { self.times.stop_grace };
        self.end() - early
    }

    /// Returns why what runs under it is to be told to stop, from then on (R9).
    pub(crate) fn due(&self, now: Moment) -> Option<Loss> {
        let at = self.told_at();
        let early = self.end().since(at);
        (now >= at).then(|| Loss::Expired {
            unreachable_for: self.times.validity().saturating_sub(early) + now.since(at),
            not_running_for: now.since(moment(&self.looks_by)),
        })
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        if self.is_valid(now) { self.end().since(now) } else { Duration::ZERO }
    }

    pub(crate) fn next_ticket(&self) -> Ticket {
        Ticket::new(self.next_ticket.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns whether no ticket was ever drawn: then it holds nothing.
    pub(crate) fn was_idle(&self) -> bool {
        self.next_ticket.load(Ordering::Relaxed) == self.first_ticket
    }

    // ----- its leases

    fn leases(&self) -> MutexGuard<'_, BTreeMap<Ticket, Arc<LeaseCell>>> {
        locked(&self.leases)
    }

    /// Registers a lease, unless the session is expiring or over. Calls `report` if it does, before the lease
    /// can be cancelled. Returns whether it did.
    pub(crate) fn enter(&self, lease: &Arc<LeaseCell>, now: Moment, report: impl FnOnce()) -> bool {
        {
            // Held until the lease is among those that are cancelled when the session expires.
            let expiring = self.expiring();
            let over = !self.is_valid(now) && !self.flaws.has(Flaw::LateAnswer);
            if expiring.is_some() || over {
                return false;
            }
            report();
            let mut leases = self.leases();
            leases.insert(lease.ticket, lease.clone());
            self.inside.send_replace(leases.len());
        }
        super::time::wake();
        // A loss that all leases were told of just before has not reached this one.
        if let Some(loss) = self.over.get() {
            lease.cut(loss);
            return true;
        }
        let revoked = {
            let mut asked = locked(&self.asked);
            let place = asked.iter().position(|request| request.is_about(&lease.lock, lease.term));
            place.map(|place| asked.swap_remove(place))
        };
        if let Some(request) = revoked {
            lease.cancel(&Loss::Revoked { by: request.by, why: request.why });
        }
        true
    }

    /// Records a revocation of a lock that is not known here: it may be granted already, with the answer on
    /// its way.
    pub(crate) fn ask(&self, request: Request) {
        let mut asked = locked(&self.asked);
        if asked.len() == MAX_REQUESTS {
            asked.remove(0);
        }
        asked.push(request);
    }

    pub(crate) fn left(&self, ticket: Ticket) {
        let mut leases = self.leases();
        leases.remove(&ticket);
        self.inside.send_replace(leases.len());
    }

    /// Waits until nothing runs under it any more.
    pub(crate) async fn emptied(&self) {
        let mut inside = self.inside.subscribe();
        // The sender is in self.
        let _ = inside.wait_for(|inside| *inside == 0).await;
    }

    pub(crate) fn inside(&self) -> usize {
        *self.inside.borrow()
    }

    /// Marks the session as expiring, and cancels every job.
    pub(crate) fn cancel_all(&self, loss: &Loss) {
        *self.expiring() = Some(loss.clone());
        let leases: Vec<_> = self.leases().values().cloned().collect();
        // All of them know it before the first is woken: its waker may take any time.
        for lease in &leases {
            lease.mark_cancelled(loss);
        }
        for lease in &leases {
            lease.wake();
        }
    }

    /// Ends the session: no job is polled again. Returns whether this was the first to do so.
    pub(crate) fn finish(&self, loss: &Loss) -> bool {
        self.over.set(loss.clone()).is_ok()
    }

    /// Returns whether its end was not reported before. It is, by this.
    pub(crate) fn is_news(&self) -> bool {
        !self.reported.swap(true, Ordering::AcqRel)
    }

    /// Returns whether it was ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get().is_some()
    }

    /// Cuts all its leases, as it is over.
    pub(crate) fn cut_all(&self, loss: &Loss) {
        let leases: Vec<_> = self.leases().values().cloned().collect();
        for lease in &leases {
            lease.mark_cut(loss);
        }
        for lease in &leases {
            lease.wake();
        }
    }

    /// Returns the lease of this lock under this term.
    pub(crate) fn lease(&self, lock: &LockId, term: Term) -> Option<Arc<LeaseCell>> {
        self.leases().values().find(|lease| lease.lock == *lock && lease.term == term).cloned()
    }

    // ----- its presence

    /// Returns what has to be kept as long as something may run under it.
    pub(super) fn presence(&self) -> Option<Presence> {
        locked(&self.presence).clone()
    }

    /// Keeps its presence no longer: it is over, and nothing begins under it any more.
    pub(super) fn let_go(&self) {
        let presence = locked(&self.presence).take();
        drop(presence);
    }

    // ----- the store's time

    /// Records when it was opened, as its record says.
    pub(crate) fn opened(&self, at: StoreTime) {
        // It says the same each time.
        let _ = self.started.set(at);
    }

    /// Returns when it was opened, by the store's clock; the beginning of time, until that is known.
    pub(crate) fn started(&self) -> StoreTime {
        self.started.get().copied().unwrap_or(StoreTime::from_millis(0))
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since(Moment::after_start(Duration::ZERO)).as_nanos()).unwrap_or(u64::MAX)
}

fn moment(nanos: &AtomicU64) -> Moment {
    Moment::after_start(Duration::from_nanos(nanos.load(Ordering::Acquire)))
}

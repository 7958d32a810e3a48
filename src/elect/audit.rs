//! The audit: compares the locks that the store records for this instance with what runs here.
//!
//! The newest page is read in each round, for what goes wrong goes wrong with what was granted or released
//! just now; of the older ones one a round, rolling. An instance that holds nothing, and has been found to hold
//! nothing since all that it sent was over, is audited once a ttl.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use super::{Engine, Work, hold::LeaseCell, metrics};
use crate::{
    StoreError,
    backoff::jittered,
    clock::Moment,
    error::chain,
    logic::session::LONGEST_ATTEMPT,
    model::{LockId, SessionId, Term},
    store::{Cursor, Held, Page, StoreExt},
    words,
};

/// Number of records in a page.
const PAGE: usize = 1000;

/// Position behind a page, where the next read of a session's locks continues.
#[derive(Debug)]
struct AuditCursor {
    session: SessionId,
    cursor: Cursor,
    /// The last term of that page. Locks of one moment have one term: some may be on the next page.
    term: Term,
    /// Locks of that term that were already listed.
    listed: BTreeSet<LockId>,
    /// Time at which the page with the first lock of that term was requested.
    asked: Moment,
}

/// Interval at which the events of many tasks are logged as one line; a round of the audit if that is longer.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Runs a round once per interval, and logs the collected events. Ends with the engine.
pub(crate) async fn audit(engine: Weak<Engine>) {
    let (mut rounds, mut logged) = (Rounds::default(), None);
    loop {
        let Some(wait) = engine.upgrade().map(|engine| {
            metrics::waiting(&engine, engine.keys.waiting());
            engine.listen();
            engine.look_at_records();
            let now = engine.clock.now();
            if logged.is_none_or(|logged| now.since(logged) >= LOG_EVERY) {
                logged = Some(now);
                engine.log_tallies();
                engine.forget_old_troubles();
            }
            (jittered(engine.times.interval, engine.entropy.roll()), engine.closing.clone())
        }) else {
            return;
        };
        tokio::select! {
            biased;
            () = wait.1.cancelled() => return,
            () = tokio::time::sleep(wait.0) => {}
        }
        let Some(engine) = engine.upgrade() else { return };
        engine.keys.leases().iter().for_each(|lease| lease.take_back());
        rounds.round(&engine).await;
    }
}

/// The state that earlier rounds have left for the next.
#[derive(Debug, Default)]
struct Rounds {
    rolling: Option<AuditCursor>,
    /// A session that was found to hold nothing, and when that was asked.
    empty: Option<(SessionId, Moment)>,
}

impl Rounds {
    async fn round(&mut self, engine: &Arc<Engine>) {
        let rolling = self.rolling.take();
        // Locks that a restart leaves behind for the next session look as if no ticket wanted them.
        let Some(session) = engine.current().filter(|_| !engine.is_closed()) else { return };
        if session.was_idle() || self.rests(engine, session.id) {
            // There is nothing to compare.
            engine.record_success(Work::Audit);
            return;
        }
        let session = session.id;
        let rolling = rolling.filter(|place| place.session == session);
        let asked = engine.clock.now();
        let Ok((newest, held)) = read(engine, session, None).await else {
            self.rolling = rolling;
            return;
        };
        self.empty = (held == 0).then_some((session, asked));
        // The rolling read begins behind the newest page, and ends with the last one.
        let Some(older) = rolling.or(newest) else { return };
        self.rolling = match read(engine, session, Some(&older)).await {
            Ok((next, _)) => next,
            Err(_) => Some(older),
        };
    }

    /// Returns whether nothing is held here, and nothing can be: what was sent had ended before that was asked, also
    /// what was given up. Only what another instance hands over could be, to a ticket that is forgotten here.
    fn rests(&self, engine: &Engine, session: SessionId) -> bool {
        let Some((_, asked)) = self.empty.filter(|(of, _)| *of == session) else { return false };
        let is_over = |written: Moment| asked.since(written) >= LONGEST_ATTEMPT * 2;
        engine.keys.leases().is_empty()
            && engine.last_write().is_none_or(is_over)
            && engine.clock.now().since(asked) < engine.times.ttl
    }
}

/// Reads a page and acts on it. Returns the position of the next one, and how many locks are on this one.
async fn read(
    engine: &Arc<Engine>,
    session: SessionId,
    place: Option<&AuditCursor>,
) -> Result<(Option<AuditCursor>, usize), StoreError> {
    let asked = engine.clock.now();
    let of_session = |lease: &Arc<LeaseCell>| lease.session.id == session;
    let leases = engine.keys.leases().into_iter().filter(of_session);
    let here: BTreeMap<LockId, Arc<LeaseCell>> = leases.map(|lease| (lease.lock.clone(), lease)).collect();
    let (limit, after) = (engine.limit(), place.map(|place| place.cursor.clone()));
    let page = engine.call(Work::Audit, limit, engine.store().held_by(session, after, PAGE, limit)).await;
    let page = page.inspect_err(|error| {
        words::debug!(error = chain(error), "could not read the session's locks for the audit");
    })?;
    for held in &page.items {
        let runs = |lease: &Arc<LeaseCell>| lease.term == held.term && lease.ticket == held.ticket;
        if !here.get(&held.lock).is_some_and(runs) {
            engine.lock_found(asked, session, held);
        }
    }
    // An instance that closes gives back what is missed.
    for lease in here.values().filter(|_| !engine.is_closed()) {
        if let Some(asked) = missed(&lease.lock, lease.term, place, asked, &page) {
            engine.lock_missed(asked, lease);
        }
    }
    let held = page.items.len() + here.len();
    Ok((next(session, place, asked, page), held))
}

/// Returns since when a lock that runs here should have been listed and is not, if so.
fn missed(
    lock: &LockId,
    term: Term,
    place: Option<&AuditCursor>,
    asked: Moment,
    page: &Page<Held>,
) -> Option<Moment> {
    // The latest term is first. Of the last one of a page more may be on the next.
    let begun = place.is_none_or(|place| term <= place.term);
    let ended = page.next.is_none() || page.items.last().is_some_and(|last| term > last.term);
    let before = place.filter(|place| place.term == term);
    let listed = || {
        page.items.iter().any(|held| held.term == term && held.lock == *lock)
            || before.is_some_and(|place| place.listed.contains(lock))
    };
    (begun && ended && !listed()).then(|| before.map_or(asked, |place| place.asked))
}

/// Returns the position behind a page.
fn next(
    session: SessionId,
    place: Option<&AuditCursor>,
    asked: Moment,
    page: Page<Held>,
) -> Option<AuditCursor> {
    let cursor = page.next?;
    // A page may be empty though it is not the last: of what cannot be read.
    let term = page.items.last().map(|held| held.term).or(place.map(|place| place.term))?;
    let before = place.filter(|place| place.term == term);
    let of_term = page.items.into_iter().filter(|held| held.term == term).map(|held| held.lock);
    let listed = before.map(|place| place.listed.clone()).into_iter().flatten().chain(of_term).collect();
    Some(AuditCursor { session, cursor, term, listed, asked: before.map_or(asked, |place| place.asked) })
}

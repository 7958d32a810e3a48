//! Hints: what changes, as it changes. They decide nothing, but they come.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};

use super::fixture::{Fixture, LIMIT, granted, holder, name, sure, why};
use crate::{
    model::{Candidate, LockId, LockRecord, Request, SessionId, Share, SpreadName},
    store::{BeatWrite, Ground, Hint, LockChange, Revocation, SessionNews, Then, Wait},
};

/// One who listens, and has heard that the stream is alive.
struct Listener {
    hints: BoxStream<'static, Hint>,
}

impl Listener {
    async fn new(fixture: &Fixture) -> Self {
        let mut hints = fixture.store().hints();
        let first = tokio::time::timeout(LIMIT, hints.next()).await;
        let first = first.expect("a listener must be told to resync without waiting for a change");
        assert_eq!(first, Some(Hint::Resync), "the first hint must say that some may have been lost");
        let mut listener = Self { hints };
        // A stream may begin some time after its first hint: knock until it is heard.
        for knock in 0..30 {
            let lock = fixture.lock(&format!("knock {knock}"));
            fixture.held(&lock, fixture.session(), 1).await;
            if listener.lock(&lock, Duration::from_secs(1)).await.is_some() {
                return listener;
            }
        }
        panic!("a store that gives hints must give one when a lock is granted");
    }

    /// The next hint that is wanted, within a time.
    async fn next<T>(&mut self, time: Duration, mut wanted: impl FnMut(Hint) -> Option<T>) -> Option<T> {
        let find = async {
            loop {
                let hint = self.hints.next().await.expect("hints go on for as long as the stream is kept");
                if let Some(found) = wanted(hint) {
                    return found;
                }
            }
        };
        tokio::time::timeout(time, find).await.ok()
    }

    /// What is said of a lock next: the change, if the hint has it.
    async fn lock(&mut self, lock: &LockId, time: Duration) -> Option<Option<LockChange>> {
        self.next(time, |hint| match hint {
            Hint::Lock { lock: about, change } if about == *lock => Some(change),
            _ => None,
        })
        .await
    }

    /// Waits for the hint that a lock was granted so. If the hint has the change, it must be right.
    async fn hears_grant(&mut self, record: &LockRecord) {
        let held = record.holding.as_ref().expect("the record is of a grant");
        let (session, wish, term) = (held.by.session, held.by.wish, record.term);
        let change = self.lock(&record.id, LIMIT).await;
        let change = change.unwrap_or_else(|| panic!("a grant of {} must be hinted", record.id));
        if let Some(change) = change {
            assert_eq!(change, LockChange::Granted { session, wish, term }, "the hint must tell the grant");
        }
    }

    async fn hears_freed(&mut self, lock: &LockId) {
        let change = self.lock(lock, LIMIT).await;
        let change = change.unwrap_or_else(|| panic!("{lock} became free, which must be hinted"));
        assert!(matches!(change, None | Some(LockChange::Freed)), "{lock} is free, not {change:?}");
    }

    async fn hears_of(&mut self, session: SessionId, news: SessionNews) {
        let told = self
            .next(LIMIT, |hint| match hint {
                Hint::Session { session: about, news } if about == session => Some(news),
                _ => None,
            })
            .await;
        assert_eq!(told, Some(news), "this news of the session must be hinted");
    }
}

/// Whoever begins to listen looks for itself first: anything may have happened before.
pub async fn a_listener_is_told_to_resync_first(fixture: &Fixture) {
    Listener::new(fixture).await;
}

/// Taken, taken for a later wish, handed over, taken over: each names the grant, if it names any.
pub async fn every_grant_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let lock = fixture.task("$spread", "a.b 👑");
    let session = fixture.opened().await.id;
    let record = fixture.held(&lock, session, 4).await;
    listener.hears_grant(&record).await;
    let record = fixture.held(&lock, session, 5).await;
    listener.hears_grant(&record).await;
    let next = fixture.talkative(session, 9);
    fixture.release(&lock, session, record.term, Then::HandTo(Box::new(next))).await;
    listener.hears_grant(&fixture.record(&lock).await).await;
    fixture.bury(session).await;
    let taker = fixture.talkative(fixture.session(), 1);
    // The one that died asked for a short lock-delay: closed for a moment, then granted.
    fixture.take_over(&lock, &taker, &[session]).await;
    listener.hears_freed(&lock).await;
    let record = super::fixture::eventually("the lock opens again", || async {
        fixture.take(&lock, &taker).await.taken().cloned()
    })
    .await;
    listener.hears_grant(&record).await;
    let heir = Candidate { lock_delay: Duration::ZERO, ..fixture.candidate(fixture.opened().await.id, 1) };
    fixture.freed(&record).await;
    listener.hears_freed(&lock).await;
    let record = fixture.taken(&lock, &heir).await;
    listener.hears_grant(&record).await;
    fixture.bury(heir.session).await;
    let record = granted(fixture.take_over(&lock, &taker, &[heir.session]).await);
    listener.hears_grant(&record).await;
}

/// Released, released for later, taken away.
pub async fn every_lock_that_becomes_free_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    for (key, then) in [("released", Then::Free), ("for later", Then::ClosedFor(LIMIT))] {
        let record = fixture.held(&fixture.lock(key), fixture.session(), 1).await;
        listener.hears_grant(&record).await;
        let session = record.holding.as_ref().expect("it was just granted").by.session;
        fixture.release(&record.id, session, record.term, then).await;
        listener.hears_freed(&record.id).await;
    }
    let record = fixture.held(&fixture.lock("forced"), fixture.session(), 1).await;
    listener.hears_grant(&record).await;
    let (by, why) = (holder("admin"), why("it hangs"));
    let request = Request { lock: record.id.clone(), term: record.term, by, why };
    sure(fixture.store().revoke(Revocation::Force(request), LIMIT)).await;
    listener.hears_freed(&record.id).await;
}

/// So that the holder hands over, and does not just release.
pub async fn whoever_begins_to_wait_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let lock = fixture.lock("report");
    fixture.held(&lock, fixture.session(), 1).await;
    let wait = Wait { lock: lock.clone(), by: fixture.talkative(fixture.session(), 1) };
    sure(fixture.store().wait(vec![wait], LIMIT)).await;
    let queue = Hint::Queue { lock };
    let heard = listener.next(LIMIT, |hint| (hint == queue).then_some(())).await;
    assert!(heard.is_some(), "somebody began to wait, which must be hinted");
}

/// Opened, asked for something, other shares, dead.
pub async fn news_of_a_session_are_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let opened = fixture.opened().await;
    let session = opened.id;
    listener.hears_of(session, SessionNews::Opened).await;

    let held = fixture.held(&fixture.lock("report"), session, 1).await;
    let request = Request { lock: held.id, term: held.term, by: holder("admin"), why: why("please") };
    sure(fixture.store().revoke(Revocation::Ask { session, request }, LIMIT)).await;
    listener.hears_of(session, SessionNews::Changed).await;

    let spread = name(SpreadName::new("import"));
    let share = Share { spread, cap: 1, weight: 1, draining: false, digest: 7 };
    let beat = BeatWrite { shares: Some(vec![share]), ..fixture.beat(session, 1) };
    fixture.send(&beat).await;
    listener.hears_of(session, SessionNews::Changed).await;

    fixture.declare(session, Ground::Unbeaten { nonce: beat.nonce }).await;
    listener.hears_of(session, SessionNews::Died).await;

    let missing = fixture.session();
    fixture.declare(missing, super::deaths::missing(fixture)).await;
    listener.hears_of(missing, SessionNews::Died).await;
}

/// A fleet beats all the time, and nobody is to be woken by it.
pub async fn a_beat_gives_no_hint(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let session = fixture.opened().await.id;
    listener.hears_of(session, SessionNews::Opened).await;
    for number in 1..=5 {
        fixture.send(&fixture.beat(session, number)).await;
    }
    fixture.bury(session).await;
    // The first news after the opening is the death: the beats between gave none.
    listener.hears_of(session, SessionNews::Died).await;
}

/// What changed nothing gives no hint: a lost take, a repeat, a release by another.
pub async fn every_listener_hears_the_same(fixture: &Fixture) {
    let mut listeners = [Listener::new(fixture).await, Listener::new(fixture).await];
    let gone = Listener::new(fixture).await;
    drop(gone);
    let record = fixture.held(&fixture.lock("report"), fixture.session(), 1).await;
    for listener in &mut listeners {
        listener.hears_grant(&record).await;
    }
}

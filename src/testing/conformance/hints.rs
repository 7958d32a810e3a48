//! Hints: what changes, as it changes. They decide nothing, but they come.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};

use super::{
    fixture::{Fixture, LIMIT, granted, holder, name, sure, value, why},
    runs::{claim, claimed, run},
    schedules::{define, defined, instructed, order, pause},
};
use crate::{
    model::{
        Candidate, Kind, LockId, LockRecord, Outcome, Request, ScheduleId, SessionId, Share, SpreadName,
        StoreTime,
    },
    store::{
        BeatWrite, Evidence, FinishRun, Hint, Instruction, LockChange, ReleaseTo, Revocation, SessionNews,
        Wait,
    },
};

/// One who listens, and has heard that the stream is alive.
///
/// It passes over what it has heard before: hints may be doubled.
struct Listener {
    hints: BoxStream<'static, Hint>,
    heard: Vec<Hint>,
}

impl Listener {
    async fn new(fixture: &Fixture) -> Self {
        let mut hints = fixture.store().hints();
        let first = tokio::time::timeout(LIMIT, hints.next()).await;
        let first = first.expect("a listener must get a resync without waiting for a change");
        assert_eq!(first, Some(Hint::Resync), "the first hint must say that some may have been lost");
        let mut listener = Self { hints, heard: Vec::new() };
        // A stream may begin some time after its first hint: knock until it is heard.
        for knock in 0..30 {
            let lock = fixture.lock(&format!("knock {knock} of {}", fixture.session()));
            fixture.held(&lock, fixture.session(), 1).await;
            let is_answer = |hint: &Hint| matches!(hint, Hint::Lock { lock: about, .. } if *about == lock);
            if listener.next(Duration::from_secs(1), is_answer).await.is_some() {
                return listener;
            }
        }
        panic!("a store that gives hints must give one when a lock is granted");
    }

    /// The next hint about something.
    async fn next(&mut self, time: Duration, about: impl Fn(&Hint) -> bool) -> Option<Hint> {
        let find = async {
            loop {
                let hint = self.hints.next().await.expect("hints go on for as long as the stream is kept");
                if about(&hint) {
                    return hint;
                }
            }
        };
        tokio::time::timeout(time, find).await.ok()
    }

    /// Waits for one of these hints. What was heard before may come again, and nothing else.
    async fn hears(&mut self, expected: &[Hint], about: impl Fn(&Hint) -> bool) {
        loop {
            let Some(hint) = self.next(LIMIT, &about).await else {
                panic!("no hint came, where one of these was due: {expected:?}");
            };
            let is_due = expected.contains(&hint);
            if is_due || self.heard.contains(&hint) {
                self.heard.push(hint);
            } else {
                panic!("the hint was {hint:?}, where one of these was due: {expected:?}");
            }
            if is_due {
                return;
            }
        }
    }

    /// Waits for the hint that a lock changed so. A hint need not have the change; if it has, it
    /// must be the right one.
    async fn hears_change(&mut self, lock: &LockId, change: LockChange) {
        let expected = [None, Some(change)].map(|change| Hint::Lock { lock: lock.clone(), change });
        self.hears(&expected, |hint| matches!(hint, Hint::Lock { lock: about, .. } if about == lock)).await;
    }

    async fn hears_grant(&mut self, record: &LockRecord) {
        let held = record.holding.as_ref().expect("the record is of a grant");
        let (session, ticket, at) = (held.by.session, held.by.ticket, held.acquired_at);
        let granted = LockChange::Granted { session, ticket, term: record.term, at };
        self.hears_change(&record.id, granted).await;
    }

    async fn hears_freed(&mut self, lock: &LockId) {
        self.hears_change(lock, LockChange::Freed).await;
    }

    async fn hears_closed(&mut self, lock: &LockId) {
        self.hears_change(lock, LockChange::Closed).await;
    }

    async fn hears_of(&mut self, session: SessionId, news: SessionNews) {
        let about = |hint: &Hint| matches!(hint, Hint::Session { session: about, .. } if *about == session);
        self.hears(&[Hint::Session { session, news }], about).await;
    }
}

/// The schedules that hints tell of, up to the one that is defined now.
async fn hinted(listener: &mut Listener, fixture: &Fixture) -> Vec<ScheduleId> {
    let last = fixture.schedule(&format!("last {}", fixture.session()));
    defined(fixture, define(&last, 1, "hourly", "late: run")).await;
    let mut hints = Vec::new();
    loop {
        let ours = |hint: &Hint| matches!(hint, Hint::Schedule { schedule } if schedule.namespace == *fixture.namespace());
        match listener.next(LIMIT, ours).await {
            Some(Hint::Schedule { schedule }) if schedule == last => return hints,
            Some(Hint::Schedule { schedule }) => hints.push(schedule),
            other => panic!("a schedule that was defined must be notified, not {other:?}"),
        }
    }
}

/// Whoever begins to listen looks for itself first: anything may have happened before.
pub async fn a_listener_is_told_to_resync_first(fixture: &Fixture) {
    Listener::new(fixture).await;
}

/// Taken, taken for a later ticket, handed over, taken over: each names the grant, if it names any.
pub async fn every_grant_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let lock = fixture.task("$spread", "a.b 👑");
    let session = fixture.opened().await.id;
    let record = fixture.held(&lock, session, 4).await;
    listener.hears_grant(&record).await;
    let record = fixture.held(&lock, session, 5).await;
    listener.hears_grant(&record).await;
    let next = fixture.talkative(session, 9);
    fixture.release(&lock, session, record.term, ReleaseTo::HandTo(Box::new(next))).await;
    listener.hears_grant(&fixture.record(&lock).await).await;
    fixture.declare_dead(session).await;
    let taker = fixture.talkative(fixture.session(), 1);
    // The one that died asked for a short lock-delay: closed for a moment, then granted.
    fixture.take_over(&lock, &taker, &[session]).await;
    listener.hears_closed(&lock).await;
    let record = super::fixture::eventually("the lock opens again", async || {
        fixture.take(&lock, &taker).await.taken().cloned()
    })
    .await;
    listener.hears_grant(&record).await;
    let successor =
        Candidate { lock_delay: Duration::ZERO, ..fixture.candidate(fixture.opened().await.id, 1) };
    fixture.freed(&record).await;
    listener.hears_freed(&lock).await;
    let record = fixture.taken(&lock, &successor).await;
    listener.hears_grant(&record).await;
    fixture.declare_dead(successor.session).await;
    let record = granted(fixture.take_over(&lock, &taker, &[successor.session]).await);
    listener.hears_grant(&record).await;
}

/// Released, released for later, taken away.
pub async fn every_lock_that_becomes_free_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    for (key, then) in [("released", ReleaseTo::Free), ("for later", ReleaseTo::ClosedFor(LIMIT))] {
        let record = fixture.held(&fixture.lock(key), fixture.session(), 1).await;
        listener.hears_grant(&record).await;
        let session = record.holding.as_ref().expect("it was just granted").by.session;
        let is_closed = then != ReleaseTo::Free;
        fixture.release(&record.id, session, record.term, then).await;
        if is_closed {
            listener.hears_closed(&record.id).await;
        } else {
            listener.hears_freed(&record.id).await;
        }
    }
    let record = fixture.held(&fixture.lock("forced"), fixture.session(), 1).await;
    listener.hears_grant(&record).await;
    let (by, why) = (holder("admin"), why("it hangs"));
    let request = Request { lock: record.id.clone(), term: record.term, by, why };
    sure(fixture.store().revoke(Revocation::Force(request), LIMIT)).await;
    listener.hears_freed(&record.id).await;
}

/// So that whoever wants it does not wait for the time it was closed for.
pub async fn a_lock_that_is_opened_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let session = fixture.session();
    let record = fixture.held(&fixture.lock("report"), session, 1).await;
    listener.hears_grant(&record).await;
    fixture.release(&record.id, session, record.term, ReleaseTo::ClosedFor(LIMIT)).await;
    listener.hears_closed(&record.id).await;
    let (by, why) = (holder("admin"), why("it is mended"));
    let request = Request { lock: record.id.clone(), term: record.term, by, why };
    sure(fixture.store().revoke(Revocation::Reopen(request), LIMIT)).await;
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
    listener.hears(std::slice::from_ref(&queue), |hint| *hint == queue).await;
}

/// The value of a schedule's lock is notified, since all plan by it. The values of other locks are not.
pub async fn the_value_of_a_schedule_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let session = fixture.session();
    let (schedule, lock) = (fixture.lock_of(Kind::Schedule, "report"), fixture.lock("report"));
    for lock in [&lock, &schedule] {
        let held = fixture.held(lock, session, 1).await;
        fixture.set(lock, session, held.term, Some(value(b"busy"))).await;
    }
    let is_value =
        |hint: &Hint| matches!(hint, Hint::Value { lock } if lock.namespace == *fixture.namespace());
    listener.hears(&[Hint::Value { lock: schedule }], is_value).await;
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
    let share = Share { digest: 7, ..Share::new(spread) };
    let beat = BeatWrite { shares: Some(vec![share]), ..fixture.beat(session, 1) };
    fixture.send(&beat).await;
    listener.hears_of(session, SessionNews::Changed).await;

    fixture.declare(session, Evidence::Unbeaten { nonce: beat.nonce }).await;
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
    fixture.declare_dead(session).await;
    // The first news after the opening is the death: the beats between gave none.
    listener.hears_of(session, SessionNews::Died).await;
}

/// Defined, defined anew, held back, let go on, wanted, run.
pub async fn what_is_said_of_a_schedule_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let schedule = fixture.schedule("$nightly.report 👑");
    for (timing, policies) in [("first", "late: run"), ("second", "late: run"), ("second", "$other")] {
        defined(fixture, define(&schedule, 7, timing, policies)).await;
        assert!(hinted(&mut listener, fixture).await.contains(&schedule), "it was defined");
    }
    let at = StoreTime::from_millis(5);
    for instruction in [
        pause(),
        Instruction::Resume,
        Instruction::Run(order(5)),
        Instruction::Run(order(4)),
        Instruction::Run(order(6)),
        Instruction::Ran { at },
        Instruction::Ran { at: StoreTime::from_millis(6) },
        Instruction::Ran { at: StoreTime::from_millis(4) },
    ] {
        instructed(fixture, &schedule, instruction.clone()).await;
        assert!(hinted(&mut listener, fixture).await.contains(&schedule), "{instruction:?}");
    }
    let other = fixture.schedule("other");
    instructed(fixture, &other, pause()).await;
    assert!(hinted(&mut listener, fixture).await.contains(&other), "nobody has defined it");
}

/// Nobody is to be woken by what was said before, nor by what a schedule does.
pub async fn a_run_gives_no_hint(fixture: &Fixture) {
    let mut listener = Listener::new(fixture).await;
    let schedule = fixture.schedule("nightly");
    defined(fixture, define(&schedule, 7, "first", "late: run")).await;
    instructed(fixture, &schedule, Instruction::Run(order(5))).await;
    hinted(&mut listener, fixture).await;

    defined(fixture, define(&schedule, 8, "first", "late: run")).await;
    defined(fixture, define(&schedule, 6, "second", "late: run")).await;
    let ran = Instruction::Ran { at: StoreTime::from_millis(6) };
    for instruction in [Instruction::Resume, Instruction::Run(order(5)), ran] {
        instructed(fixture, &schedule, instruction).await;
    }
    let claim = claim(&run(&schedule, 1000), fixture.session(), 1);
    claimed(fixture, &claim).await;
    let outcome = Outcome::Succeeded;
    let (run, session, term) = (claim.run, claim.session, claim.term);
    let finish = FinishRun { run, session, term, attempt: 1, outcome, error: None, last: true };
    sure(fixture.store().finish(finish, LIMIT)).await;
    let hints = hinted(&mut listener, fixture).await;
    assert_eq!(hints, [], "nothing was changed, and a run makes no hint");
}

/// However many listen, and whoever of them has gone.
pub async fn every_listener_hears_the_same(fixture: &Fixture) {
    let mut listeners = [Listener::new(fixture).await, Listener::new(fixture).await];
    let gone = Listener::new(fixture).await;
    drop(gone);
    let record = fixture.held(&fixture.lock("report"), fixture.session(), 1).await;
    for listener in &mut listeners {
        listener.hears_grant(&record).await;
    }
}

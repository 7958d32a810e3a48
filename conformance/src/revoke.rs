//! Revocations: an operator asks, or takes a lock away.

use futures::{StreamExt, stream};

use crate::fixture::{Fixture, LIMIT, holder, sure, value, why};
use tenure::{
    model::{Holder, LockId, SessionId, Term, Why},
    store::{
        BeatWrite, Drained, Ended, LockSeen, MAX_REQUESTS, Refusal, ReleaseTo, Request, Revocation,
        RevokeAnswer, SessionSeen, SetAnswer, StoreExt, Topic,
    },
};

fn request(lock: &LockId, term: Term, reason: &str) -> Request {
    Request { lock: lock.clone(), term, by: holder("admin"), why: why(reason) }
}

async fn ask(fixture: &Fixture, session: SessionId, request: &Request) -> RevokeAnswer {
    let revocation = Revocation::Ask { session, request: request.clone() };
    sure(fixture.store().revoke(revocation, LIMIT)).await
}

async fn force(fixture: &Fixture, request: &Request) -> RevokeAnswer {
    sure(fixture.store().revoke(Revocation::Force(request.clone()), LIMIT)).await
}

async fn reopen(fixture: &Fixture, request: &Request) -> RevokeAnswer {
    sure(fixture.store().revoke(Revocation::Reopen(request.clone()), LIMIT)).await
}

fn requests(seen: &SessionSeen) -> Vec<Request> {
    seen.record().unwrap_or_else(|| panic!("the session must be there, not {seen:?}")).requests.clone()
}

/// With the next beat and every one after, until a beat says that it was heard.
pub async fn a_request_comes_with_every_beat_until_it_was_heard(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let mut asked = Vec::new();
    for key in ["$first", "second.key"] {
        let held = fixture.held(&fixture.lock(key), session, 1).await;
        let request = request(&held.id, held.term, "the $disk is \"full\"\nreally");
        assert_eq!(ask(fixture, session, &request).await, RevokeAnswer::Asked);
        asked.push(request);
    }
    for number in 1..4 {
        let seen = fixture.send(&fixture.beat(session, number)).await;
        assert_eq!(requests(&seen), asked, "beat {number} has heard nothing yet");
    }
    let heard = vec![(asked[0].lock.clone(), asked[0].term)];
    let seen = fixture.send(&BeatWrite { heard, ..fixture.beat(session, 4) }).await;
    assert_eq!(requests(&seen), asked[1..], "only what was heard must go");
    assert_eq!(requests(&fixture.seen(session).await), asked[1..], "others see the same");
    let heard = vec![(asked[0].lock.clone(), asked[0].term), (asked[1].lock.clone(), asked[1].term)];
    let seen = fixture.send(&BeatWrite { heard, ..fixture.beat(session, 5) }).await;
    assert_eq!(requests(&seen), [], "what was heard before may be named again");
}

/// Lock and term name a request: another lock's, or another term's, stays.
pub async fn hearing_names_lock_and_term(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let lock = fixture.lock("report");
    let first = fixture.held(&lock, session, 1).await;
    let asked = request(&lock, first.term, "please");
    ask(fixture, session, &asked).await;
    let other_term = Term::new(first.term.get() + 1);
    let heard = vec![
        (lock.clone(), other_term),
        (fixture.lock("other"), first.term),
        (fixture.task("a", "report"), first.term),
    ];
    let seen = fixture.send(&BeatWrite { heard, ..fixture.beat(session, 1) }).await;
    assert_eq!(requests(&seen), [asked], "what was not heard must stay");
}

/// A beat that came late has heard nothing.
pub async fn a_late_beat_hears_nothing(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let held = fixture.held(&fixture.lock("report"), session, 1).await;
    fixture.send(&fixture.beat(session, 5)).await;
    let asked = request(&held.id, held.term, "please");
    ask(fixture, session, &asked).await;
    let heard = vec![(asked.lock.clone(), asked.term)];
    let seen = fixture.send(&BeatWrite { heard, ..fixture.beat(session, 4) }).await;
    assert_eq!(requests(&seen), [asked], "a beat that does not count must change nothing");
}

/// Asking twice is asking once: the first one's words stay.
pub async fn asking_twice_is_asking_once(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let held = fixture.held(&fixture.lock("report"), session, 1).await;
    let asked = request(&held.id, held.term, "please");
    assert_eq!(ask(fixture, session, &asked).await, RevokeAnswer::Asked);
    assert_eq!(ask(fixture, session, &asked).await, RevokeAnswer::Asked);
    let louder = Request { by: holder("boss"), why: why("now"), ..asked.clone() };
    assert_eq!(ask(fixture, session, &louder).await, RevokeAnswer::Asked);
    let seen = fixture.send(&fixture.beat(session, 1)).await;
    assert_eq!(requests(&seen), [asked], "one request, in the words of the first");
}

/// Asking changes the session's record and not the lock's; the session beats on.
pub async fn asking_takes_nothing_away(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let held = fixture.held(&fixture.lock("report"), session, 1).await;
    ask(fixture, session, &request(&held.id, held.term, "please")).await;
    assert_eq!(fixture.record(&held.id).await, held, "asking must not touch the lock");
    let beat = fixture.beat(session, 1);
    assert!(fixture.send(&beat).await.bears(beat.nonce));
}

/// Neither the dead nor the missing are there to be asked.
pub async fn a_session_that_is_dead_or_missing_cannot_be_asked(fixture: &Fixture) {
    let dead = fixture.opened().await.id;
    let held = fixture.held(&fixture.lock("report"), dead, 1).await;
    let dead_seen = SessionSeen::Dead(fixture.declare_dead(dead).await);
    let missing = fixture.session();
    for session in [dead, missing] {
        let answer = ask(fixture, session, &request(&held.id, held.term, "please")).await;
        assert_eq!(answer, RevokeAnswer::NotHeld);
    }
    assert_eq!(fixture.seen(dead).await, dead_seen, "asking must not change the dead");
    assert_eq!(fixture.seen(missing).await, SessionSeen::Missing, "asking must not insert a session");
}

/// A session carries [`MAX_REQUESTS`] requests; more are refused until some are heard.
pub async fn requests_beyond_the_limit_are_refused_until_some_are_heard(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let locks: Vec<_> = (0..=MAX_REQUESTS).map(|number| fixture.lock(&format!("key {number}"))).collect();
    let by = fixture.candidate(session, 1);
    let takes = locks.iter().map(|lock| tenure::store::Take { lock: lock.clone(), by: by.clone() });
    let answers = fixture.take_all(takes.collect(), &[]).await;
    let held = answers.iter().filter_map(tenure::store::TakeAnswer::taken);
    let all: Vec<_> = held.map(|record| request(&record.id, record.term, "please")).collect();
    let (last, most) = all.split_last().expect("there are many");
    stream::iter(most)
        .map(|request| ask(fixture, session, request))
        .buffer_unordered(16)
        .for_each(async |answer| assert_eq!(answer, RevokeAnswer::Asked, "there is still room"))
        .await;
    let full = RevokeAnswer::Refused(Refusal::Full { what: "requests", most: MAX_REQUESTS });
    assert_eq!(ask(fixture, session, last).await, full, "one more than the most must be refused");
    assert_eq!(ask(fixture, session, &most[0]).await, RevokeAnswer::Asked, "what was asked before is asked");
    let seen = fixture.send(&fixture.beat(session, 1)).await;
    assert_eq!(requests(&seen).len(), MAX_REQUESTS, "a refused request must not be there");
    let heard = most[1..].iter().map(|request| (request.lock.clone(), request.term)).collect();
    let seen = fixture.send(&BeatWrite { heard, ..fixture.beat(session, 2) }).await;
    assert_eq!(requests(&seen), most[..1], "what was heard must go");
    assert_eq!(ask(fixture, session, last).await, RevokeAnswer::Asked, "there is room again");
    assert_eq!(requests(&fixture.seen(session).await), [most[0].clone(), last.clone()]);
}

/// With every beat, whatever beats say, until it is taken back. A dead session cannot be told.
pub async fn an_order_to_drain_is_kept_until_it_is_taken_back(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let drain = async |order: Option<(Holder, Why)>| {
        let order = Revocation::Drain { session, order, tell: Topic::Session(session) };
        sure(fixture.store().revoke(order, LIMIT)).await
    };
    let drained = async || {
        let seen = fixture.seen(session).await;
        let record = seen.record().unwrap_or_else(|| panic!("the session must be there, not {seen:?}"));
        record.drained.clone().map(|Drained { by, why, since }| (by, why, since >= record.started))
    };
    let by = holder("$ops");
    assert_eq!(drained().await, None);
    for reason in ["{$disk}", "the \"second\" order\0"] {
        assert_eq!(drain(Some((by.clone(), why(reason)))).await, RevokeAnswer::Asked);
        let beat = if reason.starts_with('{') { 1 } else { 2 };
        fixture.send(&fixture.beat(session, beat)).await;
        assert_eq!(drained().await, Some((by.clone(), why(reason), true)), "dated by the store's clock");
    }
    assert_eq!(drain(None).await, RevokeAnswer::Asked);
    assert_eq!(drained().await, None);
    fixture.declare_dead(session).await;
    assert_eq!(drain(Some((by, why("too late")))).await, RevokeAnswer::NotHeld);
}

/// The lock is free at once, and the record says by whom and why.
pub async fn force_takes_a_lock_away(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let by = fixture.talkative(fixture.opened().await.id, 1);
    let held = fixture.taken(&lock, &by).await;
    let request = request(&lock, held.term, "it {$hangs}");
    let answer = force(fixture, &request).await;
    let RevokeAnswer::Freed(freed) = &answer else { panic!("it must be freed, not {answer:?}") };
    assert_eq!((&freed.holding, freed.closed, freed.term), (&None, None, held.term));
    let [past] = &freed.past[..] else { panic!("one holder must be remembered, not {:?}", freed.past) };
    assert_eq!((past.term, past.how, &past.who), (held.term, Ended::Forced, &by.who));
    assert_eq!(past.session, Some(by.session), "the session that held it must be known");
    assert_eq!(past.note, Some(request.note()), "the record must say by whom and why");
    assert_eq!(fixture.record(&lock).await, *freed);
    assert_eq!(force(fixture, &request).await, answer, "sent again, it was done before");

    fixture.release(&lock, by.session, held.term, ReleaseTo::ClosedFor(LIMIT)).await;
    assert_eq!(fixture.record(&lock).await, *freed, "the late release of whoever lost it does nothing");
    let set = fixture.set(&lock, by.session, held.term, Some(value(b"x"))).await;
    assert_eq!(set, SetAnswer::NotHeld, "nor does its value");
}

/// The holder lives, and keeps its other locks.
pub async fn force_takes_one_lock_only(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let [taken, kept] = ["taken away", "kept"].map(|key| fixture.lock(key));
    let held = fixture.held(&taken, session, 1).await;
    let kept = fixture.held(&kept, session, 2).await;
    let alive = fixture.seen(session).await;
    force(fixture, &request(&taken, held.term, "it hangs")).await;
    assert_eq!(fixture.record(&kept.id).await, kept);
    assert_eq!(fixture.seen(session).await, alive);
}

/// A lock that has changed hands since is not meant.
pub async fn force_names_a_term(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let first = fixture.held(&lock, session, 1).await;
    let second = fixture.held(&lock, session, 2).await;
    for term in [first.term, Term::new(second.term.get() + 1)] {
        let answer = force(fixture, &request(&lock, term, "it hangs")).await;
        assert_eq!(answer, RevokeAnswer::NotHeld, "another term is not meant");
    }
    assert_eq!(fixture.record(&lock).await, second);

    let meant = request(&lock, second.term, "it hangs");
    assert!(matches!(force(fixture, &meant).await, RevokeAnswer::Freed(_)));
    let third = fixture.held(&lock, session, 3).await;
    assert_eq!(force(fixture, &meant).await, RevokeAnswer::NotHeld, "it has changed hands since");
    assert_eq!(fixture.record(&lock).await, third);
}

/// A lock without a holder cannot be taken away.
pub async fn force_needs_a_holder(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let answer = force(fixture, &request(&lock, Term::new(1), "it hangs")).await;
    assert_eq!(answer, RevokeAnswer::NotHeld);
    assert_eq!(fixture.look(&lock).await, LockSeen::Absent, "force must make no record");
    let freed = fixture.freed(&fixture.held(&lock, fixture.session(), 1).await).await;
    let answer = force(fixture, &request(&lock, freed.term, "it hangs")).await;
    assert_eq!(answer, RevokeAnswer::NotHeld, "it was given back");
    assert_eq!(fixture.record(&lock).await, freed, "force must not rewrite how it ended");
}

/// A reopened lock may be taken at once; nothing else of the record changes.
pub async fn reopening_opens_what_is_kept_closed(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.opened().await.id;
    let held = fixture.held(&lock, session, 1).await;
    fixture.release(&lock, session, held.term, ReleaseTo::ClosedFor(LIMIT * 1000)).await;
    let closed = fixture.record(&lock).await;
    assert!(closed.closed.is_some() && closed.holding.is_none(), "{closed:?}");
    let request = request(&lock, held.term, "it is {$mended}");
    let answer = reopen(fixture, &request).await;
    let open = with!(closed; closed: None);
    assert_eq!(answer, RevokeAnswer::Freed(open.clone()));
    assert_eq!(fixture.record(&lock).await, open);
    assert_eq!(reopen(fixture, &request).await, answer, "sent again, it was done before");
    let next = fixture.held(&lock, fixture.session(), 1).await;
    assert!(next.term > held.term);
}

/// A lock that is held, or was held since, or was never held, is not meant.
pub async fn reopening_names_a_term_that_nobody_has_followed(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.opened().await.id;
    assert_eq!(reopen(fixture, &request(&lock, Term::new(1), "now")).await, RevokeAnswer::NotHeld);
    assert_eq!(fixture.look(&lock).await, LockSeen::Absent, "reopening must make no record");
    let first = fixture.held(&lock, session, 1).await;
    assert_eq!(
        reopen(fixture, &request(&lock, first.term, "now")).await,
        RevokeAnswer::NotHeld,
        "it is held"
    );
    assert_eq!(fixture.record(&lock).await, first);
    let second = fixture.held(&lock, session, 2).await;
    fixture.release(&lock, session, second.term, ReleaseTo::ClosedFor(LIMIT * 1000)).await;
    let closed = fixture.record(&lock).await;
    for term in [first.term, Term::new(second.term.get() + 1)] {
        let answer = reopen(fixture, &request(&lock, term, "now")).await;
        assert_eq!(answer, RevokeAnswer::NotHeld, "another term is not meant");
    }
    assert_eq!(fixture.record(&lock).await, closed);
}

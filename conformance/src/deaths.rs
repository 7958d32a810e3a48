//! Deaths: declared on a ground that still holds, once, and for ever.

use std::time::Duration;

use crate::fixture::{Fixture, LIMIT, TTL, holder, race, sure, why};
use tenure::store::{Death, Declaration, Evidence, Open, SessionRecord, SessionSeen, StoreExt};

/// The ground of a caller who has found no such session for the whole ttl.
pub(crate) fn missing(fixture: &Fixture) -> Evidence {
    Evidence::Missing { namespace: fixture.namespace().clone(), holder: holder("pod-9"), ttl: TTL }
}

/// Every ground there is, for a session whose last beat bears that nonce.
fn grounds(fixture: &Fixture, last: tenure::store::Nonce) -> [Evidence; 4] {
    let unbeaten = Evidence::Unbeaten { nonce: last };
    [unbeaten, missing(fixture), Evidence::Gone, Evidence::Operator]
}

/// Record of a session after its death, given the one before.
fn died(before: &SessionRecord, seen: &SessionSeen) -> SessionRecord {
    let at = seen.record().and_then(|record| record.death.as_ref()).map(|death| death.at);
    let at = at.unwrap_or_else(|| panic!("the session must be dead, but was {seen:?}"));
    let death = Some(Death { at, by: holder("the watcher"), why: why("no beat seen") });
    with!(before.clone(); death: death)
}

/// The record keeps everything, and says by whom and why.
pub async fn a_beat_that_was_watched_buries_its_session(fixture: &Fixture) {
    let opened = fixture.opened().await;
    let seen = fixture.declare(opened.id, Evidence::Unbeaten { nonce: opened.nonce }).await;
    assert_eq!(seen, SessionSeen::Dead(died(&opened, &seen)), "a declaration adds the death, nothing else");
    assert_eq!(fixture.seen(opened.id).await, seen, "others must see the same death");
}

/// Not the opening's beat only.
pub async fn the_latest_of_many_beats_buries_its_session(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let mut nonce = None;
    for number in 1..4 {
        let beat = fixture.beat(session, number);
        fixture.send(&beat).await;
        nonce = Some(beat.nonce);
    }
    let nonce = nonce.expect("there were three beats");
    assert!(fixture.declare(session, Evidence::Unbeaten { nonce }).await.is_dead());
}

/// An observer that watched an earlier beat, or none of it, cannot declare a session dead.
pub async fn a_beat_that_was_not_watched_saves_its_session(fixture: &Fixture) {
    let opened = fixture.opened().await;
    let beaten = fixture.send(&fixture.beat(opened.id, 1)).await;
    for nonce in [opened.nonce, fixture.nonce()] {
        let seen = fixture.declare(opened.id, Evidence::Unbeaten { nonce }).await;
        assert_eq!(seen, beaten, "a declaration by another nonce than the last must change nothing");
    }
    assert_eq!(fixture.seen(opened.id).await, beaten);
}

/// The first of them wins, and both get the same answer.
pub async fn of_a_beat_and_a_declaration_that_race_one_counts(fixture: &Fixture) {
    for _ in 0..16 {
        let opened = fixture.opened().await;
        let beat = fixture.beat(opened.id, 1);
        let declaration = Declaration {
            session: opened.id,
            ground: Evidence::Unbeaten { nonce: opened.nonce },
            by: holder("the watcher"),
            why: why("no beat seen"),
            tell: Vec::new(),
        };
        let answers = race(2, |number| {
            let (store, beat, declaration) = (fixture.store().clone(), beat.clone(), declaration.clone());
            async move {
                if number == 0 {
                    sure(store.beat(beat, LIMIT)).await
                } else {
                    sure(store.declare(declaration, LIMIT)).await
                }
            }
        })
        .await;
        let last = fixture.seen(opened.id).await;
        let beaten = answers[0].bears(beat.nonce);
        assert_ne!(beaten, last.is_dead(), "a beat counts or the session dies, not both: {answers:?}");
        assert_eq!(answers[1].is_dead(), last.is_dead(), "the declarer must learn how it ended");
        let nonce = last.record().map(|record| record.nonce);
        let expected = if beaten { beat.nonce } else { opened.nonce };
        assert_eq!(nonce, Some(expected), "a beat that did not count must leave no trace");
    }
}

/// A tombstone says what the lock record knew.
pub async fn a_session_found_missing_gets_a_tombstone(fixture: &Fixture) {
    let session = fixture.session();
    let seen = fixture.declare(session, missing(fixture)).await;
    let SessionSeen::Dead(record) = &seen else {
        panic!("a missing session must be declared dead by inserting it, but was {seen:?}");
    };
    assert_eq!(record.id, session);
    assert_eq!(record.about.namespace, *fixture.namespace());
    assert_eq!(record.about.holder, holder("pod-9"));
    assert_eq!(record.ttl, TTL);
    assert!(record.shares.is_empty() && record.requests.is_empty());
    assert_eq!(died(record, &seen), *record, "the tombstone must say by whom and why");
    assert_eq!(fixture.seen(session).await, seen, "others must see the tombstone");
}

/// An observer that found no session was wrong if there is one.
pub async fn a_tombstone_is_inserted_only_if_there_is_no_session(fixture: &Fixture) {
    let open = fixture.opening();
    let alive = fixture.open(&open).await;
    let seen = fixture.declare(open.session, missing(fixture)).await;
    assert_eq!(seen, alive, "a session that is there is not missing: nothing must change");
    assert_eq!(fixture.seen(open.session).await, alive);
}

/// All other grounds need a session.
pub async fn only_a_missing_session_gets_a_tombstone(fixture: &Fixture) {
    let session = fixture.session();
    for ground in grounds(fixture, fixture.nonce()) {
        if matches!(ground, Evidence::Missing { .. }) {
            continue;
        }
        let seen = fixture.declare(session, ground.clone()).await;
        assert_eq!(seen, SessionSeen::Missing, "{ground:?} of a session that was never opened finds none");
        assert_eq!(fixture.seen(session).await, SessionSeen::Missing, "{ground:?} must insert nothing");
    }
}

/// A report that a session is gone is not taken on trust: without a presence there is no proof.
pub async fn a_session_without_a_presence_is_never_proven_dead(fixture: &Fixture) {
    let opened = fixture.opened().await;
    let seen = fixture.declare(opened.id, Evidence::Gone).await;
    assert_eq!(seen, SessionSeen::Alive(opened.clone()), "without proof nothing must change");
    assert_eq!(fixture.seen(opened.id).await, SessionSeen::Alive(opened));
}

/// A session is not proven dead before it lets go. A store that gives no presence has nothing to prove.
pub async fn a_session_whose_presence_is_kept_is_not_proven_dead(fixture: &Fixture) {
    let open = fixture.opening();
    let Some(presence) = sure(fixture.store().presence(open.session)).await else { return };
    let alive = fixture.open(&open).await;
    let other = presence.clone();
    drop(presence);
    assert_eq!(fixture.declare(open.session, Evidence::Gone).await, alive, "a clone of it is kept");
    drop(other);
    assert!(fixture.declare(open.session, Evidence::Gone).await.is_dead(), "it was let go");
}

/// The beats that were seen of it do not matter.
pub async fn an_operator_may_end_it_at_once(fixture: &Fixture) {
    let opened = fixture.opened().await;
    fixture.send(&fixture.beat(opened.id, 1)).await;
    let beaten = fixture.seen(opened.id).await;
    let seen = fixture.declare(opened.id, Evidence::Operator).await;
    let before = beaten.record().expect("it was just opened");
    assert_eq!(seen, SessionSeen::Dead(died(before, &seen)), "an operator's word must be enough");
}

/// The first declaration is kept in the record; every later one is answered with it.
pub async fn only_the_first_declaration_is_kept(fixture: &Fixture) {
    let open = Open { ttl: Duration::from_millis(1), ..fixture.opening() };
    fixture.open(&open).await;
    let first = Declaration {
        session: open.session,
        ground: Evidence::Operator,
        by: holder("the first"),
        why: why("said so"),
        tell: Vec::new(),
    };
    let dead = sure(fixture.store().declare(first, LIMIT)).await;
    assert!(dead.is_dead());
    for ground in grounds(fixture, open.nonce) {
        let seen = fixture.declare(open.session, ground.clone()).await;
        assert_eq!(seen, dead, "{ground:?} of a dead session must change nothing");
    }
}

/// Also of tombstones.
pub async fn only_the_first_tombstone_is_kept(fixture: &Fixture) {
    let session = fixture.session();
    let first = fixture.declare(session, missing(fixture)).await;
    let again = Declaration {
        session,
        ground: Evidence::Missing {
            namespace: fixture.namespace().clone(),
            holder: holder("pod-10"),
            ttl: TTL * 2,
        },
        by: holder("another watcher"),
        why: why("found none either"),
        tell: Vec::new(),
    };
    assert_eq!(sure(fixture.store().declare(again, LIMIT)).await, first);
}

/// Many watchers declare at the same moment: one is named, and all learn which.
pub async fn of_declarations_that_race_one_is_kept(fixture: &Fixture) {
    let opened = fixture.opened().await;
    let unseen = fixture.session();
    for (session, ground) in
        [(opened.id, Evidence::Unbeaten { nonce: opened.nonce }), (unseen, missing(fixture))]
    {
        let answers = race(16, |number| {
            let store = fixture.store().clone();
            let by = holder(&format!("watcher {number}"));
            let declaration = Declaration {
                session,
                ground: ground.clone(),
                by,
                why: why("no beat seen"),
                tell: Vec::new(),
            };
            async move { sure(store.declare(declaration, LIMIT)).await }
        })
        .await;
        let kept = fixture.seen(session).await;
        assert!(kept.is_dead());
        for answer in answers {
            assert_eq!(answer, kept, "every declarer must get the one death that is kept");
        }
    }
}

/// No write brings it back.
pub async fn dead_is_for_ever(fixture: &Fixture) {
    let open = fixture.opening();
    fixture.open(&open).await;
    let dead = SessionSeen::Dead(fixture.declare_dead(open.session).await);
    fixture.open(&open).await;
    fixture.open(&Open { nonce: fixture.nonce(), ..open.clone() }).await;
    for number in [1, 100] {
        fixture.send(&fixture.beat(open.session, number)).await;
    }
    for ground in grounds(fixture, open.nonce) {
        fixture.declare(open.session, ground).await;
    }
    let lock = fixture.lock("taken by the dead");
    fixture.take(&lock, &fixture.candidate(open.session, 1)).await;
    assert_eq!(fixture.seen(open.session).await, dead, "the record of the dead must stay as it was");
}

/// Declarations that failed leave no trace: the session beats on.
pub async fn a_session_beats_on_after_declarations_that_failed(fixture: &Fixture) {
    let opened = fixture.opened().await;
    for ground in [Evidence::Unbeaten { nonce: fixture.nonce() }, missing(fixture)] {
        fixture.declare(opened.id, ground).await;
    }
    let beat = fixture.beat(opened.id, 1);
    assert!(fixture.send(&beat).await.bears(beat.nonce), "declarations that failed must leave it beating");
}

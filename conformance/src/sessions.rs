//! Sessions: opened once, beaten upward, observed, listed.

use std::time::Duration;

use crate::fixture::{Fixture, LIMIT, TTL, all_pages, name, race, sure};
use tenure::{
    model::{Holder, SpreadName, StoreTime, Why},
    store::{Beat, BeatWrite, Buckets, Drained, Open, SessionRecord, SessionSeen, Share, StoreExt},
};

fn shares() -> Vec<Share> {
    let spread = |text| name(SpreadName::new(text));
    vec![
        with!(
            Share::new(spread("$imports"));
            weight: 3,
            digest: u64::MAX,
            paused: true,
            buckets: Some(Buckets::new([0x80; Buckets::COUNT])),
            known: Some(u32::MAX),
            known_since: Some(StoreTime::from_millis(1_763_784_813_124)),
        ),
        with!(
            Share::new(spread("a.b c"));
            cap: 0,
            weight: 0,
            draining: true,
            digest: 1 << 63,
            reserved: Duration::from_millis(1),
        ),
    ]
}

fn alive(seen: SessionSeen) -> SessionRecord {
    match seen {
        SessionSeen::Alive(record) => record,
        other => panic!("the session must be alive, but was {other:?}"),
    }
}

/// The record says what the opening said, and nothing else: beat 0, alive, nothing asked of it.
pub async fn an_opened_session_is_as_it_was_asked_for(fixture: &Fixture) {
    let about = with!(
        fixture.about();
        host: "ホスト.$local".to_owned(),
        pid: u32::MAX,
        program: "{\"$gt\": 1}".to_owned(),
        plan_version: u32::MAX,
    );
    let ttl = Duration::from_millis(30_001);
    let drained = Some(Drained {
        by: name(Holder::new("$ops")),
        since: StoreTime::from_millis(1_763_784_813_123),
        why: Why::shortened("$why \"\0"),
    });
    let open = Open { about, ttl, shares: shares(), drained, ..fixture.opening() };
    let record = alive(fixture.open(&open).await);
    let expected = with!(
        SessionRecord::opened(open.session, open.about, open.nonce, ttl, record.started);
        beat: Beat::new(0),
        beat_at: record.started,
        stalled_since: None,
        death: None,
        shares: open.shares,
        drained: open.drained,
        requests: Vec::new(),
    );
    assert_eq!(record, expected, "the record must say what the opening said");
    let seen = fixture.seen(open.session).await;
    assert_eq!(seen, SessionSeen::Alive(record), "an observer must see what the opening was answered");
}

/// Sent twice, it recognises its own earlier success.
pub async fn opening_again_with_the_same_nonce_changes_nothing(fixture: &Fixture) {
    let open = fixture.opening();
    let first = fixture.open(&open).await;
    assert!(first.bears(open.nonce), "an opening that found no session must bear its nonce");
    assert_eq!(fixture.open(&open).await, first, "an opening sent twice must find what the first one wrote");
}

/// A twin of the same id finds the first one's record, as it was.
pub async fn opening_with_another_nonce_finds_the_session_that_is_there(fixture: &Fixture) {
    let open = fixture.opening();
    let first = fixture.open(&open).await;
    let about = with!(fixture.about(); pid: 1, program: "another".to_owned());
    let twin = Open { nonce: fixture.nonce(), about, ttl: TTL * 2, shares: shares(), ..open };
    let found = fixture.open(&twin).await;
    assert!(!found.bears(twin.nonce), "an opening must not write over a session that is there");
    assert_eq!(found, first, "an opening of an id that is taken must change nothing");
}

/// An opening that arrives after a beat, late or again, does not undo the beat.
pub async fn opening_again_after_a_beat_changes_nothing(fixture: &Fixture) {
    let open = fixture.opening();
    fixture.open(&open).await;
    let beaten = fixture.send(&fixture.beat(open.session, 1)).await;
    assert_eq!(fixture.open(&open).await, beaten, "an opening that comes late must change nothing");
}

/// A session that was declared dead before its opening arrived never lives.
pub async fn a_session_buried_before_it_opened_is_found_dead(fixture: &Fixture) {
    let open = fixture.opening();
    let missing = crate::deaths::missing(fixture);
    let tombstone = fixture.declare(open.session, missing).await;
    assert!(tombstone.is_dead());
    assert_eq!(fixture.open(&open).await, tombstone, "an opening must not revive a tombstone");
    assert_eq!(fixture.seen(open.session).await, tombstone, "it must be dead for others, too");
}

/// Also under the nonce it was opened with.
pub async fn opening_a_dead_session_again_finds_it_dead(fixture: &Fixture) {
    let open = fixture.opening();
    fixture.open(&open).await;
    let dead = fixture.declare_dead(open.session).await;
    for nonce in [open.nonce, fixture.nonce()] {
        let found = fixture.open(&Open { nonce, ..open.clone() }).await;
        assert_eq!(found, SessionSeen::Dead(dead.clone()), "an opening must not revive the dead");
    }
}

/// Of many twins that open at the same moment one is there, and all of them learn which.
pub async fn of_openings_that_race_one_is_kept(fixture: &Fixture) {
    let open = fixture.opening();
    let nonces: Vec<_> = (0..16).map(|_| fixture.nonce()).collect();
    let answers = race(nonces.len(), |number| {
        let (store, open) = (fixture.store().clone(), Open { nonce: nonces[number], ..open.clone() });
        async move { sure(store.open(open, LIMIT)).await }
    })
    .await;
    let kept = fixture.seen(open.session).await;
    assert!(nonces.iter().any(|nonce| kept.bears(*nonce)), "one of the openings must be kept");
    for answer in answers {
        assert_eq!(answer, kept, "every opening must be answered with the session that is there");
    }
}

/// A beat's number, nonce and time change: nothing else of the record does.
pub async fn a_beat_writes_its_number_and_nonce(fixture: &Fixture) {
    let open = Open { shares: shares(), ..fixture.opening() };
    let opened = alive(fixture.open(&open).await);
    let mut before = opened.clone();
    for number in [1, 2, 17] {
        let beat = fixture.beat(open.session, number);
        let seen = fixture.send(&beat).await;
        assert!(seen.bears(beat.nonce), "beat {number} after {} must count", before.beat);
        let record = alive(seen);
        assert!(record.beat_at >= before.beat_at, "beat times of one server must not go back");
        let expected = with!(opened.clone(); beat: beat.beat, nonce: beat.nonce, beat_at: record.beat_at);
        assert_eq!(record, expected, "a beat must change number, nonce and time, and nothing else");
        assert_eq!(fixture.seen(open.session).await, SessionSeen::Alive(record.clone()));
        before = record;
    }
}

/// A beat of a number that is not larger, under another nonce, came late.
pub async fn a_late_beat_changes_nothing(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let latest = fixture.send(&fixture.beat(session, 5)).await;
    for number in [5, 4, 1, 0] {
        let late = BeatWrite { shares: Some(shares()), left: Vec::new(), ..fixture.beat(session, number) };
        let seen = fixture.send(&late).await;
        assert!(!seen.bears(late.nonce), "beat {number} after beat 5 must not count");
        assert_eq!(seen, latest, "beat {number} after beat 5 must change nothing, and see beat 5");
    }
    assert_eq!(fixture.seen(session).await, latest);
}

/// A beat whose answer was lost is sent again, and recognised by its nonce.
pub async fn a_beat_sent_again_is_recognised(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let beat = BeatWrite { shares: Some(shares()), left: Vec::new(), ..fixture.beat(session, 1) };
    let first = fixture.send(&beat).await;
    let again = fixture.send(&beat).await;
    assert!(again.bears(beat.nonce), "a beat sent again must be recognised");
    assert_eq!(again, first, "a beat sent again must change nothing, not even the time of the beat");
}

/// Only the opening inserts.
pub async fn a_beat_never_inserts(fixture: &Fixture) {
    let session = fixture.session();
    let seen = fixture.send(&fixture.beat(session, 1)).await;
    assert_eq!(seen, SessionSeen::Missing, "a beat of a session that was never opened finds none");
    assert_eq!(fixture.seen(session).await, SessionSeen::Missing, "a beat must not insert a session");
}

/// A beat finds the session dead, and the record stays as it was when it died.
pub async fn a_beat_of_a_dead_session_changes_nothing(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    fixture.send(&fixture.beat(session, 1)).await;
    let dead = SessionSeen::Dead(fixture.declare_dead(session).await);
    let beat = BeatWrite { shares: Some(shares()), left: Vec::new(), ..fixture.beat(session, 2) };
    assert_eq!(fixture.send(&beat).await, dead, "a beat must find the session dead, and change nothing");
    assert_eq!(fixture.seen(session).await, dead);
}

/// Each beat says whether the program's runtime stands still.
pub async fn a_beat_says_since_when_the_program_stands_still(fixture: &Fixture) {
    let open = fixture.opened().await;
    assert_eq!(open.stalled_since, None, "a session that was opened just now has not stalled");
    for (number, stalled_since) in (1..).zip([Some(open.started), Some(open.beat_at), None]) {
        let beat = BeatWrite { stalled_since, ..fixture.beat(open.id, number) };
        let record = alive(fixture.send(&beat).await);
        assert_eq!(record.stalled_since, stalled_since, "after beat {number}");
        assert_eq!(fixture.seen(open.id).await, SessionSeen::Alive(record));
    }
}

/// A beat without shares leaves them; one with shares, or with none at all, replaces them.
pub async fn shares_are_replaced_only_when_they_are_given(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let steps = [
        (None, Vec::new()),
        (Some(shares()), shares()),
        (None, shares()),
        (Some(shares()[1..].to_vec()), shares()[1..].to_vec()),
        (Some(Vec::new()), Vec::new()),
    ];
    for (number, (given, expected)) in (1..).zip(steps) {
        let beat = BeatWrite { shares: given.clone(), left: Vec::new(), ..fixture.beat(session, number) };
        let record = alive(fixture.send(&beat).await);
        assert_eq!(record.shares, expected, "after a beat that gave {given:?}");
    }
}

/// As they were asked for: with the living, the dead, the missing, and one of them twice.
pub async fn sessions_are_observed_in_the_order_asked_for(fixture: &Fixture) {
    let alive = fixture.opened().await;
    let dead = fixture.declare_dead(fixture.opened().await.id).await;
    let asked = vec![fixture.session(), dead.id, alive.id, fixture.session(), dead.id];
    let seen = sure(fixture.store().observe(asked, LIMIT)).await;
    let dead = SessionSeen::Dead(dead);
    let expected =
        [SessionSeen::Missing, dead.clone(), SessionSeen::Alive(alive), SessionSeen::Missing, dead];
    assert_eq!(seen, expected, "sightings must come in the order the sessions were asked for");
    assert_eq!(sure(fixture.store().observe(Vec::new(), LIMIT)).await, [], "nothing asked, nothing seen");
}

/// A fleet is observed in one call.
pub async fn many_sessions_are_observed_at_once(fixture: &Fixture) {
    let there = fixture.opened().await;
    let asked: Vec<_> =
        (0..1000).map(|number| if number % 100 == 7 { there.id } else { fixture.session() }).collect();
    let seen = sure(fixture.store().observe(asked.clone(), LIMIT)).await;
    assert_eq!(seen.len(), asked.len());
    for (id, seen) in asked.iter().zip(seen) {
        let expected = if *id == there.id { SessionSeen::Alive(there.clone()) } else { SessionSeen::Missing };
        assert_eq!(seen, expected, "each of many sightings must belong to the session asked for");
    }
}

/// All sessions of the namespace, the dead too, each once and in the order of their ids, whatever
/// the size of a page.
pub async fn sessions_are_listed_page_by_page_with_the_dead(fixture: &Fixture) {
    let neighbour = fixture.another();
    neighbour.opened().await;
    let mut expected = Vec::new();
    for number in 0..7 {
        let mut record = fixture.opened().await;
        if number % 3 == 0 {
            record = fixture.declare_dead(record.id).await;
        }
        expected.push(record);
    }
    let unseen = fixture.session();
    let tombstone = fixture.declare(unseen, crate::deaths::missing(fixture)).await;
    expected.extend(tombstone.record().cloned());
    expected.sort_by_key(|record| record.id);
    for at_most in [1, 2, 3, 8, 100] {
        let store = fixture.store();
        let listed = all_pages(at_most, async |after| {
            sure(store.sessions(fixture.namespace().clone(), after, at_most, LIMIT)).await
        })
        .await;
        assert_eq!(listed, expected, "pages of {at_most} must list every session once, in order");
    }
}

/// An unused namespace has an empty listing.
pub async fn a_namespace_without_sessions_lists_none(fixture: &Fixture) {
    let page = sure(fixture.store().sessions(fixture.namespace().clone(), None, 10, LIMIT)).await;
    assert!(page.items.is_empty() && page.refused.is_empty() && page.next.is_none(), "{page:?}");
}

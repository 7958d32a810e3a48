//! Texts: what means something to a database, a shell or a person means nothing here.

use crate::fixture::{Fixture, LIMIT, TTL, all_pages, holder, name, sure, value, why};
use tenure::{
    model::{Holder, Key, Kind, LockId, Namespace, StoreTime, Value, Who, Why},
    store::{FailureRow, LockRecord, LockSeen, Note, ReleaseTo, StoreExt, Wait},
};

/// Texts that mean something elsewhere, and pairs that only a careless eye takes for one another.
pub(crate) const ODD: &[&str] = &[
    "$exp",
    "$$NOW",
    "$$ROOT",
    "$",
    "a.b",
    ".",
    "..",
    "{\"$gt\":1}",
    "{\"$literal\": {}}",
    "_id",
    "v",
    " leading",
    "trailing ",
    "trailing",
    "A",
    "a",
    "é",
    "e\u{301}",
    "👑",
    "👨‍👩‍👧",
    "ключ",
    "鍵",
    "مفتاح",
    "\u{200b}",
    "\u{202e}flipped",
    "\u{feff}bom",
    "%s %n",
    "'; DROP TABLE locks; --",
    "\"quoted\"",
    "back\\slash",
    "/a/../b",
    "a:b",
    "a/b",
    "a|b",
    "a#1",
    "null",
    "NaN",
    "0",
    "\u{10ffff}",
];

/// A text of exactly so many bytes, as short characters or long ones.
pub(crate) fn full(bytes: usize, of: &str) -> String {
    of.repeat(bytes / of.len()) + &"x".repeat(bytes % of.len())
}

/// Each key is itself and no other, also at the limits of its length.
pub async fn any_text_is_a_key_of_its_own(fixture: &Fixture) {
    let most = Key::MAX_BYTES;
    let mut keys: Vec<String> = ODD.iter().map(|text| (*text).to_owned()).collect();
    keys.extend([full(most, "k"), full(most, "👑"), full(most - 1, "k"), full(most, "$")]);
    let mut expected = Vec::new();
    for key in &keys {
        let lock = fixture.lock(key);
        assert_eq!(fixture.look(&lock).await, LockSeen::Absent, "{key:?} must not be another key");
        let record = fixture.taken(&lock, &fixture.candidate(fixture.session(), 1)).await;
        assert_eq!(record.id, lock, "the record must name the key as it was asked for");
        expected.push(record);
    }
    let seen = sure(fixture.store().locks(keys.iter().map(|key| fixture.lock(key)).collect(), LIMIT)).await;
    let seen: Vec<_> = seen.into_iter().filter_map(LockSeen::found).collect();
    assert_eq!(seen, expected, "each key must be found under its own name");
    let store = fixture.store();
    for at_most in [1, 7, 100] {
        let mut listed = all_pages(at_most, async |after| {
            sure(store.list_locks(fixture.namespace().clone(), None, after, at_most, LIMIT)).await
        })
        .await;
        listed.sort_by(|one, other| one.id.cmp(&other.id));
        expected.sort_by(|one, other| one.id.cmp(&other.id));
        assert_eq!(listed, expected, "pages of {at_most} must list each key once");
    }
}

/// Any name, reason or value is read back as it was written: from a take, from the queue, and after a hand-over.
pub async fn any_text_may_be_said_of_a_lock(fixture: &Fixture) {
    let mut sayings: Vec<_> = ODD.iter().map(|text| ((*text).to_owned(), (*text).to_owned())).collect();
    sayings.push((full(Holder::MAX_BYTES, "$"), full(Why::MAX_BYTES, "\n$\"'\\\t\0")));
    sayings.push((full(Who::MAX_BYTES, "é"), String::new()));
    sayings.push((full(Who::MAX_BYTES, "x"), "many\r\nlines\n\u{0}and a \u{1b}[31m colour".to_owned()));
    for (number, (text, reason)) in sayings.iter().enumerate() {
        let says = |session| {
            with!(
                fixture.candidate(session, 1);
                holder: name(Holder::new(text)),
                who: Some(name(Who::new(text))),
                why: Some(why(reason)),
                value: Some(value(reason.as_bytes())),
            )
        };
        let lock = fixture.lock(&format!("key {number}"));
        let [first, second] = [says(fixture.session()), says(fixture.session())];
        let record = fixture.taken(&lock, &first).await;
        assert_eq!(record.holding.as_ref().map(|held| &held.by), Some(&first), "taken as was said");
        sure(fixture.store().wait(vec![Wait { lock: lock.clone(), by: second.clone() }], LIMIT)).await;
        let queue = sure(fixture.store().waiters(lock.clone(), 2, LIMIT)).await;
        let queue: Vec<_> = queue.waiters.into_iter().map(|waiter| waiter.by).collect();
        assert_eq!(queue, std::slice::from_ref(&second), "it must stand in the queue as was said");
        let row = FailureRow::begun(StoreTime::from_millis(1_763_784_813_123), &first.holder, reason);
        let note = Note::Failing(row.followed_by(&second.holder, reason).followed_by(&holder("$a"), reason));
        let release = tenure::store::Release {
            lock: lock.clone(),
            session: first.session,
            term: record.term,
            note: Some(note.clone()),
            then: ReleaseTo::HandTo(Box::new(second.clone())),
        };
        fixture.release_as(release).await;
        let record = fixture.record(&lock).await;
        assert_eq!(record.holding.as_ref().map(|held| &held.by), Some(&second), "handed over as was said");
        let past = &record.past[0];
        assert_eq!((&past.holder, &past.who, &past.note), (&first.holder, &first.who, &Some(note)));
    }
}

/// No text, an empty reason, and an empty value are three things.
pub async fn saying_nothing_is_not_an_empty_saying(fixture: &Fixture) {
    let sayings = [(None, None), (Some(why("")), Some(value(b""))), (Some(why("")), None)];
    for (number, (why, value)) in sayings.into_iter().enumerate() {
        let by = with!(fixture.candidate(fixture.session(), 1); why: why, value: value);
        let lock = fixture.lock(&format!("key {number}"));
        fixture.taken(&lock, &by).await;
        let kept = fixture.record(&lock).await.holding.map(|held| held.by);
        assert_eq!(kept, Some(by));
    }
}

/// The largest value a lock may carry, of every byte there is.
pub async fn a_value_may_have_any_bytes_up_to_the_limit(fixture: &Fixture) {
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(Value::MAX_BYTES).collect();
    let by = with!(fixture.candidate(fixture.session(), 1); value: Some(value(&bytes)));
    let lock = fixture.lock("report");
    fixture.taken(&lock, &by).await;
    let kept = fixture.record(&lock).await.holding.map(|held| held.by);
    assert_eq!(kept, Some(by), "the value must come back byte by byte");
}

/// The same key as a lock, a schedule, and a task of two spreads is four locks; so are names that
/// are alike only when they are written one after the other.
pub async fn kinds_do_not_meet(fixture: &Fixture) {
    let locks: Vec<LockId> = vec![
        fixture.lock("report"),
        fixture.lock_of(Kind::Schedule, "report"),
        fixture.task("first", "report"),
        fixture.task("second", "report"),
        fixture.task("lock", "report"),
        fixture.task("a:b", "c"),
        fixture.task("a", "b:c"),
        fixture.task("a/b", "c"),
        fixture.task("a", "b/c"),
        fixture.lock("task:first"),
        fixture.lock("task:first:report"),
        fixture.lock("task:first/report"),
        fixture.lock("schedule"),
    ];
    do_not_meet(fixture, &locks).await;
}

/// The same key in two namespaces is two locks, also if one namespace's name begins like the
/// other's.
pub async fn namespaces_do_not_meet(fixture: &Fixture) {
    let mine = fixture.namespace().as_str();
    let mut locks = vec![fixture.lock("report"), fixture.another().lock("report")];
    for (suffix, key) in [("/a", "b"), ("", "a/b"), (":a", "b"), ("", "a:b"), (".a", "b"), ("", "a.b")] {
        let namespace = name(Namespace::new(format!("{mine}{suffix}")));
        locks.push(LockId { namespace, ..fixture.lock(key) });
    }
    do_not_meet(fixture, &locks).await;
    let store = fixture.store();
    for lock in &locks {
        let listed = sure(store.list_locks(lock.namespace.clone(), None, None, 100, LIMIT)).await;
        let expected = locks.iter().filter(|other| other.namespace == lock.namespace).count();
        assert_eq!(listed.items.len(), expected, "a listing must keep to its namespace");
        assert!(listed.items.iter().all(|record| record.id.namespace == lock.namespace));
    }
    // Nor by a place in the listing of another one, or of another kind.
    let task = fixture.task("a", "report");
    for id in [&locks[0], &locks[1], &task] {
        for key in ["one", "two"] {
            let lock = LockId { key: name(Key::new(key)), ..id.clone() };
            fixture.taken(&lock, &fixture.candidate(fixture.session(), 1)).await;
        }
    }
    for lock in [&locks[0], &locks[1], &task] {
        let page =
            sure(store.list_locks(lock.namespace.clone(), Some(lock.kind.clone()), None, 1, LIMIT)).await;
        for other in [&locks[0], &locks[1], &task] {
            let (namespace, kind) = (other.namespace.clone(), Some(other.kind.clone()));
            // A store may also refuse it.
            let listed = store.list_locks(namespace, kind, page.next.clone(), 100, LIMIT).await;
            let items = listed.map_or_else(|_| Vec::new(), |page| page.items);
            let is_of = |record: &LockRecord| {
                (&record.id.namespace, &record.id.kind) == (&other.namespace, &other.kind)
            };
            assert!(items.iter().all(is_of), "{other} after a place of {lock}: {items:?}");
        }
    }
}

/// Takes all of them for different sessions, and lets each wait in a queue of its own.
async fn do_not_meet(fixture: &Fixture, locks: &[LockId]) {
    let mut records = Vec::new();
    // A waiter may be seen already.
    let found = async |lock| with!(fixture.record(lock).await; wanted: false);
    for lock in locks {
        let by = fixture.candidate(fixture.session(), 1);
        let record = fixture.taken(lock, &by).await;
        assert_eq!(record.id, *lock);
        sure(fixture.store().wait(vec![Wait { lock: lock.clone(), by }], LIMIT)).await;
        records.push(record);
    }
    for (lock, record) in locks.iter().zip(&records) {
        assert_eq!(found(lock).await, *record, "{lock} must be a lock of its own");
        let queue = sure(fixture.store().waiters(lock.clone(), 100, LIMIT)).await;
        assert_eq!(queue.waiters.len(), 1, "{lock} must have a queue of its own");
    }
    fixture.freed(&records[0]).await;
    for record in &records[1..] {
        assert_eq!(found(&record.id).await, *record, "releasing one must not touch the others");
    }
}

/// Numbers up to the largest a record may carry, and times to the millisecond.
pub async fn large_numbers_come_back_as_they_were(fixture: &Fixture) {
    use tenure::{
        model::{MAX_NUMBER, SessionId},
        store::{Beat, Nonce},
    };
    let by = with!(
        fixture.candidate(SessionId::from_u128(fixture.session().as_u128() | 1 << 127), MAX_NUMBER);
        ttl: TTL * 60 * 24 * 365,
        lock_delay: std::time::Duration::from_millis(86_400_001),
    );
    let lock = fixture.lock("report");
    fixture.taken(&lock, &by).await;
    let record = fixture.taken(&lock, &by).await;
    assert_eq!(record.holding.map(|held| held.by), Some(by));

    let session = fixture.opened().await.id;
    let (beat, nonce) = (Beat::new(MAX_NUMBER), Nonce::new(MAX_NUMBER));
    let write = tenure::store::BeatWrite { beat, nonce, ..fixture.beat(session, 0) };
    let seen = fixture.send(&write).await;
    assert!(seen.bears(nonce), "{seen:?}");
    assert_eq!(seen.record().map(|record| record.beat), Some(beat));
}

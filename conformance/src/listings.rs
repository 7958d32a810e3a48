//! Reads and listings of locks.

use crate::fixture::{Fixture, LIMIT, all_pages, granted, sure, value};
use tenure::{
    Applied,
    model::{Kind, SessionId},
    store::{Cursor, Held, LockRecord, LockSeen, ReleaseTo, StoreExt, Take},
};

/// As they were asked for: held, free, absent, and one of them twice.
pub async fn locks_are_read_in_the_order_asked_for(fixture: &Fixture) {
    let [held, free, absent] = ["held", "free", "absent"].map(|key| fixture.lock(key));
    let session = fixture.session();
    let record = fixture.held(&held, session, 1).await;
    let freed = fixture.freed(&fixture.held(&free, session, 2).await).await;
    let asked = vec![absent.clone(), held.clone(), free, absent, held];
    let found = LockSeen::Found;
    let expected = [LockSeen::Absent, found(record.clone()), found(freed), LockSeen::Absent, found(record)];
    let peeked = sure(fixture.store().peek(asked.clone(), LIMIT)).await;
    assert_eq!(peeked, expected, "what was answered is seen at once, in the order asked for");
    let seen = sure(fixture.store().locks(asked, LIMIT)).await;
    assert_eq!(seen, expected, "locks must come in the order they were asked for");
}

/// Reads are reads.
pub async fn reading_changes_nothing(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let by = fixture.talkative(fixture.session(), 1);
    let record = fixture.taken(&lock, &by).await;
    let store = fixture.store();
    for _ in 0..3 {
        sure(store.locks(vec![lock.clone(), fixture.lock("absent")], LIMIT)).await;
        sure(store.peek(vec![lock.clone(), fixture.lock("absent")], LIMIT)).await;
        sure(store.list_locks(fixture.namespace().clone(), None, None, 10, LIMIT)).await;
        sure(store.held_by(by.session, None, 10, LIMIT)).await;
        sure(store.waiters(lock.clone(), 10, LIMIT)).await;
    }
    assert_eq!(fixture.record(&lock).await, record);
    assert_eq!(fixture.look(&fixture.lock("absent")).await, LockSeen::Absent);
}

/// Held or free, each once, in the order of kind and key, whatever the size of a page.
pub async fn locks_are_listed_page_by_page_by_kind_and_key(fixture: &Fixture) {
    let session = fixture.session();
    let neighbour = fixture.another();
    neighbour.held(&neighbour.lock("b"), session, 1).await;
    let mut expected: Vec<LockRecord> = Vec::new();
    for (ticket, lock) in (1..).zip([
        fixture.lock("b"),
        fixture.lock_of(Kind::Schedule, "a"),
        fixture.task("second", "a"),
        fixture.task("first", "z"),
        fixture.task("first", "a"),
        fixture.lock("a b"),
        fixture.lock("a"),
        fixture.task("first second", "a"),
        fixture.lock("ab"),
        fixture.lock_of(Kind::Schedule, "B"),
    ]) {
        let record = fixture.held(&lock, session, ticket).await;
        expected.push(if ticket % 3 == 0 { fixture.freed(&record).await } else { record });
    }
    expected.sort_by_key(|record| (record.id.kind.to_string(), record.id.key.clone()));
    let kinds = expected.iter().map(|record| Some(record.id.kind.clone()));
    let kinds: std::collections::BTreeSet<_> = kinds.chain([None]).collect();
    assert_eq!(kinds.len(), 6, "all, locks, schedules, tasks of three spreads");
    for kind in kinds {
        let wanted: Vec<_> = expected
            .iter()
            .filter(|record| kind.as_ref().is_none_or(|kind| record.id.kind == *kind))
            .cloned()
            .collect();
        for at_most in [1, 2, 3, 10, 100] {
            let (store, namespace) = (fixture.store(), fixture.namespace());
            let listed = all_pages(at_most, async |after| {
                sure(store.list_locks(namespace.clone(), kind.clone(), after, at_most, LIMIT)).await
            })
            .await;
            assert_eq!(listed, wanted, "pages of {at_most} of {kind:?} must list every lock once, in order");
        }
    }
}

/// An unused kind has an empty listing.
pub async fn a_kind_without_locks_lists_none(fixture: &Fixture) {
    fixture.held(&fixture.lock("report"), fixture.session(), 1).await;
    let kind = fixture.task("import", "a").kind;
    let page = sure(fixture.store().list_locks(fixture.namespace().clone(), Some(kind), None, 10, LIMIT));
    let page = page.await;
    assert!(page.items.is_empty() && page.refused.is_empty() && page.next.is_none(), "{page:?}");
}

/// Latest term first, each with term and ticket, whatever the size of a page and however many locks
/// share a term.
pub async fn keys_of_a_session_are_listed_latest_first(fixture: &Fixture) {
    let [session, stranger] = [fixture.session(), fixture.session()];
    fixture.held(&fixture.lock("of a stranger"), stranger, 1).await;
    fixture.freed(&fixture.held(&fixture.lock("given back"), session, 1).await).await;
    let mut expected = Vec::new();
    // In one batch, to make ties of terms likely; and one by one, of every kind.
    let batch = (0..20).map(|number| {
        let by = fixture.candidate(session, 100 + number);
        Take { lock: fixture.lock(&format!("in a batch {number}")), by }
    });
    for answer in fixture.take_all(batch.collect(), &[]).await {
        expected.push(held(granted(answer)));
    }
    for (ticket, lock) in (1..).zip([
        fixture.task("import", "a"),
        fixture.lock_of(Kind::Schedule, "nightly"),
        fixture.task("export", "a"),
        fixture.lock("a"),
    ]) {
        expected.push(held(fixture.held(&lock, session, ticket).await));
    }
    expected.sort_by_key(|held| held.lock.clone());
    for at_most in [1, 2, 3, 24, 100] {
        let store = fixture.store();
        let mut listed =
            all_pages(at_most, async |after| sure(store.held_by(session, after, at_most, LIMIT)).await).await;
        let falling = listed.is_sorted_by(|one, next| one.term >= next.term);
        assert!(falling, "pages of {at_most} must list the latest term first: {listed:?}");
        listed.sort_by_key(|held| held.lock.clone());
        assert_eq!(listed, expected, "pages of {at_most} must list what it holds, each lock once");
    }
}

fn held(record: LockRecord) -> Held {
    let ticket = record.holding.expect("it was just granted").by.ticket;
    Held { lock: record.id, term: record.term, ticket }
}

/// A listing goes on behind the last item of a page, also if that is not there any more.
pub async fn a_listing_goes_on_where_items_have_gone(fixture: &Fixture) {
    let session = fixture.session();
    for (ticket, key) in (1..).zip(["a", "b", "c", "d", "e"]) {
        fixture.held(&fixture.lock(key), session, ticket).await;
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = sure(fixture.store().held_by(session, after, 2, LIMIT)).await;
        for held in page.items {
            fixture.release(&held.lock, session, held.term, ReleaseTo::Free).await;
            seen.push(held.lock.key.as_str().to_owned());
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, ["a", "b", "c", "d", "e"], "each must be listed once, whatever was released since");
}

/// A caller that passes one learns that the mistake is its own.
pub async fn a_cursor_of_another_store_is_refused_as_one_or_read_as_a_place(fixture: &Fixture) {
    let (store, namespace) = (fixture.store(), || fixture.namespace().clone());
    for place in [vec![], vec![1, 2, 3], vec![0xff; 40], b"{\"id\": 7}".to_vec()] {
        let after = || Some(Cursor::new(place.clone()));
        let held = store.held_by(fixture.session(), after(), 10, LIMIT);
        let history = store.history(fixture.schedule("s"), after(), 10, LIMIT);
        for refused in [
            store.sessions(namespace(), after(), 10, LIMIT).await.err(),
            store.list_locks(namespace(), None, after(), 10, LIMIT).await.err(),
            store.list_schedules(namespace(), after(), 10, LIMIT).await.err(),
            held.await.err(),
            history.await.err(),
        ] {
            let Some(error) = refused else { continue };
            let (is_foreign, applied) = (error.is_foreign_cursor(), error.applied());
            assert!(is_foreign && applied == Applied::No && !error.is_retryable(), "{place:?}: {error:?}");
        }
    }
}

/// A lock leaves one list and enters the other when it changes hands.
pub async fn the_list_of_a_sessions_keys_follows_every_change(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let [former, taker] = [fixture.session(), fixture.opened().await.id];
    let successor = fixture.session();
    let first = fixture.held(&lock, former, 1).await;
    assert_eq!(audit(fixture, former).await, [held(first.clone())]);

    let first = fixture.held(&lock, former, 2).await;
    assert_eq!(audit(fixture, former).await, [held(first.clone())], "a later ticket, a new term");

    let next = Box::new(fixture.candidate(taker, 7));
    fixture.release(&lock, former, first.term, ReleaseTo::HandTo(next)).await;
    assert_eq!(audit(fixture, former).await, [], "handed over, it is not held any more");
    assert_eq!(audit(fixture, taker).await, [held(fixture.record(&lock).await)]);

    fixture.declare_dead(taker).await;
    assert_eq!(audit(fixture, taker).await.len(), 1, "a lock in dead hands is in its hands until taken");
    let successors = granted(fixture.take_over(&lock, &fixture.candidate(successor, 1), &[taker]).await);
    assert_eq!(audit(fixture, taker).await, [], "taken over, it is not held any more");
    fixture.freed(&successors).await;
    assert_eq!(audit(fixture, successor).await, [], "released, it is not held any more");
}

async fn audit(fixture: &Fixture, session: SessionId) -> Vec<Held> {
    sure(fixture.store().held_by(session, None, 10, LIMIT)).await.items
}

/// Of all that these sessions hold: those of one term by kind and key, each once, and no more than asked for. No
/// locks of other sessions, also if one is named twice or holds nothing.
pub async fn the_latest_grants_of_sessions_come_largest_term_first(fixture: &Fixture) {
    let [one, other, stranger, idle] = std::array::from_fn(|_| fixture.session());
    let mut expected = Vec::new();
    // In one batch, to make ties of terms likely.
    let names = ["b", "a", "B", "a b"];
    for kind in [Kind::Schedule, fixture.task("import", "a").kind, Kind::Lock] {
        let takes = (0..).zip(names).map(|(number, key)| {
            let by = fixture.talkative([one, other][number % 2], number as u64);
            Take { lock: fixture.lock_of(kind.clone(), key), by }
        });
        expected.extend(fixture.take_all(takes.collect(), &[]).await.into_iter().map(granted));
    }
    for (ticket, session) in (100..).zip([other, one, one, other]) {
        expected.push(fixture.held(&fixture.lock(&format!("by itself {ticket}")), session, ticket).await);
    }
    fixture.held(&fixture.lock("of a stranger"), stranger, 1).await;
    fixture.freed(&fixture.held(&fixture.lock("given back"), one, 1).await).await;
    expected.sort_by_key(|record| {
        (std::cmp::Reverse(record.term), record.id.kind.to_string(), record.id.key.clone())
    });
    let of_one = expected.iter().filter(|record| record.is_held_by(one)).cloned().collect();
    for (sessions, expected) in [
        (vec![idle, other, one, other], expected),
        (vec![one], of_one),
        (vec![idle], vec![]),
        (vec![], vec![]),
    ] {
        for at_most in [0, 1, 2, 3, 15, 16, 100] {
            let latest = latest(fixture, sessions.clone(), at_most).await;
            assert_eq!(latest, expected[..at_most.min(expected.len())], "{at_most} of {sessions:?}");
        }
    }
}

async fn latest(fixture: &Fixture, sessions: Vec<SessionId>, at_most: usize) -> Vec<LockRecord> {
    sure(fixture.store().latest_grants(sessions, at_most, LIMIT)).await
}

/// However many there are.
pub async fn the_latest_grants_of_hundreds_of_sessions_are_found(fixture: &Fixture) {
    let sessions: Vec<_> = (0..450).map(|_| fixture.session()).collect();
    let mut taken = Vec::new();
    for (number, session) in sessions.iter().enumerate().step_by(9) {
        let lock = fixture.lock(&format!("{:03}", number * 77 % 450));
        taken.push(fixture.held(&lock, *session, 1).await);
    }
    taken.sort_by_key(|record| (std::cmp::Reverse(record.term), record.id.key.clone()));
    for at_most in [1, 20, 100] {
        let expected = &taken[..at_most.min(taken.len())];
        assert_eq!(latest(fixture, sessions.clone(), at_most).await, expected, "{at_most} at most");
    }
}

/// A lock in dead hands is in its hands until it is taken.
pub async fn the_latest_grants_follow_every_change(fixture: &Fixture) {
    let [first, second] = [fixture.lock("first"), fixture.lock("second")];
    let [former, successor] = [fixture.opened().await.id, fixture.session()];
    let both = vec![former, successor];
    fixture.held(&first, former, 1).await;
    let later = fixture.held(&second, former, 2).await;
    let again = fixture.held(&first, former, 3).await;
    fixture.set(&second, former, later.term, Some(value(b"new"))).await;
    let later = fixture.record(&second).await;
    let mut expected = vec![again.clone(), later];
    expected.sort_by_key(|record| (std::cmp::Reverse(record.term), record.id.key.clone()));
    assert_eq!(latest(fixture, both.clone(), 10).await, expected, "as they stand, the value with them");

    fixture.declare_dead(former).await;
    assert_eq!(latest(fixture, vec![former], 10).await, expected, "as before");
    let taken = granted(fixture.take_over(&second, &fixture.candidate(successor, 1), &[former]).await);
    let mut expected = vec![again.clone(), taken.clone()];
    expected.sort_by_key(|record| (std::cmp::Reverse(record.term), record.id.key.clone()));
    assert_eq!(latest(fixture, both.clone(), 10).await, expected, "taken over, it is the other's");
    fixture.freed(&taken).await;
    assert_eq!(latest(fixture, both, 10).await, [again], "released, it is nobody's");
}

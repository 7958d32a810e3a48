//! Reads and listings of locks.

use super::fixture::{Fixture, LIMIT, all_pages, granted, sure};
use crate::{
    model::{Kind, LockRecord, SessionId},
    store::{Held, LockSeen, ReleaseTo, Take},
};

/// As they were asked for: held, free, absent, and one of them twice.
pub async fn locks_are_read_in_the_order_asked_for(fixture: &Fixture) {
    let [held, free, absent] = ["held", "free", "absent"].map(|key| fixture.lock(key));
    let session = fixture.session();
    let record = fixture.held(&held, session, 1).await;
    let freed = fixture.freed(&fixture.held(&free, session, 2).await).await;
    let asked = vec![absent.clone(), held.clone(), free, absent, held];
    let seen = sure(fixture.store().locks(asked, LIMIT)).await;
    let found = LockSeen::Found;
    let expected = [LockSeen::Absent, found(record.clone()), found(freed), LockSeen::Absent, found(record)];
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

/// A kind nobody uses has an empty listing.
pub async fn a_kind_without_locks_lists_none(fixture: &Fixture) {
    fixture.held(&fixture.lock("report"), fixture.session(), 1).await;
    let kind = fixture.task("import", "a").kind;
    let page = sure(fixture.store().list_locks(fixture.namespace().clone(), Some(kind), None, 10, LIMIT));
    let page = page.await;
    assert!(page.items.is_empty() && page.refused.is_empty() && page.next.is_none(), "{page:?}");
}

/// Latest term first, each with term and ticket, whatever the size of a page and however many locks
/// share a term.
pub async fn what_a_session_holds_is_listed_latest_first(fixture: &Fixture) {
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

/// A lock leaves one list and enters the other when it changes hands.
pub async fn what_a_session_holds_follows_every_change(fixture: &Fixture) {
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

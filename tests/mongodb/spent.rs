//! A term at its limit: nothing larger can be granted, and nobody else is held up by it.

use mongodb::bson::{Bson, doc};
use tenure::{
    model::{LockId, MAX_NUMBER, Term},
    store::{LockSeen, ReleaseTo, TakeAnswer},
};
use tenure_conformance::Fixture;

use crate::mongodb::Place;
use crate::support::mongod::shared_single;

async fn set_term(place: &Place, lock: &LockId, term: u64) {
    let id = doc! { "_id.ns": lock.namespace.as_str(), "_id.key": lock.key.as_str() };
    let term = doc! { "$set": { "term": Bson::Int64(term.try_into().unwrap()) } };
    assert_eq!(place.collection("locks").update_one(id, term).await.unwrap().matched_count, 1);
}

/// A take of it is refused, alone and beside a healthy one, which is got.
async fn only_this_lock_is_refused(fixture: &Fixture, lock: &LockId, dead: &[tenure::model::SessionId]) {
    let by = fixture.candidate(fixture.session(), 1);
    let healthy = fixture.lock(&format!("beside {} {}", lock.key, dead.len()));
    let alone = fixture.take_over(lock, &by, dead).await;
    let takes = [lock, &healthy].map(|lock| tenure::store::Take { lock: lock.clone(), by: by.clone() });
    let together = fixture.take_all(takes.to_vec(), dead).await;
    for answer in [&alone, &together[0]] {
        let TakeAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
        assert!(refusal.to_string().contains("`term` is 9007199254740991, the maximum"), "{refusal}");
    }
    assert!(together[1].taken().is_some(), "{together:?}");
}

#[tokio::test]
async fn a_lock_whose_term_is_at_its_limit_is_refused_for_its_key_alone() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let (free, held) = (fixture.lock("free"), fixture.lock("held"));
    fixture.freed(&fixture.held(&free, fixture.session(), 1).await).await;
    set_term(&place, &free, MAX_NUMBER).await;
    only_this_lock_is_refused(&fixture, &free, &[]).await;
    let before = fixture.record(&free).await;
    assert_eq!((before.term, before.holding), (Term::new(MAX_NUMBER), None));

    // The last term there is can be granted, held, and given back.
    let holder = fixture.candidate(fixture.session(), 5);
    fixture.taken(&held, &holder).await;
    fixture.freed(&fixture.record(&held).await).await;
    set_term(&place, &held, MAX_NUMBER - 1).await;
    let last = fixture.taken(&held, &holder).await;
    assert_eq!(last.term, Term::new(MAX_NUMBER));
    assert_eq!(fixture.taken(&held, &holder).await, last, "a take sent again finds its grant");
    only_this_lock_is_refused(&fixture, &held, &[]).await;
    only_this_lock_is_refused(&fixture, &held, &[holder.session]).await;
    let later = fixture.take(&held, &fixture.candidate(holder.session, 6)).await;
    assert!(matches!(later, TakeAnswer::Refused(_)), "{later:?}");
    assert_eq!(fixture.record(&held).await, last, "nobody took it");
    let successor = fixture.candidate(fixture.session(), 1);
    fixture.release(&held, holder.session, last.term, ReleaseTo::HandTo(Box::new(successor))).await;
    let LockSeen::Found(record) = fixture.look(&held).await else { panic!("it can still be read") };
    assert_eq!((record.holding, record.term), (None, last.term), "with no larger term it goes to nobody");
}

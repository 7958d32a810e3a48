//! Holders' names say nothing about who holds a lock.

use tenure::elect::{Busy, JobEnd};

use crate::fleet::{Place, bounded, quick, record, replica_set};

#[tokio::test]
async fn two_instances_of_one_name_exclude_each_other() {
    let place = Place::on(replica_set().await.uri()).await;
    let (first, second) = (place.instance(quick("twin")).await, place.instance(quick("twin")).await);
    assert_ne!(first.health().session, second.health().session);
    let guard = first.acquire("key").await.unwrap();
    let Some(Busy::Held(held)) = second.key("key").try_acquire().await.unwrap().busy() else {
        panic!("it is held by the other");
    };
    assert_eq!((held.holder.as_str(), Some(held.session)), ("twin", first.health().session));
    assert_eq!(held.term, guard.term());
    let waits = tokio::spawn(async move { second.acquire("key").await.unwrap() });
    let term = guard.term();
    guard.release().await.unwrap();
    let next = bounded("it is handed over", waits).await.unwrap();
    assert!(next.term() > term);
    assert!(first.key("key").try_acquire().await.unwrap().busy().is_some());
}

#[tokio::test]
async fn names_that_look_like_operators_are_names() {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let odd = ["$exp", "$$ROOT", "$set", "a.b.c", "$literal", "{ \"$gt\": \"\" }", "ключ"];
    for (number, name) in odd.into_iter().enumerate() {
        let elect = place.instance(quick(name)).await;
        let other = place.instance(quick("other")).await;
        let key = format!("{name} {number}");
        let lock = elect.key(&key).who(name).why(name).value(name).lock(async |lease| {
            lease.cancelled().await;
            Ok::<_, String>(())
        });
        let job = lock.await.unwrap().running().unwrap();
        let Some(Busy::Held(held)) = other.key(&key).try_acquire().await.unwrap().busy() else {
            panic!("{name} holds it");
        };
        assert_eq!(held.holder.as_str(), name);
        assert_eq!(held.who.unwrap().as_str(), name);
        assert_eq!(held.why.unwrap().as_str(), name);
        assert_eq!(held.value.unwrap().as_bytes(), name.as_bytes());
        assert!(job.lease().check().await.unwrap());
        elect.unlock(&key).await.unwrap();
        assert_eq!(job.join().await, JobEnd::Finished(()));
        let guard = other.acquire(&key).await.unwrap();
        assert_eq!(record(&store, &key).await.unwrap().past[0].holder.as_str(), name);
        guard.release().await.unwrap();
    }
}

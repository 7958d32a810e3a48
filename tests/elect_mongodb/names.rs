//! Holders' names say nothing about who holds a lock.

use tenure::{
    elect::{Busy, JobEnd},
    model::SessionId,
    store::{About, Nonce, Open, StoreExt, mongo::MongoStore},
};

use crate::captured::Log;
use crate::elect_mongodb::fleet::{
    LIMIT, Place, SECOND, busy, holds, job, obedient, record, replica_set, session, steady, until, when,
    within,
};

#[tokio::test]
async fn two_instances_of_one_name_exclude_each_other() {
    let place = Place::on(replica_set().await.uri()).await;
    let (first, second) = (place.instance(steady("twin")).await, place.instance(steady("twin")).await);
    assert_ne!(first.health().session, second.health().session);
    let guard = first.acquire("key").await.unwrap();
    let Busy::Held(held) = busy(&second, "key").await else { panic!("it is held by the other") };
    assert_eq!((held.holder.as_str(), Some(held.session)), ("twin", first.health().session));
    assert_eq!(held.term, guard.term());
    let waits = tokio::spawn(async move { second.acquire("key").await.unwrap() });
    let term = guard.term();
    guard.release().await.unwrap();
    let next = within("it is handed over", waits).await.unwrap();
    assert!(next.term() > term);
    assert!(matches!(busy(&first, "key").await, Busy::Held(_)));
}

#[tokio::test]
async fn names_that_look_like_operators_are_names() {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let odd = ["$exp", "$$ROOT", "$set", "a.b.c", "$literal", "{ \"$gt\": \"\" }", "ключ"];
    for (number, name) in odd.into_iter().enumerate() {
        let elect = place.instance(steady(name)).await;
        let other = place.instance(steady("other")).await;
        let key = format!("{name} {number}");
        let job = job(|| elect.key(&key).who(name).why(name).value(name), obedient).await;
        let Busy::Held(held) = busy(&other, &key).await else { panic!("{name} holds it") };
        assert_eq!(held.holder.as_str(), name);
        assert_eq!(held.who.unwrap().as_str(), name);
        assert_eq!(held.why.unwrap().as_str(), name);
        assert_eq!(held.value.unwrap().as_bytes(), name.as_bytes());
        assert!(holds(job.lease()).await);
        elect.unlock(&key).await.unwrap();
        assert_eq!(job.join().await, JobEnd::Finished(()));
        let guard = other.acquire(&key).await.unwrap();
        assert_eq!(record(&store, &key).await.unwrap().past[0].holder.as_str(), name);
        guard.release().await.unwrap();
    }
}

/// The warnings that another has this name.
fn told(log: &Log) -> Vec<String> {
    log.with(&["has the same holder name"])
}

/// A session of that name that does not beat: its process was killed a moment ago.
async fn killed(store: &MongoStore, holder: &str) {
    let open = Open {
        session: SessionId::from_u128(0xdead),
        about: About::new("test".parse().unwrap(), holder.parse().unwrap()),
        nonce: Nonce::new(1),
        ttl: SECOND,
        shares: Vec::new(),
        drained: None,
    };
    store.open(open, LIMIT).await.unwrap();
}

#[tokio::test]
async fn an_instance_says_that_another_has_its_name_and_nothing_of_the_one_before_a_restart() {
    let (log, _guard) = Log::start();
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    place.instance(steady("pod-1")).await.close().await;
    killed(&store, "pod-1").await;
    let first = place.instance(steady("pod-1")).await;
    let session_of_first = first.health().session.unwrap();
    // Until it has looked for as long as the one that was killed may have lived.
    until("it beats", async || {
        let beat = session(&store, session_of_first).await.unwrap().beat;
        when(beat.get() >= 5, beat)
    })
    .await;
    assert_eq!(told(&log), Vec::<String>::new(), "nobody else beats");

    let other = place.instance(steady("pod-2")).await;
    let second = place.instance(steady("pod-1")).await;
    let line = until("it is told", async || told(&log).pop().ok_or_else(|| log.lines())).await;
    for part in [
        &format!("session={}", second.health().session.unwrap()),
        &format!("other={session_of_first}"),
        "holder=pod-1",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(told(&log).len(), 1, "{:?}", told(&log));
    drop((first, other, second));
}

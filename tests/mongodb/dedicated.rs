//! A store's connection of its own: it waits behind nothing of the first one, and lives on the
//! runtime it was made on.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use futures::{StreamExt, future::select_all};
use tenure::{
    model::SessionId,
    store::{Hint, SessionSeen, Store, StoreExt, Take, mongo::MongoOptions},
    testing::{Counting, Fault, Faulty, Intercept, Operation},
};
use tenure_conformance::LIMIT;
use tokio::runtime::{Builder, Runtime};

use crate::mongodb::{Place, bells::until_tails, lent};
use crate::support::{
    mongod::shared_single,
    proxy::Proxy,
    wait::{self, until},
};

/// As many as the store lets go on at once.
const AT_ONCE: u32 = 64;

async fn made_of(store: &dyn Store) -> Arc<dyn Store> {
    let made = until("there is a dedicated store", async || store.dedicated().await).await;
    made.expect("the client is the store's own")
}

#[tokio::test]
async fn beats_wait_behind_nothing_and_a_dedicated_store_behind_nothing_of_the_first() {
    let proxy = Proxy::start(shared_single().await.nodes()[0].port());
    let place = Place::on(&proxy.uri()).await;
    let fixture = place.fixture();
    let session = fixture.opened().await.id;
    let dedicated = made_of(&place.store).await;

    // Takes are never answered, beats are.
    proxy.silence("findAndModify", &["locks"]);
    let take = |number: u32| {
        let lock = fixture.lock(&format!("hangs {number}"));
        let take = Take { lock, by: fixture.candidate(fixture.session(), 1) };
        place.store.take(vec![take], Vec::new(), 10 * wait::LIMIT)
    };
    let mut hanging: Vec<_> = (0..AT_ONCE).map(take).collect();
    tokio::select! {
        () = proxy.until_dropped("findAndModify", AT_ONCE.into()) => {}
        (answer, ..) = select_all(&mut hanging) => panic!("{answer:?} does not hang"),
    }

    let (short, lock) = (Duration::from_millis(300), fixture.lock("is looked at"));
    let refused = place.store.locks(vec![lock.clone()], short).await;
    assert!(refused.is_err(), "what comes later waits for a permit: {refused:?}");
    for number in 1..21 {
        // Those of the first have places of their own.
        let store = if number % 2 == 0 { &*dedicated } else { &place.store as &dyn Store };
        let beat = fixture.beat(session, number);
        let answer = store.beat(beat.clone(), LIMIT).await;
        assert!(answer.unwrap().bears(beat.nonce));
        dedicated.locks(vec![lock.clone()], LIMIT).await.unwrap();
    }
    let refused = place.store.locks(vec![lock], short).await;
    assert!(refused.is_err(), "they hang to the end: {refused:?}");
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_dedicated_store_lives_on_the_runtime_it_was_made_on() {
    const BEATS: u64 = 10;
    let (told, beats) = mpsc::channel::<SessionSeen>();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let program = runtime();
    let (place, session) = program.block_on(async {
        let place = Place::on(shared_single().await.uri()).await;
        let session: SessionId = place.fixture().opened().await.id;
        (place, session)
    });

    let (store, fixture) = (place.store.clone(), place.fixture());
    let keeper = thread::spawn(move || {
        runtime().block_on(async {
            let dedicated = made_of(&store).await;
            drop(store);
            for number in 1..=2 * BEATS {
                if number == BEATS + 1 {
                    goes_on.recv().unwrap();
                }
                told.send(dedicated.beat(fixture.beat(session, number), LIMIT).await.unwrap()).unwrap();
            }
        });
    });
    let hears = |from: u64| {
        for number in from..from + BEATS {
            let seen = beats.recv_timeout(wait::LIMIT).expect("beats go on");
            assert_eq!(seen.record().unwrap().beat.get(), number);
        }
    };
    // The only thread of the program's runtime is blocked, from before the connection is made.
    program.block_on(async { hears(1) });
    // Now there is no such runtime, nor the first store.
    drop((place, program));
    go_on.send(()).unwrap();
    hears(BEATS + 1);
    keeper.join().unwrap();
}

#[tokio::test]
async fn a_dedicated_store_has_no_tail_unless_somebody_listens_to_it() {
    let place = Place::on(shared_single().await.uri()).await;
    let mut hints = place.store.hints(place.fixture().topics("import"));
    for _ in 0..2 {
        assert_eq!(hints.next().await, Some(Hint::Resync));
    }
    until_tails(&place, 1).await;
    let dedicated = made_of(&place.store).await;
    dedicated.observe(vec![place.fixture().session()], LIMIT).await.unwrap();
    until_tails(&place, 1).await;
    let mut own = dedicated.hints(place.fixture().topics("import"));
    for _ in 0..2 {
        assert_eq!(own.next().await, Some(Hint::Resync));
    }
    until_tails(&place, 2).await;
}

#[tokio::test]
async fn a_lent_client_is_not_connected_again() {
    let place = Place::on(shared_single().await.uri()).await;
    let options = MongoOptions::new().database(place.database.name());
    let store = lent(place.database.client(), options).await;
    assert!(store.dedicated().await.unwrap().is_none());
}

#[tokio::test]
async fn an_interceptor_of_a_store_intercepts_its_dedicated_stores_too() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let session = fixture.opened().await.id;
    let counting = Counting::default().around(Arc::new(place.store.clone()));
    let faulty = Faulty::default().around(counting.clone());
    let dedicated = made_of(&*faulty).await;

    dedicated.beat(fixture.beat(session, 1), LIMIT).await.unwrap();
    assert_eq!(counting.intercept().counts().calls(Operation::Beat), 1);
    faulty.intercept().next(Operation::Beat, Fault::Refused);
    assert!(made_of(&*dedicated).await.beat(fixture.beat(session, 2), LIMIT).await.is_err());
    assert_eq!(counting.intercept().counts().calls(Operation::Beat), 1, "it was refused before that");
    faulty.beat(fixture.beat(session, 3), LIMIT).await.unwrap();
    assert_eq!(counting.intercept().counts().calls(Operation::Beat), 2);
}

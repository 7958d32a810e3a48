//! The fence: no transaction of a former holder commits once the new one has armed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, TryStreamExt, future::join_all};
use mongodb::{
    Client, ClientSession, Collection,
    bson::{Bson, Document, doc},
    error::{Error as DriverError, TRANSIENT_TRANSACTION_ERROR},
};
use tenure::{
    Applied,
    model::{LockId, SessionId, Term},
    store::{
        LockRecord, StoreExt, TakeAnswer, Wait,
        mongo::{Armed, FENCE_SLOTS, Fence, Stale},
    },
};
use tenure_conformance::{Fixture, LIMIT};
use tokio::time::timeout;

use crate::mongodb::{Place, limits::in_time};
use crate::support::{
    mongod::{self, Deployment, Options, Shape},
    wait::until,
};

/// Long enough for arming to answer if nothing is in its way, short enough to wait for in vain.
const SHORT: Duration = Duration::from_millis(300);

/// Way in which a transaction makes sure that the term of its holder is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// As it should.
    Fence,
    /// Wrong: it reads the record.
    Read,
    /// Wrong: it writes what is there already.
    SameAgain,
}

/// Moment at which the new holder arms, seen from a transaction of the former one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The transaction has its snapshot, and passes the fence after the arming.
    BegunThenArmed,
    /// The transaction has its snapshot, and has written; it passes last.
    WrittenThenArmed,
    /// All of it comes after the arming.
    ArmedThenBegun,
    /// The transaction has passed and written, and is open.
    PassedThenArmed,
}

const ORDERS: [Order; 4] =
    [Order::BegunThenArmed, Order::WrittenThenArmed, Order::ArmedThenBegun, Order::PassedThenArmed];

/// Counts of the transactions' ends.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Committed though the new holder had armed.
    stale: usize,
    /// Committed before it had.
    in_time: usize,
    aborted: usize,
}

/// A lock's two holders. The first is dead to the second, and does not know it.
struct Succession {
    lock: LockId,
    former: Term,
    next: Term,
    next_session: SessionId,
}

impl Succession {
    async fn of(fixture: &Fixture, key: &str) -> Self {
        let lock = fixture.lock(key);
        let former_session = fixture.opened().await.id;
        let former = fixture.held(&lock, former_session, 1).await.term;
        fixture.declare_dead(former_session).await;
        let next_session = fixture.opened().await.id;
        let next = take_over(fixture, &lock, next_session, former_session).await.term;
        Self { lock, former, next, next_session }
    }
}

async fn take_over(fixture: &Fixture, lock: &LockId, by: SessionId, from: SessionId) -> LockRecord {
    match fixture.take_over(lock, &fixture.candidate(by, 1), &[from]).await {
        TakeAnswer::Taken(record) => record,
        other => panic!("a lock of a dead session is taken over, but the answer was {other:?}"),
    }
}

/// Arms for a term that nobody has superseded.
async fn armed(place: &Place, lock: &LockId, term: Term) -> Fence {
    match place.store.arm(lock, term, LIMIT).await {
        Ok(Armed::Yes(fence)) => fence,
        other => panic!("nothing stands in the way of arming, but the answer was {other:?}"),
    }
}

/// Arms, if that can be done within so long.
async fn armed_within(place: &Place, lock: &LockId, term: Term, limit: Duration) -> Option<Fence> {
    match in_time("arming", limit, place.store.arm(lock, term, limit)).await {
        Ok(Armed::Yes(fence)) => Some(fence),
        Ok(Armed::Late(stale)) => panic!("the latest term is not late: {stale}"),
        Err(error) => {
            assert_eq!(error.applied(), Applied::Unknown, "some slots may be armed: {error}");
            assert!(error.is_retryable(), "arming may be repeated: {error}");
            None
        }
    }
}

fn slot_id(lock: &LockId, slot: u32) -> Document {
    let (ns, kind, key) = (lock.namespace.as_str(), lock.kind.to_string(), lock.key.as_str());
    doc! { "ns": ns, "kind": kind, "key": key, "slot": i64::from(slot) }
}

/// Asserts that every slot of a lock is armed for that term.
async fn assert_armed(place: &Place, lock: &LockId, term: Term) {
    let fences = place.collection("fences");
    for slot in 0..FENCE_SLOTS {
        let found = fences.find_one(doc! { "_id": slot_id(lock, slot) }).await.unwrap().unwrap();
        assert_eq!(found.get_i64("term").unwrap(), number(term), "slot {slot}");
    }
}

fn number(term: Term) -> i64 {
    i64::try_from(term.get()).unwrap()
}

impl Guard {
    async fn pass(
        self,
        place: &Place,
        fence: &Fence,
        lock: &LockId,
        session: &mut ClientSession,
    ) -> Result<(), DriverError> {
        let fences = place.collection("fences");
        let ours = doc! { "_id": slot_id(lock, 0), "term": number(fence.term()) };
        let found = match self {
            Self::Fence => return fence.pass(0, session).await,
            Self::Read => fences.find_one(ours).session(session).await?.is_some(),
            Self::SameAgain => {
                let same = doc! { "$set": { "term": number(fence.term()) } };
                fences.update_one(ours, same).session(session).await?.matched_count == 1
            }
        };
        if found {
            Ok(())
        } else {
            Err(DriverError::custom(Stale { lock: lock.clone(), term: fence.term() }))
        }
    }
}

/// Write of a holder under its term.
async fn write(place: &Place, lock: &LockId, session: &mut ClientSession) -> Result<(), DriverError> {
    place.collection("work").insert_one(doc! { "lock": lock.key.as_str() }).session(session).await.map(drop)
}

async fn written(place: &Place, lock: &LockId) -> u64 {
    place.collection("work").count_documents(doc! { "lock": lock.key.as_str() }).await.unwrap()
}

/// A transaction that is open and has its snapshot. A transaction begins with its first command.
async fn begun(place: &Place) -> ClientSession {
    let mut session = started(place).await;
    place.collection("work").find_one(doc! { "_id": 0 }).session(&mut session).await.unwrap();
    session
}

async fn started(place: &Place) -> ClientSession {
    let mut session = place.database.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    session
}

/// A place for work in transactions: a collection that one of them made would lock the database.
async fn workplace(deployment: &Deployment) -> Place {
    let place = Place::on(deployment.uri()).await;
    place.database.create_collection("work").await.unwrap();
    place
}

fn is_transient(error: &DriverError) -> bool {
    error.contains_label(TRANSIENT_TRANSACTION_ERROR)
}

/// Runs a transaction of a former holder beside an arming of the next, in exactly this order: each step is awaited
/// before the next begins. Returns whether it committed after the arming; else before it.
async fn attempt(
    place: &Place,
    guard: Guard,
    order: Order,
    succession: &Succession,
    fence: &Fence,
) -> Result<bool, DriverError> {
    let Succession { lock, next, .. } = succession;
    let mut session = started(place).await;
    let done = async {
        match order {
            Order::BegunThenArmed | Order::WrittenThenArmed => {
                place.collection("work").find_one(doc! { "_id": 0 }).session(&mut session).await?;
                if order == Order::WrittenThenArmed {
                    write(place, lock, &mut session).await?;
                }
                armed(place, lock, *next).await;
                guard.pass(place, fence, lock, &mut session).await?;
                if order == Order::BegunThenArmed {
                    write(place, lock, &mut session).await?;
                }
                Ok(true)
            }
            Order::ArmedThenBegun => {
                armed(place, lock, *next).await;
                guard.pass(place, fence, lock, &mut session).await?;
                write(place, lock, &mut session).await?;
                Ok(true)
            }
            Order::PassedThenArmed => {
                guard.pass(place, fence, lock, &mut session).await?;
                write(place, lock, &mut session).await?;
                // Only the right fence makes this wait.
                let limit = if guard == Guard::Fence { SHORT } else { LIMIT };
                Ok(armed_within(place, lock, *next, limit).await.is_some())
            }
        }
    };
    match done.await {
        Ok(late) => session.commit_transaction().await.map(|()| late),
        Err(error) => {
            session.abort_transaction().await.unwrap();
            Err(error)
        }
    }
}

async fn round(place: &Place, fixture: &Fixture, guard: Guard, order: Order, tally: &mut Tally, key: &str) {
    let succession = Succession::of(fixture, key).await;
    let fence = armed(place, &succession.lock, succession.former).await;
    let kept = match attempt(place, guard, order, &succession, &fence).await {
        Ok(late) => {
            if late {
                tally.stale += 1;
            } else {
                tally.in_time += 1;
            }
            1
        }
        Err(error) => {
            tally.aborted += 1;
            assert!(
                Stale::in_error(&error).is_some() || is_transient(&error),
                "a late transaction is told so or may be tried again, but {error:?}"
            );
            0
        }
    };
    let Succession { lock, former, next, .. } = succession;
    assert_eq!(written(place, &lock).await, kept, "{order:?}");

    // Now the next holder has armed in any case. The former one tries once more, as the driver would.
    armed(place, &lock, next).await;
    let mut session = started(place).await;
    let error = guard.pass(place, &fence, &lock, &mut session).await.expect_err("the term is over");
    assert_eq!(Stale::in_error(&error), Some(&Stale { lock, term: former }));
    session.abort_transaction().await.unwrap();
}

/// So many rounds of every order, the orders side by side.
async fn rounds(guard: Guard, times: usize) -> Vec<(Order, Tally)> {
    let place = workplace(mongod::shared_single().await).await;
    let fixture = place.fixture();
    let (place, fixture) = (&place, &fixture);
    let all = ORDERS.map(|order| async move {
        let mut tally = Tally::default();
        for number in 0..times {
            round(place, fixture, guard, order, &mut tally, &format!("{order:?} {number}")).await;
        }
        (order, tally)
    });
    join_all(all).await
}

#[tokio::test]
async fn no_transaction_of_a_former_holder_commits_once_the_next_one_has_armed() {
    const TIMES: usize = 10;
    for (order, tally) in rounds(Guard::Fence, TIMES).await {
        assert_eq!(tally.stale, 0, "{order:?}: {tally:?}");
        // What has passed holds up the arming, and so is in time.
        let expected = if order == Order::PassedThenArmed { (TIMES, 0) } else { (0, TIMES) };
        assert_eq!((tally.in_time, tally.aborted), expected, "{order:?}");
    }
}

#[tokio::test]
async fn a_fence_that_only_reads_or_writes_nothing_new_is_seen_to_let_a_former_holder_commit() {
    const TIMES: usize = 2;
    for wrong in [Guard::Read, Guard::SameAgain] {
        for (order, tally) in rounds(wrong, TIMES).await {
            // Only what begins after the arming is stopped by these.
            let expected = if order == Order::ArmedThenBegun { (0, TIMES) } else { (TIMES, 0) };
            assert_eq!((tally.stale, tally.aborted), expected, "{wrong:?}, {order:?}");
        }
    }
}

/// End of an open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
}

async fn arming_beside_an_open_transaction(end: End) {
    let place = workplace(mongod::shared_replica_set().await).await;
    let fixture = place.fixture();
    let lock = fixture.lock("contested");
    let (former_session, next_session) = (fixture.opened().await.id, fixture.opened().await.id);
    let former = fixture.held(&lock, former_session, 1).await.term;
    let fence = armed(&place, &lock, former).await;

    let mut open = started(&place).await;
    fence.pass(5, &mut open).await.unwrap();
    write(&place, &lock, &mut open).await.unwrap();

    fixture.declare_dead(former_session).await;
    // Whoever waited for the transaction, which stays open until the test ends it, would never get here.
    let next = take_over(&fixture, &lock, next_session, former_session).await.term;

    // Arming gives up in time, and may be repeated. What it has armed by then stays armed.
    for _ in 0..2 {
        let armed = armed_within(&place, &lock, next, SHORT).await;
        assert!(armed.is_none(), "a transaction that has passed is open");
    }
    let mut late = started(&place).await;
    let error = fence.pass(0, &mut late).await.expect_err("this slot is armed for the next term already");
    assert!(Stale::in_error(&error).is_some(), "{error:?}");
    late.abort_transaction().await.unwrap();

    let (store, id) = (place.store.clone(), lock.clone());
    let mut arming = tokio::spawn(async move { store.arm(&id, next, LIMIT).await });
    assert!(timeout(SHORT, &mut arming).await.is_err(), "arming answered beside an open transaction");
    // Nobody who wants the lock waits while it does.
    let lost = fixture.take(&lock, &fixture.candidate(fixture.session(), 1)).await;
    assert!(matches!(lost, TakeAnswer::Held(_)), "{lost:?}");
    assert!((&mut arming).now_or_never().is_none(), "arming answered beside an open transaction");
    let work = place.collection("work");
    work.find_one(doc! {}).session(&mut open).await.expect("the transaction is still open");

    match end {
        End::Commit => open.commit_transaction().await.unwrap(),
        End::Abort => open.abort_transaction().await.unwrap(),
    }
    let Armed::Yes(next_fence) = arming.await.unwrap().unwrap() else {
        panic!("the latest term is not late")
    };
    assert_armed(&place, &lock, next).await;
    let kept = u64::from(end == End::Commit);
    assert_eq!(written(&place, &lock).await, kept);

    // The next holder sees what there is of that in its first transaction, and works.
    let mut session = started(&place).await;
    next_fence.pass(5, &mut session).await.unwrap();
    let seen = work.find_one(doc! { "lock": lock.key.as_str() }).session(&mut session).await.unwrap();
    assert_eq!(u64::from(seen.is_some()), kept);
    session.commit_transaction().await.unwrap();
}

#[tokio::test]
async fn arming_waits_for_an_open_transaction_to_commit_and_taking_over_does_not() {
    arming_beside_an_open_transaction(End::Commit).await;
}

#[tokio::test]
async fn arming_waits_for_an_open_transaction_to_abort_and_taking_over_does_not() {
    arming_beside_an_open_transaction(End::Abort).await;
}

#[tokio::test]
async fn a_transaction_left_open_for_ever_holds_up_arming_only_until_the_server_ends_it() {
    let args = vec!["--setParameter=transactionLifetimeLimitSeconds=1".to_owned()];
    let deployment = Deployment::start(Shape::Single, Options { args, ..Options::default() }).await;
    let place = workplace(&deployment).await;
    let Succession { lock, former, next, .. } = Succession::of(&place.fixture(), "left").await;
    let fence = armed(&place, &lock, former).await;
    let mut open = until("a transaction has passed before the server ends it", async || {
        let mut open = started(&place).await;
        fence.pass(0, &mut open).await?;
        write(&place, &lock, &mut open).await?;
        Ok::<_, DriverError>(open)
    })
    .await;
    armed(&place, &lock, next).await;
    let error = open.commit_transaction().await.expect_err("the server has ended the transaction");
    assert!(is_transient(&error), "{error:?}");
    assert_eq!(written(&place, &lock).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_transactions_at_a_time_go_on_undisturbed_while_twenty_wait_for_the_lock() {
    const TRANSACTIONS: usize = 20;
    let place = Arc::new(workplace(mongod::shared_replica_set().await).await);
    let fixture = Arc::new(place.fixture());
    let lock = fixture.lock("wanted");
    let term = fixture.held(&lock, fixture.opened().await.id, 1).await.term;
    let fence = armed(&place, &lock, term).await;
    let (aborted, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));

    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let (fixture, lock, over) = (Arc::clone(&fixture), lock.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                let by = fixture.candidate(fixture.session(), 1);
                while !over.load(Ordering::Relaxed) {
                    let wait = Wait { lock: lock.clone(), by: by.clone() };
                    fixture.store().wait(vec![wait], LIMIT).await.unwrap();
                    let answer = fixture.take(&lock, &by).await;
                    assert!(matches!(answer, TakeAnswer::Held(_)), "{answer:?}");
                }
            })
        })
        .collect();
    let workers = (0..8).map(|slot| {
        let (place, lock, fence) = (Arc::clone(&place), lock.clone(), fence.clone());
        let aborted = Arc::clone(&aborted);
        tokio::spawn(async move {
            for _ in 0..TRANSACTIONS {
                let mut session = started(&place).await;
                let done = async {
                    fence.pass(slot, &mut session).await?;
                    write(&place, &lock, &mut session).await?;
                    session.commit_transaction().await
                };
                if let Err(error) = done.await {
                    aborted.fetch_add(1, Ordering::Relaxed);
                    eprintln!("slot {slot}: {error}");
                    let _ = session.abort_transaction().await;
                }
            }
        })
    });
    join_all(workers).await.into_iter().for_each(|worker| worker.unwrap());
    over.store(true, Ordering::Relaxed);
    join_all(waiters).await.into_iter().for_each(|waiter| waiter.unwrap());

    assert_eq!(aborted.load(Ordering::Relaxed), 0, "transactions of the holder aborted");
    assert_eq!(written(&place, &lock).await, 8 * TRANSACTIONS as u64);
}

#[tokio::test]
async fn of_two_transactions_in_one_slot_one_is_tried_again_and_none_is_lost() {
    let place = workplace(mongod::shared_single().await).await;
    let fixture = place.fixture();
    let lock = fixture.lock("narrow");
    let term = fixture.held(&lock, fixture.opened().await.id, 1).await.term;
    let fence = armed(&place, &lock, term).await;

    let mut first = begun(&place).await;
    fence.pass(3, &mut first).await.unwrap();
    let mut second = begun(&place).await;
    // Counted modulo the number of slots, this is the same one.
    let error = fence.pass(3 + FENCE_SLOTS, &mut second).await.expect_err("the slot is in use");
    assert!(is_transient(&error) && Stale::in_error(&error).is_none(), "{error:?}");
    second.abort_transaction().await.unwrap();
    // Another slot is free meanwhile.
    let mut third = begun(&place).await;
    fence.pass(4, &mut third).await.unwrap();
    third.commit_transaction().await.unwrap();
    first.commit_transaction().await.unwrap();

    // As a program would write it, with the driver's own way of trying again.
    let (work, key, client) = (place.collection("work"), lock.key.as_str(), place.database.client());
    let tasks = (0..4).map(|_| {
        let (fence, work) = (&fence, &work);
        async move {
            for _ in 0..10 {
                let mut session = client.start_session().await.unwrap();
                let done = session.start_transaction().and_run2(async |session: &mut ClientSession| {
                    fence.pass(3, session).await?;
                    work.insert_one(doc! { "lock": key }).session(session).await.map(drop)
                });
                done.await.unwrap();
            }
        }
    });
    join_all(tasks).await;
    assert_eq!(written(&place, &lock).await, 40);
    let slot = place.collection("fences").find_one(doc! { "_id": slot_id(&lock, 3) }).await.unwrap().unwrap();
    assert_eq!(slot.get_i64("passed").unwrap(), 41, "one of them passed alone");
}

#[tokio::test]
async fn a_transaction_retried_by_the_driver_is_told_in_the_end_that_its_term_is_over() {
    let place = workplace(mongod::shared_single().await).await;
    let Succession { lock, former, next, .. } = Succession::of(&place.fixture(), "overtaken").await;
    let fence = armed(&place, &lock, former).await;
    let mut session = place.database.client().start_session().await.unwrap();
    let attempts = AtomicUsize::new(0);
    let done = session.start_transaction().and_run2(async |session: &mut ClientSession| {
        write(&place, &lock, session).await?;
        if attempts.fetch_add(1, Ordering::Relaxed) == 0 {
            armed(&place, &lock, next).await;
        }
        fence.pass(0, session).await
    });
    let error = done.await.expect_err("the term is over");
    assert_eq!(Stale::in_error(&error), Some(&Stale { lock: lock.clone(), term: former }));
    assert_eq!(attempts.into_inner(), 2, "first a conflict, then the later term");
    assert_eq!(written(&place, &lock).await, 0);
}

#[tokio::test]
async fn arming_again_changes_nothing_and_arming_for_an_earlier_term_is_late() {
    let place = Place::on(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    let Succession { lock, former, next, next_session } = Succession::of(&fixture, "late").await;
    armed(&place, &lock, next).await;
    let before = all(&place.collection("fences")).await;
    armed(&place, &lock, next).await;
    match place.store.arm(&lock, former, LIMIT).await {
        Ok(Armed::Late(stale)) => assert_eq!(stale, Stale { lock: lock.clone(), term: former }),
        other => panic!("an earlier term is late, but the answer was {other:?}"),
    }
    assert_eq!(all(&place.collection("fences")).await, before);
    assert_armed(&place, &lock, next).await;
    assert!(fixture.record(&lock).await.is_held_by(next_session), "fences are no part of the lock");
}

async fn all(collection: &Collection<Document>) -> Vec<Document> {
    collection.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap().try_collect().await.unwrap()
}

#[tokio::test]
async fn a_new_holder_arms_every_slot_a_former_one_may_use() {
    let place = workplace(mongod::shared_single().await).await;
    let Succession { lock, former, next, .. } = Succession::of(&place.fixture(), "wide").await;
    let (fence, next_fence) = (armed(&place, &lock, former).await, armed(&place, &lock, next).await);
    for slot in 0..=FENCE_SLOTS {
        let mut session = started(&place).await;
        let error = fence.pass(slot, &mut session).await.expect_err("the term is over in every slot");
        assert_eq!(Stale::in_error(&error), Some(&Stale { lock: lock.clone(), term: former }));
        session.abort_transaction().await.unwrap();
        session.start_transaction().await.unwrap();
        next_fence.pass(slot, &mut session).await.unwrap();
        session.commit_transaction().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_terms_armed_at_once_the_larger_one_ends_up_in_every_slot() {
    let place = Place::on(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    for number in 0..10 {
        let Succession { lock, former, next, .. } = Succession::of(&fixture, &format!("race {number}")).await;
        let arm = |term| {
            let (store, lock) = (place.store.clone(), lock.clone());
            tokio::spawn(async move {
                // Two who create the slots at the same moment may both have to look again.
                for _ in 0..100 {
                    match store.arm(&lock, term, LIMIT).await {
                        Ok(armed) => return armed,
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                }
                panic!("arming must come to an end");
            })
        };
        let (smaller, larger) = (arm(former), arm(next));
        let Armed::Yes(fence) = larger.await.unwrap() else { panic!("the larger term is never late") };
        assert_eq!(fence.term(), next);
        let smaller = smaller.await.unwrap();
        assert_armed(&place, &lock, next).await;
        match smaller {
            Armed::Late(stale) => assert_eq!(stale.term, former),
            Armed::Yes(superseded) => {
                let mut session = started(&place).await;
                let error = superseded.pass(7, &mut session).await.expect_err("a later term is armed");
                assert!(Stale::in_error(&error).is_some(), "{error:?}");
                session.abort_transaction().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_fence_works_with_a_client_of_the_user_whatever_its_options() {
    let deployment = mongod::shared_replica_set().await;
    let place = Place::on(deployment.uri()).await;
    let Succession { lock, former, next, .. } = Succession::of(&place.fixture(), "mine").await;
    let fence = armed(&place, &lock, former).await;
    let theirs = "retryWrites=false&w=1&journal=false&readConcernLevel=local&maxPoolSize=1&\
                  readPreference=secondaryPreferred&appName=shop";
    let joint = if deployment.uri().contains('?') { '&' } else { '?' };
    let client = Client::with_uri_str(format!("{}{joint}{theirs}", deployment.uri())).await.unwrap();
    let shop = place.database.client().database(&format!("{}-shop", place.database.name()));
    shop.create_collection("orders").await.unwrap();
    let orders = client.database(shop.name()).collection::<Document>("orders");

    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    fence.pass(0, &mut session).await.unwrap();
    orders.insert_one(doc! { "n": 1 }).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();

    armed(&place, &lock, next).await;
    session.start_transaction().await.unwrap();
    orders.insert_one(doc! { "n": 2 }).session(&mut session).await.unwrap();
    let error = fence.pass(0, &mut session).await.expect_err("the term is over");
    assert!(Stale::in_error(&error).is_some(), "{error:?}");
    session.abort_transaction().await.unwrap();
    let kept: Vec<_> =
        all(&shop.collection("orders")).await.iter().map(|order| order.get("n").cloned()).collect();
    assert_eq!(kept, [Some(Bson::Int32(1))]);
}

#[tokio::test]
async fn a_record_in_the_place_of_a_slot_that_tenure_did_not_write_is_refused_and_kept() {
    let place = Place::on(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    let fences = place.collection("fences");
    let foreign = doc! { "term": 1_i64 };
    let newer = doc! { "v": 3_i64, "term": 1_i64 };
    let damaged = doc! { "v": 2_i64, "term": "one" };
    for (number, fields) in [foreign, newer, damaged].into_iter().enumerate() {
        let lock = fixture.lock(&format!("odd {number}"));
        let term = fixture.held(&lock, fixture.opened().await.id, 1).await.term;
        let mut record = doc! { "_id": slot_id(&lock, 9) };
        record.extend(fields);
        fences.insert_one(&record).await.unwrap();
        let error = place.store.arm(&lock, term, LIMIT).await.expect_err("slot 9 cannot be armed");
        assert!(!error.is_retryable(), "somebody has to look at the record first: {error}");
        assert_eq!(fences.find_one(doc! { "_id": slot_id(&lock, 9) }).await.unwrap(), Some(record));
        fences.delete_one(doc! { "_id": slot_id(&lock, 9) }).await.unwrap();
        armed(&place, &lock, term).await;
    }
}

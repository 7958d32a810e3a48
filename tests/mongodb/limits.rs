//! Limits in time, and what became of an operation that has no answer: on servers that are frozen,
//! cut off, or without a primary, and on replies that are lost or say that something went wrong.

#![expect(clippy::unwrap_used, reason = "in a test, also outside of the function that is marked as one")]

use std::{fmt::Debug, future::Future, time::Duration};

use futures::{
    TryStreamExt,
    future::{BoxFuture, join_all},
};
use mongodb::bson::{Document, doc};
use tenure::{
    Applied, StoreError,
    model::{Holder, LockId, Outcome, Retention, RunId, StoreTime, Term, Why},
    store::{
        Claim, Declaration, Define, Evidence, FinishRun, Instruction, LockRecord, LockSeen, Release,
        ReleaseTo, Request, Revocation, RunNow, SetValue, StoreExt, Take, TakeAnswer, Ticket, Wait,
        mongo::{MongoOptions, MongoStore},
    },
};
use tenure_conformance::Fixture;

use crate::mongodb::{
    Place, connected,
    failover::{steady, whole},
};
use crate::support::{
    mongod::{Deployment, Node, Options, Shape, shared_single},
    proxy::{Mode, Proxy},
    wait::until,
};

const LIMIT: Duration = Duration::from_millis(400);
/// Enough for whatever is answered at all.
const AMPLE: Duration = Duration::from_secs(60);
/// More than it takes the store's client to look for a server in vain.
const SEARCH: Duration = Duration::from_secs(10);

/// Awaits an answer that must come within its limit. A timer that is set later for a little more must not be the first
/// to be noticed: timers of a runtime with one thread fire in their order, however long the machine stood still.
pub(crate) async fn in_time<T>(what: &str, limit: Duration, answer: impl Future<Output = T>) -> T {
    const TICK: Duration = Duration::from_millis(2);
    tokio::select! {
        biased;
        answer = answer => answer,
        // Set with its first poll, after that of the answer.
        () = async { tokio::time::sleep(limit + TICK).await } => panic!("{what} has no answer at its limit, {limit:?}"),
    }
}

type Answer = Result<String, StoreError>;
type Send = Box<dyn Fn(MongoStore, Duration) -> BoxFuture<'static, Answer> + std::marker::Send + Sync>;

/// An operation, the same at each attempt. The answer is given as text, to be compared.
struct Op {
    method: &'static str,
    /// The first command it sends.
    command: &'static str,
    send: Send,
}

impl Op {
    fn new<T, F>(
        method: &'static str,
        command: &'static str,
        send: impl Fn(MongoStore, Duration) -> F + std::marker::Send + Sync + 'static,
    ) -> Self
    where
        T: Debug,
        F: Future<Output = Result<T, StoreError>> + std::marker::Send + 'static,
    {
        let send: Send = Box::new(move |store, limit| {
            let answer = send(store, limit);
            Box::pin(async move { answer.await.map(|answer| format!("{answer:?}")) })
        });
        Self { method, command, send }
    }

    async fn attempt(&self, store: &MongoStore, limit: Duration) -> Answer {
        (self.send)(store.clone(), limit).await
    }

    /// An attempt that must end without an answer, no later than it may, and the error it ends with.
    async fn fails(&self, store: &MongoStore, limit: Duration) -> StoreError {
        match in_time(self.method, limit, self.attempt(store, limit)).await {
            Err(error) => error,
            Ok(answer) => panic!("{} was answered: {answer}", self.method),
        }
    }

    /// Repeats it until it is answered.
    async fn resolved(&self, store: &MongoStore) -> String {
        until(self.method, async || {
            let answer = self.attempt(store, Duration::from_millis(2500)).await;
            answer.map_err(|error| whole(&error))
        })
        .await
    }
}

/// The operation of a method, with its arguments; the limit comes with each attempt.
macro_rules! op {
    ($method:ident by $command:literal, $($name:ident = $value:expr),*) => {{
        $(let $name = $value;)*
        Op::new(stringify!($method), $command, move |store: MongoStore, limit: Duration| {
            $(let $name = Clone::clone(&$name);)*
            async move { store.$method($($name,)* limit).await }
        })
    }};
}

fn holder() -> Holder {
    Holder::new("the operator").unwrap()
}

fn why() -> Why {
    Why::new("because").unwrap()
}

fn take_of(fixture: &Fixture, lock: &LockId) -> Take {
    Take { lock: lock.clone(), by: fixture.candidate(fixture.session(), 1) }
}

/// Every writing method, on records that were made for it.
async fn writes(fixture: &Fixture) -> Vec<Op> {
    let opened = async || fixture.opened().await.id;
    let held = async |key| fixture.held(&fixture.lock(key), fixture.session(), 1).await;
    let release = |record: &LockRecord, then| Release {
        lock: record.id.clone(),
        session: record.holding.as_ref().unwrap().by.session,
        term: record.term,
        note: None,
        then,
    };
    let (released, handed, valued) = (held("released").await, held("handed").await, held("valued").await);
    let (asked, forced) = (opened().await, held("forced").await);
    let reopened = held("reopened").await;
    let session = reopened.holding.as_ref().unwrap().by.session;
    fixture
        .release(&reopened.id, session, reopened.term, ReleaseTo::ClosedFor(Duration::from_secs(3600)))
        .await;
    let request = |lock, term| Request { lock, term, by: holder(), why: why() };
    let line = fixture.lock("line");
    let wait = |key: &str| Wait { lock: fixture.lock(key), by: fixture.candidate(fixture.session(), 1) };
    let stands = wait("left");
    let all = Duration::from_secs(30);
    fixture.store().wait(vec![stands.clone()], all).await.unwrap();
    let claim = |instant| Claim {
        run: RunId::tick(fixture.schedule("nightly"), StoreTime::from_millis(instant)),
        session: fixture.session(),
        holder: holder(),
        term: Term::new(7),
        attempt: 1,
        instead_of: None,
        skipped: None,
    };
    let runs = claim(1000);
    fixture.store().claim(runs.clone(), all).await.unwrap();
    let next = Box::new(fixture.candidate(fixture.session(), 1));
    vec![
        op!(open by "findAndModify", open = fixture.opening()),
        op!(beat by "findAndModify", beat = fixture.beat(opened().await, 1)),
        op!(declare by "findAndModify", declaration =
            Declaration { session: opened().await, ground: Evidence::Operator, by: holder(), why: why(), tell: Vec::new() }),
        op!(take by "findAndModify",
            takes = vec![take_of(fixture, &fixture.lock("taken"))], dead = Vec::new()),
        op!(take by "update",
            takes = ["a", "b", "c"].map(|key| take_of(fixture, &fixture.lock(key))).to_vec(),
            dead = Vec::new()),
        op!(release by "update", releases = vec![release(&released, ReleaseTo::Free)]),
        op!(release by "update", releases = vec![release(&handed, ReleaseTo::HandTo(next.clone()))]),
        op!(wait by "update", waits = vec![Wait { lock: line.clone(), ..wait("line") }]),
        op!(stop_waiting by "delete",
            waits = vec![(stands.lock.clone(), stands.by.session, stands.by.ticket)]),
        op!(set_value by "update", set = SetValue {
            lock: valued.id.clone(),
            session: valued.holding.as_ref().unwrap().by.session,
            term: valued.term,
            number: 1,
            value: Some(tenure::model::Value::new(b"7").unwrap()),
        }),
        op!(revoke by "findAndModify", revocation =
            Revocation::Ask { session: asked, request: request(fixture.lock("asked"), Term::new(1)) }),
        op!(revoke by "findAndModify", revocation =
            Revocation::Force(request(forced.id.clone(), forced.term))),
        op!(revoke by "findAndModify", revocation =
            Revocation::Reopen(request(reopened.id.clone(), reopened.term))),
        op!(define by "findAndModify", define = Define {
            schedule: fixture.schedule("nightly"),
            term: Term::new(7),
            timing: "0 3 * * *".parse().unwrap(),
            policies: "retry 3".parse().unwrap(),
            instead_of: None,
        }),
        op!(instruct by "findAndModify", schedule = fixture.schedule("hourly"), instruction =
            Instruction::Run(RunNow { at: StoreTime::from_millis(5), by: holder(), why: why() })),
        op!(claim by "findAndModify", claim = claim(2000)),
        op!(finish by "findAndModify", finish = FinishRun {
            run: runs.run.clone(),
            session: runs.session,
            term: runs.term,
            attempt: 1,
            outcome: Outcome::Succeeded,
            error: None,
            last: true,
        }),
    ]
}

/// Every other method.
fn reads(fixture: &Fixture) -> Vec<Op> {
    let namespace = fixture.namespace();
    let schedule = fixture.schedule("nightly");
    let hour = Duration::from_secs(3600);
    vec![
        op!(observe by "find", sessions = vec![fixture.session()]),
        op!(sessions by "find", namespace = namespace.clone(), after = None, most = 10),
        op!(locks by "find", locks = vec![fixture.lock("taken")]),
        op!(list_locks by "find", namespace = namespace.clone(), kind = None, after = None, most = 10),
        op!(held_by by "find", session = fixture.session(), after = None, most = 10),
        op!(latest_grants by "find", sessions = vec![fixture.session()], most = 10),
        op!(waiters by "find", lock = fixture.lock("line"), most = 10),
        op!(schedules by "find", schedules = vec![schedule.clone()]),
        op!(history by "find", schedule = schedule.clone(), after = None, most = 10),
        op!(last_runs by "aggregate", schedules = vec![schedule.clone()], most = 10),
        op!(purge_runs by "find", schedule = schedule.clone(), older = hour, keep = 10),
        op!(purge by "find", namespace = namespace.clone(), retention = Retention::default(), after = None),
    ]
}

/// Everything in the database.
async fn records(place: &Place) -> Vec<Document> {
    let mut records = Vec::new();
    for name in ["sessions", "locks", "waiters", "runs"] {
        let found = place.collection(name).find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        records.extend(found.try_collect::<Vec<_>>().await.unwrap());
    }
    records
}

/// A store of its own on the same records, which a fault of another one's connections leaves alone.
async fn again(place: &Place, uri: &str) -> MongoStore {
    connected(uri, MongoOptions::new().database(place.database.name()).create(false)).await
}

async fn all_in_time(ops: &[Op], store: &MongoStore, limit: Duration) -> Vec<StoreError> {
    join_all(ops.iter().map(|op| op.fails(store, limit))).await
}

/// After a trouble, with the handle of before: every write is found to be done, and done once.
async fn recovers(ops: &[Op], store: &MongoStore) {
    let first = join_all(ops.iter().map(|op| op.resolved(store))).await;
    let second = join_all(ops.iter().map(|op| op.resolved(store))).await;
    for (op, (first, second)) in ops.iter().zip(first.iter().zip(&second)) {
        assert_eq!(first, second, "a repeated {} is recognised", op.method);
    }
}

#[tokio::test]
async fn every_method_answers_in_time_while_the_primary_is_frozen() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let (writes, reads) = (writes(&fixture).await, reads(&fixture));
    let store = again(&place, deployment.uri()).await;
    let node = deployment.wait_for_primary(None).await;

    deployment.freeze(node).await;
    for ops in [&writes, &reads] {
        for error in all_in_time(ops, &store, LIMIT).await {
            assert_eq!(error.applied(), Applied::Unknown, "{}", whole(&error));
            assert!(error.is_retryable(), "{}", whole(&error));
        }
    }
    // Longer than the driver looks for a server.
    all_in_time(&writes, &store, Duration::from_secs(3)).await;
    deployment.thaw(node).await;

    recovers(&writes, &store).await;
    join_all(reads.iter().map(|op| op.resolved(&store))).await;
}

#[tokio::test]
async fn every_method_answers_in_time_while_the_server_is_cut_off() {
    for mode in [Mode::BlackHole, Mode::RepliesLost, Mode::Refuse] {
        let deployment = shared_single().await;
        let place = Place::on(deployment.uri()).await;
        let fixture = place.fixture();
        let (writes, reads) = (writes(&fixture).await, reads(&fixture));
        let proxy = Proxy::start(deployment.nodes()[0].port());
        let store = again(&place, &proxy.uri()).await;

        proxy.set_mode(mode).await;
        for ops in [&writes, &reads] {
            for error in all_in_time(ops, &store, LIMIT).await {
                assert!(error.is_retryable(), "{}", whole(&error));
                // Where the connection is refused, it may be known that nothing was sent.
                if mode != Mode::Refuse {
                    assert_eq!(error.applied(), Applied::Unknown, "{mode:?}: {}", whole(&error));
                }
            }
        }
        proxy.set_mode(Mode::Pass).await;
        recovers(&writes, &store).await;
    }
}

#[tokio::test]
async fn operations_that_vanished_do_not_use_up_the_connections() {
    let deployment = shared_single().await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let proxy = Proxy::start(deployment.nodes()[0].port());
    let store = again(&place, &proxy.uri()).await;
    let take = op!(take by "findAndModify",
        takes = vec![take_of(&fixture, &fixture.lock("key"))], dead = Vec::new());

    // The driver's monitor, which is answered, sees a healthy server and closes no connection.
    proxy.silence("findAndModify", &[]);
    // More than may be under way at once.
    let lost = join_all((0..200).map(|_| take.fails(&store, LIMIT))).await;
    // Of those that never came to begin it may be known.
    assert!(lost.iter().any(|error| error.applied() == Applied::Unknown));
    assert!(lost.iter().all(StoreError::is_retryable));
    proxy.end_silence();
    take.resolved(&store).await;
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_is_found_by_repeating_it() {
    let deployment = shared_single().await;
    let server = deployment.nodes()[0].port();
    let count = {
        let place = Place::on(deployment.uri()).await;
        writes(&place.fixture()).await.len()
    };
    let lose = async |number: usize| {
        let place = Place::on(deployment.uri()).await;
        let fixture = place.fixture();
        let op = writes(&fixture).await.swap_remove(number);
        let proxy = Proxy::start(server);
        let store = again(&place, &proxy.uri()).await;
        let before = records(&place).await;
        let mut applied = None;
        for attempt in 0..2 {
            // A batch that finds itself granted does not write again.
            let again = attempt > 0 && op.method == "take" && op.command == "update";
            let command = if again { "aggregate" } else { op.command };
            let (dropped, passed) = (proxy.dropped(command), proxy.passed(command));
            proxy.drop_replies(command, 1);
            let error = op.fails(&store, AMPLE).await;
            assert_eq!(error.applied(), Applied::Unknown, "{}", whole(&error));
            assert!(error.is_retryable(), "{}", whole(&error));
            let after = records(&place).await;
            assert_ne!(before, after, "the first {} is applied", op.method);
            assert_eq!(*applied.get_or_insert_with(|| after.clone()), after, "{} once only", op.method);
            assert_eq!(proxy.dropped(command), dropped + 1);
            assert_eq!(proxy.passed(command), passed + 1, "the driver does not repeat {}", op.method);
        }
        let first = op.resolved(&store).await;
        assert_eq!(Some(records(&place).await), applied, "{} is not done again", op.method);
        assert_eq!(op.resolved(&store).await, first);
    };
    join_all((0..count).map(lose)).await;
}

#[tokio::test]
async fn a_write_that_a_majority_may_not_keep_is_unknown_and_found_by_repeating_it() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let node = &deployment.nodes()[0];
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    for code in [91, 64] {
        let fixture = fixture.another();
        for op in writes(&fixture).await {
            let store = again(&place, deployment.uri()).await;
            let before = records(&place).await;
            let concern = doc! { "code": code, "errmsg": "not sure that it is kept" };
            node.fail_command(&[op.command], 1, doc! { "writeConcernError": concern }).await;
            let error = op.fails(&store, AMPLE).await;
            node.clear_fail_point("failCommand").await;
            assert_eq!(error.applied(), Applied::Unknown, "{}: {}", op.method, whole(&error));
            assert!(error.is_retryable(), "{}", whole(&error));
            let after = records(&place).await;
            assert_ne!(before, after, "{} is applied", op.method);
            op.resolved(&store).await;
            assert_eq!(records(&place).await, after, "{} is not done again", op.method);
        }
    }
}

/// The operations that stand for all commands: one that changes, two of a batch, one that the
/// primary alone keeps, one that reads.
async fn one_of_each(fixture: &Fixture) -> Vec<(Op, &'static str)> {
    let held = fixture.held(&fixture.lock("held"), fixture.session(), 1).await;
    let batch = |keys: [&str; 2]| keys.map(|key| take_of(fixture, &fixture.lock(key))).to_vec();
    let session = held.holding.as_ref().unwrap().by.session;
    let release = Release { lock: held.id, session, term: held.term, note: None, then: ReleaseTo::Free };
    let one = vec![take_of(fixture, &fixture.lock("one"))];
    vec![
        (op!(take by "findAndModify", takes = one, dead = Vec::new()), "findAndModify"),
        (op!(take by "aggregate", takes = batch(["a", "b"]), dead = Vec::new()), "aggregate"),
        (op!(take by "update", takes = batch(["c", "d"]), dead = Vec::new()), "update"),
        (op!(release by "update", releases = vec![release]), "update"),
        (op!(observe by "find", sessions = vec![session]), "find"),
    ]
}

#[tokio::test]
async fn an_error_of_the_server_says_what_became_of_the_operation() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let node = &deployment.nodes()[0];
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    for (code, applied, retryable) in [
        (10_107, Applied::No, true),      // NotWritablePrimary
        (13_435, Applied::No, true),      // NotPrimaryNoSecondaryOk
        (91, Applied::Unknown, true),     // ShutdownInProgress
        (189, Applied::Unknown, true),    // PrimarySteppedDown
        (11_600, Applied::Unknown, true), // InterruptedAtShutdown
        (11_602, Applied::Unknown, true), // InterruptedDueToReplStateChange
        (50, Applied::Unknown, true),     // MaxTimeMSExpired
        (64, Applied::Unknown, true),     // WriteConcernFailed
        (112, Applied::Unknown, true),    // WriteConflict
        (13, Applied::No, false),         // Unauthorized
        (18, Applied::No, false),         // AuthenticationFailed
    ] {
        let fixture = fixture.another();
        for (op, command) in one_of_each(&fixture).await {
            let store = again(&place, deployment.uri()).await;
            let before = records(&place).await;
            node.fail_command(&[command], 1, doc! { "errorCode": code }).await;
            let error = op.fails(&store, AMPLE).await;
            node.clear_fail_point("failCommand").await;
            let told = format!("{code} of {command} for {}: {}", op.method, whole(&error));
            assert_eq!((error.applied(), error.is_retryable()), (applied, retryable), "{told}");
            if applied == Applied::No {
                assert_eq!(records(&place).await, before, "{told}");
            }
            // Another handle, as this one may have to look for its server first.
            op.resolved(&place.store).await;
        }
    }
}

#[tokio::test]
async fn a_batch_that_fails_half_way_never_says_that_nothing_was_changed() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let node = &deployment.nodes()[0];
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let held = fixture.held(&fixture.lock("held"), fixture.session(), 1).await;
    let session = held.holding.as_ref().unwrap().by.session;
    let first = fixture.held(&fixture.lock("held first"), session, 1).await;
    let last = fixture.held(&fixture.lock("held last"), session, 1).await;
    let release = |lock| Release { lock, session, term: held.term, note: None, then: ReleaseTo::Free };
    let many = |key: &str| {
        let locks: Vec<_> = (0..1500).map(|number| fixture.lock(&format!("{key} {number}"))).collect();
        locks
    };
    // The parts go side by side: whichever arrives first changes a record.
    let mut release_of_many: Vec<_> = many("none").into_iter().map(release).collect();
    release_of_many.insert(0, Release { term: first.term, ..release(first.id) });
    release_of_many.push(Release { term: last.term, ..release(last.id) });
    let takes_of_many = |key: &str| many(key).iter().map(|lock| take_of(&fixture, lock)).collect::<Vec<_>>();
    let by = fixture.candidate(session, 1);
    for (op, command, skipped) in [
        // The release is applied; the look at what became of the other one fails.
        (
            op!(release by "update", releases = vec![release(held.id.clone()), release(fixture.lock("none"))]),
            "find",
            0,
        ),
        // More than one command can hold.
        (op!(take by "update", takes = takes_of_many("many"), dead = Vec::new()), "update", 1),
        (op!(take by "aggregate", takes = takes_of_many("more"), dead = Vec::new()), "aggregate", 1),
        (op!(release by "update", releases = release_of_many), "update", 1),
        (
            op!(wait by "update", waits =
                many("many").into_iter().map(|lock| Wait { lock, by: by.clone() }).collect::<Vec<_>>()),
            "update",
            1,
        ),
    ] {
        let store = again(&place, deployment.uri()).await;
        let before = records(&place).await;
        let fail = doc! { "failCommands": [command], "errorCode": 10_107 };
        node.fail_point("failCommand", doc! { "skip": skipped }, fail).await;
        let error = op.fails(&store, AMPLE).await;
        node.clear_fail_point("failCommand").await;
        let told = format!("{command} of {}: {}", op.method, whole(&error));
        assert_ne!(records(&place).await, before, "a part was applied: {told}");
        assert_eq!(error.applied(), Applied::Unknown, "{told}");
        op.resolved(&place.store).await;
    }
}

#[tokio::test]
async fn a_take_that_runs_out_of_time_in_the_server_ends_there_too() {
    let deployment = shared_single().await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let lock = fixture.lock("key");
    let first = fixture.held(&lock, fixture.session(), 1).await;
    let session = first.holding.as_ref().unwrap().by.session;
    fixture.release(&lock, session, first.term, ReleaseTo::Free).await;
    let free = freed(&fixture, &lock).await;

    // Somebody's transaction is on the record for longer than the take may last.
    let client = deployment.client().await;
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let locks = client.database(place.database.name()).collection::<Document>("locks");
    locks.update_one(doc! {}, doc! { "$set": { "touched": 1 } }).session(&mut session).await.unwrap();

    let take = op!(take by "findAndModify",
        takes = vec![take_of(&fixture, &lock)], dead = Vec::new());
    let error = take.fails(&place.store, LIMIT).await;
    assert_eq!(error.applied(), Applied::Unknown, "{}", whole(&error));
    // The client has given up, and so does the server, while the transaction is still open.
    let running = doc! {
        "currentOp": 1, "active": true, "ns": format!("{}.locks", place.database.name()),
        "command.findAndModify": "locks",
    };
    until("the server ends it", async || {
        let running = client.database("admin").run_command(running.clone()).await.unwrap();
        if running.get_array("inprog").unwrap().is_empty() { Ok(()) } else { Err(running) }
    })
    .await;
    locks.find_one(doc! {}).session(&mut session).await.expect("the transaction is still open");
    session.abort_transaction().await.unwrap();
    assert_eq!(fixture.look(&lock).await, LockSeen::Found(free), "it was not applied later");
    take.resolved(&place.store).await;
}

/// A lock that was released, once a majority knows.
async fn freed(fixture: &Fixture, lock: &LockId) -> LockRecord {
    until("a majority keeps the release", async || {
        let record = fixture.record(lock).await;
        if record.holding.is_none() { Ok(record) } else { Err(record) }
    })
    .await
}

#[tokio::test]
async fn a_command_that_is_never_answered_is_answered_for_in_time() {
    let deployment = shared_single().await;
    let place = Place::on(deployment.uri()).await;
    for (op, command) in one_of_each(&place.fixture()).await {
        let proxy = Proxy::start(deployment.nodes()[0].port());
        let store = again(&place, &proxy.uri()).await;
        proxy.silence(command, &[]);
        let error = op.fails(&store, LIMIT).await;
        assert_eq!(error.applied(), Applied::Unknown, "{}", whole(&error));
        op.resolved(&place.store).await;
    }
}

#[tokio::test]
async fn without_a_primary_nothing_is_done_and_nothing_takes_longer_than_it_may() {
    let deployment = Deployment::start(Shape::ReplicaSet, steady()).await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let (writes, reads) = (writes(&fixture).await, reads(&fixture));
    let held = fixture.held(&fixture.lock("key"), fixture.session(), 1).await;
    let primary = deployment.wait_for_primary(None).await;
    let others: Vec<&Node> = deployment.nodes().iter().filter(|node| node.port() != primary.port()).collect();
    for node in &others {
        deployment.kill(node).await;
    }
    // As it would by itself, once it has missed the others. It is none again before there are two.
    let stand_down = doc! { "replSetStepDown": 3600, "secondaryCatchUpPeriodSecs": 0, "force": true };
    primary.ask(stand_down).await;

    for ops in [&writes, &reads] {
        all_in_time(ops, &place.store, LIMIT).await;
    }
    // With more time than it takes to look for a server, it is known that nothing was sent.
    let before = raw(primary, &place).await;
    for error in all_in_time(&writes, &place.store, SEARCH).await {
        assert_eq!(error.applied(), Applied::No, "{}", whole(&error));
        assert!(error.is_retryable(), "{}", whole(&error));
    }
    assert_eq!(raw(primary, &place).await, before);

    deployment.restart(others[0]).await;
    deployment.step_up(others[0]).await;
    recovers(&writes, &place.store).await;
    assert_eq!(fixture.record(&held.id).await, held);
}

/// Documents of one member, primary or not.
async fn raw(node: &Node, place: &Place) -> Vec<Document> {
    let client = mongodb::Client::with_uri_str(node.uri()).await.unwrap();
    let database = client.database(place.database.name());
    records(&Place { store: place.store.clone(), database }).await
}

#[tokio::test]
async fn a_ticket_keeps_its_term_however_often_its_answers_are_lost() {
    let deployment = shared_single().await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let proxy = Proxy::start(deployment.nodes()[0].port());
    let store = again(&place, &proxy.uri()).await;
    let lock = fixture.lock("key");
    let take = Take { lock: lock.clone(), by: fixture.candidate(fixture.session(), 3) };
    for times in [1, 2] {
        proxy.drop_replies("findAndModify", times);
        for _ in 0..times {
            store.take(vec![take.clone()], Vec::new(), AMPLE).await.expect_err("its reply is lost");
        }
        let granted = fixture.record(&lock).await;
        assert!(granted.is_granted_to(take.by.session, take.by.ticket));
        let answer = store.take(vec![take.clone()], Vec::new(), AMPLE).await.unwrap();
        assert_eq!(answer, [TakeAnswer::Taken(granted.clone())]);
        // An earlier ticket that arrives late finds it taken by a later one.
        let earlier = fixture.candidate(take.by.session, 2);
        assert_eq!(earlier.ticket, Ticket::new(2));
        assert_eq!(fixture.take(&lock, &earlier).await, TakeAnswer::Held(granted));
    }
}

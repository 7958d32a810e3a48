//! A store that is large.

use std::time::Duration;

use mongodb::{
    Client,
    bson::{DateTime, Document, doc},
};
use tenure::{
    Clock, SystemClock,
    model::{
        Holder, Key, Kind, LockId, Namespace, Outcome, Rules, RunId, ScheduleId, ScheduleName, SessionId,
        SpreadName, Term,
    },
    store::{
        About, Candidate, Claim, Define, FinishRun, Nonce, Open, Share, StoreExt, Take, TakeAnswer, Ticket,
        mongo::{MongoOptions, MongoStore},
    },
};

use crate::support::mongod::Deployment;

const LOCKS: usize = 10_000;
const TASKS: usize = 1_000;
const INSTANCES: usize = 50;
const SCHEDULES: usize = 2_000;
const LEDGER: usize = 1_000_000;
/// Collection of the runs.
const RUNS: &str = "runs";
const LIMIT: Duration = Duration::from_secs(60);
/// Ttl of the instances' sessions: they look alive for as long as the bench takes.
const TTL: Duration = Duration::from_secs(3600);

pub(crate) fn namespace() -> Namespace {
    Namespace::new("large").expect("it is short")
}

/// Returns session and holder of an instance, by its number.
fn instance(number: usize) -> (SessionId, Holder) {
    (SessionId::from_u128(number as u128 + 1), Holder::new(format!("pod-{number:02}")).expect("it is short"))
}

fn schedule(number: usize) -> ScheduleId {
    let name = ScheduleName::new(format!("job-{number:04}")).expect("it is short");
    ScheduleId { namespace: namespace(), name }
}

pub(crate) async fn fill(deployment: &Deployment, database: &str) {
    let options = MongoOptions::new().database(database);
    let store = MongoStore::connect(deployment.uri(), options).await.expect("the server is up");
    for number in 0..INSTANCES {
        let (session, holder) = instance(number);
        let about = About::new(namespace(), holder);
        let shares =
            ["topics", "tenure.schedules"].map(|spread| Share::new(spread.parse().expect("it is short")));
        let open =
            Open { session, nonce: Nonce::new(1), about, ttl: TTL, shares: shares.into(), drained: None };
        store.open(open, LIMIT).await.expect("the server is up");
    }
    let topics = Kind::of_tasks(&SpreadName::new("topics").expect("it is short"));
    take(&store, &Kind::Lock, (0..LOCKS).map(|key| format!("key-{key:05}"))).await;
    take(&store, &topics, (0..TASKS).map(|task| format!("topic-{task:04}"))).await;
    take(&store, &Kind::Schedule, (0..SCHEDULES).map(|job| schedule(job).name.to_string())).await;
    for job in 0..SCHEDULES {
        let (timing, policies) = (Rules::new("0 * * * * in UTC"), Rules::new("overlap skip"));
        let define = Define {
            schedule: schedule(job),
            term: Term::new(1),
            timing: timing.expect("it is short"),
            policies: policies.expect("it is short"),
            instead_of: None,
        };
        store.define(define, LIMIT).await.expect("the server is up");
    }
    ledgers(&store, deployment, database).await;
}

/// Has the instances hold these keys, each its part.
async fn take(store: &MongoStore, kind: &Kind, keys: impl Iterator<Item = String>) {
    let take = |(at, key): (usize, String)| {
        let (session, holder) = instance(at % INSTANCES);
        let lock =
            LockId { namespace: namespace(), kind: kind.clone(), key: Key::new(key).expect("it is short") };
        Take { lock, by: Candidate::new(session, Ticket::new(1), TTL, holder) }
    };
    let takes: Vec<_> = keys.enumerate().map(take).collect();
    for takes in takes.chunks(1000) {
        let answers = store.take(takes.to_vec(), Vec::new(), LIMIT).await.expect("the server is up");
        assert!(answers.iter().all(|answer| matches!(answer, TakeAnswer::Taken(_))), "all of them were free");
    }
}

/// Writes the ledgers: copies one run, as the store writes it, a million times, each at another instant.
async fn ledgers(store: &MongoStore, deployment: &Deployment, database: &str) {
    let (session, holder) = instance(0);
    let hour = 3_600_000;
    let last = SystemClock::new().wall().as_millis().div_euclid(hour) * hour;
    let at = |entry: i64| tenure::model::StoreTime::from_millis(last - entry * hour);
    let run = RunId::tick(schedule(0), at(0));
    let claim = Claim {
        run: run.clone(),
        session,
        holder,
        term: Term::new(1),
        attempt: 1,
        instead_of: None,
        skipped: None,
    };
    store.claim(claim, LIMIT).await.expect("the server is up");
    let finish = FinishRun {
        run,
        session,
        term: Term::new(1),
        attempt: 1,
        outcome: Outcome::Succeeded,
        error: None,
        last: true,
    };
    store.finish(finish, LIMIT).await.expect("the server is up");
    let client = Client::with_uri_str(deployment.uri()).await.expect("the server is up");
    let runs = client.database(database).collection::<Document>(RUNS);
    let wanted = doc! { "_id.schedule": "job-0000", "_id.at": { "$ne": null } };
    let template = runs.find_one(wanted).await.expect("the server is up").expect("it was claimed");
    let per_schedule = i64::try_from(LEDGER / SCHEDULES).expect("it is small");
    for job in 0..SCHEDULES {
        let copy = |entry: i64| {
            let mut run = template.clone();
            let id = run.get_document_mut("_id").expect("it has one");
            id.insert("schedule", schedule(job).name.as_str());
            id.insert("at", DateTime::from_millis(at(entry).as_millis()));
            run
        };
        let first = i64::from(job == 0);
        runs.insert_many((first..per_schedule).map(copy)).ordered(false).await.expect("the server is up");
    }
}

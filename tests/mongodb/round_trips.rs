//! Round trips to the server, and the concerns they use: counted from the driver's own events.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use mongodb::{
    bson::{Bson, Document, doc},
    event::{EventHandler, command::CommandEvent},
};
use tenure::{
    model::{Entry, Kind, LockId, Retention, RunId, ScheduleId, Skipped, StoreTime, Term, Why},
    store::{
        Claim, Define, FinishRun, Instruction, Release, ReleaseAnswer, ReleaseTo, Revocation, RunNow,
        ScheduleSeen, Store, StoreExt, Take, Ticket, Wait, mongo::MongoOptions,
    },
};
use tenure_conformance::{Fixture, LIMIT};

use crate::mongodb::Place;
use crate::support::{mongod, wait::until};

/// Commands that were sent, and those that failed.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    sent: Vec<Document>,
    errors: Vec<String>,
}

impl Log {
    fn options(&self) -> MongoOptions {
        let log = self.clone();
        MongoOptions::new().command_events(EventHandler::callback(move |event| log.note(event)))
    }

    fn note(&self, event: CommandEvent) {
        let mut entries = self.0.lock().unwrap();
        match event {
            // Bells are rung beside the operation.
            CommandEvent::Started(event) if is_of_bells(&event.command) => {}
            CommandEvent::Started(event) => entries.sent.push(event.command),
            CommandEvent::Failed(event) => entries.errors.push(event.failure.to_string()),
            CommandEvent::Succeeded(event) => {
                for field in ["writeErrors", "writeConcernError"] {
                    if let Some(error) = event.reply.get(field) {
                        entries.errors.push(error.to_string());
                    }
                }
            }
            _ => {}
        }
    }

    /// Commands that were sent since the last call.
    fn take(&self) -> Vec<Document> {
        std::mem::take(&mut self.0.lock().unwrap().sent)
    }

    fn names(&self) -> Vec<String> {
        self.take().iter().map(name).collect()
    }

    fn errors(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().errors)
    }
}

fn is_of_bells(command: &Document) -> bool {
    let name = command.values().next().and_then(Bson::as_str).unwrap_or_default();
    name.starts_with("bells_") || command.contains_key("listCollections")
}

fn name(command: &Document) -> String {
    command.keys().next().cloned().unwrap_or_default()
}

async fn counted(uri: &str) -> (Place, Log) {
    let log = Log::default();
    let place = Place::with(uri, log.options()).await;
    log.take();
    log.errors();
    (place, log)
}

fn takes(fixture: &Fixture, session: tenure::model::SessionId, keys: usize, tickets: u64) -> Vec<Take> {
    let take = |key: usize| Take {
        lock: fixture.lock(&format!("key {key}")),
        by: fixture.candidate(session, tickets + key as u64),
    };
    (0..keys).map(take).collect()
}

/// The releases of locks that nobody else waits for, as an engine sends them.
pub(crate) fn releases(taken: &[tenure::store::TakeAnswer]) -> Vec<Release> {
    let release = |answer: &tenure::store::TakeAnswer| {
        let record = answer.taken().expect("nobody else is here");
        let session = record.holding.as_ref().expect("it was taken").by.session;
        Release {
            lock: record.id.clone(),
            session,
            term: record.term,
            note: None,
            then: ReleaseTo::FreeUnlessWanted,
        }
    };
    taken.iter().map(release).collect()
}

#[tokio::test]
async fn a_take_is_one_round_trip_won_or_lost() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    let lock = fixture.lock("report");
    let record = fixture.held(&lock, fixture.session(), 1).await;
    assert_eq!(log.names(), ["findAndModify"], "of a key nobody ever took");
    let loser = fixture.candidate(fixture.session(), 1);
    fixture.take(&lock, &loser).await;
    assert_eq!(log.names(), ["findAndModify"], "of a key somebody holds");
    let dead = record.holding.as_ref().unwrap().by.session;
    assert!(fixture.take_over(&lock, &loser, &[dead]).await.taken().is_some());
    assert_eq!(log.names(), ["findAndModify"], "of a key whose holder is dead");
    let (store, limit) = (fixture.store(), LIMIT);
    let release = Release {
        lock: lock.clone(),
        session: loser.session,
        term: fixture.record(&lock).await.term,
        note: None,
        then: ReleaseTo::FreeUnlessWanted,
    };
    log.take();
    store.release(vec![release], limit).await.unwrap();
    assert_eq!(log.names(), ["update"], "a release");
}

#[tokio::test]
async fn a_thousand_keys_are_taken_in_two_round_trips_and_released_in_one() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    let (first, second) = (fixture.session(), fixture.session());
    let two = ["one", "two"].map(|key| Take { lock: fixture.lock(key), by: fixture.candidate(first, 9000) });
    fixture.take_all(two.into(), &[]).await;
    assert_eq!(log.names(), ["aggregate", "hello", "update"], "the very first of a store");
    let taken = fixture.take_all(takes(&fixture, first, 1000, 1), &[]).await;
    assert_eq!(log.names(), ["aggregate", "update"], "fresh keys");

    let lost = fixture.take_all(takes(&fixture, second, 1000, 1), &[]).await;
    assert!(lost.iter().all(|answer| answer.taken().is_none()));
    assert_eq!(log.names(), ["aggregate", "aggregate"], "held keys: what is answered a majority has");

    let mut mixed = takes(&fixture, second, 500, 1);
    mixed.extend((0..500).map(|key| Take {
        lock: fixture.lock(&format!("another {key}")),
        by: fixture.candidate(second, 5000 + key),
    }));
    let some = fixture.take_all(mixed, &[]).await;
    assert_eq!(some.iter().filter(|answer| answer.taken().is_some()).count(), 500);
    assert_eq!(log.names(), ["aggregate", "update"], "held and fresh keys");

    let over = fixture.take_all(takes(&fixture, second, 1000, 1), &[first]).await;
    assert_eq!(log.names(), ["aggregate", "update"], "keys of a dead session");

    let answers = fixture.store().release(releases(&over), LIMIT).await.unwrap();
    assert_eq!(answers, vec![ReleaseAnswer::Released; 1000]);
    assert_eq!(log.names(), ["update"], "the release of all");

    let stale = fixture.store().release(releases(&taken), LIMIT).await.unwrap();
    assert_eq!(stale, vec![ReleaseAnswer::Released; 1000]);
    assert_eq!(log.names(), ["update", "find"], "the release of what is not held any more takes a look");
    assert_eq!(log.errors(), [""; 0]);
}

#[tokio::test]
async fn a_beat_is_one_round_trip_whatever_is_held() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    let session = fixture.opened().await.id;
    assert_eq!(log.names(), ["findAndModify"], "the opening");
    for (number, keys) in [(1, 0), (2, 1), (3, 1000)] {
        fixture.take_all(takes(&fixture, session, keys, 10_000 * number), &[]).await;
        log.take();
        let beat = fixture.beat(session, number);
        assert!(fixture.send(&beat).await.bears(beat.nonce));
        assert_eq!(log.names(), ["findAndModify"], "with {keys} keys");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_tasks_that_race_for_50_fresh_keys_50_win_and_no_error_is_seen() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let fixture = Arc::new(place.fixture());
    let racers = (0..64).map(|racer| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move {
            let session = fixture.session();
            let mut won = 0;
            for key in 0..50 {
                // Each begins elsewhere, so that they meet everywhere.
                let lock = fixture.lock(&format!("key {}", (key + racer * 3) % 50));
                let answer = fixture.take(&lock, &fixture.candidate(session, key + 1)).await;
                won += usize::from(answer.taken().is_some());
            }
            won
        })
    });
    let won: usize = futures::future::join_all(racers).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(won, 50);
    assert_eq!(log.errors(), [""; 0]);
    assert_eq!(log.names().len(), 64 * 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_race_for_fresh_keys_share_them_without_an_error() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let fixture = Arc::new(place.fixture());
    let racers = (0..16).map(|_| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move {
            let wanted = takes(&fixture, fixture.session(), 200, 1);
            let answers = fixture.take_all(wanted, &[]).await;
            answers.iter().filter(|answer| answer.taken().is_some()).count()
        })
    });
    let won: usize = futures::future::join_all(racers).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(won, 200);
    assert_eq!(log.errors(), [""; 0]);
}

fn define(schedule: &ScheduleId, timing: &str) -> Define {
    let (timing, policies) = (timing.parse().unwrap(), "retry 3".parse().unwrap());
    Define { schedule: schedule.clone(), term: Term::new(1), timing, policies, instead_of: None }
}

fn pause() -> Instruction {
    Instruction::Pause { by: "admin".parse().unwrap(), why: Why::new("the disk is full").unwrap() }
}

fn order(at: i64) -> Instruction {
    let (by, why) = ("admin".parse().unwrap(), Why::new("now").unwrap());
    Instruction::Run(RunNow { at: StoreTime::from_millis(at), by, why })
}

/// Every method once, as a program might call it.
async fn use_everything(fixture: &Fixture) {
    let (store, limit) = (Arc::clone(fixture.store()), LIMIT);
    let mine = fixture.opened().await.id;
    let beat = fixture.beat(mine, 1);
    fixture.send(&beat).await;
    store.observe(vec![mine], limit).await.unwrap();
    store.sessions(fixture.namespace().clone(), None, 10, limit).await.unwrap();
    let lock = fixture.lock("report");
    let record = fixture.held(&lock, mine, 1).await;
    let more = fixture.take_all(takes(fixture, mine, 10, 100), &[]).await;
    store.release(releases(&more), limit).await.unwrap();
    let by = fixture.candidate(fixture.session(), 1);
    store.wait(vec![Wait { lock: lock.clone(), by: by.clone() }], limit).await.unwrap();
    store.waiters(lock.clone(), 3, limit).await.unwrap();
    store.places(vec![(lock.clone(), by.session, by.ticket)], limit).await.unwrap();
    store.stop_waiting(vec![(lock.clone(), by.session, by.ticket)], limit).await.unwrap();
    fixture.set(&lock, mine, record.term, None).await;
    store.locks(vec![lock.clone()], limit).await.unwrap();
    store.list_locks(fixture.namespace().clone(), Some(Kind::Lock), None, 10, limit).await.unwrap();
    store.held_by(mine, None, 10, limit).await.unwrap();
    store.latest_grants(vec![mine], 10, limit).await.unwrap();
    let request = tenure::store::Request {
        lock: lock.clone(),
        term: record.term,
        by: "operator".parse().unwrap(),
        why: tenure::model::Why::new("maintenance").unwrap(),
    };
    store.revoke(Revocation::Ask { session: mine, request: request.clone() }, limit).await.unwrap();
    store.revoke(Revocation::Force(request.clone()), limit).await.unwrap();
    store.revoke(Revocation::Reopen(request), limit).await.unwrap();
    let schedule = fixture.schedule("nightly");
    store.define(define(&schedule, "0 3 * * *"), limit).await.unwrap();
    store.instruct(schedule.clone(), pause(), limit).await.unwrap();
    store.schedules(vec![schedule.clone()], limit).await.unwrap();
    let run = RunId::tick(schedule.clone(), StoreTime::from_millis(1000));
    let (term, attempt) = (Term::new(1), 1);
    let claim = Claim {
        run: run.clone(),
        session: mine,
        holder: by.holder,
        term,
        attempt,
        instead_of: None,
        skipped: None,
    };
    store.claim(claim, limit).await.unwrap();
    let outcome = tenure::model::Outcome::Succeeded;
    store
        .finish(FinishRun { run, session: mine, term, attempt, outcome, error: None, last: true }, limit)
        .await
        .unwrap();
    store.history(schedule.clone(), None, 10, limit).await.unwrap();
    store.last_runs(vec![schedule.clone(), fixture.schedule("hourly")], 10, limit).await.unwrap();
    store.purge_runs(schedule, Duration::ZERO, 0, limit).await.unwrap();
    fixture.declare_dead(mine).await;
    let now = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };
    store.purge(fixture.namespace().clone(), now, None, limit).await.unwrap();
}

/// The commands whose answer may be undone by a failure, and that nobody concludes anything from.
fn decides_nothing(command: &Document, collections: &[&str]) -> bool {
    let collection = command.values().next().and_then(Bson::as_str).unwrap_or_default();
    collections.contains(&collection)
}

#[tokio::test]
async fn commands_carry_their_own_concerns_and_limit_whatever_the_connection_string_says() {
    let plain = mongod::shared_replica_set().await.uri();
    for options in [
        "",
        "&w=1&readPreference=secondary&retryWrites=false",
        "&w=0&journal=false&wtimeoutMS=1&readConcernLevel=local&readPreference=nearest&retryWrites=true&retryReads=true",
    ] {
        let uri = format!("{plain}{options}");
        let (place, log) = counted(&uri).await;
        use_everything(&place.fixture()).await;
        let sent = log.take();
        let mut seen = BTreeMap::new();
        for command in &sent {
            let name = name(command);
            *seen.entry(name.clone()).or_insert(0) += 1;
            let limit = command.get_i64("maxTimeMS").unwrap_or_default();
            assert!(limit > 0, "{command} has no limit");
            assert!(!command.contains_key("txnNumber"), "{command} is one the driver would repeat");
            let preference =
                command.get_document("$readPreference").map_or("primary", |it| it.get_str("mode").unwrap());
            assert!(preference.starts_with("primary"), "{command}");
            match name.as_str() {
                "find" | "aggregate" | "distinct" => {
                    let level = command.get_document("readConcern").unwrap().get_str("level").unwrap();
                    // The line of waiters, lists of locks, and the look at what a batch may write: the write decides.
                    let is_look = name == "aggregate" && decides_nothing(command, &["locks"]);
                    let local = decides_nothing(command, &["waiters"]) || is_look || is_list(command);
                    assert_eq!(level, if local { "local" } else { "majority" }, "{command}");
                }
                "findAndModify" | "update" | "delete" => {
                    let concern = command.get_document("writeConcern").unwrap();
                    let is_settled_later = name == "update" && (is_release(command) || is_mark(command));
                    if decides_nothing(command, &["waiters"]) && name != "delete" || is_settled_later {
                        assert_eq!(concern.get("w"), Some(&Bson::Int32(1)), "{command}");
                    } else if concern.get_str("w").is_ok() {
                        assert_eq!(concern.get("w"), Some(&"majority".into()), "{command}");
                        assert_eq!(concern.get("j"), Some(&true.into()), "{command}");
                        assert!(concern.get_i64("wtimeout").unwrap() > 0, "{command}");
                    } else {
                        // A place in the queue that is given up.
                        assert!(decides_nothing(command, &["waiters"]), "{command}");
                    }
                }
                other => panic!("{other} was not expected: {command}"),
            }
        }
        for command in ["find", "aggregate", "findAndModify", "update", "delete"] {
            assert!(seen.contains_key(command), "{command} was sent, so that its concern was seen: {seen:?}");
        }
        assert_eq!(log.errors(), [""; 0], "{options}");
    }
}

/// Returns whether a command lists locks by the order of their ids, for people.
fn is_list(command: &Document) -> bool {
    let filter = command.get_document("filter").and_then(|filter| filter.get_document("_id"));
    let first = filter.and_then(|range| range.get_document("$gte"));
    command.get_str("find").is_ok_and(|on| on == "locks")
        && first.is_ok_and(|first| first.get_str("kind").is_ok_and(|kind| kind == "lock"))
}

/// Returns whether a command changes nothing but that somebody lets go.
fn is_release(command: &Document) -> bool {
    updates_are(command, |update| update.contains("\"released\""))
}

/// The mark of a lock that somebody waits for.
fn is_mark(command: &Document) -> bool {
    updates_are(command, |update| update == "{ \"$set\": { \"wanted\": true } }")
}

fn updates_are(command: &Document, expected: impl Fn(String) -> bool) -> bool {
    let is_one = |statement: &Bson| expected(statement.as_document().unwrap().get("u").unwrap().to_string());
    command.get_array("updates").unwrap().iter().all(is_one)
}

#[tokio::test]
async fn a_take_that_loses_leaves_no_trace_in_the_servers_log() {
    let deployment = mongod::shared_single().await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let lock = fixture.lock("report");
    fixture.held(&lock, fixture.session(), 1).await;
    let log = place.database.client().database("local").collection::<Document>("oplog.rs");
    let ours = doc! { "ns": format!("{}.locks", place.database.name()) };
    let before = log.count_documents(ours.clone()).await.unwrap();
    assert!(before > 0, "the take that won is there");
    for ticket in 1..=20 {
        fixture.take(&lock, &fixture.candidate(fixture.session(), ticket)).await;
    }
    fixture.take_all(takes(&fixture, fixture.session(), 0, 1), &[]).await;
    assert_eq!(log.count_documents(ours).await.unwrap(), before);
}

#[tokio::test]
async fn many_ledgers_and_sessions_are_read_in_one_round_trip_and_none_in_none() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    let store = fixture.store();
    for (number, sent) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
        let schedules = (0..number).map(|number| fixture.schedule(&format!("{number}")));
        let pages = store.last_runs(schedules.collect(), 10, LIMIT).await.unwrap();
        assert_eq!(pages.len(), number);
        assert_eq!(log.names(), vec!["aggregate"; sent], "{number} ledgers");
    }
    for (number, sent) in [(0, 0), (1, 1), (200, 1), (201, 2), (1000, 5)] {
        let sessions = (0..number).map(|_| fixture.session());
        store.latest_grants(sessions.collect(), 10, LIMIT).await.unwrap();
        assert_eq!(log.names(), vec!["find"; sent], "{number} sessions");
    }
    store.latest_grants(vec![fixture.session()], 0, LIMIT).await.unwrap();
    assert_eq!(log.names(), [""; 0], "none are wanted");
    assert_eq!(log.errors(), [""; 0]);
}

#[tokio::test]
async fn calls_about_a_schedule_are_one_round_trip_each() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    let (store, schedule) = (fixture.store(), fixture.schedule("nightly"));
    for timing in ["first", "first", "second"] {
        store.define(define(&schedule, timing), LIMIT).await.unwrap();
        assert_eq!(log.names(), ["findAndModify"], "{timing}");
    }
    let ran = Instruction::Ran { at: StoreTime::from_millis(5) };
    for instruction in [pause(), pause(), Instruction::Resume, order(5), order(5), ran] {
        store.instruct(schedule.clone(), instruction.clone(), LIMIT).await.unwrap();
        assert_eq!(log.names(), ["findAndModify"], "{instruction:?}");
    }
    let many = (0..100).map(|number| fixture.schedule(&format!("none {number}")));
    let many: Vec<_> = many.chain([schedule.clone()]).collect();
    let seen = store.schedules(many, LIMIT).await.unwrap();
    assert!(matches!(seen[..], [.., ScheduleSeen::Absent, ScheduleSeen::Found(_)]), "{seen:?}");
    assert_eq!(log.names(), ["find"], "a hundred and one schedules");
    let at = StoreTime::from_millis(5);
    let claim = Claim {
        run: RunId { schedule, instant: at, entry: Entry::Skipped },
        session: fixture.session(),
        holder: "pod".parse().unwrap(),
        term: Term::new(1),
        attempt: 1,
        instead_of: None,
        skipped: Some(Skipped { from: at, count: 1, why: Why::new("paused").unwrap() }),
    };
    store.claim(claim, LIMIT).await.unwrap();
    assert_eq!(log.names(), ["findAndModify"], "ticks that are not run are claimed and ended at once");
    assert_eq!(log.errors(), [""; 0]);
}

#[tokio::test]
async fn repeated_instructions_to_a_schedule_leave_no_trace_in_the_servers_log() {
    let place = Place::on(mongod::shared_single().await.uri()).await;
    let fixture = place.fixture();
    let (store, schedule) = (fixture.store(), fixture.schedule("nightly"));
    let log = place.database.client().database("local").collection::<Document>("oplog.rs");
    let ours = doc! { "ns": format!("{}.runs", place.database.name()) };
    let count = async || log.count_documents(ours.clone()).await.unwrap();
    let instruct = async |instruction| {
        store.instruct(schedule.clone(), instruction, LIMIT).await.unwrap();
    };
    let ran = |at| Instruction::Ran { at: StoreTime::from_millis(at) };

    instruct(Instruction::Resume).await;
    let mut before = count().await;
    instruct(Instruction::Resume).await;
    instruct(ran(5)).await;
    assert_eq!(count().await, before, "of a record that says nothing");

    store.define(define(&schedule, "first"), LIMIT).await.unwrap();
    for at in 1..=100 {
        instruct(order(at)).await;
    }
    instruct(pause()).await;
    assert_eq!(count().await, before + 102, "every change is there");
    before = count().await;
    for _ in 0..3 {
        store.define(define(&schedule, "first"), LIMIT).await.unwrap();
        let late = Define { term: Term::new(0), ..define(&schedule, "late") };
        store.define(late, LIMIT).await.unwrap();
        for instruction in [pause(), order(7), order(101), ran(200)] {
            instruct(instruction).await;
        }
    }
    assert_eq!(count().await, before, "said before, too late, or beyond the most");
    instruct(Instruction::Resume).await;
    instruct(Instruction::Resume).await;
    assert_eq!(count().await, before + 1, "it ends once");
}

#[tokio::test]
async fn an_empty_batch_asks_nobody() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let store = &place.store;
    assert_eq!(store.take(vec![], vec![], LIMIT).await.unwrap(), vec![]);
    assert_eq!(store.release(vec![], LIMIT).await.unwrap(), vec![]);
    assert_eq!(store.locks(Vec::<LockId>::new(), LIMIT).await.unwrap(), vec![]);
    assert_eq!(store.observe(vec![], LIMIT).await.unwrap(), vec![]);
    assert_eq!(store.schedules(vec![], LIMIT).await.unwrap(), vec![]);
    store.wait(vec![], LIMIT).await.unwrap();
    store.stop_waiting(Vec::<(LockId, tenure::model::SessionId, Ticket)>::new(), LIMIT).await.unwrap();
    assert_eq!(store.places(vec![], LIMIT).await.unwrap(), [false; 0]);
    assert_eq!(log.names(), [""; 0]);
}

#[tokio::test]
async fn connecting_once_more_prepares_nothing() {
    let (place, log) = counted(mongod::shared_single().await.uri()).await;
    let dedicated = until("a dedicated store", async || place.store.dedicated().await).await;
    let dedicated = dedicated.expect("the client is the store's own");
    dedicated.open(place.fixture().opening(), LIMIT).await.unwrap();
    // A thread tells of them, in order.
    let mut told = Vec::new();
    until("the opening is told of", async || {
        told.extend(log.names());
        if told.last().is_some_and(|name| name == "findAndModify") { Ok(()) } else { Err(told.clone()) }
    })
    .await;
    assert!(told[..told.len() - 1].iter().all(|name| name == "ping"), "{told:?}");
}

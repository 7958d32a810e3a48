//! Thousands of takes and releases while the primary dies or stands down, judged by their history.
//!
//! Some hold what they have through the failover while the others go on. Every error is resolved as
//! the contract says: the same operation is repeated until it is answered. What a failover may leave
//! behind is given back by an audit, as the engine does it: releases that were rolled back, and grants
//! to tickets that ended while an attempt of theirs was still on its way.

#![expect(clippy::unwrap_used, reason = "in a test, also outside of the function that is marked as one")]

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use mongodb::{
    bson::{Bson, Document, doc},
    event::{
        EventHandler,
        command::{CommandEvent, CommandStartedEvent},
    },
};
use tenure::{
    Applied, StoreError,
    model::{LockId, SessionId, Term},
    store::{
        LockRecord, LockSeen, Release, ReleaseAnswer, ReleaseTo, StoreExt, Take, TakeAnswer, Ticket,
        mongo::MongoOptions,
    },
};
use tenure_conformance::Fixture;
use tokio::{sync::watch, time::timeout};

use crate::mongodb::{
    Place, connected,
    history::{Held, History, now},
    rounds,
};
use crate::support::{
    mongod::{Deployment, Options, Shape, Timing},
    wait::{self, until, within},
};

/// Longest time that the engine grants one attempt (R8).
const LIMIT: Duration = Duration::from_millis(2500);
/// A round makes some hundred turns one after the other, each of which may wait.
const ROUND: Duration = Duration::from_secs(5 * wait::LIMIT.as_secs());
const TASKS: usize = 16;
/// Keys that all sessions want, and keys that each has for itself.
const SHARED: u64 = 8;
const OWN: u64 = 8;
const MOST_AT_ONCE: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The primary is killed at a third of the way, and back at two thirds.
    Kill,
    /// The primary stands down at a third of the way, and the next one at two thirds.
    StepDown,
}

#[derive(Debug, Default)]
struct Errors {
    unknown: AtomicU64,
    nothing_changed: AtomicU64,
}

/// Worker that knows what its own session did.
struct Worker {
    number: u64,
    session: SessionId,
    tickets: u64,
    random: u64,
    /// Tickets with an attempt that may be applied late.
    unconfirmed: HashSet<(LockId, Ticket)>,
    audited: u64,
}

impl Worker {
    fn draw(&mut self, below: u64) -> u64 {
        // Knuth's: good enough to pick keys.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }
}

/// Shared state of all who take part in a round.
struct Round {
    place: Place,
    fixture: Fixture,
    history: History,
    target: u64,
    /// Number of takes and releases that were answered.
    done: watch::Sender<u64>,
    /// The primary is about to go.
    going: watch::Sender<bool>,
    /// Number of failovers that are over.
    failovers: watch::Sender<u64>,
    errors: Errors,
    rolled_back: AtomicU64,
    late: AtomicU64,
    lost_races: AtomicU64,
    /// Number of locks that were held through a failover.
    held_through: watch::Sender<u64>,
}

impl Round {
    fn done(&self) -> u64 {
        *self.done.borrow()
    }

    async fn until_done(&self, so_many: u64) {
        self.done.subscribe().wait_for(|done| *done >= so_many).await.expect("the round has the sender");
    }

    fn locks(&self) -> Vec<LockId> {
        let shared = (0..SHARED).map(|key| self.fixture.lock(&format!("shared {key}")));
        let own = (0..TASKS as u64).flat_map(|worker| (0..OWN).map(move |key| (worker, key)));
        shared.chain(own.map(|(worker, key)| self.fixture.lock(&format!("own {worker} {key}")))).collect()
    }

    /// Repeats an operation until it is answered; tells whether any attempt's outcome is unknown.
    async fn resolved<T, F>(&self, mut attempt: impl FnMut() -> F) -> (T, bool)
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut unconfirmed = false;
        loop {
            match attempt().await {
                Ok(answer) => return (answer, unconfirmed),
                Err(error) => {
                    assert!(error.is_retryable(), "{}", whole(&error));
                    match error.applied() {
                        Applied::No => &self.errors.nothing_changed,
                        Applied::Unknown => {
                            unconfirmed = true;
                            &self.errors.unknown
                        }
                    }
                    .fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    async fn work(self: Arc<Self>, number: u64) -> Worker {
        let session = self.fixture.session();
        let mut worker = Worker {
            number,
            session,
            tickets: 0,
            random: number + 1,
            unconfirmed: HashSet::new(),
            audited: *self.failovers.borrow(),
        };
        while self.done() < self.target {
            let failovers = *self.failovers.borrow();
            if worker.audited < failovers {
                // What the failover left behind stands in everybody's way.
                self.audit(&worker).await;
                worker.audited = failovers;
            }
            if self.done() >= self.target * 2 / 3 {
                // The last third comes after the failover, however late that is noticed.
                self.until_failovers(1).await;
            }
            self.turn(&mut worker).await;
        }
        worker
    }

    async fn until_failovers(&self, so_many: u64) {
        let mut failovers = self.failovers.subscribe();
        failovers.wait_for(|failovers| *failovers >= so_many).await.expect("the round has the sender");
    }

    /// Takes one lock or several, and releases those it got.
    async fn turn(&self, worker: &mut Worker) {
        let wanted = if worker.draw(2) == 0 { 1 } else { 2 + worker.draw(MOST_AT_ONCE - 1) };
        let mut takes = BTreeMap::new();
        for _ in 0..wanted {
            let (shared, own) = (worker.draw(SHARED), worker.draw(OWN));
            let lock = match worker.draw(2) {
                0 => self.fixture.lock(&format!("shared {shared}")),
                _ => self.fixture.lock(&format!("own {} {own}", worker.number)),
            };
            worker.tickets += 1;
            let by = self.fixture.candidate(worker.session, worker.tickets);
            takes.insert(lock.clone(), Take { lock, by });
        }
        let takes: Vec<Take> = takes.into_values().collect();
        let store = &self.place.store;
        let (answers, unconfirmed) = self.resolved(|| store.take(takes.clone(), Vec::new(), LIMIT)).await;
        let granted = now();
        assert_eq!(answers.len(), takes.len());
        if unconfirmed {
            worker.unconfirmed.extend(takes.iter().map(|take| (take.lock.clone(), take.by.ticket)));
        }
        self.done.send_modify(|done| *done += answers.len() as u64);

        let mut held: Vec<LockRecord> = Vec::new();
        for (take, answer) in takes.iter().zip(answers) {
            match answer {
                TakeAnswer::Taken(record) => {
                    assert_eq!(record.id, take.lock, "a batch is answered in order");
                    held.push(record);
                }
                TakeAnswer::Held(record) => {
                    assert!(!record.is_granted_to(take.by.session, take.by.ticket));
                    self.lost_races.fetch_add(1, Ordering::Relaxed);
                }
                other => panic!("{} was {other:?}", take.lock),
            }
        }
        if held.is_empty() {
            return;
        }
        self.hold(worker, held.len()).await;
        let given_back: Vec<_> =
            held.iter().map(|record| given_back(&record.id, worker.session, record.term)).collect();
        let released = now();
        let (answers, _) = self.resolved(|| store.release(given_back.clone(), LIMIT)).await;
        assert_eq!(answers, vec![ReleaseAnswer::Released; held.len()]);
        for record in held {
            let (term, session) = (record.term, worker.session);
            let ticket = record.holding.expect("it was taken").by.ticket;
            self.history.add(&record.id, Held { session, ticket, term, granted, released: Some(released) });
        }
        self.done.send_modify(|done| *done += answers.len() as u64);
    }

    /// Holds on to its locks: for a moment, or through a failover that is about to come, until the
    /// others, who go on, have had the time to take what they can get.
    async fn hold(&self, worker: &Worker, locks: usize) {
        if !*self.going.borrow() || !worker.number.is_multiple_of(2) {
            return tokio::task::yield_now().await;
        }
        self.held_through.send_modify(|held| *held += locks as u64);
        let over = *self.failovers.borrow();
        self.until_failovers(over + 1).await;
        self.until_done(self.done() + 200).await;
    }

    /// Everything that was written before this is in every majority read after it.
    async fn barrier(&self) {
        let concern = doc! { "w": "majority", "wtimeout": 60_000 };
        let write = doc! { "insert": "barrier", "documents": [{}], "writeConcern": concern };
        let is_kept = |reply: &Document| !reply.contains_key("writeConcernError");
        let kept = async {
            while !self.place.database.run_command(write.clone()).await.as_ref().is_ok_and(is_kept) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within("the set has a majority", kept).await;
    }

    /// Gives back what the store says this session holds, which holds nothing.
    async fn audit(&self, worker: &Worker) {
        self.barrier().await;
        let store = &self.place.store;
        let (page, _) = self.resolved(|| store.held_by(worker.session, None, 1000, LIMIT)).await;
        assert!(page.next.is_none() && page.refused.is_empty());
        for held in page.items {
            if self.history.knows(&held.lock, held.term) {
                self.rolled_back.fetch_add(1, Ordering::Relaxed);
            } else {
                let take = (held.lock.clone(), held.ticket);
                assert!(
                    worker.unconfirmed.contains(&take),
                    "granted, though nobody could have asked: {held:?}"
                );
                self.late.fetch_add(1, Ordering::Relaxed);
            }
            let release = [given_back(&held.lock, worker.session, held.term)];
            self.resolved(|| store.release(release.to_vec(), LIMIT)).await;
        }
    }

    async fn trouble(&self, deployment: &Deployment, trouble: Trouble) -> String {
        self.until_done(self.target / 3).await;
        self.going.send_replace(true);
        let mut held = self.held_through.subscribe();
        held.wait_for(|held| *held >= 4).await.expect("the round has the sender");
        let gone = deployment.wait_for_primary(None).await;
        let at_kill = self.done();
        let gone = match trouble {
            Trouble::Kill => {
                deployment.kill(gone).await;
                gone
            }
            Trouble::StepDown => deployment.step_down().await,
        };
        deployment.wait_for_primary(Some(gone.port())).await;
        let at_election = self.done();
        self.going.send_replace(false);
        self.failovers.send_modify(|failovers| *failovers += 1);
        self.until_done(self.target * 2 / 3).await;
        match trouble {
            Trouble::Kill => deployment.restart(gone).await,
            Trouble::StepDown => {
                let again = deployment.step_down().await.port();
                deployment.wait_for_primary(Some(again)).await;
                self.failovers.send_modify(|failovers| *failovers += 1);
            }
        }
        format!("{trouble:?}: {at_kill} operations before, {at_election} at the election")
    }
}

fn given_back(lock: &LockId, session: SessionId, term: Term) -> Release {
    Release { lock: lock.clone(), session, term, note: None, then: ReleaseTo::Free }
}

/// An error with everything under it.
pub(crate) fn whole(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Commands of the store that it must not send, whatever the connection string says (R11).
#[derive(Clone, Debug, Default)]
struct Sent(Arc<Mutex<Vec<String>>>);

impl Sent {
    fn handler(&self) -> EventHandler<CommandEvent> {
        let sent = self.clone();
        EventHandler::callback(move |event| {
            if let CommandEvent::Started(command) = event
                && let Some(wrong) = wrong_with(&command)
            {
                sent.0.lock().unwrap().push(format!("{wrong}: {}", command.command));
            }
        })
    }
}

fn wrong_with(event: &CommandStartedEvent) -> Option<&'static str> {
    let command = &event.command;
    let level = |concern: &str, field: &str| {
        command.get_document(concern).ok().and_then(|concern| concern.get(field).cloned())
    };
    if command.contains_key("txnNumber") {
        return Some("the driver would send it again");
    }
    if command.get_document("$readPreference").is_ok_and(|to| to.get_str("mode").ok() != Some("primary")) {
        return Some("it may go to a secondary");
    }
    let by_majority = level("writeConcern", "w") == Some("majority".into())
        && level("writeConcern", "j") == Some(true.into());
    let by_primary = level("writeConcern", "w") == Some(1.into());
    let read = level("readConcern", "level");
    let kept_reads = read == Some("majority".into());
    match event.command_name.as_str() {
        "findAndModify" if !by_majority => Some("no majority keeps it"),
        // Releases decide nothing.
        "update" if !by_majority && !by_primary => Some("it does not say who keeps it"),
        // Nor does the look at what became of them, nor the one a batch begins with: its write
        // decides, or a second look.
        "find" | "aggregate" if !kept_reads && read != Some("local".into()) => {
            Some("it does not say what it reads")
        }
        _ => None,
    }
}

/// No election comes by itself, however busy the machine.
pub(crate) fn steady() -> Options {
    Options { timing: Timing::Steady, ..Options::default() }
}

/// Runs a round on a set of its own and judges it.
async fn round(target: u64, trouble: Trouble, uri_options: &str) {
    let target = target * u64::from(rounds());
    // Elections that nobody asked for may come too, and are survived as well.
    let timing = Timing::Millis { election_timeout: 1000, heartbeat: 200 };
    let deployment = Deployment::start(Shape::ReplicaSet, Options { timing, ..Options::default() }).await;
    let sent = Sent::default();
    let uri = format!("{}{uri_options}", deployment.uri());
    let options = MongoOptions::new().database("failover").command_events(sent.handler());
    let store = connected(&uri, options).await;
    // What a store asks before it is used writes nothing.
    sent.0.lock().unwrap().clear();
    let place = Place { store, database: deployment.client().await.database("failover") };
    let round = Arc::new(Round {
        fixture: place.fixture(),
        place,
        history: History::default(),
        target,
        done: watch::Sender::default(),
        going: watch::Sender::default(),
        failovers: watch::Sender::default(),
        errors: Errors::default(),
        rolled_back: AtomicU64::default(),
        late: AtomicU64::default(),
        lost_races: AtomicU64::default(),
        held_through: watch::Sender::default(),
    });

    let workers = (0..TASKS as u64).map(|number| tokio::spawn(Arc::clone(&round).work(number)));
    let workers = join_all(workers);
    let all = async { tokio::join!(workers, round.trouble(&deployment, trouble)) };
    let (workers, told) = timeout(ROUND, all).await.expect("every operation is answered in the end");

    for worker in workers {
        round.audit(&worker.expect("no worker panics")).await;
    }
    round.barrier().await;
    let locks = round.locks();
    let (seen, _) = round.resolved(|| round.place.store.locks(locks.clone(), LIMIT)).await;
    let still: Vec<_> = seen
        .iter()
        .filter(|seen| match seen {
            LockSeen::Found(record) => record.holding.is_some(),
            LockSeen::Absent => false,
            LockSeen::Refused(_) => true,
        })
        .collect();
    assert!(still.is_empty(), "not given back: {still:#?}");
    round.history.check();
    let sent = sent.0.lock().unwrap();
    assert!(sent.is_empty(), "{} commands, the first: {}", sent.len(), sent[0]);

    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let (done, grants, most) = (round.done(), round.history.grants(), round.history.most_sessions());
    println!(
        "{told}; {done} in all, {grants} grants, {} lost races, {} unknown and {} not applied, all \
         resolved; {} locks held throughout, {} releases rolled back, {} late grants",
        count(&round.lost_races),
        count(&round.errors.unknown),
        count(&round.errors.nothing_changed),
        *round.held_through.borrow(),
        count(&round.rolled_back),
        count(&round.late),
    );
    assert!(done >= target);
    assert!(most >= TASKS / 2, "the sessions hardly met: {most} of {TASKS} at one lock");
    assert!(count(&round.lost_races) > 0, "nobody ever lost a race");
}

#[tokio::test]
async fn thousands_of_takes_and_releases_survive_a_kill_of_the_primary() {
    round(4000, Trouble::Kill, "").await;
}

#[tokio::test]
async fn a_connection_string_that_wants_less_changes_nothing_of_that() {
    round(2000, Trouble::Kill, "&w=1&readPreference=secondary&retryWrites=false").await;
}

#[tokio::test]
async fn a_connection_string_that_wants_retries_and_stale_reads_changes_nothing_either() {
    let options = "&retryWrites=true&journal=false&readConcernLevel=local\
                   &readPreference=secondaryPreferred&maxStalenessSeconds=120";
    round(2000, Trouble::Kill, options).await;
}

#[tokio::test]
async fn takes_and_releases_survive_primaries_that_stand_down() {
    round(2000, Trouble::StepDown, "").await;
}

#[tokio::test]
async fn a_release_that_is_rolled_back_leaves_the_lock_with_its_holder() {
    let deployment = Deployment::start(Shape::ReplicaSet, steady()).await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let lock = fixture.lock("key");
    let (mine, other) = (fixture.candidate(fixture.session(), 1), fixture.candidate(fixture.session(), 1));
    let record = fixture.taken(&lock, &mine).await;

    let primary = deployment.wait_for_primary(None).await;
    let secondaries: Vec<_> =
        deployment.nodes().iter().filter(|node| node.port() != primary.port()).collect();
    for node in &secondaries {
        let met = node.fail_point("stopReplProducer", "alwaysOn", Document::new()).await;
        // From here on what it fetches is thrown away.
        node.until_fail_point("stopReplProducer", met + 1).await;
    }
    // The primary alone acknowledges it, and says so itself.
    let release = vec![given_back(&lock, mine.session, record.term)];
    let answers = place.store.release(release, LIMIT).await.expect("the primary is enough for this");
    assert_eq!(answers, [ReleaseAnswer::Released]);
    let there = place.collection("locks").find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(there.get("session"), Some(&Bson::Null), "the primary has the release");
    // Nobody builds on it.
    let take = vec![Take { lock: lock.clone(), by: other.clone() }];
    let early = place.store.take(take, Vec::new(), Duration::from_millis(500)).await;
    let early = early.expect_err("no majority can acknowledge this");
    assert_eq!(early.applied(), Applied::Unknown, "{}", whole(&early));

    deployment.kill(primary).await;
    for node in &secondaries {
        node.clear_fail_point("stopReplProducer").await;
    }
    deployment.step_up(secondaries[0]).await;

    let after = until("the store finds the next primary", async || {
        let seen = place.store.locks(vec![lock.clone()], LIMIT).await.map(|mut seen| seen.remove(0));
        if let Ok(LockSeen::Found(record)) = seen { Ok(record) } else { Err(seen) }
    })
    .await;
    assert!(after.is_granted_to(mine.session, mine.ticket), "{after:?}");
    assert_eq!(after.term, record.term);
    let answer = fixture.take(&lock, &other).await;
    assert!(matches!(answer, TakeAnswer::Held(_)), "{answer:?}");
    // The audit gives it back, and then it can be had.
    fixture.release(&lock, mine.session, record.term, ReleaseTo::Free).await;
    let taken = fixture.taken(&lock, &other).await;
    assert!(taken.term > record.term);

    // The old primary undoes what it alone had, and follows.
    deployment.restart(primary).await;
    let concern = doc! { "w": 3, "wtimeout": 120_000 };
    let write = doc! { "insert": "barrier", "documents": [{}], "writeConcern": concern };
    let reply = place.database.run_command(write).await.unwrap();
    assert_eq!(reply.get("writeConcernError"), None);
    assert_eq!(fixture.record(&lock).await, taken);
    let old = mongodb::Client::with_uri_str(primary.uri()).await.unwrap();
    let kept = old.database(place.database.name()).collection::<Document>("locks");
    let kept = kept.find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(kept.get_str("session").ok(), Some(&*other.session.to_string()), "{kept}");
}

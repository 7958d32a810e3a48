//! Numbers at their limits, dates at the ends of time and values of any type, in every field of every record:
//! no operation fails because of one, not for its key and not for others, and what cannot be read is never
//! written. The server evaluates most of it.

use std::time::Duration;

use futures::{StreamExt, stream};
use mongodb::bson::{Bson, DateTime, Decimal128, Document, doc};
use tenure::{
    StoreError,
    model::{LockId, MAX_NUMBER, Outcome, Retention, RunId, StoreTime, Term, Value, Why},
    store::{
        Candidate, Claim, ClaimAnswer, Declaration, Evidence, FinishRun, LockSeen, Refusal, Release,
        ReleaseTo, Request, Revocation, SessionSeen, SetValue, StoreExt, Take, Topic,
    },
};
use tenure_conformance::{Fixture, LIMIT};

use crate::mongodb::{Place, rounds};
use crate::support::mongod::shared_single;

const NOW: Retention = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };
/// Number of fields that are gone through side by side.
const LANES: usize = 6;

fn extremes() -> Vec<Bson> {
    let most = i64::try_from(MAX_NUMBER).unwrap();
    vec![
        Bson::Null,
        Bson::Int32(-1),
        Bson::Int64(i64::MAX),
        Bson::Int64(i64::MIN),
        Bson::Int64(most),
        Bson::Int64(most + 1),
        Bson::Double(f64::INFINITY),
        Bson::Decimal128("1e6144".parse::<Decimal128>().unwrap()),
        Bson::String("$session".to_owned()),
        Bson::Boolean(true),
        Bson::DateTime(DateTime::MAX),
        Bson::DateTime(DateTime::MIN),
        Bson::DateTime(DateTime::from_millis(0)),
        Bson::Array(vec![Bson::Null, Bson::Int32(1), Bson::Document(doc! { "at": DateTime::MIN })]),
        Bson::Document(doc! { "at": DateTime::MIN, "a": 1 }),
        Bson::MinKey,
        Bson::MaxKey,
    ]
}

/// Returns damages of one field after the other, with each of the values.
fn one_by_one(fields: &[&str]) -> Vec<Vec<Document>> {
    let of = |field: &&str| extremes().into_iter().map(|value| doc! { *field: value }).collect();
    fields.iter().map(of).collect()
}

/// Every fourth damage, in each lane from another one on, so that each value is met somewhere. All with
/// `TENURE_ROUNDS=4`.
fn sampled(lanes: Vec<Vec<Document>>) -> Vec<Vec<Document>> {
    let step = 4 / usize::try_from(rounds().clamp(1, 4)).unwrap();
    let lanes = lanes.into_iter().enumerate();
    lanes.map(|(number, lane)| lane.into_iter().skip(number % step).step_by(step).collect()).collect()
}

fn ends_of_time() -> [DateTime; 4] {
    [DateTime::MAX, DateTime::MIN, DateTime::from_millis(0), DateTime::from_millis(4_000_000_000_000)]
}

/// Returns whether nothing may be written for it: all but texts that are read by people, which only break a
/// limit.
fn decides(refusal: &Refusal) -> bool {
    let told = refusal.to_string();
    !["breaks a limit", "is not a session"].iter().any(|readable| told.contains(readable))
}

/// Errors found, if any.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn note<T>(&mut self, what: &str, damage: &Document, answer: Result<T, StoreError>) -> Option<T> {
        answer.map_err(|error| self.0.push(format!("{what} of {damage}: {error}"))).ok()
    }

    fn unless(&mut self, holds: bool, what: String) {
        if !holds {
            self.0.push(what);
        }
    }

    fn check(lanes: Vec<Self>) {
        let all: Vec<_> = lanes.into_iter().flat_map(|lane| lane.0).collect();
        assert!(all.is_empty(), "{} are wrong, the first: {:#?}", all.len(), &all[..all.len().min(10)]);
    }
}

/// A record that is put as it is to be before each operation.
struct Record<'a> {
    place: &'a Place,
    collection: &'static str,
    whole: Document,
}

impl<'a> Record<'a> {
    async fn of(place: &'a Place, collection: &'static str, id: Document) -> Self {
        let whole = place.collection(collection).find_one(id).await.unwrap().unwrap();
        Self { place, collection, whole }
    }

    fn damaged(&self, damage: &Document) -> Document {
        let mut damaged = self.whole.clone();
        damaged.extend(damage.clone());
        damaged
    }

    fn id(&self) -> Document {
        doc! { "_id": self.whole.get("_id").cloned() }
    }

    async fn put(&self, document: &Document) {
        let collection = self.place.collection(self.collection);
        collection.replace_one(self.id(), document).upsert(true).await.unwrap();
    }

    async fn stored(&self) -> Option<Document> {
        self.place.collection(self.collection).find_one(self.id()).await.unwrap()
    }
}

async fn purge(fixture: &Fixture) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let part = fixture.store().purge(fixture.namespace().clone(), NOW, after, LIMIT).await?;
        after = part.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// The operations below, by their numbers.
const OF_ANYBODY: [usize; 7] = [0, 1, 2, 3, 8, 9, 10];
const OF_THE_HOLDER: [usize; 4] = [4, 5, 6, 7];

/// A lock that is held, or was given back and is closed, and all that can be done with it.
struct OneLock {
    fixture: Fixture,
    lock: LockId,
    holder: Candidate,
    term: Term,
    successor: Candidate,
}

impl OneLock {
    async fn new(place: &Place, held: bool) -> Self {
        let fixture = place.fixture();
        let lock = fixture.lock("damaged");
        let holder = fixture.talkative(fixture.session(), 5);
        let term = fixture.taken(&lock, &holder).await.term;
        if !held {
            fixture
                .release(&lock, holder.session, term, ReleaseTo::ClosedFor(Duration::from_secs(3600)))
                .await;
        }
        let successor = fixture.candidate(fixture.session(), 1);
        Self { fixture, lock, holder, term, successor }
    }

    fn take(&self, by: &Candidate) -> Take {
        Take { lock: self.lock.clone(), by: by.clone() }
    }

    fn release(&self, then: ReleaseTo) -> Vec<Release> {
        let (lock, session) = (self.lock.clone(), self.holder.session);
        vec![Release { lock, session, term: self.term, note: None, then }]
    }

    async fn operation(&self, number: usize, wrong: &mut Wrong, damage: &Document) {
        let (store, dead) = (self.fixture.store(), vec![self.holder.session]);
        let later = self.fixture.candidate(self.holder.session, 9);
        match number {
            0 => drop(wrong.note(
                "a take",
                damage,
                store.take(vec![self.take(&self.successor)], vec![], LIMIT).await,
            )),
            1 => drop(wrong.note(
                "a takeover",
                damage,
                store.take(vec![self.take(&self.successor)], dead, LIMIT).await,
            )),
            2 => drop(wrong.note(
                "a later ticket",
                damage,
                store.take(vec![self.take(&later)], dead, LIMIT).await,
            )),
            3 => {
                let healthy = Take { lock: self.fixture.lock("healthy"), by: self.successor.clone() };
                let both = vec![self.take(&self.successor), healthy];
                let answers = wrong.note("a batch", damage, store.take(both, dead, LIMIT).await);
                let got = answers.is_none_or(|answers| answers[1].taken().is_some());
                wrong.unless(got, format!("the healthy one was not got beside {damage}"));
            }
            4 => drop(wrong.note(
                "a release",
                damage,
                store.release(self.release(ReleaseTo::Free), LIMIT).await,
            )),
            5 => {
                let hand_over = self.release(ReleaseTo::HandTo(Box::new(self.successor.clone())));
                wrong.note("a hand-over", damage, store.release(hand_over, LIMIT).await);
            }
            6 => {
                let closing = self.release(ReleaseTo::ClosedFor(Duration::MAX));
                wrong.note("a closing", damage, store.release(closing, LIMIT).await);
            }
            7 => {
                let (lock, session, term) = (self.lock.clone(), self.holder.session, self.term);
                let value = Some(Value::new(vec![1]).unwrap());
                let set = SetValue { lock, session, term, number: 7, value };
                wrong.note("a new value", damage, store.set_value(set, LIMIT).await);
            }
            8 => {
                let force = Revocation::Force(request(&self.lock, self.term));
                wrong.note("a revocation", damage, store.revoke(force, LIMIT).await);
            }
            9 => drop(wrong.note("a purge", damage, purge(&self.fixture).await)),
            10 => {
                let held = store.held_by(self.holder.session, None, 10, LIMIT).await;
                wrong.note("an audit", damage, held);
                let latest = store.latest_grants(vec![self.holder.session], 10, LIMIT).await;
                wrong.note("the latest grants", damage, latest);
                let all = store.list_locks(self.fixture.namespace().clone(), None, None, 10, LIMIT).await;
                wrong.note("a listing", damage, all);
            }
            other => panic!("there is no operation {other}"),
        }
    }
}

fn request(lock: &LockId, term: Term) -> Request {
    Request { lock: lock.clone(), term, by: "operator".parse().unwrap(), why: Why::new("why").unwrap() }
}

async fn all_of_a_lock(place: &Place, held: bool, damages: Vec<Document>) -> Wrong {
    let one = OneLock::new(place, held).await;
    let id = doc! { "_id.ns": one.fixture.namespace().as_str(), "_id.key": "damaged" };
    let record = Record::of(place, "locks", id).await;
    let mut wrong = Wrong::default();
    for damage in damages {
        let damaged = record.damaged(&damage);
        record.put(&damaged).await;
        let refusal = match one.fixture.look(&one.lock).await {
            LockSeen::Refused(refusal) if decides(&refusal) => Some(refusal),
            _ => None,
        };
        for number in OF_ANYBODY {
            one.operation(number, &mut wrong, &damage).await;
            if refusal.is_none() {
                record.put(&damaged).await;
            }
        }
        if let Some(refusal) = refusal {
            let kept = record.stored().await.as_ref() == Some(&damaged);
            wrong.unless(kept, format!("held: {held}, {damage} is written, though {refusal}"));
        }
        // Whoever holds it may give it back, whatever else the record says.
        for number in OF_THE_HOLDER {
            record.put(&damaged).await;
            one.operation(number, &mut wrong, &damage).await;
        }
    }
    wrong
}

#[tokio::test]
async fn a_lock_with_anything_in_any_field_fails_nothing_and_is_written_only_if_it_can_be_read() {
    let place = Place::on(shared_single().await.uri()).await;
    let mut lanes = one_by_one(&[
        "v",
        "session",
        "ticket",
        "ttl",
        "holder",
        "who",
        "why",
        "value",
        "lock_delay",
        "value_set",
        "granted_to",
        "ended",
        "ended_at",
        "note",
        "not_before",
        "closed_for",
        "term",
        "acquired_at",
        "past",
    ]);
    // What the server adds and subtracts.
    let mut together = Vec::new();
    for date in ends_of_time() {
        for length in [Bson::Int64(i64::MAX), Bson::Int64(i64::MIN), Bson::Int64(-5), Bson::Int32(0)] {
            let old = doc! { "ended_at": DateTime::from_millis(0), "term": 1_i64 };
            let closed = doc! { "not_before": date, "closed_for": length };
            together.push(closed.clone());
            together.push(closed.into_iter().chain(old).collect());
        }
    }
    lanes.push(together);
    let lanes = sampled(lanes);
    let both = [true, false].into_iter().flat_map(|held| lanes.iter().map(move |lane| (held, lane.clone())));
    let all = stream::iter(both).map(|(held, lane)| all_of_a_lock(&place, held, lane));
    Wrong::check(all.buffer_unordered(LANES).collect().await);
}

async fn all_of_a_session(place: &Place, damages: Vec<Document>) -> Wrong {
    let fixture = place.fixture();
    let store = fixture.store();
    let opening = fixture.opening();
    fixture.open(&opening).await;
    let record = Record::of(place, "sessions", doc! { "_id": opening.session.to_string() }).await;
    let lock = fixture.lock("report");
    let mut wrong = Wrong::default();
    for damage in damages {
        let damaged = record.damaged(&damage);
        record.put(&damaged).await;
        let refusal = match fixture.seen(opening.session).await {
            SessionSeen::Refused(refusal) if decides(&refusal) => Some(refusal),
            _ => None,
        };
        let mut beat = fixture.beat(opening.session, 5);
        beat.heard = vec![(lock.clone(), Term::new(5))];
        wrong.note("a beat", &damage, store.beat(beat, LIMIT).await);
        let ask = Revocation::Ask { session: opening.session, request: request(&lock, Term::new(7)) };
        wrong.note("a request", &damage, store.revoke(ask, LIMIT).await);
        let (session, tell) = (opening.session, Topic::Session(opening.session));
        let order = Some(("operator".parse().unwrap(), Why::new("why").unwrap()));
        let drain = Revocation::Drain { session, order, tell };
        wrong.note("an order", &damage, store.revoke(drain, LIMIT).await);
        wrong.note("an opening", &damage, store.open(opening.clone(), LIMIT).await);
        for ground in [
            Evidence::Unbeaten { nonce: opening.nonce },
            Evidence::Missing {
                namespace: fixture.namespace().clone(),
                holder: "pod".parse().unwrap(),
                ttl: LIMIT,
            },
            Evidence::Operator,
        ] {
            if refusal.is_none() {
                record.put(&damaged).await;
            }
            let (session, by) = (opening.session, "watcher".parse().unwrap());
            let declaration =
                Declaration { session, ground, by, why: Why::new("").unwrap(), tell: Vec::new() };
            wrong.note("a declaration", &damage, store.declare(declaration, LIMIT).await);
        }
        wrong.note("a purge", &damage, purge(&fixture).await);
        wrong.note("a listing", &damage, store.sessions(fixture.namespace().clone(), None, 10, LIMIT).await);
        if let Some(refusal) = refusal {
            let kept = record.stored().await.as_ref() == Some(&damaged);
            wrong.unless(kept, format!("{damage} is written, though {refusal}"));
        }
    }
    wrong
}

#[tokio::test]
async fn a_session_with_anything_in_any_field_fails_nothing_and_is_written_only_if_it_can_be_read() {
    let place = Place::on(shared_single().await.uri()).await;
    let mut lanes = one_by_one(&[
        "v",
        "ns",
        "holder",
        "host",
        "pid",
        "program",
        "plan_version",
        "started",
        "beat",
        "nonce",
        "beat_at",
        "stalled_since",
        "ttl",
        "death",
        "shares",
        "drained",
        "requests",
    ]);
    let mut together = Vec::new();
    let most = i64::try_from(MAX_NUMBER).unwrap();
    for date in ends_of_time() {
        for number in [0, most - 1, most, i64::MAX] {
            together.push(doc! { "beat_at": date, "ttl": number });
        }
        let death = doc! { "at": date, "by": "pod", "why": "" };
        together.push(doc! { "death": &death });
        together.push(doc! { "death": [death.clone()] });
        together.push(doc! { "death": death, "ttl": "30s" });
    }
    lanes.push(together);
    let all = stream::iter(sampled(lanes)).map(|lane| all_of_a_session(&place, lane));
    Wrong::check(all.buffer_unordered(LANES).collect().await);
}

async fn all_of_a_run(place: &Place, damages: Vec<Document>) -> Wrong {
    let fixture = place.fixture();
    let store = fixture.store();
    let schedule = fixture.schedule("nightly");
    let claim = Claim {
        run: RunId::tick(schedule.clone(), StoreTime::from_millis(1000)),
        session: fixture.session(),
        holder: "pod".parse().unwrap(),
        term: Term::new(7),
        attempt: 1,
        instead_of: None,
        skipped: None,
    };
    store.claim(claim.clone(), LIMIT).await.unwrap();
    let record = Record::of(place, "runs", doc! { "_id.ns": fixture.namespace().as_str() }).await;
    let mut wrong = Wrong::default();
    for damage in damages {
        let damaged = record.damaged(&damage);
        record.put(&damaged).await;
        let answer = wrong.note("a claim", &damage, store.claim(claim.clone(), LIMIT).await);
        let refusal = match answer {
            Some(ClaimAnswer::Refused(refusal)) if decides(&refusal) => Some(refusal),
            _ => None,
        };
        let instead = Claim { attempt: 2, instead_of: Some((claim.term, 1)), ..claim.clone() };
        wrong.note("another attempt", &damage, store.claim(instead, LIMIT).await);
        if refusal.is_none() {
            record.put(&damaged).await;
        }
        let finish = FinishRun {
            run: claim.run.clone(),
            session: claim.session,
            term: claim.term,
            attempt: 1,
            outcome: Outcome::Failed,
            error: None,
            last: true,
        };
        wrong.note("an end", &damage, store.finish(finish, LIMIT).await);
        wrong.note("a history", &damage, store.history(schedule.clone(), None, 10, LIMIT).await);
        wrong.note("a purge", &damage, store.purge_runs(schedule.clone(), Duration::ZERO, 0, LIMIT).await);
        if let Some(refusal) = refusal {
            let kept = record.stored().await.as_ref() == Some(&damaged);
            wrong.unless(kept, format!("{damage} is written, though {refusal}"));
        }
    }
    wrong
}

#[tokio::test]
async fn a_run_with_anything_in_any_field_fails_nothing_and_is_written_only_if_it_can_be_read() {
    let place = Place::on(shared_single().await.uri()).await;
    let mut lanes =
        one_by_one(&["v", "session", "holder", "term", "attempt", "started", "finish", "skipped"]);
    let finish = |at: Bson, outcome: &str| doc! { "finish": { "at": at, "outcome": outcome, "error": null } };
    lanes.push(vec![
        finish(DateTime::MIN.into(), "failed"),
        finish(DateTime::MAX.into(), "no such word"),
        finish("yesterday".into(), "failed"),
        doc! { "attempt": i64::from(u32::MAX) },
        doc! { "attempt": i64::from(u32::MAX) + 1 },
    ]);
    let all = stream::iter(lanes).map(|lane| all_of_a_run(&place, lane));
    Wrong::check(all.buffer_unordered(LANES).collect().await);
}

/// Sixteen of them are armed at once: what is wrong with one is told, and the others' terms never fall.
#[tokio::test]
async fn a_fence_with_anything_in_any_field_is_armed_or_refused_and_nothing_panics() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let record = fixture.held(&fixture.lock("report"), fixture.session(), 1).await;
    let most = Term::new(MAX_NUMBER);
    place.store.arm(&record.id, record.term, LIMIT).await.unwrap();
    let slot = Record::of(&place, "fences", doc! { "_id.ns": fixture.namespace().as_str() }).await;
    for damage in sampled(one_by_one(&["v", "term", "armed_at", "passed", "lock"])).concat() {
        let damaged = slot.damaged(&damage);
        slot.put(&damaged).await;
        for term in [record.term, most] {
            if let Err(error) = place.store.arm(&record.id, term, LIMIT).await {
                let cause = error.to_string();
                assert!(!error.is_retryable() && cause.contains("the record"), "{damaged}: {cause}");
            }
        }
        place.collection("fences").delete_many(doc! {}).await.unwrap();
        place.store.arm(&record.id, record.term, LIMIT).await.unwrap();
    }
}

//! Terms rise (R5), on a server whose clock is turned.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use tenure::{
    model::{LockId, Retention, Term},
    store::{Purged, ReleaseTo, StoreExt},
};
use tenure_conformance::{Fixture, LIMIT};

use crate::mongodb::Place;
use crate::support::mongod::{Deployment, Options, Shape, shared_single};

const HOUR: i64 = 60 * 60 * 1000;
const NOW: Retention = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };

/// Takes and releases a lock, and demands that its term is larger than every one before.
struct Rising<'a> {
    fixture: &'a Fixture,
    lock: LockId,
    terms: Vec<Term>,
}

impl<'a> Rising<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        Self { fixture, lock: fixture.lock("report"), terms: Vec::new() }
    }

    fn note(&mut self, term: Term) {
        assert!(self.terms.iter().all(|earlier| *earlier < term), "{term} after {:?}", self.terms);
        self.terms.push(term);
    }

    async fn hold(&mut self) -> tenure::store::LockRecord {
        let record = self.fixture.held(&self.lock, self.fixture.session(), 1).await;
        self.note(record.term);
        record
    }

    async fn hold_and_release(&mut self) {
        let record = self.hold().await;
        self.fixture.freed(&record).await;
    }

    async fn hold_and_die(&mut self) {
        let record = self.hold().await;
        let successor = self.fixture.candidate(self.fixture.session(), 1);
        let dead = record.holding.as_ref().expect("it was just taken").by.session;
        let taken = self.fixture.take_over(&self.lock, &successor, &[dead]).await;
        let taken = taken.taken().expect("its holder is dead").clone();
        self.note(taken.term);
        let next = self.fixture.candidate(self.fixture.session(), 7);
        self.fixture
            .release(&self.lock, successor.session, taken.term, ReleaseTo::HandTo(Box::new(next.clone())))
            .await;
        let handed = self.fixture.taken(&self.lock, &next).await;
        self.note(handed.term);
        self.fixture.freed(&handed).await;
    }
}

#[tokio::test]
async fn terms_rise_over_release_death_and_hand_over_with_the_servers_clock_an_hour_back() {
    let options = Options { steppable_clock: true, ..Options::default() };
    let deployment = Deployment::start(Shape::Single, options).await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let mut rising = Rising::new(&fixture);
    deployment.step_clock(HOUR).await;
    rising.hold_and_release().await;
    deployment.step_clock(0).await;
    rising.hold_and_die().await;
    rising.hold_and_release().await;
    deployment.step_clock(-HOUR).await;
    rising.hold_and_die().await;
    rising.hold_and_release().await;
    let spread = rising.terms.last().unwrap().get() - rising.terms[0].get();
    assert!(spread < 60_000, "the terms went on from the largest, not from the clock: {:?}", rising.terms);
}

/// Makes a lock's record look as if it had last been used so long ago.
async fn age(place: &Place, lock: &LockId, term: i64, ended_at: i64) {
    let id = doc! { "_id.key": lock.key.as_str(), "_id.ns": lock.namespace.as_str() };
    let fields = doc! { "$set": { "term": term, "ended_at": DateTime::from_millis(ended_at) } };
    let aged = place.collection("locks").update_one(id, fields).await.unwrap();
    assert_eq!(aged.matched_count, 1);
}

async fn close(place: &Place, fields: Document) {
    place.collection("locks").update_many(doc! {}, doc! { "$set": fields }).await.unwrap();
}

async fn purge(place: &Place, fixture: &Fixture, retention: Retention) -> Purged {
    place.store.purge(fixture.namespace().clone(), retention, None, LIMIT).await.unwrap()
}

#[tokio::test]
async fn a_purged_lock_taken_again_with_the_clock_an_hour_back_has_a_larger_term() {
    let options = Options { steppable_clock: true, ..Options::default() };
    let deployment = Deployment::start(Shape::Single, options).await;
    let place = Place::on(deployment.uri()).await;
    let fixture = place.fixture();
    let mut rising = Rising::new(&fixture);
    // The server waits by its clock before it writes its journal: nothing may be left to write when the clock steps back.
    place.collection("other").insert_one(doc! {}).await.unwrap();
    deployment.step_clock(-26 * HOUR).await;
    rising.hold_and_release().await;
    deployment.step_clock(0).await;
    assert_eq!(purge(&place, &fixture, NOW).await.locks, 1, "26 hours are enough");
    deployment.step_clock(-HOUR).await;
    rising.hold_and_release().await;
    // The new record is an hour younger than the clock would have it: nothing of a day has passed.
    deployment.step_clock(22 * HOUR).await;
    assert_eq!(purge(&place, &fixture, NOW).await.locks, 0, "23 hours are not");
}

#[tokio::test]
async fn a_lock_goes_only_when_it_is_idle_for_its_retention_and_its_term_for_a_day() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let lock = fixture.lock("report");
    let record = fixture.held(&lock, fixture.session(), 1).await;
    fixture.freed(&record).await;
    let now = i64::try_from(record.term.get()).unwrap();
    let week = Retention { locks: Duration::from_secs(7 * 24 * 3600), ..Retention::default() };
    for (term, ended_at, gone) in [
        (now - 23 * HOUR, now - 8 * 24 * HOUR, 0),
        (now - 25 * HOUR, now - 6 * 24 * HOUR, 0),
        (now + HOUR, now - 8 * 24 * HOUR, 0),
        (now - 25 * HOUR, now - 8 * 24 * HOUR, 1),
    ] {
        if gone == 1 {
            // All is old enough, but somebody asked for it to stay closed.
            let closed =
                doc! { "not_before": DateTime::from_millis(now + HOUR), "closed_for": 9 * 24 * HOUR };
            age(&place, &lock, term, ended_at).await;
            close(&place, closed).await;
            assert_eq!(purge(&place, &fixture, week).await.locks, 0, "a closed lock stays");
            close(&place, doc! { "not_before": null, "closed_for": null }).await;
        }
        age(&place, &lock, term, ended_at).await;
        assert_eq!(purge(&place, &fixture, week).await.locks, gone, "term {term}, ended {ended_at}");
    }
}

#[tokio::test]
async fn the_fences_of_a_purged_lock_go_with_it_and_those_of_another_stay() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    for key in ["idle", "busy"] {
        let record = fixture.held(&fixture.lock(key), fixture.session(), 1).await;
        place.store.arm(&record.id, record.term, LIMIT).await.unwrap();
        fixture.freed(&record).await;
        if key == "idle" {
            age(&place, &record.id, i64::try_from(record.term.get()).unwrap() - 25 * HOUR, 0).await;
        }
    }
    assert_eq!(purge(&place, &fixture, NOW).await.locks, 1);
    let fences = place.collection("fences");
    let of = async |key: &str| fences.count_documents(doc! { "lock.key": key }).await.unwrap();
    assert_eq!((of("idle").await, of("busy").await), (0, 16));
}

#[tokio::test]
async fn a_lock_deleted_by_hand_starts_above_its_last_term() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let mut rising = Rising::new(&fixture);
    for _ in 0..5 {
        rising.hold().await;
        let all: Document = doc! {};
        place.collection("locks").delete_many(all).await.unwrap();
        // The promise rests on the server's clock being past the last term: it goes by milliseconds.
        while place.server_time().await <= i64::try_from(rising.terms.last().unwrap().get()).unwrap() {
            tokio::task::yield_now().await;
        }
    }
    rising.hold_and_die().await;
}

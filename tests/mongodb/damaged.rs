//! Records that somebody else wrote, wrote by hand, or damaged: each is refused by itself, and
//! nothing else stops.

use std::time::Duration;

use mongodb::bson::{Binary, Bson, DateTime, Document, doc, spec::BinarySubtype};
use tenure::{
    model::{LockId, Outcome, Retention, RunId, ScheduleId, StoreTime, Term, Why},
    store::{
        Claim, ClaimAnswer, Define, Evidence, FinishRun, Instruction, LockSeen, Refusal, Release,
        ReleaseAnswer, ReleaseTo, Revocation, RevokeAnswer, RunNow, ScheduleSeen, SessionSeen, SetAnswer,
        SetValue, StoreExt, Take, TakeAnswer, Wait,
    },
};
use tenure_conformance::{Fixture, LIMIT};

use crate::mongodb::Place;
use crate::support::mongod::shared_single;

/// Changes to a document that make it one nobody may write.
fn not_ours() -> Vec<(Document, &'static str)> {
    vec![
        (doc! { "$unset": { "v": 1 } }, "no layout version"),
        (doc! { "$set": { "v": 99 } }, "layout version 99"),
        (doc! { "$set": { "v": 1_i64 } }, "layout version 1"),
        (doc! { "$set": { "v": "2" } }, "layout version \"2\""),
        (doc! { "$set": { "v": null } }, "layout version null"),
    ]
}

async fn change(place: &Place, collection: &str, id: Document, change: Document) -> Document {
    let collection = place.collection(collection);
    let changed = collection.update_one(id.clone(), change).await.unwrap();
    assert_eq!(changed.matched_count, 1, "{id}");
    collection.find_one(id).await.unwrap().unwrap()
}

fn lock_id(lock: &LockId) -> Document {
    doc! { "_id.ns": lock.namespace.as_str(), "_id.key": lock.key.as_str() }
}

fn says(refusal: &Refusal, expected: &str) {
    assert!(refusal.to_string().contains(expected), "{refusal} should tell of {expected}");
}

fn refused(answer: &TakeAnswer, expected: &str) {
    match answer {
        TakeAnswer::Refused(refusal) => says(refusal, expected),
        other => panic!("should be refused for {expected}, was {other:?}"),
    }
}

/// The lock and a healthy one beside it are taken, one by one and together; the healthy one is got.
async fn only_this_lock_is_refused(
    fixture: &Fixture,
    lock: &LockId,
    dead: &[tenure::model::SessionId],
    expected: &str,
) {
    let by = fixture.candidate(fixture.session(), 1);
    refused(&fixture.take_over(lock, &by, dead).await, expected);
    let healthy = fixture.lock(&format!("healthy beside {expected} {}", dead.len()));
    let take = |lock: &LockId| Take { lock: lock.clone(), by: by.clone() };
    let answers = fixture.take_all(vec![take(lock), take(&healthy)], dead).await;
    refused(&answers[0], expected);
    assert!(answers[1].taken().is_some(), "{:?}", answers[1]);
    match fixture.look(lock).await {
        LockSeen::Refused(refusal) => says(&refusal, expected),
        other => panic!("a read should refuse it for {expected}, was {other:?}"),
    }
    let page =
        fixture.store().list_locks(fixture.namespace().clone(), None, None, 1000, LIMIT).await.unwrap();
    assert!(page.refused.iter().any(|(_, refusal)| refusal.to_string().contains(expected)), "{page:?}");
    assert!(page.items.iter().any(|record| record.id == healthy), "the healthy one is listed");
}

#[tokio::test]
async fn a_lock_that_is_not_ours_is_refused_and_never_written() {
    let place = Place::on(shared_single().await.uri()).await;
    for (damage, expected) in not_ours() {
        let fixture = place.fixture();
        let lock = fixture.lock("report");
        let holder = fixture.session();
        let record = fixture.held(&lock, holder, 5).await;
        let before = change(&place, "locks", lock_id(&lock), damage).await;

        only_this_lock_is_refused(&fixture, &lock, &[], expected).await;
        only_this_lock_is_refused(&fixture, &lock, &[holder], expected).await;
        refused(&fixture.take(&lock, &fixture.candidate(holder, 9)).await, expected);
        let store = fixture.store();
        let release = Release {
            lock: lock.clone(),
            session: holder,
            term: record.term,
            note: None,
            then: ReleaseTo::Free,
        };
        let healthy = fixture.held(&fixture.lock("another"), holder, 6).await;
        let other = Release { lock: healthy.id.clone(), term: healthy.term, ..release.clone() };
        let answers = store.release(vec![release, other], LIMIT).await.unwrap();
        assert!(matches!(&answers[..], [ReleaseAnswer::Refused(_), ReleaseAnswer::Released]), "{answers:?}");
        let set = SetValue { lock: lock.clone(), session: holder, term: record.term, number: 1, value: None };
        assert!(matches!(store.set_value(set, LIMIT).await.unwrap(), SetAnswer::Refused(_)));
        for revoke in [Revocation::Force, Revocation::Reopen] {
            let revocation = revoke(request(&lock, record.term));
            assert!(matches!(store.revoke(revocation, LIMIT).await.unwrap(), RevokeAnswer::Refused(_)));
        }
        let now = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };
        store.purge(fixture.namespace().clone(), now, None, LIMIT).await.unwrap();

        let after = place.collection("locks").find_one(lock_id(&lock)).await.unwrap().unwrap();
        assert_eq!(after, before, "{expected}");
    }
}

fn request(lock: &LockId, term: Term) -> tenure::store::Request {
    let (by, why) = ("operator".parse().unwrap(), tenure::model::Why::new("").unwrap());
    tenure::store::Request { lock: lock.clone(), term, by, why }
}

#[tokio::test]
async fn a_damaged_lock_is_refused_and_the_message_names_the_field() {
    let place = Place::on(shared_single().await.uri()).await;
    let set = |field: &str, value: Bson| doc! { "$set": { field: value } };
    let without = |field: &str| doc! { "$unset": { field: 1 } };
    let absurd = Bson::Int64(1 << 60);
    // (how, what the refusal says, whether a holder that is dead changes nothing about it)
    let damages = [
        (without("term"), "`term` is missing"),
        (set("term", "7".into()), "`term` is of the type String, not a whole number"),
        (set("term", Bson::Double(0.5)), "`term` is of the type Double"),
        (set("term", Bson::Int64(-1)), "`term` is -1"),
        (set("term", absurd.clone()), "`term` is 1152921504606846976"),
        (without("session"), "`session` is missing"),
        (set("session", 42.into()), "`session` is of the type Int32, not a string"),
        (without("ticket"), "`ticket` is missing"),
        (set("ticket", "one".into()), "`ticket` is of the type String"),
        (set("ticket", Bson::Int64(-1)), "`ticket` is -1"),
        (set("ttl", absurd.clone()), "`ttl` is 1152921504606846976"),
        (without("ttl"), "`ttl` is missing"),
        (without("holder"), "`holder` is missing"),
        (set("holder", Bson::Array(vec![])), "`holder` is of the type Array"),
        (set("acquired_at", "yesterday".into()), "`acquired_at` is of the type String, not a date"),
        (set("lock_delay", absurd.clone()), "`lock_delay` is 1152921504606846976"),
        (without("past"), "`past` is missing"),
        (set("past", doc! { "0": 1 }.into()), "`past` is of the type EmbeddedDocument, not an array"),
        (set("not_before", 5.into()), "`not_before` is of the type Int32, not a date"),
        (without("not_before"), "`not_before` is missing"),
        (
            doc! { "$set": { "not_before": DateTime::from_millis(5), "closed_for": "long" } },
            "`closed_for` is of the type String",
        ),
    ];
    for (damage, expected) in damages {
        let fixture = place.fixture();
        let lock = fixture.lock("report");
        let holder = fixture.session();
        fixture.held(&lock, holder, 5).await;
        let before = change(&place, "locks", lock_id(&lock), damage.clone()).await;
        only_this_lock_is_refused(&fixture, &lock, &[], expected).await;
        only_this_lock_is_refused(&fixture, &lock, &[holder], expected).await;
        let after = place.collection("locks").find_one(lock_id(&lock)).await.unwrap().unwrap();
        assert_eq!(after, before, "{damage}");
    }
    // What does not decide anything may be read wrongly by people only.
    for (damage, expected) in [
        (set("session", "not hexadecimal".into()), "`session` is not a session"),
        (set("holder", "".into()), "`holder` breaks a limit: holder must not be empty"),
        (set("holder", "a\nb".into()), "`holder` breaks a limit"),
        (set("who", 5.into()), "`who` is of the type Int32"),
        (set("why", "x".repeat(2000).into()), "`why` breaks a limit"),
        (set("value", "text".into()), "`value` is of the type String, not binary data"),
    ] {
        let fixture = place.fixture();
        let lock = fixture.lock("report");
        fixture.held(&lock, fixture.session(), 5).await;
        change(&place, "locks", lock_id(&lock), damage).await;
        only_this_lock_is_refused(&fixture, &lock, &[], expected).await;
    }
}

#[tokio::test]
async fn a_past_that_makes_no_sense_is_left_out_and_stops_nobody() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let lock = fixture.lock("report");
    let record = fixture.held(&lock, fixture.session(), 1).await;
    fixture.freed(&record).await;
    let nonsense = doc! { "$set": { "past": [1, "two", { "holder": 3 }], "holder": 7, "unknown": "kept" } };
    change(&place, "locks", lock_id(&lock), nonsense).await;
    let record = fixture.held(&lock, fixture.session(), 1).await;
    assert_eq!(record.past, []);
    fixture.freed(&record).await;
    let both = vec![Take { lock: lock.clone(), by: fixture.candidate(fixture.session(), 1) }; 2];
    assert!(fixture.take_all(both, &[]).await[0].taken().is_some());
    let stored = place.collection("locks").find_one(lock_id(&lock)).await.unwrap().unwrap();
    assert_eq!(stored.get_str("unknown").unwrap(), "kept", "unknown fields are kept");
}

#[tokio::test]
async fn a_listing_comes_to_an_end_however_many_records_in_a_row_cannot_be_read() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let ns = fixture.namespace().as_str();
    let foreign =
        (0..7).map(|number| doc! { "_id": { "ns": ns, "kind": "lock", "key": number }, "hand": "written" });
    place.collection("locks").insert_many(foreign).await.unwrap();
    place
        .collection("locks")
        .insert_one(doc! { "_id": { "ns": ns, "kind": "lock", "key": "k", "more": 1 }, "v": 3 })
        .await
        .unwrap();
    for key in ["a", "k", "z"] {
        fixture.held(&fixture.lock(key), fixture.session(), 1).await;
    }
    for at_most in [1, 2, 3, 100] {
        let (mut keys, mut refused, mut after) = (Vec::new(), 0, None);
        for page in 0.. {
            assert!(page < 20, "a listing must come to an end");
            let page = place
                .store
                .list_locks(fixture.namespace().clone(), None, after, at_most, LIMIT)
                .await
                .unwrap();
            keys.extend(page.items.iter().map(|lock| lock.id.key.to_string()));
            refused += page.refused.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((keys.join(" ").as_str(), refused), ("a k z", 8), "{at_most} a page");
    }
}

#[tokio::test]
async fn a_session_that_is_not_ours_counts_as_alive_and_is_never_written() {
    let place = Place::on(shared_single().await.uri()).await;
    for (damage, expected) in not_ours() {
        let fixture = place.fixture();
        let session = fixture.opened().await;
        let id = doc! { "_id": session.id.to_string() };
        let before = change(&place, "sessions", id.clone(), damage).await;
        let grounds = [
            Evidence::Unbeaten { nonce: session.nonce },
            Evidence::Missing {
                namespace: fixture.namespace().clone(),
                holder: session.about.holder.clone(),
                ttl: session.ttl,
            },
            Evidence::Operator,
        ];
        for ground in grounds {
            match fixture.declare(session.id, ground.clone()).await {
                SessionSeen::Refused(refusal) => says(&refusal, expected),
                other => panic!("{ground:?} of {expected}: {other:?}"),
            }
        }
        let beat = fixture.beat(session.id, 5);
        let lock = fixture.lock("report");
        let ask = Revocation::Ask { session: session.id, request: request(&lock, Term::new(1)) };
        let asked = fixture.store().revoke(ask, LIMIT).await.unwrap();
        assert!(matches!(asked, RevokeAnswer::Refused(_)), "{asked:?}");
        for sighting in [fixture.send(&beat).await, fixture.seen(session.id).await] {
            assert!(matches!(sighting, SessionSeen::Refused(_)), "{sighting:?}");
        }
        let now = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };
        place.store.purge(fixture.namespace().clone(), now, None, LIMIT).await.unwrap();
        assert_eq!(place.collection("sessions").find_one(id).await.unwrap().unwrap(), before, "{expected}");
    }
}

fn binary(bytes: usize) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0; bytes] })
}

/// The shares of a session, with one whose digests are these.
fn with_buckets(buckets: Bson) -> Bson {
    let share = doc! {
        "spread": "topics", "cap": 1_i64, "weight": 1_i64, "draining": false, "paused": false,
        "reserved": 0_i64, "digest": "0000000000000000", "buckets": buckets,
    };
    Bson::Array(vec![share.into()])
}

#[tokio::test]
async fn a_session_whose_digests_are_damaged_is_never_written_and_one_of_an_earlier_version_is() {
    let place = Place::on(shared_single().await.uri()).await;
    for (buckets, is_read) in [
        (binary(1024), true),
        (Bson::Null, true),
        (binary(0), false),
        (binary(1025), false),
        ("x".into(), false),
    ] {
        let fixture = place.fixture();
        let session = fixture.opened().await;
        let id = doc! { "_id": session.id.to_string() };
        let shares = doc! { "$set": { "shares": with_buckets(buckets.clone()) } };
        let before = change(&place, "sessions", id.clone(), shares).await;
        let answer = fixture.send(&fixture.beat(session.id, 5)).await;
        let after = place.collection("sessions").find_one(id).await.unwrap().unwrap();
        assert_eq!(matches!(answer, SessionSeen::Alive(_)), is_read, "{buckets}: {answer:?}");
        assert_eq!(after != before, is_read, "{buckets}");
    }
}

#[tokio::test]
async fn a_damaged_session_is_refused_and_its_neighbours_are_seen() {
    let place = Place::on(shared_single().await.uri()).await;
    let set = |field: &str, value: Bson| doc! { "$set": { field: value } };
    for (damage, expected) in [
        (set("beat", "first".into()), "`beat` is of the type String"),
        (doc! { "$unset": { "nonce": 1 } }, "`nonce` is missing"),
        (set("ttl", "30s".into()), "`ttl` is of the type String"),
        (set("ttl", Bson::Int64(-5)), "`ttl` is -5"),
        (set("death", "yes".into()), "`death` is of the type String, not a document"),
        (set("death", doc! {}.into()), "`at` is missing"),
        (set("shares", 3.into()), "`shares` is of the type Int32, not an array"),
        (set("shares", with_buckets(Bson::Int64(7))), "`buckets` is of the type Int64, not binary data"),
        (set("shares", with_buckets(binary(1023))), "`buckets` has 1023 bytes, not 1024"),
        (set("requests", doc! {}.into()), "`requests` is of the type EmbeddedDocument, not an array"),
        (set("pid", Bson::Int64(1 << 40)), "`pid` is 1099511627776"),
        (set("holder", Bson::Null), "`holder` is of the type Null"),
    ] {
        let fixture = place.fixture();
        let (damaged, healthy) = (fixture.opened().await, fixture.opened().await);
        change(&place, "sessions", doc! { "_id": damaged.id.to_string() }, damage).await;
        let seen = place.store.observe(vec![damaged.id, healthy.id], LIMIT).await.unwrap();
        match &seen[0] {
            SessionSeen::Refused(refusal) => says(refusal, expected),
            other => panic!("{expected}: {other:?}"),
        }
        assert!(seen[1].bears(healthy.nonce));
        let page = place.store.sessions(fixture.namespace().clone(), None, 10, LIMIT).await.unwrap();
        assert_eq!((page.items.len(), page.refused.len()), (1, 1), "{expected}");
        assert!(page.refused[0].0.contains(&damaged.id.to_string()), "{page:?}");
    }
}

#[tokio::test]
async fn a_place_in_a_queue_that_cannot_be_read_is_passed_over() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let lock = fixture.lock("report");
    let (first, second) = (fixture.candidate(fixture.session(), 1), fixture.candidate(fixture.session(), 2));
    for by in [&first, &second] {
        place.store.wait(vec![Wait { lock: lock.clone(), by: by.clone() }], LIMIT).await.unwrap();
    }
    let damage = doc! { "$set": { "v": 99 } };
    change(&place, "waiters", doc! { "session": first.session.to_string() }, damage).await;
    for (asked, whole) in [(2, false), (3, true)] {
        let line = place.store.waiters(lock.clone(), asked, LIMIT).await.unwrap();
        assert_eq!(line.waiters.iter().map(|waiter| &waiter.by).collect::<Vec<_>>(), [&second]);
        assert_eq!(line.whole, whole, "two stand there, and {asked} were asked for");
    }
}

fn claim(fixture: &Fixture, schedule: &ScheduleId, instant: i64) -> Claim {
    Claim {
        run: RunId::tick(schedule.clone(), StoreTime::from_millis(instant)),
        session: fixture.session(),
        holder: "pod".parse().unwrap(),
        term: Term::new(1),
        attempt: 1,
        instead_of: None,
        skipped: None,
    }
}

fn define(schedule: &ScheduleId, term: u64, timing: &str) -> Define {
    let (timing, policies) = (timing.parse().unwrap(), "retry 3".parse().unwrap());
    Define { schedule: schedule.clone(), term: Term::new(term), timing, policies, instead_of: None }
}

fn order(at: i64) -> RunNow {
    let (by, why) = ("admin".parse().unwrap(), Why::new("now").unwrap());
    RunNow { at: StoreTime::from_millis(at), by, why }
}

/// Everything that can be said of a schedule, none of which is the case yet.
fn instructions() -> Vec<Instruction> {
    let pause = Instruction::Pause { by: "boss".parse().unwrap(), why: Why::new("once more").unwrap() };
    let ran = Instruction::Ran { at: StoreTime::from_millis(5) };
    vec![Instruction::Resume, pause, Instruction::Run(order(7)), ran]
}

/// A schedule of which everything is said, with a run in its ledger; and which document is its own.
async fn said(fixture: &Fixture, name: &str) -> (ScheduleId, Document) {
    let (store, schedule) = (fixture.store(), fixture.schedule(name));
    store.define(define(&schedule, 5, "0 3 * * *"), LIMIT).await.unwrap();
    let pause = Instruction::Pause { by: "admin".parse().unwrap(), why: Why::new("full").unwrap() };
    for instruction in [pause, Instruction::Run(order(5)), Instruction::Run(order(6))] {
        store.instruct(schedule.clone(), instruction, LIMIT).await.unwrap();
    }
    store.claim(claim(fixture, &schedule, 1000), LIMIT).await.unwrap();
    let ns = schedule.namespace.as_str();
    let id = doc! { "_id": { "ns": ns, "schedule": schedule.name.as_str(), "at": null } };
    (schedule, id)
}

/// Checks that a damaged record stays as it is at every definition, instruction and purge, and that the one beside it
/// is not disturbed.
async fn only_this_schedule_is_refused(
    place: &Place,
    fixture: &Fixture,
    schedule: &ScheduleId,
    id: Document,
    damage: Document,
    expected: &str,
) {
    let before = change(place, "runs", id.clone(), damage).await;
    let store = fixture.store();
    let refused = |seen: ScheduleSeen| match seen {
        ScheduleSeen::Refused(refusal) => says(&refusal, expected),
        other => panic!("it should be refused for {expected}, was {other:?}"),
    };
    for timing in ["0 3 * * *", "another"] {
        refused(store.define(define(schedule, 9, timing), LIMIT).await.unwrap());
    }
    for instruction in instructions() {
        refused(store.instruct(schedule.clone(), instruction, LIMIT).await.unwrap());
    }
    let (healthy, _) = said(fixture, &format!("beside {expected}")).await;
    let seen = store.schedules(vec![schedule.clone(), healthy], LIMIT).await.unwrap();
    let [damaged, healthy] = <[_; 2]>::try_from(seen).unwrap();
    assert!(matches!(healthy, ScheduleSeen::Found(_)), "{healthy:?}");
    refused(damaged);

    // The store's clock has to go on, or nothing were old enough to be purged.
    let begun = place.server_time().await;
    while place.server_time().await <= begun + 1 {}
    let purged = store.purge_runs(schedule.clone(), Duration::ZERO, 0, LIMIT).await;
    let cause = purged.unwrap_err().to_string();
    assert!(cause.contains(expected), "{cause} should tell of {expected}");
    let runs = place.collection("runs");
    let left = runs.count_documents(
        doc! { "_id.schedule": schedule.name.as_str(), "_id.ns": schedule.namespace.as_str() },
    );
    assert_eq!(left.await.unwrap(), 2, "nothing is purged where no mark is raised");
    assert_eq!(runs.find_one(id).await.unwrap().unwrap(), before, "{expected}");
}

#[tokio::test]
async fn a_schedule_that_is_not_ours_is_refused_and_never_written() {
    let place = Place::on(shared_single().await.uri()).await;
    for (damage, expected) in not_ours() {
        let fixture = place.fixture();
        let (schedule, id) = said(&fixture, "nightly").await;
        only_this_schedule_is_refused(&place, &fixture, &schedule, id, damage, expected).await;
    }
}

#[tokio::test]
async fn a_damaged_schedule_is_refused_and_the_message_names_the_field() {
    let place = Place::on(shared_single().await.uri()).await;
    let set = |field: &str, value: Bson| doc! { "$set": { field: value } };
    let without = |field: &str| doc! { "$unset": { field: 1 } };
    for (damage, expected) in [
        (set("definition", "daily".into()), "`definition` is of the type String, not a document"),
        (set("definition", doc! {}.into()), "`timing` is missing"),
        (set("definition.timing", 3.into()), "`timing` is of the type Int32, not a string"),
        (without("definition.policies"), "`policies` is missing"),
        (set("definition.since", "yesterday".into()), "`since` is of the type String, not a date"),
        (set("definition.term", Bson::Int64(-1)), "`term` is -1"),
        (set("definition.term", Bson::Double(0.5)), "`term` is of the type Double"),
        (set("pause", true.into()), "`pause` is of the type Boolean, not a document"),
        (without("pause.since"), "`since` is missing"),
        (set("pause.until", "tomorrow".into()), "`until` is of the type String, not a date"),
        (set("pause.by", Bson::Null), "`by` is of the type Null, not a string"),
        (without("pause.why"), "`why` is missing"),
        (set("orders", doc! { "at": 5 }.into()), "`orders` is of the type EmbeddedDocument, not an array"),
        (set("orders", vec![Bson::Int32(5)].into()), "`orders` is of the type Int32, not a document"),
        (set("orders.1.at", 5.into()), "`at` is of the type Int32, not a date"),
        (without("orders.0.by"), "`by` is missing"),
        (set("orders.0.why", Bson::Null), "`why` is of the type Null"),
        (set("mark", "tomorrow".into()), "`mark` is of the type String, not a date"),
    ] {
        let fixture = place.fixture();
        let (schedule, id) = said(&fixture, "nightly").await;
        only_this_schedule_is_refused(&place, &fixture, &schedule, id, damage, expected).await;
    }
    // What only people read is refused, and may be written over.
    for (damage, expected) in [
        (set("definition.timing", "".into()), "`timing` breaks a limit"),
        (set("pause.by", "a\nb".into()), "`by` breaks a limit"),
        (set("orders.0.why", "x".repeat(2000).into()), "`why` breaks a limit"),
    ] {
        let fixture = place.fixture();
        let (schedule, id) = said(&fixture, "nightly").await;
        change(&place, "runs", id, damage).await;
        match place.store.schedules(vec![schedule], LIMIT).await.unwrap().remove(0) {
            ScheduleSeen::Refused(refusal) => says(&refusal, expected),
            other => panic!("should be refused for {expected}, was {other:?}"),
        }
    }
}

/// The versions before schedules were defined wrote the mark alone; a shell writes numbers of another type.
#[tokio::test]
async fn a_record_of_an_earlier_version_is_read_and_goes_on() {
    let place = Place::on(shared_single().await.uri()).await;
    let at = DateTime::from_millis(5);
    for (number, written) in [
        doc! { "v": 2_i64, "mark": at },
        doc! { "v": 2_i32, "mark": at, "definition": null, "pause": null, "orders": null },
        doc! { "v": 2.0, "unknown": "kept", "mark": at, "orders": [] },
    ]
    .into_iter()
    .enumerate()
    {
        let fixture = place.fixture();
        let schedule = fixture.schedule("nightly");
        let id = doc! { "ns": fixture.namespace().as_str(), "schedule": "nightly", "at": null };
        let mut document = doc! { "_id": id.clone() };
        document.extend(written);
        place.collection("runs").insert_one(document.clone()).await.unwrap();
        let mut expected = tenure::store::ScheduleRecord::new(schedule.clone());
        expected.mark = Some(StoreTime::from_millis(5));
        let seen = place.store.schedules(vec![schedule.clone()], LIMIT).await.unwrap();
        assert_eq!(seen, [ScheduleSeen::Found(expected)], "{document}");
        for (place_in, instruction) in instructions().into_iter().enumerate() {
            let answer = place.store.instruct(schedule.clone(), instruction, LIMIT).await.unwrap();
            let ScheduleSeen::Found(record) = answer else { panic!("{number}, {place_in}: {answer:?}") };
            assert_eq!(record.mark, Some(StoreTime::from_millis(5)));
        }
        let answer = place.store.define(define(&schedule, 5, "0 3 * * *"), LIMIT).await.unwrap();
        let ScheduleSeen::Found(record) = answer else { panic!("{document}: {answer:?}") };
        assert!(record.definition.is_some() && record.pause.is_some() && record.orders == [order(7)]);
        let stored = place.collection("runs").find_one(doc! { "_id": id }).await.unwrap().unwrap();
        assert_eq!(stored.get("unknown"), document.get("unknown"), "unknown fields are kept");
    }
}

#[tokio::test]
async fn an_entry_under_an_id_of_another_shape_is_refused_in_its_history() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let schedule = fixture.schedule("nightly");
    place.store.claim(claim(&fixture, &schedule, 1000), LIMIT).await.unwrap();
    let runs = place.collection("runs");
    let whole = runs.find_one(doc! { "_id.ns": fixture.namespace().as_str() }).await.unwrap().unwrap();
    let id = whole.get_document("_id").unwrap();
    for (field, value) in
        [("entry", Bson::from("tick")), ("entry", "retry".into()), ("entry", Bson::Null), ("more", 1.into())]
    {
        let mut other = id.clone();
        other.insert(field, value);
        let mut document = whole.clone();
        document.insert("_id", other);
        runs.insert_one(document).await.unwrap();
    }
    for (entry, more) in [("order", 1), ("skipped", 2)] {
        let mut other = id.clone();
        other.insert("entry", entry);
        other.insert("more", more);
        let mut document = whole.clone();
        document.insert("_id", other);
        runs.insert_one(document).await.unwrap();
    }
    let (mut items, mut refused, mut after) = (0, 0, None);
    for page in 0.. {
        assert!(page < 20, "a history must come to an end");
        let page = place.store.history(schedule.clone(), after, 1, LIMIT).await.unwrap();
        items += page.items.len();
        refused += page.refused.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((items, refused), (1, 6));
    for at_most in [1, 3, 7] {
        let history = place.store.history(schedule.clone(), None, at_most, LIMIT).await.unwrap();
        let last = place.store.last_runs(vec![schedule.clone()], at_most, LIMIT).await.unwrap();
        assert_eq!(last, [history.into()], "{at_most} at most");
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_read_counts_as_claimed() {
    let place = Place::on(shared_single().await.uri()).await;
    for (damage, expected) in not_ours() {
        let fixture = place.fixture();
        let schedule = fixture.schedule("nightly");
        let claim = claim(&fixture, &schedule, 1000);
        let (run, session, term) = (claim.run.clone(), claim.session, claim.term);
        place.store.claim(claim.clone(), LIMIT).await.unwrap();
        let id = doc! { "_id.ns": fixture.namespace().as_str() };
        let before = change(&place, "runs", id.clone(), damage).await;
        let again = Claim { attempt: 2, instead_of: Some((term, 1)), ..claim.clone() };
        for claim in [claim, again] {
            match place.store.claim(claim, LIMIT).await.unwrap() {
                ClaimAnswer::Refused(refusal) => says(&refusal, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
        let finish = FinishRun {
            run,
            session,
            term,
            attempt: 1,
            outcome: Outcome::Succeeded,
            error: None,
            last: true,
        };
        let finished = place.store.finish(finish, LIMIT).await.unwrap();
        assert!(matches!(finished, ClaimAnswer::Refused(_)), "{finished:?}");
        let history = place.store.history(schedule.clone(), None, 10, LIMIT).await.unwrap();
        let beside = fixture.schedule("beside");
        place.store.claim(self::claim(&fixture, &beside, 1000), LIMIT).await.unwrap();
        assert_eq!((history.items.len(), history.refused.len()), (0, 1));
        let last = place.store.last_runs(vec![beside, schedule], 10, LIMIT).await.unwrap();
        assert_eq!(last[0].items.len(), 1, "one ledger is not the worse for another");
        assert_eq!(last[1], history.into());
        assert_eq!(place.collection("runs").find_one(id).await.unwrap().unwrap(), before);
    }
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_is_not_taken_for_none() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let schedule = fixture.schedule("nightly");
    let id = doc! { "ns": fixture.namespace().as_str(), "schedule": "nightly", "at": null };
    place.collection("runs").insert_one(doc! { "_id": id, "v": 2_i64, "mark": "tomorrow" }).await.unwrap();
    let error = place.store.history(schedule, None, 10, LIMIT).await.unwrap_err();
    let cause = error.to_string();
    assert!(cause.contains("the mark of the schedule \"nightly\"") && cause.contains("`mark`"), "{cause}");
}

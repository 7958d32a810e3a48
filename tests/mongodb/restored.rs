//! A database that was restored from a backup.

use mongodb::bson::{DateTime, doc};
use tenure::{
    Applied,
    model::Term,
    store::{SessionSeen, mongo::MongoOptions},
};

use crate::mongodb::Place;
use crate::support::mongod::shared_single;

/// The clock of the former server was ahead: without the command a term would be granted again.
#[tokio::test]
async fn after_its_terms_were_raised_a_restored_database_grants_none_again() {
    let place = Place::with(shared_single().await.uri(), MongoOptions::new()).await;
    let fixture = place.fixture();
    let session = fixture.opened().await.id;
    let (lock, strange) = (fixture.lock("report"), fixture.lock("strange"));
    let held = fixture.held(&lock, session, 1).await;
    fixture.held(&strange, session, 2).await;
    let foreign = doc! { "$set": { "term": "one" } };
    place.collection("locks").update_one(doc! { "_id.key": "strange" }, foreign).await.unwrap();

    // Somebody still works with it.
    let error = place.store.raise_terms().await.unwrap_err();
    assert_eq!(error.applied(), Applied::No, "{error}");
    let says =
        format!("the session of {:?} is alive: stop all instances first", fixture.about().holder.as_str());
    assert!(error.to_string().ends_with(&says), "{error}");
    assert_eq!(fixture.record(&lock).await.term, held.term, "nothing was changed");

    let old = doc! { "$set": { "beat_at": DateTime::from_millis(0) } };
    place.collection("sessions").update_many(doc! {}, old).await.unwrap();
    assert_eq!(place.store.raise_terms().await.unwrap(), 1);
    let SessionSeen::Dead(dead) = fixture.seen(session).await else {
        panic!("the sessions of a backup are dead");
    };
    assert_eq!(dead.death.unwrap().why.as_str(), "the database was restored from a backup");
    assert!(
        fixture.record(&lock).await.is_held_by(session),
        "it is taken from its dead holder like any other"
    );

    let by = fixture.candidate(fixture.session(), 1);
    let next = fixture.take_over(&lock, &by, &[session]).await.taken().expect("its holder is dead").term;
    let hours_later = Term::new(held.term.get() + 23 * 3600 * 1000);
    assert!(next > hours_later, "{next} after {}", held.term);
    let strange = place.collection("locks").find_one(doc! { "_id.key": "strange" }).await.unwrap().unwrap();
    assert_eq!(strange.get_str("term").unwrap(), "one", "a record that cannot be read is left alone");
}

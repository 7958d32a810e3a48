//! A connection of its own: the same records, and the same store in every other way.

use crate::fixture::{Fixture, LIMIT, sure};
use tenure::store::{LockSeen, StoreExt};

/// Records written through one are read through the other, also through one that was made of it. A store that has
/// no connections need not have a dedicated one.
pub async fn a_dedicated_store_has_the_same_records(fixture: &Fixture) {
    let Some(first) = sure(fixture.store().dedicated()).await else { return };
    assert_eq!(first.capabilities(), fixture.store().capabilities());
    let second = sure(first.dedicated()).await.expect("what could be made once can be made again");
    for store in [first, second] {
        let opened = sure(store.open(fixture.opening(), LIMIT)).await;
        let session = opened.record().expect("it was opened just now").id;
        assert_eq!(fixture.seen(session).await, opened);
        fixture.send(&fixture.beat(session, 1)).await;
        let beaten = fixture.beat(session, 2);
        let sighting = sure(store.beat(beaten.clone(), LIMIT)).await;
        assert!(sighting.bears(beaten.nonce), "{sighting:?}");
        let lock = fixture.lock(&format!("of {session}"));
        let record = fixture.held(&lock, session, 1).await;
        assert_eq!(sure(store.locks(vec![lock], LIMIT)).await, [LockSeen::Found(record)]);
    }
}

//! Opening of tasks that rest after failures, when an operator has mended the cause.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};

use crate::{
    elect::{Engine, Error, Work},
    logic::failing::Resting,
    model::{Kind, SpreadName, Why},
    store::{LockRecord, Page, Request, Revocation, RevokeAnswer, StoreExt},
};

/// Reason in the store's record.
const WHY: &str = "put back";
/// Records that a listing reads at once.
const PAGE: usize = 1000;
/// Tasks that are opened side by side.
const AT_ONCE: usize = 32;

/// Returns whether a task is closed after too many failures.
fn is_resting(engine: &Engine, record: &LockRecord) -> bool {
    let left =
        |closed: crate::store::Closed| engine.store_now().map_or(closed.length, |now| closed.left(now));
    let is_closed = record.closed.is_some_and(|closed| !left(closed).is_zero());
    record.holding.is_none() && is_closed && Resting::of(&record.past).is_some()
}

/// Opens a task now, if it rests after too many failures. Returns whether it did.
pub(super) async fn one(engine: &Arc<Engine>, record: LockRecord) -> Result<bool, Error> {
    if !is_resting(engine, &record) {
        return Ok(false);
    }
    let (by, why) = (engine.config.holder().clone(), Why::shortened(WHY));
    let request = Request { lock: record.id.clone(), term: record.term, by, why };
    let limit = engine.limit();
    let open = engine.given.revoke(Revocation::Reopen(request), limit);
    match engine.call(Work::Requested, limit, open).await.map_err(Error::store)? {
        RevokeAnswer::Freed(_) => Ok(true),
        // Taken or gone: another caller has opened it, or its rest was over.
        RevokeAnswer::Asked | RevokeAnswer::NotHeld => Ok(false),
        RevokeAnswer::Refused(refusal) => Err(Error::Refused { lock: record.id, refusal }),
    }
}

/// Opens all tasks that rest. Returns their number.
pub(super) async fn all(engine: &Arc<Engine>, spread: &SpreadName) -> Result<usize, Error> {
    let (mut place, mut opened) = (None, 0);
    loop {
        let (namespace, limit) = (engine.config.namespace().clone(), engine.limit());
        let kind = Some(Kind::of_tasks(spread));
        let page = engine.given.list_locks(namespace, kind, place, PAGE, limit);
        let page: Page<LockRecord> = engine.call(Work::Spreads, limit, page).await.map_err(Error::store)?;
        let open = |record| async move { one(engine, record).await.map(usize::from) };
        opened += stream::iter(page.items)
            .map(open)
            .buffer_unordered(AT_ONCE)
            .try_fold(0, |sum, one| std::future::ready(Ok(sum + one)))
            .await?;
        place = page.next;
        if place.is_none() {
            return Ok(opened);
        }
    }
}

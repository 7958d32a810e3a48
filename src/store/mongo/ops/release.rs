//! Releases: free, closed for a while, or to a waiter.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bson::{Document, doc};

use super::{
    batch::{BATCH, by_key, in_batch, side_by_side},
    locks::{
        closed_for, ended, granted, held_under, is_unwanted, next_term, not_closed, past_with, read_lock,
    },
    queue::{first_waiters_of, read_waiter},
};
use crate::{
    model::MAX_NUMBER,
    store::{
        Bell, Ended, MOST_TOLD, Release, ReleaseAnswer, ReleaseTo,
        mongo::{
            MongoStore,
            client::{
                command::write,
                error::{CommandFailure, CommandResult},
            },
            documents::{
                fields::{self, lock_id, millis},
                pipeline::{literal, merged, overlaid},
                queries::{self, Find, KeptRecords, Statement, by_ids},
            },
        },
    },
};

pub(crate) async fn release(
    store: MongoStore,
    releases: Vec<Release>,
    limit: Duration,
) -> CommandResult<Vec<ReleaseAnswer>> {
    side_by_side(releases.chunks(BATCH).map(|batch| release_batch(&store, batch, limit)).collect()).await
}

async fn release_batch(
    store: &MongoStore,
    releases: &[Release],
    limit: Duration,
) -> CommandResult<Vec<ReleaseAnswer>> {
    let (database, names) = store.place();
    let statements = release_statements(releases);
    // Takes are majority writes and the log is in order, so no session builds on a release that is
    // rolled back: then the lock is merely still held, and the audit gives it back.
    let written =
        write(&database, queries::update(&names.locks, statements, KeptRecords::Primary, limit)).await?;
    tell_waiters(store, releases, limit).await;
    if written.matched == releases.len() as u64 {
        return Ok(vec![ReleaseAnswer::Released; releases.len()]);
    }
    // Some were not ours any more, or cannot be written: only a look shows which.
    let locks: Vec<_> = releases.iter().map(|release| release.lock.clone()).collect();
    let ids = locks.iter().map(|lock| lock_id(lock).into());
    let look = Find { filter: queries::by_ids(ids), local: true, ..Find::default() };
    let found = by_key(store.find(&names.locks, look, limit).await?);
    // Statements stand for several releases: the server's reason is the same for all of them.
    let reason = written.refused.into_iter().next().map(|(_, refusal)| refusal);
    let answer = |release: &Release| match in_batch(&found, &release.lock).map(read_lock) {
        Some(Err(refusal)) => Ok(ReleaseAnswer::Refused(refusal)),
        Some(Ok(record)) if record.term == release.term && record.is_held_by(release.session) => {
            if record.wanted && release.then == ReleaseTo::FreeUnlessWanted {
                return Ok(ReleaseAnswer::Wanted);
            }
            let reason = reason.clone().map(ReleaseAnswer::Refused);
            reason.ok_or_else(|| CommandFailure::unknown("a lock is still held after its release"))
        }
        _ => Ok(ReleaseAnswer::Released),
    };
    releases.iter().map(answer).collect()
}

/// Tells those in the queues of locks that were released to nobody: they may have come since the releaser read its
/// queue. A hint that fails decides nothing (R12).
async fn tell_waiters(store: &MongoStore, releases: &[Release], limit: Duration) {
    let is_free = |one: &&Release| *then(one) == ReleaseTo::Free && one.lock.kind.spread().is_none();
    let free: Vec<_> = releases.iter().filter(is_free).collect();
    if free.is_empty() || !store.inner.has_bells {
        return;
    }
    let locks: Vec<_> = free.iter().map(|one| lock_id(&one.lock)).collect();
    let queues = first_waiters_of(doc! { "$in": locks }.into(), MOST_TOLD.saturating_mul(free.len()));
    let Ok(found) = store.find(&store.names().waiters, queues, limit).await else { return };
    let own: BTreeSet<_> = free.iter().map(|one| one.session).collect();
    let waiters: Vec<_> = found.iter().filter_map(|waiter| read_waiter(waiter).ok()).collect();
    store.ring(Bell::freed(waiters.iter().filter(|waiter| !own.contains(&waiter.by.session))));
}

/// Releases, in as few statements as can be. Locks that were granted in one batch bear the same term,
/// and those of them that are released alike go together, for half of what they cost one by one.
pub(crate) fn release_statements(releases: &[Release]) -> Vec<Statement> {
    let mut alike: BTreeMap<_, Vec<&Release>> = BTreeMap::new();
    let mut statements = Vec::new();
    for one in releases {
        match then(one) {
            ReleaseTo::Free | ReleaseTo::FreeUnlessWanted => {
                let unless_wanted = one.then == ReleaseTo::FreeUnlessWanted;
                alike.entry((one.session, one.term, &one.note, unless_wanted)).or_default().push(one);
            }
            _ => statements.push(release_statement(held_under(&one.lock, one.session, one.term), one)),
        }
    }
    for together in alike.values() {
        let first = together[0];
        let mut filter = held_under(&first.lock, first.session, first.term);
        if together.len() > 1 {
            filter.extend(by_ids(together.iter().map(|one| lock_id(&one.lock).into())));
        }
        statements.push(Statement { multi: together.len() > 1, ..release_statement(filter, first) });
    }
    statements
}

fn release_statement(filter: Document, release: &Release) -> Statement {
    let note = release.note.as_ref();
    let now = doc! { "ended_at": true };
    match then(release) {
        ReleaseTo::Free => {
            let end = merged([ended(Ended::Released, note), not_closed(), doc! { "wanted": false }]);
            Statement::plain(filter, doc! { "$set": end, "$currentDate": now })
        }
        ReleaseTo::FreeUnlessWanted => {
            let end = merged([ended(Ended::Released, note), not_closed()]);
            let filter = merged([filter, is_unwanted()]);
            Statement::plain(filter, doc! { "$set": end, "$currentDate": now })
        }
        ReleaseTo::ClosedFor(length) => {
            let closed = merged([doc! { "ended_at": "$$NOW" }, closed_for(millis(*length))]);
            let document = overlaid(ended(Ended::Released, note), closed);
            Statement::pipeline(filter, vec![doc! { "$replaceWith": document }])
        }
        ReleaseTo::HandTo(next) => {
            let note = literal(fields::note(note));
            let handed = doc! { "term": next_term(), "acquired_at": "$$NOW", "past": past_with(Ended::HandedOver.as_str(), note) };
            Statement::pipeline(filter, vec![doc! { "$replaceWith": overlaid(granted(next), handed) }])
        }
    }
}

/// The real target of a release: at the limit there is no larger term to hand the lock over under.
fn then(release: &Release) -> &ReleaseTo {
    let spent = release.term.get() == MAX_NUMBER;
    if spent && matches!(release.then, ReleaseTo::HandTo(_)) { &ReleaseTo::Free } else { &release.then }
}

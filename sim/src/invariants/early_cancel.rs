use std::time::Duration;

use super::Invariant;
use crate::{Entry, EventKind, Life, Registry};
use tenure::{clock::Moment, model::Term};

/// A job's token fires by the sending of the last confirmed beat, and the ttl, less the margin and the
/// grace, whatever the store does; no poll of it begins after the end, nor after its grace.
pub(super) struct EarlyCancel;

impl Invariant for EarlyCancel {
    fn name(&self) -> &'static str {
        "early cancel"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let (Some(life), Some(key)) = (entry.life, entry.what.key()) else { return Ok(()) };
        let (EventKind::Polled { term, .. }
        | EventKind::Cancelled { term, .. }
        | EventKind::Ended { term, .. }) = &entry.what
        else {
            return Ok(());
        };
        let Some(end) = registry.end(key, *term) else { return Ok(()) };
        if matches!(entry.what, EventKind::Polled { .. }) {
            polled(registry, entry, life, key, *term, end)?;
        }
        fired(registry, entry, life, key, *term, end)
    }
}

fn polled(
    registry: &Registry,
    entry: &Entry,
    life: Life,
    key: usize,
    term: Term,
    end: Moment,
) -> Result<(), String> {
    let member = registry.member(life).durations;
    if entry.local >= end {
        let late = entry.local.since(end);
        return Err(format!("a poll under term {term} of key {key} begins {late:?} after its session's end"));
    }
    let grace = member.stop_grace + Duration::from_millis(1);
    let cancelled = registry.lease(life, key, term).and_then(|lease| lease.cancelled);
    match cancelled {
        Some(cancelled) if entry.local > cancelled + grace => Err(format!(
            "a poll under term {term} of key {key} begins {:?} after its token fired, which is more than the grace",
            entry.local.since(cancelled)
        )),
        _ => Ok(()),
    }
}

fn fired(
    registry: &Registry,
    entry: &Entry,
    life: Life,
    key: usize,
    term: Term,
    end: Moment,
) -> Result<(), String> {
    let Some(lease) = registry.lease(life, key, term) else { return Ok(()) };
    let member = registry.member(life);
    // A lease that is granted later is to be cancelled at once.
    let due = lease.began.max(end - member.durations.stop_grace);
    let slack = member.durations.slack;
    let excused = member.frozen || entry.at < member.undisturbed_since + slack;
    if lease.cancelled.is_none() && lease.running > 0 && !excused && entry.local > due + slack {
        let late = entry.local.since(due);
        return Err(format!("the token of term {term} of key {key} had not fired {late:?} after it was due"));
    }
    Ok(())
}

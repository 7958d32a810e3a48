//! Schedules with everything that is judged by: record, ledger, owner.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tenure::{
    StoreError,
    model::{
        Holder, Key, Kind, LockId, Pause, RunRecord, ScheduleId, ScheduleRecord, SessionId, StoreTime, Term,
    },
    schedule::{Overdue, ScheduleStatus},
    store::LockSeen,
};

use super::look::{Found, LIMIT, Life, Lives, Look, PAGE};

/// Ledgers that are read at once.
const AT_ONCE: usize = 8;

/// A schedule as it stands.
#[derive(Debug, Serialize)]
pub(crate) struct ScheduleLook {
    #[serde(flatten)]
    pub(crate) status: ScheduleStatus,
    /// The zone by whose clocks it goes.
    pub(crate) zone: Option<String>,
    /// The pause goes on.
    pub(crate) paused: bool,
    /// The last run is on: it has no end yet, and its runner looks alive.
    pub(crate) running: bool,
    /// Next tick; none while it is paused.
    pub(crate) next: Option<StoreTime>,
    pub(crate) owner: Option<Owner>,
    /// First tick that is due, is not in the ledger, and that no run holds up.
    pub(crate) due: Option<StoreTime>,
    /// Time for which that tick is due.
    pub(crate) overdue_ms: Option<u64>,
}

/// Who has a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Owner {
    pub(crate) holder: Holder,
    pub(crate) session: SessionId,
    pub(crate) term: Term,
    pub(crate) life: Life,
    pub(crate) looks_dead: bool,
}

/// What the ledger of a schedule tells.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) runs: Vec<RunRecord>,
    pub(crate) is_all: bool,
}

/// Reads all schedules of the namespace.
pub(crate) async fn all(look: &Look) -> Result<(Found<ScheduleLook>, StoreTime), StoreError> {
    let records = records(look).await?;
    let (items, now) = of(look, records.items).await?;
    Ok((Found { items, refused: records.refused, more: records.more }, now))
}

/// Reads the records of all schedules.
pub(crate) async fn records(look: &Look) -> Result<Found<ScheduleRecord>, StoreError> {
    let (mut found, mut after) = (Found::default(), None);
    loop {
        let page = look.store().list_schedules(look.namespace.clone(), after, PAGE, LIMIT).await?;
        found.items.extend(page.items);
        found.refuse(page.refused);
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// Reads what belongs to these records.
pub(crate) async fn of(
    look: &Look,
    records: Vec<ScheduleRecord>,
) -> Result<(Vec<ScheduleLook>, StoreTime), StoreError> {
    let ids: Vec<_> = records.iter().map(|record| record.id.clone()).collect();
    let ledgers = ledgers(look, &ids, ScheduleStatus::LOOKED_AT).await?;
    let locks = look.seen_locks(ids.iter().filter_map(lock_of).collect()).await?;
    let holders = locks.iter().filter_map(|seen| match seen {
        LockSeen::Found(record) => record.holding.as_ref().map(|held| held.by.session),
        LockSeen::Absent | LockSeen::Refused(_) => None,
    });
    let runners = ledgers.iter().filter_map(|ledger| on(&ledger.runs)).map(|run| run.session);
    let sessions: BTreeSet<_> = holders.chain(runners).collect();
    let lives = look.observe(sessions).await?;
    let now = lives.now();
    let mut looks = Vec::with_capacity(records.len());
    for ((record, ledger), lock) in records.into_iter().zip(ledgers).zip(locks) {
        looks.push(judge(record, ledger, &lock, &lives, now));
    }
    Ok((looks, now))
}

/// Reads the last entries of these ledgers.
pub(crate) async fn ledgers(
    look: &Look,
    ids: &[ScheduleId],
    at_most: usize,
) -> Result<Vec<Ledger>, StoreError> {
    let read = |id: ScheduleId| async move {
        let page = look.store().history(id, None, at_most, LIMIT).await?;
        Ok(Ledger { is_all: page.page.next.is_none(), runs: page.page.items })
    };
    let ids: Vec<_> = ids.to_vec();
    stream::iter(ids).map(read).buffered(AT_ONCE).try_collect().await
}

/// The lock that the owner of a schedule holds. A schedule's name is shorter than a key.
pub(crate) fn lock_of(id: &ScheduleId) -> Option<LockId> {
    let key = Key::new(&id.name).ok()?;
    Some(LockId { namespace: id.namespace.clone(), kind: Kind::Schedule, key })
}

/// The run that is on, if the last one has no end.
fn on(runs: &[RunRecord]) -> Option<&RunRecord> {
    runs.iter().find(|run| run.skipped.is_none()).filter(|run| run.finish.is_none())
}

fn judge(
    record: ScheduleRecord,
    ledger: Ledger,
    lock: &LockSeen,
    lives: &Lives,
    now: StoreTime,
) -> ScheduleLook {
    let owner = match lock {
        LockSeen::Found(lock) => lock.holding.as_ref().map(|held| {
            let life = lives.life(held.by.session, now);
            let (holder, session) = (held.by.holder.clone(), held.by.session);
            Owner { holder, session, term: lock.term, life, looks_dead: life.looks_dead() }
        }),
        LockSeen::Absent | LockSeen::Refused(_) => None,
    };
    let running = on(&ledger.runs).is_some_and(|run| !lives.life(run.session, now).looks_dead());
    let due = Overdue::of(&record, &ledger.runs, ledger.is_all, now, Duration::ZERO).filter(|_| !running);
    let paused = record.pause.as_ref().is_some_and(Pause::is_on);
    let status = ScheduleStatus::of(record, ledger.runs);
    ScheduleLook {
        zone: status.zone(),
        paused,
        running,
        next: if paused { None } else { status.next(1, now).pop() },
        owner,
        due: due.as_ref().map(|due| due.due),
        overdue_ms: due.map(|due| u64::try_from(due.by.as_millis()).unwrap_or(u64::MAX)),
        status,
    }
}

#[cfg(test)]
mod tests {
    use tenure::{
        model::{
            About, Candidate, Definition, Holding, LockRecord, Nonce, Rules, RunId, SessionRecord, Ticket,
            Why,
        },
        store::SessionSeen,
    };

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn at(minutes: i64) -> StoreTime {
        StoreTime::from_millis(1_767_225_600_000 + minutes * 60_000)
    }

    fn hourly() -> ScheduleRecord {
        let id = ScheduleId { namespace: "n".parse().unwrap(), name: "s".parse().unwrap() };
        let mut record = ScheduleRecord::new(id);
        let (timing, policies) = (Rules::new("0 * * * * in UTC").unwrap(), Rules::new("p").unwrap());
        record.definition = Some(Definition::new(timing, policies, at(0), Term::new(1)));
        record
    }

    fn lives(beat_at: StoreTime) -> Lives {
        let about = About::new("n".parse().unwrap(), "pod-1".parse().unwrap());
        let id = SessionId::from_u128(1);
        let session = SessionRecord::opened(id, about, Nonce::new(1), TTL, beat_at);
        [(id, SessionSeen::Alive(session))].into_iter().collect()
    }

    fn run(minutes: i64) -> RunRecord {
        let id = RunId::tick(hourly().id, at(minutes));
        RunRecord::new(id, SessionId::from_u128(1), "pod-1".parse().unwrap(), Term::new(5), at(minutes))
    }

    fn owned() -> LockSeen {
        let by = Candidate::new(SessionId::from_u128(1), Ticket::new(1), TTL, "pod-1".parse().unwrap());
        let mut lock = LockRecord::new(lock_of(&hourly().id).unwrap(), Term::new(5));
        lock.holding = Some(Holding::new(by, at(0)));
        LockSeen::Found(lock)
    }

    fn looked(runs: Vec<RunRecord>, beat_at: StoreTime, now: StoreTime) -> ScheduleLook {
        judge(hourly(), Ledger { runs, is_all: true }, &owned(), &lives(beat_at), now)
    }

    #[test]
    fn what_is_due_and_nobody_runs_is_overdue() {
        let seen = looked(Vec::new(), at(70), at(70));
        assert_eq!((seen.due, seen.overdue_ms, seen.running), (Some(at(60)), Some(600_000), false));
        assert_eq!((seen.next, seen.zone.as_deref()), (Some(at(120)), Some("UTC")));
        assert!(seen.owner.is_some_and(|owner| !owner.looks_dead && owner.holder.as_str() == "pod-1"));
        assert_eq!(looked(vec![run(60)], at(70), at(70)).due, None);
    }

    #[test]
    fn a_run_that_is_on_holds_up_the_next_ticks_unless_its_runner_looks_dead() {
        let on = looked(vec![run(60)], at(190), at(190));
        assert_eq!((on.running, on.due), (true, None));
        let died = looked(vec![run(60)], at(61), at(190));
        assert_eq!((died.running, died.due), (false, Some(at(120))));
        assert!(died.owner.is_some_and(|owner| owner.looks_dead));
    }

    #[test]
    fn a_schedule_that_is_paused_has_no_next_tick() {
        let mut record = hourly();
        record.pause = Some(Pause::new(at(10), "ops".parse().unwrap(), Why::shortened("repairs")));
        let ledger = Ledger { runs: Vec::new(), is_all: true };
        let seen = judge(record, ledger, &LockSeen::Absent, &lives(at(70)), at(70));
        assert_eq!((seen.paused, seen.next, seen.due, seen.owner), (true, None, None, None));
    }
}

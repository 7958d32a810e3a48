//! The state of a namespace, or of one key, at one look.

use std::collections::BTreeSet;

use tenure::{
    StoreError,
    model::{Key, Kind, LockId, ScheduleId, ScheduleName, SpreadName},
    store::{LockRecord, LockSeen, ScheduleRecord, ScheduleSeen, SessionRecord, Topic},
};
use tenure_look::{Liveness, Records};

use super::super::look::OpenNamespace;

/// Entries of each ledger that are looked at.
const RUNS: usize = 10;

/// The scope of a watch.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) namespace: tenure::model::Namespace,
    /// `None` for all keys.
    pub(super) key: Option<Key>,
    /// The spreads that are known: their tasks ring.
    spreads: BTreeSet<SpreadName>,
}

impl Scope {
    pub(super) async fn of(look: &OpenNamespace, key: Option<Key>) -> Result<Self, StoreError> {
        let mut scope = Self { namespace: look.namespace().clone(), key, spreads: BTreeSet::new() };
        scope.spreads.extend(Kind::Schedule.spread());
        scope.learn(&look.all_sessions().await?.items);
        Ok(scope)
    }

    fn learn(&mut self, sessions: &[SessionRecord]) {
        let alive = sessions.iter().filter(|session| session.is_alive());
        let shares = alive.flat_map(|session| &session.shares);
        self.spreads.extend(shares.map(|share| share.spread.clone()));
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = Topic> + '_ {
        self.spreads.iter().map(|spread| Topic::Spread(self.namespace.clone(), spread.clone()))
    }

    /// The locks that have this key, of all kinds.
    fn locks_of(&self, key: &Key) -> Vec<LockId> {
        let tasks = self.spreads.iter().map(Kind::of_tasks);
        let kinds = [Kind::Lock].into_iter().chain(tasks);
        kinds.map(|kind| LockId { namespace: self.namespace.clone(), kind, key: key.clone() }).collect()
    }
}

impl Scope {
    pub(super) async fn read(&mut self, look: &OpenNamespace) -> Result<Records, StoreError> {
        match self.key.clone() {
            Some(key) => self.of_key(look, &key).await,
            None => self.of_all(look).await,
        }
    }

    async fn of_all(&mut self, look: &OpenNamespace) -> Result<Records, StoreError> {
        let locks = look.all_locks(None, usize::MAX, |_| true).await?.items;
        let sessions = look.all_sessions().await?.items;
        self.learn(&sessions);
        let schedules = look.all_schedules().await?.items;
        let records = records(look, locks, sessions, schedules).await?;
        Ok(Records { all_sessions: true, ..records })
    }

    async fn of_key(&self, look: &OpenNamespace, key: &Key) -> Result<Records, StoreError> {
        let seen = look.seen_locks(&self.locks_of(key)).await?;
        let locks: Vec<_> = seen.into_iter().filter_map(LockSeen::found).collect();
        let holders = locks.iter().filter_map(|record| record.holding.as_ref());
        let lives = look.observe(holders.map(|held| held.by.session)).await?;
        let mut schedules = Vec::new();
        if let Ok(name) = ScheduleName::new(key.as_str()) {
            let id = ScheduleId { namespace: self.namespace.clone(), name };
            let seen = look.seen_schedules(&[id]).await?;
            schedules.extend(seen.into_iter().filter_map(|seen| match seen {
                ScheduleSeen::Found(record) => Some(record),
                ScheduleSeen::Absent | ScheduleSeen::Refused(_) => None,
            }));
        }
        records(look, locks, lives.records().cloned().collect(), schedules).await
    }
}

async fn records(
    look: &OpenNamespace,
    locks: Vec<LockRecord>,
    sessions: Vec<SessionRecord>,
    schedules: Vec<ScheduleRecord>,
) -> Result<Records, StoreError> {
    let now = look.now();
    let ids: Vec<_> = schedules.iter().map(|record| record.id.clone()).collect();
    let ledgers = look.last_runs(&ids, RUNS).await?;
    let with_life = |record: SessionRecord| {
        let life = Liveness::of(&record, now);
        (record.id, (record, life))
    };
    Ok(Records {
        now: Some(now),
        locks: locks.into_iter().map(|record| (record.id.clone(), record)).collect(),
        sessions: sessions.into_iter().map(with_life).collect(),
        all_sessions: false,
        schedules: schedules.into_iter().map(|record| (record.id.name.clone(), record)).collect(),
        runs: ledgers.into_iter().flat_map(|ledger| ledger.items).map(|run| (run.id.clone(), run)).collect(),
    })
}

//! The state of a namespace, or of one key, at one look.

use std::collections::{BTreeMap, BTreeSet};

use tenure::{
    StoreError,
    model::{
        Key, Kind, LockId, LockRecord, RunId, RunRecord, ScheduleId, ScheduleName, ScheduleRecord, SessionId,
        SessionRecord, SpreadName, StoreTime,
    },
    store::{LockSeen, ScheduleSeen, Topic},
};

use super::super::{
    look::{LIMIT, Life, Look, now_beside},
    schedule_look,
};

/// Entries of each ledger that are looked at.
const RUNS: usize = 10;

/// What is watched.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) namespace: tenure::model::Namespace,
    /// Nothing for all keys.
    pub(super) key: Option<Key>,
    /// The spreads that are known: their tasks ring.
    spreads: BTreeSet<SpreadName>,
}

impl Scope {
    pub(super) async fn of(look: &Look, key: Option<Key>) -> Result<Self, StoreError> {
        let mut scope = Self { namespace: look.namespace.clone(), key, spreads: BTreeSet::new() };
        scope.spreads.extend(Kind::Schedule.spread());
        scope.learn(&look.sessions().await?.items);
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

/// The state at one look.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// Nothing before the first look.
    pub(super) now: Option<StoreTime>,
    pub(super) locks: BTreeMap<LockId, LockRecord>,
    pub(super) sessions: BTreeMap<SessionId, (SessionRecord, Life)>,
    /// All sessions of the namespace are in it: one that was not is new.
    pub(super) all_sessions: bool,
    pub(super) schedules: BTreeMap<ScheduleName, ScheduleRecord>,
    pub(super) runs: BTreeMap<RunId, RunRecord>,
}

impl Snapshot {
    pub(super) async fn read(look: &Look, scope: &mut Scope) -> Result<Self, StoreError> {
        match scope.key.clone() {
            Some(key) => Self::of_key(look, scope, &key).await,
            None => Self::of_all(look, scope).await,
        }
    }

    async fn of_all(look: &Look, scope: &mut Scope) -> Result<Self, StoreError> {
        let locks = look.locks(None, usize::MAX, |_| true).await?.items;
        let sessions = look.sessions().await?.items;
        scope.learn(&sessions);
        let schedules = schedule_look::records(look).await?.items;
        Self::of(look, locks, sessions, true, schedules).await
    }

    async fn of_key(look: &Look, scope: &Scope, key: &Key) -> Result<Self, StoreError> {
        let seen = look.seen_locks(scope.locks_of(key)).await?;
        let locks: Vec<_> = seen.into_iter().filter_map(LockSeen::found).collect();
        let holders = locks.iter().filter_map(|record| record.holding.as_ref());
        let lives = look.observe(holders.map(|held| held.by.session)).await?;
        let mut schedules = Vec::new();
        if let Ok(name) = ScheduleName::new(key.as_str()) {
            let id = ScheduleId { namespace: scope.namespace.clone(), name };
            let seen = look.store().schedules(vec![id], LIMIT).await?;
            schedules.extend(seen.into_iter().filter_map(|seen| match seen {
                ScheduleSeen::Found(record) => Some(record),
                ScheduleSeen::Absent | ScheduleSeen::Refused(_) => None,
            }));
        }
        Self::of(look, locks, lives.records().cloned().collect(), false, schedules).await
    }

    async fn of(
        look: &Look,
        locks: Vec<LockRecord>,
        sessions: Vec<SessionRecord>,
        all_sessions: bool,
        schedules: Vec<ScheduleRecord>,
    ) -> Result<Self, StoreError> {
        let now = now_beside(&sessions);
        let ids: Vec<_> = schedules.iter().map(|record| record.id.clone()).collect();
        let ledgers = schedule_look::ledgers(look, &ids, RUNS).await?;
        let runs = ledgers.into_iter().flat_map(|ledger| ledger.runs);
        Ok(Self {
            now: Some(now),
            locks: locks.into_iter().map(|record| (record.id.clone(), record)).collect(),
            sessions: sessions
                .into_iter()
                .map(|record| {
                    let life = Life::of(&record, now);
                    (record.id, (record, life))
                })
                .collect(),
            all_sessions,
            schedules: schedules.into_iter().map(|record| (record.id.name.clone(), record)).collect(),
            runs: runs.map(|run| (run.id.clone(), run)).collect(),
        })
    }
}

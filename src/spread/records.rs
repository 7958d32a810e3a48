//! A spread as its records tell, for those who take no part in it: no plan, and of tasks only those that were ever
//! taken.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Explanation, Member, SpreadStatus, TaskState,
    view::{failing, recorded, tasks},
};
use crate::{
    clock::Moment,
    logic::{
        failing::{Failures, Resting},
        view::SpreadView,
    },
    model::{Death, Holding, Key, Kind, LockRecord, SessionId, SessionRecord, Share, SpreadName, StoreTime},
    store::{LockSeen, SessionSeen},
};

fn share_of<'a>(session: &'a SessionRecord, spread: &SpreadName) -> Option<&'a Share> {
    session.shares.iter().find(|share| share.spread == *spread)
}

impl TaskState {
    /// Returns the state that the task's record tells, with that of its holder's session if there is one.
    #[must_use]
    pub fn of_record(record: &LockRecord, holder: Option<&SessionRecord>, now: StoreTime) -> Self {
        if let Some(Holding { by, .. }) = &record.holding {
            return match holder.filter(|session| !session.is_alive()) {
                Some(dead) if is_reserved(dead, &record.id.kind, now) => {
                    Self::Reserved { holder: by.holder.clone() }
                }
                Some(_) => Self::Free { next: None },
                None => {
                    Self::Held { holder: Some(by.holder.clone()), session: by.session, term: record.term }
                }
            };
        }
        let left = record.closed.map(|closed| closed.left_about(now)).unwrap_or_default();
        if left.is_zero() {
            return Self::Free { next: None };
        }
        match Resting::of(&record.past) {
            Some(Resting { since, tries, error }) => Self::Quarantined { since, tries, error, until: left },
            None => Self::Closed,
        }
    }
}

/// Returns whether the tasks of a closed session still wait for the next one of its holder.
fn is_reserved(dead: &SessionRecord, kind: &Kind, now: StoreTime) -> bool {
    let Some(death) = dead.death.as_ref().filter(|death| Death::is_own(death)) else { return false };
    let share = kind.spread().and_then(|spread| share_of(dead, &spread).cloned());
    share.is_some_and(|share| now.since(death.at) < share.reserved)
}

/// The members that fail.
fn failing_members(
    spread: &SpreadName,
    sessions: &[SessionRecord],
    locks: &[LockRecord],
    now: StoreTime,
) -> BTreeSet<SessionId> {
    let (mut view, at) = (SpreadView::new(spread.clone()), Moment::after_start(Duration::ZERO));
    view.set(&locks.iter().map(|record| record.id.key.clone()).collect());
    for session in sessions {
        view.saw(session.id, &SessionSeen::of(session.clone()), at, Some(now));
    }
    for record in locks {
        view.read(&record.id.key, &LockSeen::Found(record.clone()), at, at, Some(now));
    }
    view.failing(at)
}

impl SpreadStatus {
    /// Returns the status that these records tell: `sessions` of the namespace, `locks` of the spread's tasks. There is
    /// no plan in it, so members have no targets and tasks no next holder, and no task that nobody has ever taken.
    #[must_use]
    pub fn of_records(
        spread: SpreadName,
        sessions: &[SessionRecord],
        locks: &[LockRecord],
        now: StoreTime,
    ) -> Self {
        let by_id: BTreeMap<SessionId, &SessionRecord> =
            sessions.iter().map(|session| (session.id, session)).collect();
        let mut counts: BTreeMap<SessionId, usize> = BTreeMap::new();
        let mut known = BTreeMap::new();
        for record in locks {
            let holder = record.holding.as_ref().and_then(|held| by_id.get(&held.by.session).copied());
            let state = TaskState::of_record(record, holder, now);
            if let TaskState::Held { session, .. } = &state {
                *counts.entry(*session).or_default() += 1;
            }
            known.insert(record.id.key.clone(), state);
        }
        let failing = failing_members(&spread, sessions, locks, now);
        let member = |session: &SessionRecord| {
            Some(Member {
                session: session.id,
                holder: session.about.holder.clone(),
                host: session.about.host.clone(),
                pid: session.about.pid,
                share: share_of(session, &spread)?.clone(),
                tasks: counts.get(&session.id).copied().unwrap_or(0),
                failing: failing.contains(&session.id),
                target: None,
            })
        };
        let mut members: Vec<_> =
            sessions.iter().filter(|session| session.is_alive()).filter_map(member).collect();
        members.sort_by(|a, b| (&a.holder, a.session).cmp(&(&b.holder, b.session)));
        Self { spread, members, tasks: known, here: BTreeMap::new(), planned: false, held_back: None }
    }
}

impl Explanation {
    /// Explains a task by what the records tell: a status that was made [of them](SpreadStatus::of_records), the same
    /// sessions, and the task's record.
    #[must_use]
    pub fn of_records(
        status: &SpreadStatus,
        sessions: &[SessionRecord],
        key: Key,
        seen: &LockSeen,
        now: StoreTime,
    ) -> Self {
        let mut says = Vec::new();
        match seen {
            LockSeen::Absent => {
                says.push(
                    "no instance has ever taken it, or its record was removed since: whether it is in a task set, \
                     the records do not tell"
                        .to_owned(),
                );
                says.extend(takers(status, sessions, now));
            }
            LockSeen::Refused(refusal) => says.push(refusal.to_string()),
            LockSeen::Found(record) => {
                let session = record.holding.as_ref().map(|held| held.by.session);
                let session = session.and_then(|id| sessions.iter().find(|session| session.id == id));
                match TaskState::of_record(record, session, now) {
                    TaskState::Held { session: id, term, .. } => {
                        let holder = record.holding.as_ref().map(|held| held.by.holder.to_string());
                        let name = status.name_of_session(id).or(holder).unwrap_or_else(|| id.to_string());
                        says.push(format!("{name} has it, under term {term}"));
                        says.push(why_held(&name, status, id, session, now));
                    }
                    TaskState::Reserved { holder } => {
                        says.push(format!("it is reserved for {holder}, which is restarting"));
                    }
                    TaskState::Quarantined { since, tries, error, until } => {
                        says.push(failing(since, tries, &error, until));
                    }
                    TaskState::Closed => {
                        says.push(
                            "it is done, or kept closed after its last holder: no instance may take it now"
                                .to_owned(),
                        );
                    }
                    _ => {
                        if let (Some(held), Some(dead)) = (&record.holding, session) {
                            let why = dead.death.as_ref().map(|death| death.why.to_string());
                            says.push(format!(
                                "{} had it, which is dead ({}), and no instance has taken it over yet",
                                held.by.holder,
                                why.unwrap_or_default()
                            ));
                        } else {
                            says.push("no instance has it".to_owned());
                        }
                        says.extend(takers(status, sessions, now));
                    }
                }
                let failures = Failures::of(record);
                let avoided = failures.avoided(now);
                if !avoided.is_empty() {
                    says.push(format!(
                        "other instances are preferred to {}, where it failed or was revoked",
                        avoided.join(", ")
                    ));
                }
                says.extend(recorded(record));
            }
        }
        Self { key, says }
    }
}

/// Explains why its holder has it still.
fn why_held(
    name: &str,
    status: &SpreadStatus,
    id: SessionId,
    session: Option<&SessionRecord>,
    now: StoreTime,
) -> String {
    let Some(session) = session else {
        return format!(
            "there is no readable record of the session of {name}: if it does not come back, others take the task over"
        );
    };
    if session.looks_dead(now) {
        let (beat, ttl) = (now.since(session.beat_at), session.ttl);
        return format!(
            "{name} looks dead: its last beat is {beat:.0?} old, and its ttl {ttl:.0?}; others take the task over when they have watched it for so long"
        );
    }
    let Some(member) = status.members.iter().find(|member| member.session == id) else {
        return format!("{name} takes no part in the spread any more, and is giving it back");
    };
    let has = tasks(member.tasks);
    match &member.share {
        Share { paused: true, .. } => format!("{name} is paused, and keeps what it has"),
        Share { draining: true, .. } => {
            format!("{name} drains, and gives it away when another instance has room")
        }
        Share { cap, .. } if *cap < u32::MAX => format!("{name} has {has} and a cap of {cap}"),
        _ => format!("{name} has {has}"),
    }
}

/// Explains of each member whether it can take a task that nobody has.
fn takers(status: &SpreadStatus, sessions: &[SessionRecord], now: StoreTime) -> Vec<String> {
    if status.members.is_empty() {
        return vec!["no instance that is alive takes part in the spread".to_owned()];
    }
    let silent = |id: SessionId| {
        sessions.iter().find(|session| session.id == id).is_some_and(|session| session.looks_dead(now))
    };
    let say = |member: &Member| {
        let name = status.name_of(member);
        match &member.share {
            _ if silent(member.session) => format!("{name} looks dead"),
            Share { draining: true, .. } => format!("{name} drains"),
            Share { paused: true, .. } => format!("{name} is paused"),
            Share { weight: 0, .. } => format!("{name} has a weight of 0"),
            Share { reserved, .. } if !reserved.is_zero() => format!("{name} is closing for a restart"),
            Share { cap, .. } if *cap < u32::MAX && member.tasks >= *cap as usize => {
                format!("{name} has {} and a cap of {cap}", tasks(member.tasks))
            }
            _ => format!("{name} has {} and room for more: it takes it if it knows it", tasks(member.tasks)),
        }
    };
    status.members.iter().map(say).collect()
}

#[cfg(test)]
mod tests;

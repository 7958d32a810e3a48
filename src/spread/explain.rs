//! Explanation of why a task is where it is: the conclusion that a person would draw, then the facts.

use std::fmt;

use serde::Serialize;

use super::{
    Member, Phase, SpreadStatus, TaskState,
    shared::{ActorState, Shared},
    view::tasks,
};
use crate::{
    clock::Moment,
    elect::Engine,
    logic::{digest, view::TaskPlace},
    model::{Holder, Key, SessionId, StoreTime},
    store::{Drained, LockRecord, LockSeen, SessionRecord, Share},
};

/// Explanation of why a task is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub(crate) key: Key,
    #[serde(rename = "sentences")]
    pub(crate) says: Vec<String>,
}

impl Explanation {
    /// Returns the conclusion, then one sentence a fact.
    #[must_use]
    pub fn sentences(&self) -> &[String] {
        &self.says
    }

    pub(super) fn of(engine: &Engine, shared: &Shared, key: Key, seen: &LockSeen) -> Self {
        let status = SpreadStatus::of(engine, shared);
        let (now, store_now) = (engine.clock.now(), engine.store_now());
        let state = shared.state();
        let mut says = Vec::new();
        if let Some(task) = status.tasks.get(&key) {
            says.push(conclusion(task, &status, store_now));
            says.extend(status.held_back.iter().map(ToString::to_string));
            says.extend(planned(task, &status, &state, &key, now));
        } else {
            says.push("it is not in the task set that this instance knows".to_owned());
        }
        says.extend(others_first(&status, &key));
        match status.here.get(&key) {
            Some(Phase::Idle) => says.push("its job returned and will run again after a while".to_owned()),
            Some(Phase::Moving) => says.push("its job is stopping".to_owned()),
            Some(Phase::Running | Phase::Failing { .. }) | None => {}
        }
        match seen {
            LockSeen::Found(record) => says.extend(recorded(record)),
            LockSeen::Absent => says.push("no instance has ever taken it".to_owned()),
            LockSeen::Refused(refusal) => says.push(refusal.to_string()),
        }
        Self { key, says }
    }

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
                let of_record = TaskState::of_record(record, session, now);
                let task = status.tasks.get(&key).unwrap_or(&of_record);
                let holder = task.holder().map(|(_, id)| (named(status, task), id));
                if let Some(silent) = holder.as_ref().and_then(|(name, _)| silent_holder(name, session, now))
                {
                    says.push(silent);
                } else {
                    says.push(conclusion(task, status, Some(now)));
                    says.extend(holder.map(|(name, id)| kept_by(&name, status, id)));
                }
                if let TaskState::Moving { from: None, .. } | TaskState::WaitingForRoom { .. } = task {
                    if let (Some(held), Some(death)) =
                        (&record.holding, session.and_then(|session| session.death.as_ref()))
                    {
                        let (holder, why) = (&held.by.holder, &death.why);
                        says.push(format!("{holder} had it, which is dead ({why})"));
                    }
                    says.extend(takers(status, sessions, now));
                }
                says.extend(others_first(status, &key));
                says.extend(recorded(record));
            }
        }
        Self { key, says }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.key, self.says.join("; "))
    }
}

// ----- conclusions

fn conclusion(task: &TaskState, status: &SpreadStatus, now: Option<StoreTime>) -> String {
    let word = task.word();
    match task {
        TaskState::Running { term, .. } => format!("{word} on {}, under term {term}", named(status, task)),
        TaskState::Failing { times, of: Some(of), error, .. } => {
            format!("{word} on {} ({times} of {of}): {error}", named(status, task))
        }
        TaskState::Failing { times, of: None, error, .. } => {
            format!("{word} on {}, given up {} before: {error}", named(status, task), often(*times))
        }
        TaskState::Resting { tries, by, error, until, .. } => {
            let end = match now {
                Some(now) => format!("until {}", time_of_day(now.plus(*until))),
                None => format!("for another {until:.0?}"),
            };
            if by.is_empty() {
                return format!("{word} {end}: {error}");
            }
            let by: Vec<_> = by.iter().map(Holder::as_str).collect();
            format!("{word} {end}, given up {} by {}: {error}", often(*tries), by.join(", "))
        }
        TaskState::WaitingForRoom { since } if since.is_zero() => format!("{word}: {}", no_room(status)),
        TaskState::WaitingForRoom { since } => format!("{word} for {since:.0?}: {}", no_room(status)),
        TaskState::Moving { from: Some(from), .. } => {
            format!("{word}: {from} is restarting, and it is reserved for the next instance of that name")
        }
        TaskState::Moving { to: Some(to), .. } => format!("{word} to {to}"),
        TaskState::Moving { .. } => format!("{word}: no instance has it yet"),
        TaskState::Done => format!("{word}, or kept closed after its last holder: no instance may take it"),
        TaskState::Unreadable => format!("{word}: its record cannot be used"),
        TaskState::Unknown => format!("{word}: this instance has not read its record yet"),
    }
}

/// Concludes why no instance takes a task, and says the remedy.
fn no_room(status: &SpreadStatus) -> String {
    let members = &status.members;
    match (members.len(), members.iter().all(is_full)) {
        (0, _) => "no instance takes part: start one".to_owned(),
        (1, true) => "the only instance is full: raise its cap or add one".to_owned(),
        (count, true) => format!("all {count} instances are full: raise the cap or add one"),
        (1, false) => "the only instance takes no more: add one".to_owned(),
        (count, false) => format!("none of the {count} instances takes more: raise a cap or add one"),
    }
}

fn time_of_day(at: StoreTime) -> String {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    at.strftime("%H:%M:%SZ").to_string()
}

fn often(times: u32) -> String {
    if times == 1 { "once".to_owned() } else { format!("{times} times") }
}

/// The name of its holder.
fn named(status: &SpreadStatus, task: &TaskState) -> String {
    let name = task.holder().and_then(|(_, session)| status.name_of_session(session));
    name.or_else(|| task.holder_name()).unwrap_or_else(|| "nobody".to_owned())
}

// ----- facts

fn is_full(member: &Member) -> bool {
    member.tasks >= member.share.cap as usize
}

/// Says why a member takes no more tasks.
pub(super) fn takes_no_more(member: &Member) -> Option<String> {
    if let Some(Drained { by, why, .. }) = &member.drained {
        return Some(format!("is drained by {by}: {why}"));
    }
    match &member.share {
        Share { draining: true, .. } => Some("drains".to_owned()),
        Share { paused: true, .. } => Some("is paused".to_owned()),
        Share { weight: 0, .. } => Some("has a weight of 0".to_owned()),
        Share { reserved, .. } if !reserved.is_zero() => Some("is closing for a restart".to_owned()),
        Share { cap, .. } if is_full(member) => {
            Some(format!("has {} and a cap of {cap}", tasks(member.tasks)))
        }
        _ => None,
    }
}

/// Facts of the plan of this instance.
fn planned(
    task: &TaskState,
    status: &SpreadStatus,
    state: &ActorState,
    key: &Key,
    now: Moment,
) -> Vec<String> {
    let mut says = Vec::new();
    if let Some((_, session)) = task.holder() {
        let member = status.members.iter().find(|member| member.session == session);
        says.extend(member.map(|member| why_there(&named(status, task), member, state, now, key)));
        if let Some(to) = state.resolved.successors.get(key).filter(|to| **to != Some(session)) {
            let successor = to.and_then(|to| status.name_of_session(to));
            says.push(match successor {
                Some(successor) => format!("it will move to {successor}"),
                None => "it will be released, although no instance has room for it".to_owned(),
            });
        }
    }
    if let TaskState::WaitingForRoom { .. } = task {
        let knows = |member: &Member| digest::agree(&member.share, &state.share, digest::part(key));
        says.extend(status.members.iter().map(|member| {
            let why = takes_no_more(member).unwrap_or_else(|| {
                let other = "may not know it: it has another set of tasks";
                if knows(member) { format!("has {}", tasks(member.tasks)) } else { other.to_owned() }
            });
            format!("{} {why}", status.name_of(member))
        }));
    }
    says
}

fn why_there(holder: &str, member: &Member, state: &ActorState, now: Moment, key: &Key) -> String {
    let has = format!("{holder} has {}", tasks(member.tasks));
    match member.target {
        _ if member.share.paused => format!("{holder} is paused, and keeps what it has"),
        _ if !digest::agree(&member.share, &state.share, digest::part(key)) => {
            format!("{holder} has another set of tasks, which may include this one, and keeps it")
        }
        Some(target) if member.tasks > target => match state.view.task(key) {
            Some(TaskPlace::Held { settles, .. }) if now < *settles => {
                format!("{has} and a target of {target}; this one has just arrived and stays for a moment")
            }
            _ => format!("{has} and a target of {target}"),
        },
        Some(target) => format!("{has} and a target of {target}"),
        None => format!("{has} and is not in a plan yet"),
    }
}

/// Concludes about a holder that is not heard of.
fn silent_holder(name: &str, session: Option<&SessionRecord>, now: StoreTime) -> Option<String> {
    let Some(session) = session else {
        return Some(format!(
            "{name} has it, and there is no readable record of its session: if it does not come back, others take the \
             task over"
        ));
    };
    let (beat, ttl) = (now.since(session.beat_at), session.ttl);
    session.looks_dead(now).then(|| {
        format!(
            "{name} has it and looks dead: its last beat is {beat:.0?} old, and its ttl {ttl:.0?}; others take the task \
             over when they have watched it for so long"
        )
    })
}

/// Says why its holder has it still.
fn kept_by(name: &str, status: &SpreadStatus, id: SessionId) -> String {
    let Some(member) = status.members.iter().find(|member| member.session == id) else {
        return format!("{name} takes no part in the spread any more, and is giving it back");
    };
    let has = tasks(member.tasks);
    match &member.share {
        Share { paused: true, .. } => format!("{name} is paused, and keeps what it has"),
        Share { draining: true, .. } => {
            format!("{name} drains, and gives it away")
        }
        Share { cap, .. } if *cap < u32::MAX => format!("{name} has {has} and a cap of {cap}"),
        _ => format!("{name} has {has}"),
    }
}

/// Says of each member whether it can take a task that no instance has.
fn takers(status: &SpreadStatus, sessions: &[SessionRecord], now: StoreTime) -> Vec<String> {
    let silent = |id: SessionId| {
        sessions.iter().find(|session| session.id == id).is_some_and(|session| session.looks_dead(now))
    };
    let say = |member: &Member| {
        let name = status.name_of(member);
        if silent(member.session) {
            return format!("{name} looks dead");
        }
        let why = takes_no_more(member);
        why.map_or_else(
            || format!("{name} has {} and room for more: it takes it if it knows it", tasks(member.tasks)),
            |why| format!("{name} {why}"),
        )
    };
    status.members.iter().map(say).collect()
}

fn others_first(status: &SpreadStatus, key: &Key) -> Option<String> {
    let gave_up = status.gave_up.get(key)?;
    if status.members.iter().all(|member| gave_up.contains(&member.session)) {
        // There are no others.
        return None;
    }
    let names: Vec<_> = gave_up.iter().filter_map(|session| status.name_of_session(*session)).collect();
    let names = names.join(", ");
    (!names.is_empty())
        .then(|| format!("other instances are preferred to {names}, where it failed or was revoked"))
}

/// Says what the record tells of its last holder.
fn recorded(record: &LockRecord) -> Option<String> {
    record.past.first().map(|last| {
        let note = last.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        format!("previously {} had it under term {}, {}{note}", last.holder, last.term, last.how.as_str())
    })
}

//! `tenure spreads`: who takes part in a spread, and where its tasks are, as far as records tell.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde::Serialize;
use tenure::{
    model::{Key, Kind, LockId, LockRecord, SessionRecord, SpreadName, StoreTime},
    spread::{Explanation, Member, SpreadStatus, TaskState},
    store::LockSeen,
};

use super::{
    instances::{state, terms},
    look::{Found, Life, Look, Refused, now_beside},
};
use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table, one_line},
    times,
};

/// There is no such spread.
const NOT_FOUND: u8 = 1;

#[derive(Args, Debug)]
#[command(
    after_help = "Tasks that no instance has ever taken are in no record, and are not listed. Exits with 1 if there is no such\nspread or task."
)]
pub(crate) struct Spreads {
    /// Show this spread: its members and its tasks
    name: Option<String>,

    /// Say why this task is where it is
    #[arg(long, value_name = "TASK", requires = "name")]
    explain: Option<String>,
}

pub(crate) async fn run(common: &Common, spreads: Spreads) -> Result<u8, Failure> {
    let name = spreads.name.as_ref().map(SpreadName::new).transpose();
    let name = name.map_err(|error| Failure::usage(error.to_string()))?;
    let task = spreads.explain.as_ref().map(Key::new).transpose();
    let task = task.map_err(|error| Failure::usage(format!("--explain: {error}")))?;
    let look = Look::open(common).await?;
    let code = match (name, task) {
        (None, _) => list(common, &look).await,
        (Some(name), None) => one(common, &look, name).await,
        (Some(name), Some(task)) => explain(common, &look, name, task).await,
    }?;
    look.close().await;
    Ok(code)
}

// ----- all

/// A spread in numbers.
#[derive(Debug, Serialize)]
struct Item {
    spread: SpreadName,
    members: usize,
    /// Members that look dead.
    silent: usize,
    draining: usize,
    tasks: usize,
    held: usize,
    quarantined: usize,
    /// Tasks that nobody has, who is alive.
    orphans: usize,
}

async fn list(common: &Common, look: &Look) -> Result<u8, Failure> {
    let sessions = look.sessions().await?;
    let now = now_beside(&sessions.items);
    let mut locks = look.locks(None, usize::MAX, |record| record.id.kind != Kind::Lock).await?;
    locks.refused.extend(sessions.refused);
    let mut tasks: BTreeMap<SpreadName, Vec<LockRecord>> = BTreeMap::new();
    for record in locks.items {
        if let Some(spread) = record.id.kind.spread() {
            tasks.entry(spread).or_default().push(record);
        }
    }
    for session in sessions.items.iter().filter(|session| session.is_alive()) {
        for share in &session.shares {
            tasks.entry(share.spread.clone()).or_default();
        }
    }
    let items = tasks.into_iter().map(|(spread, locks)| Item::of(spread, &sessions.items, &locks, now));
    let found = Found { items: items.collect(), refused: locks.refused, more: false };
    out::print(common, &found, || {
        if found.items.is_empty() {
            let namespace = one_line(look.namespace.as_str());
            return format!(
                "No spread is in namespace {namespace} of {}.\n{}",
                look.place.name,
                found.notes()
            );
        }
        let mut table = Table::new(["SPREAD", "MEMBERS", "TASKS", "HELD", "QUARANTINED", "ORPHANS", "NOTE"]);
        for item in &found.items {
            let count = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
            let notes = [count(item.silent, "look dead"), count(item.draining, "draining")];
            let notes = notes.into_iter().flatten().collect::<Vec<_>>().join(", ");
            table.row([
                item.spread.to_string(),
                item.members.to_string(),
                item.tasks.to_string(),
                item.held.to_string(),
                item.quarantined.to_string(),
                item.orphans.to_string(),
                if notes.is_empty() { "-".to_owned() } else { notes },
            ]);
        }
        table.render() + &found.notes()
    })?;
    Ok(0)
}

impl Item {
    fn of(spread: SpreadName, sessions: &[SessionRecord], locks: &[LockRecord], now: StoreTime) -> Self {
        let status = SpreadStatus::of_records(spread, sessions, locks, now);
        let silent = silent(sessions, now);
        Self {
            members: status.members.len(),
            silent: status.members.iter().filter(|member| silent.contains(&member.session.as_u128())).count(),
            draining: status.members.iter().filter(|member| member.share.draining).count(),
            tasks: status.tasks.len(),
            held: status.held(),
            quarantined: status.quarantined().count(),
            orphans: orphans(&status, &silent).len(),
            spread: status.spread,
        }
    }
}

/// The sessions that are not declared dead and look it.
fn silent(sessions: &[SessionRecord], now: StoreTime) -> BTreeSet<u128> {
    let silent = sessions.iter().filter(|session| session.is_alive() && session.looks_dead(now));
    silent.map(|session| session.id.as_u128()).collect()
}

/// Tasks that nobody has, and those whose holders look dead. What is kept closed is not among them.
fn orphans(status: &SpreadStatus, silent: &BTreeSet<u128>) -> Vec<Key> {
    let is_orphan = |state: &TaskState| match state {
        TaskState::Free { .. } => true,
        TaskState::Held { session, .. } => silent.contains(&session.as_u128()),
        _ => false,
    };
    status.tasks.iter().filter(|(_, state)| is_orphan(state)).map(|(key, _)| key.clone()).collect()
}

// ----- one

/// A spread, its members and its tasks.
#[derive(Debug, Serialize)]
struct Shown {
    spread: SpreadName,
    members: Vec<ShownMember>,
    tasks: Vec<ShownTask>,
    orphans: Vec<Key>,
    refused: Vec<Refused>,
}

#[derive(Debug, Serialize)]
struct ShownMember {
    #[serde(flatten)]
    member: Member,
    life: Life,
    looks_dead: bool,
}

#[derive(Debug, Serialize)]
struct ShownTask {
    key: Key,
    state: TaskState,
    /// Its holder looks dead.
    looks_dead: bool,
    /// Its last holder, and the note of how that ended.
    last_holder: Option<String>,
    last_note: Option<String>,
}

/// What the store has of a spread.
struct Read {
    sessions: Vec<SessionRecord>,
    locks: Vec<LockRecord>,
    refused: Vec<Refused>,
    now: StoreTime,
}

impl Read {
    async fn of(look: &Look, name: &SpreadName) -> Result<Self, Failure> {
        let sessions = look.sessions().await?;
        let locks = look.locks(Some(Kind::of_tasks(name)), usize::MAX, |_| true).await?;
        let now = now_beside(&sessions.items);
        let refused = sessions.refused.into_iter().chain(locks.refused).collect();
        Ok(Self { sessions: sessions.items, locks: locks.items, refused, now })
    }

    fn status(&self, name: SpreadName) -> SpreadStatus {
        SpreadStatus::of_records(name, &self.sessions, &self.locks, self.now)
    }
}

async fn one(common: &Common, look: &Look, name: SpreadName) -> Result<u8, Failure> {
    let read = Read::of(look, &name).await?;
    let shown = Shown::of(&read, name);
    let is_known = !shown.members.is_empty() || !shown.tasks.is_empty();
    out::print(common, &shown, || text(&shown, &read, look))?;
    Ok(if is_known { 0 } else { NOT_FOUND })
}

impl Shown {
    fn of(read: &Read, name: SpreadName) -> Self {
        let status = read.status(name);
        let silent = silent(&read.sessions, read.now);
        let orphans = orphans(&status, &silent);
        let lasts: BTreeMap<&Key, _> =
            read.locks.iter().map(|record| (&record.id.key, record.past.first())).collect();
        let tasks = status.tasks.into_iter().map(|(key, state)| {
            let last = lasts.get(&key).copied().flatten();
            ShownTask {
                looks_dead: matches!(&state, TaskState::Held { session, .. } if silent.contains(&session.as_u128())),
                last_holder: last.map(|last| last.holder.to_string()),
                last_note: last.and_then(|last| last.note.as_ref()).map(ToString::to_string),
                key,
                state,
            }
        });
        let member = |member: Member| {
            let life = if silent.contains(&member.session.as_u128()) { Life::Silent } else { Life::Alive };
            ShownMember { looks_dead: life.looks_dead(), life, member }
        };
        Self {
            spread: status.spread,
            tasks: tasks.collect(),
            members: status.members.into_iter().map(member).collect(),
            orphans,
            refused: read.refused.clone(),
        }
    }
}

fn text(shown: &Shown, read: &Read, look: &Look) -> String {
    let notes = Found::<()> { refused: shown.refused.clone(), ..Found::default() }.notes();
    if shown.members.is_empty() && shown.tasks.is_empty() {
        return format!(
            "Nobody takes part in a spread {:?} in namespace {} of {}, nor was any task of it ever taken.\n{notes}",
            shown.spread.as_str(),
            one_line(look.namespace.as_str()),
            look.place.name
        );
    }
    let mut text = String::new();
    if shown.members.is_empty() {
        text.push_str("No instance that is alive takes part.\n");
    } else {
        let mut table = Table::new(["MEMBER", "PLACE", "STATE", "TASKS", "SHARE"]);
        for ShownMember { member, life, .. } in &shown.members {
            let terms = terms(&member.share);
            table.row([
                member.holder.to_string(),
                format!("{}:{}", member.host, member.pid),
                state(*life).to_owned(),
                member.tasks.to_string(),
                if terms.is_empty() { "-".to_owned() } else { terms },
            ]);
        }
        text.push_str(&table.render());
    }
    if !shown.tasks.is_empty() {
        let mut table = Table::new(["TASK", "STATE", "HOLDER", "NOTE"]);
        for task in &shown.tasks {
            let (state, holder, note) = told(task, read.now);
            table.row([task.key.to_string(), state, holder, note]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    text + &notes
}

/// A task's state, its holder, and what else there is to say.
fn told(task: &ShownTask, now: StoreTime) -> (String, String, String) {
    let none = || "-".to_owned();
    match &task.state {
        TaskState::Held { holder, session, .. } => {
            let holder = holder.as_ref().map_or_else(|| session.to_string(), ToString::to_string);
            (
                "held".to_owned(),
                holder,
                if task.looks_dead { "its holder looks dead".to_owned() } else { none() },
            )
        }
        TaskState::Reserved { holder } => {
            ("reserved".to_owned(), holder.to_string(), "its holder is restarting".to_owned())
        }
        TaskState::Quarantined { since, tries, error, until } => (
            "quarantined".to_owned(),
            none(),
            format!(
                "for another {}, until {}; failing for {}, given up {tries}x: {error}",
                times::length(*until),
                times::local(now.plus(*until)),
                times::length(now.since(*since)),
            ),
        ),
        TaskState::Closed => ("closed".to_owned(), none(), last(task)),
        TaskState::Free { .. } => ("free".to_owned(), none(), last(task)),
        _ => ("unknown".to_owned(), none(), none()),
    }
}

fn last(task: &ShownTask) -> String {
    match (&task.last_holder, &task.last_note) {
        (Some(holder), Some(note)) => format!("{holder} had it last: {note}"),
        (Some(holder), None) => format!("{holder} had it last"),
        (None, _) => "-".to_owned(),
    }
}

// ----- why

async fn explain(common: &Common, look: &Look, name: SpreadName, task: Key) -> Result<u8, Failure> {
    let read = Read::of(look, &name).await?;
    let id = LockId { namespace: look.namespace.clone(), kind: Kind::of_tasks(&name), key: task.clone() };
    let seen = look.seen_locks(vec![id]).await?.pop().unwrap_or(LockSeen::Absent);
    let status = read.status(name);
    let is_known = seen != LockSeen::Absent;
    let explanation = Explanation::of_records(&status, &read.sessions, task, &seen, read.now);
    out::print(common, &explanation, || {
        explanation.sentences().iter().map(|sentence| one_line(sentence) + "\n").collect()
    })?;
    Ok(if is_known { 0 } else { NOT_FOUND })
}

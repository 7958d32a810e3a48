//! `tenure spreads`: the members of a spread, and where its tasks are, as far as records tell.

use std::fmt::Write;

use clap::Args;
use serde::Serialize;
use tenure::{
    model::{Key, Kind, LockId, SpreadName, StoreTime},
    spread::{Explanation, SpreadStatus, TaskState},
    store::{LockRecord, LockSeen, Past, SessionRecord},
};
use tenure_look::{Liveness, Refused, SpreadMember, SpreadSummary, SpreadView, TaskView, terms};

use super::look::{Found, OpenNamespace};
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
    after_help = "Tasks that were never taken have no record, and are not listed. Exits with 1 if there is no such\nspread or task."
)]
pub(crate) struct Spreads {
    /// Show this spread: its members and its tasks
    name: Option<String>,

    /// Explain why this task is where it is
    #[arg(long, value_name = "TASK", requires = "name")]
    explain: Option<String>,
}

pub(crate) async fn run(common: &Common, spreads: Spreads) -> Result<u8, Failure> {
    let name = spreads.name.as_ref().map(SpreadName::new).transpose();
    let name = name.map_err(|error| Failure::usage(error.to_string()))?;
    let task = spreads.explain.as_ref().map(Key::new).transpose();
    let task = task.map_err(|error| Failure::usage(format!("--explain: {error}")))?;
    let look = OpenNamespace::open(common).await?;
    let code = match (name, task) {
        (None, _) => list(common, &look).await,
        (Some(name), None) => one(common, &look, name).await,
        (Some(name), Some(task)) => explain(common, &look, name, task).await,
    }?;
    look.close().await;
    Ok(code)
}

// ----- all

async fn list(common: &Common, look: &OpenNamespace) -> Result<u8, Failure> {
    let locks = look.all_locks(None, usize::MAX, |record| record.id.kind != Kind::Lock).await?;
    let sessions = look.all_sessions().await?;
    let refused: Vec<_> = locks.refused.into_iter().chain(sessions.refused).collect();
    let items = SpreadSummary::all(&sessions.items, locks.items, refused.is_empty(), look.now());
    let found = Found { items, refused, more: false };
    out::print(common, &found, || {
        found.text(look, "No spread is", |items| Table::of(items.iter().map(row)).render())
    })?;
    Ok(0)
}

fn row(item: &SpreadSummary) -> Vec<(&'static str, String)> {
    let notes = notes(item).join(", ");
    vec![
        ("SPREAD", item.spread.to_string()),
        ("MEMBERS", item.members.to_string()),
        ("TASKS", item.tasks.to_string()),
        ("HELD", item.held.to_string()),
        ("RESTING", item.resting.to_string()),
        ("ORPHANS", item.orphans.to_string()),
        ("NOTE", if notes.is_empty() { "-".to_owned() } else { notes }),
    ]
}

/// The numbers of members that are not well, and of tasks that never ran.
pub(super) fn notes(spread: &SpreadSummary) -> Vec<String> {
    let count = |(count, what): (usize, &str)| (count > 0).then(|| format!("{count} {what}"));
    let (silent, failing) = ((spread.silent, "look dead"), (spread.failing, "failing"));
    let (draining, never_ran) = ((spread.draining, "draining"), (spread.never_ran, "never ran"));
    [silent, failing, draining, never_ran].into_iter().filter_map(count).collect()
}

// ----- one

/// A spread, and the records that cannot be used.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    spread: SpreadView,
    refused: Vec<Refused>,
}

/// The records in the store about a spread.
struct Read {
    sessions: Vec<SessionRecord>,
    locks: Vec<LockRecord>,
    refused: Vec<Refused>,
    now: StoreTime,
}

impl Read {
    async fn of(look: &OpenNamespace, name: &SpreadName) -> Result<Self, Failure> {
        let locks = look.all_locks(Some(Kind::of_tasks(name)), usize::MAX, |_| true).await?;
        let sessions = look.all_sessions().await?;
        let now = look.now();
        let refused = sessions.refused.into_iter().chain(locks.refused).collect();
        Ok(Self { sessions: sessions.items, locks: locks.items, refused, now })
    }

    fn status(&self, name: SpreadName) -> SpreadStatus {
        SpreadStatus::of_records(name, &self.sessions, &self.locks, self.now)
    }

    fn spread(&self, name: SpreadName) -> SpreadView {
        SpreadView::of(name, &self.sessions, &self.locks, self.refused.is_empty(), self.now)
    }
}

async fn one(common: &Common, look: &OpenNamespace, name: SpreadName) -> Result<u8, Failure> {
    let read = Read::of(look, &name).await?;
    let shown = Shown { spread: read.spread(name), refused: read.refused };
    let is_known = !shown.spread.members.is_empty() || !shown.spread.tasks.is_empty();
    out::print(common, &shown, || {
        let text = if is_known { text(&shown.spread, read.now) } else { absent(&shown.spread, look) };
        text + &Found::<()> { refused: shown.refused.clone(), ..Found::default() }.notes()
    })?;
    Ok(if is_known { 0 } else { NOT_FOUND })
}

fn absent(spread: &SpreadView, look: &OpenNamespace) -> String {
    format!(
        "No instance takes part in a spread {:?} in namespace {} of {}, and none of its tasks was ever taken.\n",
        spread.spread.as_str(),
        one_line(look.namespace().as_str()),
        look.place.name
    )
}

/// The members of a spread, and its tasks.
pub(super) fn text(spread: &SpreadView, now: StoreTime) -> String {
    let mut text = String::new();
    if spread.members.is_empty() {
        text.push_str("No living instance takes part.\n");
    } else {
        let mut table = Table::new(["MEMBER", "PLACE", "STATE", "TASKS", "OF", "SHARE"]);
        for SpreadMember { member, life, .. } in &spread.members {
            let terms = terms(&member.share, member.drained.as_ref());
            table.row([
                member.holder.to_string(),
                format!("{}:{}", member.host, member.pid),
                if member.failing && *life == Liveness::Alive { "failing" } else { life.as_str() }.to_owned(),
                member.tasks.to_string(),
                member.share.known.map_or_else(|| "-".to_owned(), |known| known.to_string()),
                if terms.is_empty() { "-".to_owned() } else { terms },
            ]);
        }
        text.push_str(&table.render());
    }
    let (on_record, never) = (spread.tasks.len(), spread.never_ran);
    if let Some(wanted) = spread.wanted.filter(|wanted| never > 0 || *wanted < on_record) {
        let ran = wanted.saturating_sub(never);
        let _ = writeln!(text, "\n{wanted} wanted, {ran} ever ran, {never} never; {on_record} on record");
    }
    if !spread.tasks.is_empty() {
        let mut table = Table::new(["TASK", "STATE", "HOLDER", "NOTE"]);
        for task in &spread.tasks {
            let (state, holder, note) = told(task, now);
            table.row([task.key.to_string(), state, holder, note]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    text
}

/// A task's state, its holder, and what else there is to say.
fn told(task: &TaskView, now: StoreTime) -> (String, String, String) {
    let holder = task.state.holder_name().unwrap_or_else(|| "-".to_owned());
    let note = match &task.state {
        _ if task.looks_dead => reason(task, 0),
        TaskState::Running { .. } => reason(task, 1),
        TaskState::Resting { by, error, until, .. } if by.is_empty() => {
            format!(
                "for another {}, until {}; {error}",
                times::length(*until),
                times::local(now.plus(*until))
            )
        }
        TaskState::Resting { since, tries, error, until, .. } => format!(
            "for another {}, until {}; failing for {}, given up {tries}x: {error}",
            times::length(*until),
            times::local(now.plus(*until)),
            times::length(now.since(*since)),
        ),
        TaskState::Moving { from: None, .. } | TaskState::Done => last(task),
        _ => reason(task, 0),
    };
    (task.word().to_owned(), holder, note)
}

/// Returns the last holder, or else the reason why the task has none.
fn last(task: &TaskView) -> String {
    match &task.last {
        Some(Past { holder, note: Some(note), .. }) => format!("{holder} had it last: {note}"),
        Some(Past { holder, .. }) => format!("{holder} had it last"),
        None => reason(task, 0),
    }
}

/// Returns one of the sentences that explain where the task is: the first one is the conclusion.
fn reason(task: &TaskView, at: usize) -> String {
    task.why.get(at).cloned().unwrap_or_else(|| "-".to_owned())
}

// ----- why

async fn explain(common: &Common, look: &OpenNamespace, name: SpreadName, task: Key) -> Result<u8, Failure> {
    let read = Read::of(look, &name).await?;
    let id = LockId { namespace: look.namespace().clone(), kind: Kind::of_tasks(&name), key: task.clone() };
    let seen = look.seen_locks(&[id]).await?.pop().unwrap_or(LockSeen::Absent);
    let status = read.status(name);
    let is_known = seen != LockSeen::Absent;
    let explanation = Explanation::of_records(&status, &read.sessions, task, &seen, read.now);
    out::print(common, &explanation, || {
        explanation.sentences().iter().map(|sentence| one_line(sentence) + "\n").collect()
    })?;
    Ok(if is_known { 0 } else { NOT_FOUND })
}

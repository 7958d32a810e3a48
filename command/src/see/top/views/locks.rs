//! The keys and their waiters: first the locks with a queue, then the other locks, tasks and schedules.

use std::collections::BTreeMap;

use tenure::{
    model::{Kind, LockId, SessionId},
    store::LockRecord,
};
use tenure_look::{Liveness, LockQueue, Picture, ago, length};

use super::{
    super::list::{Cell, Column, List, Row, Subject, Tone},
    keys,
};

const COLUMNS: &[Column] = &[
    Column::new("KEY", 10, 48, 0),
    Column::new("KIND", 8, 24, 5),
    Column::new("STATE", 10, 24, 1),
    Column::new("HOLDER", 8, 40, 2),
    Column::new("SINCE", 10, 12, 4),
    Column::number("WAITING", 3),
    Column::new("NEXT", 8, 30, 8),
    Column::number("TERM", 9),
    Column::new("WHO", 6, 24, 7),
    Column::new("WHY", 8, 80, 6),
];

pub(super) fn list(picture: &Picture) -> List {
    let queues: BTreeMap<LockId, LockQueue> =
        picture.queues().into_iter().map(|queue| (queue.lock.record.id.clone(), queue)).collect();
    let lives = lives(picture);
    let mut rows: Vec<_> =
        keys(picture).iter().map(|record| row(record, queues.get(&record.id), &lives, picture)).collect();
    // Keys with waiters come first.
    rows.sort_by_key(|row| match &row.subject {
        Subject::Key(id) => (!queues.contains_key(id), id.kind != Kind::Lock),
        _ => (true, true),
    });
    List::new(COLUMNS, rows)
}

fn lives(picture: &Picture) -> BTreeMap<SessionId, Liveness> {
    picture.sessions().map(|session| (session.id, Liveness::of(session, picture.now()))).collect()
}

fn row(
    record: &LockRecord,
    queue: Option<&LockQueue>,
    lives: &BTreeMap<SessionId, Liveness>,
    picture: &Picture,
) -> Row {
    let now = picture.now();
    let by = record.holding.as_ref().map(|held| &held.by);
    let life = by.map(|by| lives.get(&by.session).copied().unwrap_or(Liveness::Missing));
    let (word, tone) = state(record, life, picture);
    let since = record.holding.as_ref().map(|held| held.acquired_at);
    let since = since.or_else(|| record.past.first().map(|past| past.to));
    let said = |text: Option<String>| Cell::text(text.unwrap_or_default());
    let cells = vec![
        Cell::text(&record.id.key),
        Cell::text(record.id.kind.to_string()),
        Cell::text(word).tone(tone),
        said(by.map(|by| by.holder.to_string())),
        said(since.map(|at| ago(at, now))),
        waiting(queue),
        said(queue.and_then(|queue| queue.queue.waiters.first()).map(|next| next.by.holder.to_string())),
        Cell::text(record.term.to_string()),
        said(by.and_then(|by| by.who.as_ref()).map(ToString::to_string)),
        said(by.and_then(|by| by.why.as_ref()).map(ToString::to_string)),
    ];
    Row { subject: Subject::Key(record.id.clone()), cells }
}

/// Returns the state of a key in a word or two, and its tone.
fn state(record: &LockRecord, life: Option<Liveness>, picture: &Picture) -> (String, Tone) {
    match (&record.holding, life) {
        (Some(_), Some(Liveness::Alive) | None) => ("held".to_owned(), Tone::Plain),
        (Some(_), Some(Liveness::Missing)) => ("held, no session".to_owned(), Tone::Bad),
        (Some(_), Some(Liveness::Silent | Liveness::Dead)) => ("held, dead".to_owned(), Tone::Bad),
        (Some(_), Some(life)) => (format!("held, {}", life.as_str()), Tone::Bad),
        (None, _) => {
            let left = record.closed.map(|closed| closed.left(picture.now()));
            match left.filter(|left| !left.is_zero()) {
                Some(left) => (format!("closed for {}", length(left)), Tone::Note),
                None => ("free".to_owned(), Tone::Quiet),
            }
        }
    }
}

/// Returns the number of waiters, as far as they were read.
fn waiting(queue: Option<&LockQueue>) -> Cell {
    let Some(queue) = queue else { return Cell::text("") };
    let count = queue.queue.waiters.len();
    let more = if queue.queue.whole { "" } else { "+" };
    Cell::text(format!("{count}{more}")).tone(Tone::Note)
}

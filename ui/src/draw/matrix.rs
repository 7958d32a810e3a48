//! A spread as a matrix: a row for each member, a column for each task, a mark where a task is.

use std::{collections::BTreeMap, time::Duration};

use maud::{Markup, html};
use tenure::{
    model::{SessionId, StoreTime},
    spread::TaskState,
};
use tenure_look::{Liveness, SpreadMember, SpreadView, TaskView, one_line};

const LEFT: usize = 170;
const TOP: usize = 6;
const ROW: usize = 20;
const COLUMN: usize = 9;
/// A move is drawn for so long.
const MOVED: Duration = Duration::from_secs(10);
/// Letters of a member's name that there is room for.
const LETTERS: usize = 22;

/// The rows: the members, and one for tasks without a holder.
struct Rows<'a> {
    members: Vec<&'a SpreadMember>,
    of: BTreeMap<SessionId, usize>,
}

impl<'a> Rows<'a> {
    fn new(spread: &'a SpreadView) -> Self {
        let members: Vec<_> = spread.members.iter().collect();
        let of = members.iter().enumerate().map(|(row, one)| (one.member.session, row)).collect();
        Self { members, of }
    }

    /// The row below all members.
    fn nobody(&self) -> usize {
        self.members.len()
    }

    fn of_task(&self, task: &TaskView) -> usize {
        let row = task.state.holder().and_then(|(_, session)| self.of.get(&session));
        row.copied().unwrap_or(self.nobody())
    }

    /// The row where a task was until a moment ago.
    fn before(&self, task: &TaskView, now: StoreTime) -> Option<usize> {
        let last = task.last.as_ref().filter(|_| task.since.is_some_and(|since| now.since(since) < MOVED))?;
        let is_it = |one: &&SpreadMember| one.member.holder == last.holder;
        let row = self.members.iter().position(is_it).unwrap_or(self.nobody());
        (row != self.of_task(task)).then_some(row)
    }
}

pub(crate) fn matrix(spread: &SpreadView, now: StoreTime) -> Markup {
    let rows = Rows::new(spread);
    let (width, height) =
        (LEFT + spread.tasks.len().max(20) * COLUMN + 6, TOP + (rows.nobody() + 1) * ROW + 6);
    let says = format!(
        "{} tasks on {} instances: the table below lists the same",
        spread.tasks.len(),
        rows.nobody()
    );
    html! {
        svg.matrix viewBox=(format!("0 0 {width} {height}")) width=(width) role="img" aria-label=(says) {
            @for (row, one) in rows.members.iter().enumerate() {
                (row_of(row, width, one.member.holder.as_str(), one.life))
            }
            (row_of(rows.nobody(), width, "no holder", Liveness::Alive))
            @for (column, task) in spread.tasks.iter().enumerate() {
                @let (x, row) = (LEFT + column * COLUMN, rows.of_task(task));
                @if let Some(before) = rows.before(task, now) {
                    path.move d=(format!("M{} {} L{} {}", x + 4, middle(before), x + 4, middle(row))) {}
                }
                (mark(task, x, TOP + row * ROW))
            }
        }
    }
}

fn middle(row: usize) -> usize {
    TOP + row * ROW + ROW / 2
}

fn row_of(row: usize, width: usize, holder: &str, life: Liveness) -> Markup {
    let class = if row.is_multiple_of(2) { "row even" } else { "row" };
    let shown: String = one_line(holder).chars().take(LETTERS).collect();
    html! {
        rect class=(class) x="0" y=(TOP + row * ROW) width=(width) height=(ROW) {}
        text class=(if life.looks_dead() { "holder dead" } else { "holder" }) x="2" y=(TOP + row * ROW + 14) {
            title { (one_line(holder)) @if life.looks_dead() { " (" (life.as_str()) ")" } }
            (shown)
        }
    }
}

fn mark(task: &TaskView, x: usize, y: usize) -> Markup {
    let class = match &task.state {
        _ if task.looks_dead => "lost",
        TaskState::Running { .. } => "held",
        TaskState::Failing { .. } | TaskState::Resting { .. } => "resting",
        TaskState::Done => "closed",
        _ => "free",
    };
    let says = one_line(&format!("{}: {}", task.key, task.why.join("; ")));
    html! {
        rect class=(format!("task {class}")) x=(x + 1) y=(y + 3) width=(COLUMN - 2) height=(ROW - 6) rx="1.5" {
            title { (says) }
        }
    }
}

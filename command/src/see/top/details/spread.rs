//! A spread: its members, and the holder of each task, with the reason.

use tenure::{model::SpreadName, spread::TaskState};
use tenure_look::{Liveness, TaskView, length};

use super::{
    super::{
        list::Tone,
        text::{bar, count, permille},
        views::shares,
    },
    Page, TOLD,
};

/// Columns of a member's bar.
const BAR: usize = 10;

pub(super) fn tell(page: &mut Page<'_>, name: &SpreadName) {
    page.heading(&format!("Spread {name}"));
    let Some(spread) = page.picture.spread(name, 0, TOLD) else {
        page.text(0, "No instance takes part in it any more, and it has no task.", Tone::Bad);
        return;
    };
    let of = page.picture.task_count(name);
    page.field("tasks", of.to_string());
    page.said(
        "orphans",
        (!spread.orphans.is_empty()).then(|| {
            spread.orphans.iter().take(TOLD).map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }),
    );
    page.heading(&count(spread.members.len(), "member"));
    if spread.members.is_empty() {
        page.text(0, "No living instance takes part.", Tone::Bad);
    }
    let most = spread.members.iter().map(|one| one.member.tasks).max().unwrap_or_default();
    for one in &spread.members {
        let member = &one.member;
        let cap = usize::try_from(member.share.cap).unwrap_or(usize::MAX);
        let whole = if member.share.cap < u32::MAX { cap } else { most };
        let bar = bar(permille(member.tasks, whole), BAR);
        let has = count(member.tasks, "task");
        let tone = match one.life {
            Liveness::Alive if member.failing => Tone::Note,
            Liveness::Alive => Tone::Plain,
            _ => Tone::Bad,
        };
        let mark = match one.life {
            Liveness::Alive if member.failing => " (failing)",
            life => life.mark(),
        };
        let share = shares(&member.share);
        page.text(0, format!("{bar} {}{mark}: {has}, {share}", member.holder), tone);
    }
    page.heading(&count(of, "task"));
    for task in &spread.tasks {
        self::task(page, task);
    }
    if of > spread.tasks.len() {
        page.text(0, format!("There are more: `tenure spreads {name}` lists them."), Tone::Note);
    }
}

fn task(page: &mut Page<'_>, task: &TaskView) {
    let tone = match &task.state {
        _ if task.looks_dead => Tone::Bad,
        TaskState::Moving { from: None, .. } | TaskState::WaitingForRoom { .. } => Tone::Bad,
        TaskState::Failing { .. } | TaskState::Resting { .. } => Tone::Note,
        _ => Tone::Plain,
    };
    let since =
        task.since.map(|since| format!(" for {}", length(page.now().since(since)))).unwrap_or_default();
    page.text(0, format!("{}: {}{since}", task.key, task.word()), tone);
    page.text(4, task.why.join("; "), Tone::Quiet);
}

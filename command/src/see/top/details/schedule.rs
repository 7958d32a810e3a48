//! A schedule: its times, its owner, and how its runs went.

use tenure::model::{Entry, RunRecord, ScheduleId};
use tenure_look::{ScheduleView, ago, ended, length, why_ended};

use super::{
    super::{
        list::Tone,
        machine::Answer,
        views::{cell_of_run, standing},
    },
    Page,
};

pub(super) fn tell(page: &mut Page<'_>, id: &ScheduleId, answer: Option<&Answer>) {
    page.heading(&format!("Schedule {}", id.name));
    let Some(schedule) = page.picture.schedule(&id.name) else {
        page.text(0, "Its record was removed.", Tone::Bad);
        return;
    };
    about(page, &schedule);
    let read = match answer {
        Some(Answer::Ledger(_, Ok(read))) => Some(read),
        Some(Answer::Ledger(_, Err(error))) => {
            page.text(0, format!("Its ledger cannot be read, so this is not all: {error}"), Tone::Bad);
            None
        }
        _ => {
            page.text(0, "Loading the ledger.", Tone::Quiet);
            None
        }
    };
    let runs = read.map_or(&schedule.ledger.runs, |read| &read.items);
    page.heading("Runs, the last one first");
    if runs.is_empty() {
        page.text(0, "It has not run yet.", Tone::Plain);
    }
    for entry in runs {
        run(page, &schedule, entry);
    }
    for (record, refusal) in read.iter().flat_map(|read| &read.refused) {
        page.text(0, format!("{record}: {refusal}"), Tone::Bad);
    }
    let name = &id.name;
    if read.is_some_and(|read| read.next.is_some()) {
        page.text(0, format!("There are more: `tenure history {name}` lists them."), Tone::Note);
    } else if let Some(mark) = read.and_then(|read| read.mark) {
        let mark = page.at(mark);
        page.text(0, format!("Runs up to {mark} may have been removed."), Tone::Quiet);
    }
}

fn about(page: &mut Page<'_>, schedule: &ScheduleView) {
    let record = &schedule.status.record;
    let (word, tone) = standing(schedule, schedule.state(page.picture.ttl()));
    page.toned("state", word, if tone == Tone::Bad { tone } else { Tone::Plain });
    if let Some(pause) = record.pause.as_ref().filter(|_| schedule.paused) {
        page.field("paused", format!("{}, by {}: {}", page.at(pause.since), pause.by, pause.why));
    }
    page.said("when", schedule.in_words.as_ref());
    page.said("zone", schedule.zone.as_ref());
    if let Some(definition) = &record.definition {
        page.field("timing", &definition.timing);
        page.field("policies", &definition.policies);
        page.field("defined", page.at(definition.since));
    }
    match &schedule.owner {
        Some(owner) => {
            page.field("holder", format!("{}{}, term {}", owner.holder, owner.life.mark(), owner.term));
        }
        None => page.field("holder", "none"),
    }
    for (at, next) in schedule.next.iter().enumerate() {
        page.field(if at == 0 { "next" } else { "" }, page.at(*next));
    }
    page.said("due", schedule.due.map(|due| page.at(due)));
    for order in &record.orders {
        page.field("wanted", format!("{}, by {}: {}", page.at(order.at), order.by, order.why));
    }
    page.field("failures", format!("{} in a row", schedule.status.failures));
}

fn run(page: &mut Page<'_>, schedule: &ScheduleView, run: &RunRecord) {
    let on = schedule.is_on(run);
    let (sign, how, now) = (cell_of_run(run, on), ended(run, on), page.now());
    let mut told = format!("{sign} {}: {how}", page.at(run.id.instant));
    if let Some(skipped) = &run.skipped {
        told = format!("{told}: {} since {}", skipped.ticks(), ago(skipped.from, now));
    } else {
        if run.id.entry == Entry::Order {
            told.push_str(", an order");
        }
        told = format!("{told}, by {}, {} late", run.holder, length(run.lateness()));
        if let Some(finish) = &run.finish {
            told = format!("{told}, took {}", length(finish.at.since(run.started)));
        }
        if run.attempt > 1 {
            told = format!("{told}, attempt {}", run.attempt);
        }
    }
    let tone = if matches!(sign, 'x' | 'T' | 'A' | '!') { Tone::Bad } else { Tone::Plain };
    page.text(0, told, tone);
    if let Some(why) = why_ended(run) {
        page.text(4, why, Tone::Quiet);
    }
}

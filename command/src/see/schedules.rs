//! `tenure schedules`: when each is next, how it went last, and who has it.

use std::time::Duration;

use clap::Args;
use tenure::model::StoreTime;

use super::{
    look::{Found, Life, Look},
    schedule_look::{self, ScheduleLook},
};
use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table, one_line},
    times,
};

/// Time, besides two ttls, for which a tick may be on its way to the schedule's next owner.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args, Debug)]
#[command(
    after_help = "A tick is overdue when it is due for longer than a minute and two ttls, and no run holds it up."
)]
pub(crate) struct Schedules {}

pub(crate) async fn run(common: &Common, _: Schedules) -> Result<u8, Failure> {
    let look = Look::open(common).await?;
    let (found, now) = schedule_look::all(&look).await?;
    out::print(common, &found, || table(&found, &look, now))?;
    look.close().await;
    Ok(0)
}

fn table(found: &Found<ScheduleLook>, look: &Look, now: StoreTime) -> String {
    if found.items.is_empty() {
        let namespace = one_line(look.namespace.as_str());
        return format!("No schedule is in namespace {namespace} of {}.\n{}", look.place.name, found.notes());
    }
    let mut table =
        Table::new(["SCHEDULE", "TIMING", "STATE", "NEXT", "LAST", "ENDED", "FAILURES", "HOLDER"]);
    for item in &found.items {
        let record = &item.status.record;
        let (last, ended) = last(item, now);
        table.row([
            record.id.name.to_string(),
            record
                .definition
                .as_ref()
                .map_or_else(|| "-".to_owned(), |definition| definition.timing.to_string()),
            state(item, now, PATIENCE + look.ttl * 2),
            item.next.map_or_else(|| "-".to_owned(), |next| times::ago(next, now)),
            last,
            ended,
            item.status.failures.to_string(),
            item.owner.as_ref().map_or_else(
                || "nobody".to_owned(),
                |owner| format!("{}{}", owner.holder, Life::mark(owner.life)),
            ),
        ]);
    }
    table.render() + &found.notes()
}

/// What there is to say of a schedule before all else.
fn state(item: &ScheduleLook, now: StoreTime, patience: Duration) -> String {
    let record = &item.status.record;
    if let Some(pause) = record.pause.as_ref().filter(|_| item.paused) {
        return format!("paused {} by {}: {}", times::ago(pause.since, now), pause.by, pause.why);
    }
    if record.definition.is_none() {
        return "not run yet".to_owned();
    }
    match item.due.map(|due| now.since(due)) {
        Some(by) if by > patience => format!("overdue by {}", times::length(by)),
        Some(_) => "due".to_owned(),
        None if item.running => "running".to_owned(),
        None => "waiting".to_owned(),
    }
}

/// When the last run was, and how it ended.
fn last(item: &ScheduleLook, now: StoreTime) -> (String, String) {
    let Some(last) = &item.status.last else { return ("-".to_owned(), "-".to_owned()) };
    let ended = match &last.finish {
        Some(finish) => match &finish.error {
            Some(error) => format!("{}: {error}", finish.outcome.as_str()),
            None => finish.outcome.as_str().to_owned(),
        },
        None if item.running => "is on".to_owned(),
        None => "its runner died".to_owned(),
    };
    (times::ago(last.id.instant, now), ended)
}

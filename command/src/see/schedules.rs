//! `tenure schedules`: the next time of each, the end of its last run, and its owner.

use std::time::Duration;

use clap::Args;
use tenure::model::StoreTime;
use tenure_look::{ScheduleState, ScheduleView, ended, why_ended};

use super::look::{Found, OpenNamespace, said};
use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table},
    times,
};

/// Characters of why a run ended: all of it is in its history.
const SHOWN: usize = 40;

#[derive(Args, Debug)]
#[command(
    after_help = "A tick is overdue when it is due for longer than a minute and two ttls, and no run holds it up."
)]
pub(crate) struct Schedules {}

pub(crate) async fn run(common: &Common, _: Schedules) -> Result<u8, Failure> {
    let look = OpenNamespace::open(common).await?;
    let records = look.all_schedules().await?;
    let (items, now) = look.schedules_of(records.items).await?;
    let found = Found { items, refused: records.refused, more: records.more };
    let table =
        |items: &[ScheduleView]| Table::of(items.iter().map(|item| row(item, look.ttl, now))).render();
    out::print(common, &found, || found.text(&look, "No schedule is", table))?;
    look.close().await;
    Ok(0)
}

/// A schedule as a row.
pub(super) fn row(item: &ScheduleView, ttl: Duration, now: StoreTime) -> Vec<(&'static str, String)> {
    let record = &item.status.record;
    let (last, ended) = last(item, now);
    let owner = item.owner.as_ref().map(|owner| format!("{}{}", owner.holder, owner.life.mark()));
    vec![
        ("SCHEDULE", record.id.name.to_string()),
        ("TIMING", said(record.definition.as_ref().map(|definition| &definition.timing))),
        ("STATE", state(item, now, ttl)),
        ("NEXT", said(item.next.first().map(|next| times::ago(*next, now)).as_ref())),
        ("LAST", last),
        ("ENDED", ended),
        ("FAILURES", item.status.failures.to_string()),
        ("HOLDER", owner.unwrap_or_else(|| "none".to_owned())),
    ]
}

/// Returns the state of a schedule in words: its pause, or else its standing.
fn state(item: &ScheduleView, now: StoreTime, ttl: Duration) -> String {
    match (item.state(ttl), &item.status.record.pause) {
        (ScheduleState::Paused, Some(pause)) => {
            format!("paused {} by {}: {}", times::ago(pause.since, now), pause.by, pause.why)
        }
        (standing, _) => standing.to_string(),
    }
}

/// Time of the last run, and how it ended.
fn last(item: &ScheduleView, now: StoreTime) -> (String, String) {
    let Some(last) = &item.status.last else { return ("-".to_owned(), "-".to_owned()) };
    let how = ended(last, item.running);
    let ended = why_ended(last).map_or_else(|| how.to_owned(), |why| format!("{how}: {why}"));
    (times::ago(last.id.instant, now), out::short(&ended, SHOWN))
}

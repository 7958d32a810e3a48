//! `tenure next`: the ticks of an expression, without a store.

use clap::Args;
use jiff::tz::TimeZone;
use serde::Serialize;
use tenure::{model::StoreTime, schedule::Timing};

use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table},
    times,
};

#[derive(Args, Debug)]
pub(crate) struct Next {
    /// Cron expression of five or six fields, or @daily, @every 90s, @at TIME, @after 10m
    #[arg(value_name = "EXPR")]
    expression: String,

    /// Time zone of the expression, such as Europe/London [default: UTC]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,

    /// Number of ticks to show
    #[arg(short = 'n', value_name = "N", default_value_t = 5, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    ticks: usize,

    /// Name of the schedule, by which H and @every take their numbers
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// Ticks of an expression.
#[derive(Debug, Serialize)]
struct Ticks {
    expression: String,
    zone: Option<String>,
    items: Vec<StoreTime>,
}

pub(crate) fn run(common: &Common, next: Next) -> Result<u8, Failure> {
    let now = times::now();
    let mut timing = Timing::new(&next.expression);
    if let Some(zone) = &next.zone {
        timing = timing.zone(zone);
    }
    if let Some(name) = &next.name {
        timing = timing.named(name);
    }
    let items = timing.next(next.ticks, now).map_err(|error| Failure::usage(error.to_string()))?;
    let ticks = Ticks { expression: next.expression, zone: next.zone, items };
    out::print(common, &ticks, || table(&ticks, now))?;
    Ok(0)
}

fn table(ticks: &Ticks, now: StoreTime) -> String {
    if ticks.items.is_empty() {
        return "It has no tick from now on.\n".to_owned();
    }
    // The zone is known: the expression was read by it.
    let zone = ticks.zone.as_ref().and_then(|zone| TimeZone::get(zone).ok()).unwrap_or(TimeZone::UTC);
    let mut table = Table::new(["TICK", "HERE", "IN"]);
    for tick in &ticks.items {
        table.row([times::zoned(*tick, zone.clone()), times::local(*tick), times::length(tick.since(now))]);
    }
    table.render()
}

//! `tenure pause`, `resume` and `run`: instructions to schedules.

use clap::Args;
use serde_json::json;
use tenure::{
    model::{RunNow, ScheduleId, ScheduleName, ScheduleRecord, StoreTime},
    store::{Instruction, ScheduleSeen},
};

use super::{Because, Done, Operator};
use crate::{exit::Failure, see::look::LIMIT, times};

/// To hold schedules back, and to let them go on.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["names", "all"]))]
pub(crate) struct Pause {
    /// The schedules
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// All schedules of the namespace
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    pub(super) because: Because,
}

/// Have a schedule run now, once, besides its ticks
///
/// The instance that has it runs it; also if it is paused.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    pub(super) because: Because,
}

pub(super) async fn pause(operator: &Operator<'_>, pause: &Pause, paused: bool) -> Result<u8, Failure> {
    let known = known(operator).await?;
    let names = if pause.all {
        known.iter().map(|record| record.id.name.clone()).collect()
    } else {
        let names = pause.names.iter().map(|name| named(&known, name));
        names.collect::<Result<Vec<_>, _>>()?
    };
    let list = names.iter().map(|name| format!("{:?}", name.as_str())).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return operator.tell(&Done::new("There is no schedule.", json!({ "done": false, "schedules": [] })));
    }
    let what = if paused { format!("hold back {list}") } else { format!("let {list} go on") };
    if !operator.agreed(&what)? {
        return operator.nothing_done();
    }
    for name in &names {
        let instruction = if paused {
            Instruction::Pause { by: operator.by.clone(), why: operator.why.clone() }
        } else {
            Instruction::Resume
        };
        instruct(operator, name, instruction).await?;
    }
    let said = if paused { format!("Paused: {list}.") } else { format!("Resumed: {list}.") };
    operator.tell(&Done::new(said, json!({ "done": true, "paused": paused, "schedules": names })))
}

pub(super) async fn run(operator: &Operator<'_>, run: &Run) -> Result<u8, Failure> {
    let name = named(&known(operator).await?, &run.name)?;
    if !operator.agreed(&format!("run {:?} now", name.as_str()))? {
        return operator.nothing_done();
    }
    let mut at = times::now();
    let at = loop {
        let order = RunNow { at, by: operator.by.clone(), why: operator.why.clone() };
        let record = instruct(operator, &name, Instruction::Run(order.clone())).await?;
        let stored = record.orders.iter().find(|known| known.at == at);
        if stored.is_none_or(|known| *known == order) {
            break at;
        }
        // Somebody else has that millisecond.
        at = StoreTime::from_millis(at.as_millis() + 1);
    };
    let said = format!("{:?} was told to run, as {at} in its history.", name.as_str());
    operator.tell(&Done::new(said, json!({ "done": true, "schedule": name, "at": at })))
}

/// All schedules that the store knows.
async fn known(operator: &Operator<'_>) -> Result<Vec<ScheduleRecord>, Failure> {
    Ok(operator.look.all_schedules().await?.items)
}

/// The name, if the store knows it: of another one nobody would notice that it was mistyped.
fn named(known: &[ScheduleRecord], name: &str) -> Result<ScheduleName, Failure> {
    let found = known.iter().map(|record| &record.id.name).find(|known| known.as_str() == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|record| format!("{:?}", record.id.name.as_str())).collect();
        Failure::usage(if names.is_empty() {
            format!("there is no schedule {name:?}: nobody has run one in this namespace")
        } else {
            format!("there is no schedule {name:?}; there are {}", names.join(", "))
        })
    })
}

async fn instruct(
    operator: &Operator<'_>,
    name: &ScheduleName,
    instruction: Instruction,
) -> Result<ScheduleRecord, Failure> {
    let id = ScheduleId { namespace: operator.look.namespace().clone(), name: name.clone() };
    match operator.look.store().instruct(id.clone(), instruction, LIMIT).await? {
        ScheduleSeen::Found(record) => Ok(record),
        ScheduleSeen::Refused(refusal) => Err(Failure::failed(format!("{:?}: {refusal}", name.as_str()))),
        ScheduleSeen::Absent => Ok(ScheduleRecord::new(id)),
    }
}

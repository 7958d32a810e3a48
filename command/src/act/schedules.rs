//! `tenure pause`, `resume` and `run`: instructions to schedules. `tenure forget`: their end.

use clap::Args;
use serde_json::json;
use tenure::{model::ScheduleName, store::ScheduleRecord};
use tenure_look::NotDone;

use super::{Action, Because, Done};
use crate::exit::Failure;

/// To pause schedules, and to resume them.
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

/// Run a schedule now, once, besides its ticks
///
/// The instance that owns the schedule runs it, also while it is paused.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    pub(super) because: Because,
}

/// Delete a schedule that no instance serves, with its history
///
/// For one that is no longer in the code. An instance that has it again begins it anew.
#[derive(Args, Debug)]
pub(crate) struct Forget {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    pub(super) because: Because,
}

pub(super) async fn pause(action: &Action<'_>, pause: &Pause, paused: bool) -> Result<u8, Failure> {
    let known = known(action).await?;
    let names = if pause.all {
        known.iter().map(|record| record.id.name.clone()).collect()
    } else {
        let names = pause.names.iter().map(|name| named(&known, name));
        names.collect::<Result<Vec<_>, _>>()?
    };
    let list = names.iter().map(|name| format!("{:?}", name.as_str())).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return action
            .tell(&Done::new("The namespace has no schedule.", json!({ "done": false, "schedules": [] })));
    }
    let what = if paused { format!("pause {list}") } else { format!("resume {list}") };
    if !action.agreed(&what)? {
        return action.nothing_done();
    }
    for name in &names {
        let done = if paused {
            action.operator.pause(name, &action.why).await
        } else {
            action.operator.resume(name, &action.why).await
        };
        match done {
            // Of all schedules, one was deleted meanwhile.
            Err(NotDone::Unknown(_)) if pause.all => {}
            done => done?,
        }
    }
    let said = if paused { format!("Paused: {list}.") } else { format!("Resumed: {list}.") };
    action.tell(&Done::new(said, json!({ "done": true, "paused": paused, "schedules": names })))
}

pub(super) async fn run(action: &Action<'_>, run: &Run) -> Result<u8, Failure> {
    let name = named(&known(action).await?, &run.name)?;
    if !action.agreed(&format!("run {:?} now", name.as_str()))? {
        return action.nothing_done();
    }
    let at = action.operator.run(&name, &action.why).await?;
    let said = format!("{:?} was asked to run, as {at} in its history.", name.as_str());
    action.tell(&Done::new(said, json!({ "done": true, "schedule": name, "at": at })))
}

pub(super) async fn forget(action: &Action<'_>, forget: &Forget) -> Result<u8, Failure> {
    let name = ScheduleName::new(&forget.name).map_err(|error| Failure::usage(error.to_string()))?;
    let namespace = action.look.namespace();
    if !action.agreed(&format!("delete the schedule {:?} of {namespace} with its history", name.as_str()))? {
        return action.nothing_done();
    }
    match action.operator.delete(&name, &action.why).await {
        // Asked for afterwards: a record that cannot be used is deleted, too, and history without a record.
        Err(unknown @ NotDone::Unknown(_)) => {
            named(&known(action).await?, name.as_str())?;
            return Err(unknown.into());
        }
        done => done?,
    }
    let said = format!("Deleted: {:?}.", name.as_str());
    action.tell(&Done::new(said, json!({ "done": true, "schedule": name })))
}

/// All schedules that the store knows.
async fn known(action: &Action<'_>) -> Result<Vec<ScheduleRecord>, Failure> {
    Ok(action.look.all_schedules().await?.items)
}

/// The name, if the store knows it. Others are refused: a typo would go unnoticed.
fn named(known: &[ScheduleRecord], name: &str) -> Result<ScheduleName, Failure> {
    let found = known.iter().map(|record| &record.id.name).find(|known| known.as_str() == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|record| format!("{:?}", record.id.name.as_str())).collect();
        Failure::usage(if names.is_empty() {
            format!("there is no schedule {name:?}: no instance has run any schedule in this namespace")
        } else {
            format!("there is no schedule {name:?}; there are {}", names.join(", "))
        })
    })
}

//! `tenure put-back`: a task that rests because it failed too often is tried again at once.

use clap::Args;
use serde_json::json;
use tenure::{
    model::{Key, Kind, LockId, SpreadName},
    spread::TaskState,
    store::{LockRecord, LockSeen},
};
use tenure_look::{NotDone, SpreadSummary};

use super::{Action, Because, Done};
use crate::{exit::Failure, see::named, times};

/// End the rest of a task that failed too often
///
/// Once the cause is mended, the task need not wait for its next try.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["task", "all"]))]
pub(crate) struct PutBack {
    /// The task
    #[arg(value_name = "TASK")]
    task: Option<String>,

    /// Name of the spread
    #[arg(long, value_name = "NAME")]
    spread: String,

    /// All tasks of the spread that rest
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    pub(super) because: Because,
}

pub(super) async fn run(action: &Action<'_>, put_back: &PutBack) -> Result<u8, Failure> {
    let spread =
        SpreadName::new(&put_back.spread).map_err(|error| Failure::usage(format!("--spread: {error}")))?;
    let kind = Kind::of_tasks(&spread);
    let records = match &put_back.task {
        None => action.look.all_locks(Some(kind), usize::MAX, |_| true).await?.items,
        Some(task) => {
            let key = Key::new(task).map_err(|error| Failure::usage(error.to_string()))?;
            let lock = LockId { namespace: action.look.namespace().clone(), kind, key };
            match action.look.seen_locks(std::slice::from_ref(&lock)).await?.pop() {
                Some(LockSeen::Found(record)) => vec![record],
                Some(LockSeen::Refused(refusal)) => return Err(Failure::failed(refusal.to_string())),
                _ => {
                    known(action, &spread).await?;
                    return Err(named::unknown(&action.look, &lock.key, Some(lock.kind)).await?);
                }
            }
        }
    };
    if records.is_empty() {
        known(action, &spread).await?;
    }
    let resting: Vec<_> = records.into_iter().filter(rests).collect();
    if resting.is_empty() {
        let said = match &put_back.task {
            Some(task) => format!(
                "The task {task:?} of {spread} does not rest: `tenure spreads {spread} --explain {task}` explains its state."
            ),
            None => format!("No task of {spread} rests."),
        };
        return action.tell(&Done::new(said, json!({ "done": false, "tasks": [] })));
    }
    let keys: Vec<_> = resting.iter().map(|record| record.id.key.clone()).collect();
    let list = keys.iter().map(|key| format!("{:?}", key.as_str())).collect::<Vec<_>>().join(", ");
    if !action.agreed(&format!("have {list} tried again now"))? {
        return action.nothing_done();
    }
    for record in resting {
        match action.operator.put_back(&record.id, record.term, &action.why).await {
            // A task that was taken since does not rest any more.
            Ok(()) | Err(NotDone::Changed(_)) => {}
            Err(not_done) => return Err(not_done.into()),
        }
    }
    action.tell(&Done::new(format!("Tried again: {list}."), json!({ "done": true, "tasks": keys })))
}

/// Refuses a spread of which there is neither a member nor a task: a typo would go unnoticed.
async fn known(action: &Action<'_>, spread: &SpreadName) -> Result<(), Failure> {
    let locks = action.look.all_locks(None, usize::MAX, |record| record.id.kind != Kind::Lock).await?.items;
    let sessions = action.look.all_sessions().await?.items;
    let spreads = SpreadSummary::all(&sessions, locks, true, action.look.now());
    if spreads.iter().any(|known| known.spread == *spread) {
        return Ok(());
    }
    let names = spreads.iter().map(|known| format!("{:?}", known.spread.as_str())).collect::<Vec<_>>();
    let spread = spread.as_str();
    Err(Failure::usage(match named::list(&names, false) {
        Some(names) => format!("there is no spread {spread:?}; there are {names}"),
        None => {
            format!("there is no spread {spread:?}, nor any other in namespace {}", action.look.namespace())
        }
    }))
}

fn rests(record: &LockRecord) -> bool {
    matches!(TaskState::of_record(record, None, times::now()), TaskState::Resting { .. })
}

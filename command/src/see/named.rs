//! The meaning of a name on the command line: the lock, task or schedule of which there is a record.

use clap::Args;
use tenure::{
    model::{Key, Kind, LockId, SpreadName},
    store::LockRecord,
};

use super::look::OpenNamespace;
use crate::exit::Failure;

/// Names that an error lists.
const LISTED: usize = 10;

/// A key, and of which kind it is.
#[derive(Args, Debug)]
pub(crate) struct Named {
    /// The key: of a lock, a task or a schedule
    #[arg(value_name = "KEY")]
    key: String,

    /// Only if the key is a task of this spread
    #[arg(long, value_name = "SPREAD", group = "kind")]
    task: Option<String>,

    /// Only if the key is a schedule
    #[arg(long, group = "kind")]
    schedule: bool,

    /// Only if the key is neither task nor schedule
    #[arg(long, group = "kind")]
    lock: bool,
}

impl Named {
    pub(crate) fn key(&self) -> Result<Key, Failure> {
        Key::new(&self.key).map_err(|error| Failure::usage(error.to_string()))
    }

    pub(crate) fn kind(&self) -> Result<Option<Kind>, Failure> {
        Ok(match &self.task {
            Some(spread) => Some(Kind::of_tasks(
                &SpreadName::new(spread).map_err(|error| Failure::usage(format!("--task: {error}")))?,
            )),
            None if self.schedule => Some(Kind::Schedule),
            None if self.lock => Some(Kind::Lock),
            None => None,
        })
    }

    /// The one that is meant. Without an option it is whatever has that name; several that have it are refused, and if
    /// none has it, that of a lock is returned.
    pub(crate) async fn meant(&self, look: &OpenNamespace) -> Result<LockId, Failure> {
        let key = self.key()?;
        let kind = match self.kind()? {
            Some(kind) => kind,
            None => only(&key, &look.kinds_of(&key).await?)?,
        };
        Ok(LockId { namespace: look.namespace().clone(), kind, key })
    }

    /// Why nothing can be done to what has no record: a typo would go unnoticed.
    pub(crate) async fn unknown(&self, look: &OpenNamespace) -> Result<Failure, Failure> {
        unknown(look, &self.key()?, self.kind()?).await
    }
}

/// The refusal of a name that no record of this kind has, or of any: it says which names there are.
pub(crate) async fn unknown(look: &OpenNamespace, key: &Key, kind: Option<Kind>) -> Result<Failure, Failure> {
    let found = look.all_locks(kind.clone(), LISTED, |_| true).await?;
    let names = found.items.iter().map(|LockRecord { id, .. }| match &kind {
        Some(_) => format!("{:?}", id.key),
        None => told(&id.kind, &id.key),
    });
    let what =
        kind.as_ref().map_or_else(|| format!("lock, task or schedule {key:?}"), |kind| told(kind, key));
    Ok(Failure::usage(match list(&names.collect::<Vec<_>>(), found.more) {
        Some(names) => format!("there is no {what}; there are {names}"),
        None => format!("there is no {what}, nor any other in namespace {}", look.namespace()),
    }))
}

/// Names in a row; nothing if there are none.
pub(crate) fn list(names: &[String], are_more: bool) -> Option<String> {
    let more = if are_more { ", and more" } else { "" };
    (!names.is_empty()).then(|| format!("{}{more}", names.join(", ")))
}

/// A name with its kind.
fn told(kind: &Kind, key: &Key) -> String {
    match kind {
        Kind::Task(spread) => format!("task {key:?} of spread {:?}", spread.as_str()),
        kind => format!("{kind} {key:?}"),
    }
}

/// The option that names one of several.
pub(crate) fn option(kind: &Kind) -> String {
    match kind {
        Kind::Task(spread) => format!("--task={spread}"),
        kind => format!("--{kind}"),
    }
}

fn only(key: &Key, kinds: &[Kind]) -> Result<Kind, Failure> {
    match kinds {
        [] => Ok(Kind::Lock),
        [kind] => Ok(kind.clone()),
        _ => {
            let options = kinds.iter().map(|kind| format!("{} ({})", option(kind), told(kind, key)));
            let options = options.collect::<Vec<_>>().join(", ");
            Err(Failure::usage(format!("several are called {key:?}: add one of {options}")))
        }
    }
}

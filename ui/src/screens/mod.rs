//! The screens, one at each address.

pub(crate) mod changes;
pub(crate) mod instance;
pub(crate) mod instances;
pub(crate) mod key;
pub(crate) mod locks;
pub(crate) mod overview;
pub(crate) mod schedule;
pub(crate) mod schedules;
pub(crate) mod spread;
pub(crate) mod spreads;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::store::Cursor;

use crate::answer::Problem;

/// Time for which content that a screen has read itself is good for others, unless the picture knows better: a little
/// less than two of its turns.
const FRESH: Duration = Duration::from_secs(9);

/// An address without anything behind the question mark.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Nothing {}

/// The place from which a list goes on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct From {
    #[serde(default)]
    from: usize,
}

/// Reads the place from which a listing of the store goes on.
fn cursor(after: Option<&String>) -> Result<Option<Cursor>, Problem> {
    let read = |digits: &String| {
        Cursor::from_hex(digits)
            .ok_or_else(|| Problem::bad(format!("after={digits:?} is not a place in a list")))
    };
    after.map(read).transpose()
}

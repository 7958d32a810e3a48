//! Whether bells can be rung and heard, as a store finds it when it is prepared. Where they cannot, whoever waits
//! polls.

use mongodb::Database;

use super::{Bucket, Buckets, tail};
use crate::{
    store::mongo::{
        error::CommandResult,
        rights::{self, User},
    },
    words,
};

/// What a store can do with bells.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store::mongo) struct Ability {
    pub(in crate::store::mongo) hears: bool,
    /// Others may hear them, also if this store does not.
    pub(in crate::store::mongo) rings: bool,
}

/// Tries out both, and warns of what somebody has to change.
pub(in crate::store::mongo) async fn try_out(
    database: &Database,
    buckets: &Buckets,
    is_mongos: bool,
) -> CommandResult<Ability> {
    if is_mongos {
        words::warn!("no hints, waiters poll every poll_interval: there are no bells behind a mongos");
        return Ok(Ability::default());
    }
    let heard = match lasts(buckets.look_around(database).await)? {
        None => lasts(tail::try_out(buckets, database).await)?,
        problem => problem,
    };
    let rung = lasts(buckets.try_insert(&buckets.database(database), Bucket::FIRST).await)?;
    let ability = Ability { hears: heard.is_none() && rung.is_none(), rings: rung.is_none() };
    if let Some(problem) = heard.or(rung) {
        let user = match rights::user(database).await {
            User::Named(user) => Some(user),
            User::Nobody | User::Unknown => None,
        };
        let user = user.as_deref();
        words::warn!(user, "no hints, waiters poll every poll_interval: {problem}");
    }
    Ok(ability)
}

/// Why something cannot be done before somebody has changed something. Any other error of the server says nothing of
/// that: it passes, and what failed is tried again when it is needed.
fn lasts(outcome: CommandResult<()>) -> CommandResult<Option<String>> {
    match outcome {
        Err(failure) if failure.is_lasting() || failure.is_of_the_command() => Ok(Some(failure.into_words())),
        Err(failure) if failure.code().is_none() => Err(failure),
        Ok(()) | Err(_) => Ok(None),
    }
}

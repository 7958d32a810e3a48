//! The ladder of hints: bells; where there can be none a change stream; and where there is neither, nothing.

use mongodb::Database;

use super::{
    bells::{Bucket, Buckets, tail},
    error::CommandResult,
    prepare::Server,
    rights::{self, User},
};
use crate::words;

/// How hints come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rung {
    Bells,
    Stream,
    Nothing,
}

/// What a store found when it was prepared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder {
    pub(super) rung: Rung,
    /// True if a change stream can be opened.
    pub(super) has_streams: bool,
    /// True if bells are rung: others may listen to them, also if this store does not.
    pub(super) rings: bool,
}

impl Ladder {
    /// The name of the rung, for messages.
    pub(super) const fn name(self) -> Option<&'static str> {
        match self.rung {
            Rung::Bells => Some("bells"),
            Rung::Stream => Some("a change stream"),
            Rung::Nothing => None,
        }
    }
}

/// Chooses a rung, and warns of a lower one.
pub(super) async fn choose(database: &Database, buckets: &Buckets, server: Server) -> CommandResult<Ladder> {
    let (heard, rung) = if server.is_mongos {
        (Err("there are none behind a mongos".to_owned()), false)
    } else {
        let heard = match tried(buckets.look_around(database).await)? {
            Ok(()) => tried(tail::try_out(buckets, database).await)?,
            Err(problem) => Err(problem),
        };
        let bells = buckets.database(database);
        let rung = tried(buckets.try_insert(&bells, Bucket::FIRST).await)?;
        let rings = rung.is_ok();
        (heard.and(rung), rings)
    };
    let Err(no_bells) = heard else {
        return Ok(Ladder { rung: Rung::Bells, has_streams: server.has_streams, rings: true });
    };
    let user = match rights::user(database).await {
        User::Named(user) => Some(user),
        User::Nobody | User::Unknown => None,
    };
    let user = user.as_deref();
    let no_streams = if !server.has_streams {
        Some("there are no change streams without a replica set")
    } else if rights::may_listen(database).await? {
        None
    } else {
        Some("the user may not open a change stream, which needs find and changeStream on the whole database")
    };
    let Some(no_streams) = no_streams else {
        words::warn!(user, "hints come from a change stream, not from bells: {no_bells}");
        return Ok(Ladder { rung: Rung::Stream, has_streams: true, rings: rung });
    };
    words::warn!(user, "no hints, waiters poll every poll_interval: no bells ({no_bells}); {no_streams}");
    Ok(Ladder { rung: Rung::Nothing, has_streams: false, rings: rung })
}

/// Why something does not work, if the server says so or refuses it. Whatever else goes wrong says nothing of it.
fn tried(outcome: CommandResult<()>) -> CommandResult<Result<(), String>> {
    match outcome {
        Err(failure) if failure.code().is_some() || failure.is_lasting() => Ok(Err(failure.into_words())),
        other => Ok(Ok(other?)),
    }
}

//! `tenure watch`: what changes, line by line. It listens to hints, and looks again from time to time: a hint may be
//! lost, and plain locks ring for their waiters alone.

mod describe;
mod snapshot;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    time::Duration,
};

use clap::Args;
use futures::StreamExt;
use tenure::{
    model::Key,
    store::{Hint, Topic},
};
use tenure_look::changes;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

#[cfg(feature = "top")]
pub(super) use self::describe::line;
use self::{
    describe::{Line, begin},
    snapshot::Scope,
};
use super::look::OpenNamespace;
use crate::{
    common::{Common, Form},
    exit::Failure,
    say, signals, times,
};

/// Time between looks at one key, and at all.
const EVERY_KEY: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(5);
/// Hints that come together are followed by one look.
const TOGETHER: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
#[command(
    after_help = "Runs and tasks are printed as they happen; locks and instances are polled, every --every."
)]
pub(crate) struct Watch {
    /// Only this key: a lock, a task or a schedule
    key: Option<String>,

    /// Time between polls [default: 5s, for one key 1s]
    #[arg(long, value_name = "TIME")]
    every: Option<String>,
}

/// The output is closed: it has no reader.
struct Unread;

pub(crate) async fn run(common: &Common, watch: Watch) -> Result<u8, Failure> {
    let key = watch.key.as_ref().map(Key::new).transpose();
    let key = key.map_err(|error| Failure::usage(error.to_string()))?;
    let every = match &watch.every {
        Some(text) => times::duration("--every", text)?.max(TOGETHER),
        None if key.is_some() => EVERY_KEY,
        None => EVERY,
    };
    let mut end = signals::ended()?;
    let look = OpenNamespace::open(common).await?;
    let scope = Scope::of(&look, key).await?;
    tokio::select! {
        () = &mut end => {}
        followed = follow(common, &look, scope, every) => followed?,
    }
    look.close().await;
    Ok(0)
}

/// Follows what changes until the output has no reader any more.
async fn follow(
    common: &Common,
    look: &OpenNamespace,
    mut scope: Scope,
    every: Duration,
) -> Result<(), Failure> {
    let mut known = scope.read(look).await?;
    let (topics, listened) = watch::channel(scope.topics().collect::<BTreeSet<Topic>>());
    let mut hints = look.store().hints(listened);
    if tell(common, &begin(&known, &scope)).is_err() {
        return Ok(());
    }
    let (mut listens, mut away) = (true, None);
    loop {
        let next = sleep(every);
        tokio::pin!(next);
        // A record that rings is looked at soon, any other at the next turn.
        loop {
            tokio::select! {
                () = &mut next => break,
                hint = hints.next(), if listens => match hint {
                    Some(Hint::Failing { error, .. }) => {
                        complain(&mut away, &format!("no change notifications, polling: {error}"));
                    }
                    Some(Hint::Unsent { .. } | Hint::SentAgain) => {}
                    Some(_) => {
                        let all = async { while hints.next().await.is_some() {} };
                        // Hints that come together are followed by one look.
                        let _ = timeout(TOGETHER, all).await;
                        break;
                    }
                    None => listens = false,
                },
            }
        }
        match scope.read(look).await {
            Err(error) => complain(&mut away, &error.to_string()),
            Ok(new) => {
                away = None;
                if tell(common, &changes(&known, &new)).is_err() {
                    return Ok(());
                }
                known = new;
                let wanted: BTreeSet<Topic> = scope.topics().collect();
                topics.send_if_modified(|topics| {
                    let is_new = *topics != wanted;
                    *topics = wanted;
                    is_new
                });
            }
        }
    }
}

/// Says once what is wrong, until it is well again or something else is.
fn complain(said: &mut Option<String>, what: &str) {
    if said.as_deref() != Some(what) {
        say::say(what);
        *said = Some(what.to_owned());
    }
}

/// Prints a line for each change. `tenure watch | head` ends with the pipe.
fn tell<L: Line>(common: &Common, lines: &[L]) -> Result<(), Unread> {
    let mut out = io::stdout().lock();
    for line in lines {
        let line = match common.output {
            Form::Table => line.line(),
            Form::Json => serde_json::to_string(line).map_err(|_| Unread)?,
        };
        writeln!(out, "{line}").map_err(|_| Unread)?;
    }
    out.flush().map_err(|_| Unread)
}

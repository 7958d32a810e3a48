//! `tenure release`: a key is asked back from its holder, taken, or opened.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure::{
    model::{Holding, Key, Kind, LockId, LockRecord, Request, SpreadName},
    store::{LockSeen, Revocation, RevokeAnswer},
};

use super::{Because, Done, Operator};
use crate::{
    exit::{Failure, HELD},
    see::look::LIMIT,
    times,
};

/// Between two looks whether it was given back.
const PACE: Duration = Duration::from_millis(100);

/// Ask whoever holds a key to give it back, or take it
///
/// Its job is told to stop, and the key is free when it has.
///
/// A holder that does not run any more loses it after its ttl anyway. --force takes the key at once: the holder may go
/// on until it notices, so that two work at the same time; only the term protects what they write. A key that is kept
/// closed is opened.
#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The key
    #[arg(value_name = "KEY")]
    key: String,

    /// Treat the key as a task of this spread
    #[arg(long, value_name = "SPREAD", conflicts_with = "schedule")]
    task: Option<String>,

    /// Treat the key as a schedule
    #[arg(long)]
    schedule: bool,

    /// Take it, whatever its holder does
    #[arg(long)]
    force: bool,

    /// Wait until it was given back, for this long at most
    #[arg(long, value_name = "TIME", conflicts_with = "force")]
    wait: Option<String>,

    #[command(flatten)]
    pub(super) because: Because,
}

pub(super) async fn run(operator: &Operator<'_>, release: &Release) -> Result<u8, Failure> {
    let wait = release.wait.as_deref().map(|text| times::duration("--wait", text)).transpose()?;
    let lock = release.lock(operator)?;
    let Some(record) = read(operator, &lock).await? else {
        return operator.tell(&Done::new(format!("{lock} was never held."), json!({ "done": false })));
    };
    let request =
        Request { lock: lock.clone(), term: record.term, by: operator.by.clone(), why: operator.why.clone() };
    let Some(holding) = &record.holding else { return reopen(operator, &record, request).await };
    if release.force {
        force(operator, holding, request).await
    } else {
        ask(operator, holding, request, wait).await
    }
}

impl Release {
    fn lock(&self, operator: &Operator<'_>) -> Result<LockId, Failure> {
        let kind = match &self.task {
            Some(spread) => Kind::Task(
                SpreadName::new(spread).map_err(|error| Failure::usage(format!("--task: {error}")))?,
            ),
            None if self.schedule => Kind::Schedule,
            None => Kind::Lock,
        };
        let key = Key::new(&self.key).map_err(|error| Failure::usage(error.to_string()))?;
        Ok(LockId { namespace: operator.look.namespace().clone(), kind, key })
    }
}

async fn read(operator: &Operator<'_>, lock: &LockId) -> Result<Option<LockRecord>, Failure> {
    match operator.look.store().locks(vec![lock.clone()], LIMIT).await?.pop() {
        Some(LockSeen::Found(record)) => Ok(Some(record)),
        Some(LockSeen::Refused(refusal)) => Err(Failure::failed(format!("{lock}: {refusal}"))),
        _ => Ok(None),
    }
}

async fn reopen(operator: &Operator<'_>, record: &LockRecord, request: Request) -> Result<u8, Failure> {
    let lock = &request.lock;
    let left = record.closed.map(|closed| closed.left(times::now())).unwrap_or_default();
    if left.is_zero() {
        return operator.tell(&Done::new(format!("Nobody holds {lock}."), json!({ "done": false })));
    }
    if !operator.agreed(&format!("open {lock}, which is kept closed for another {}", times::length(left)))? {
        return operator.nothing_done();
    }
    let said = format!("{lock} is open.");
    revoke(operator, Revocation::Reopen(request)).await?;
    operator.tell(&Done::new(said, json!({ "done": true, "how": "opened" })))
}

async fn force(operator: &Operator<'_>, holding: &Holding, request: Request) -> Result<u8, Failure> {
    let (lock, holder) = (request.lock.clone(), &holding.by.holder);
    let what = format!(
        "take {lock} from {holder}, which may go on until it notices, while another works: only the term protects \
         what they write"
    );
    if !operator.agreed(&what)? {
        return operator.nothing_done();
    }
    let answer = revoke(operator, Revocation::Force(request)).await?;
    let is_freed = matches!(answer, RevokeAnswer::Freed(_));
    let said = if is_freed {
        format!("{lock} was taken from {holder}.")
    } else {
        format!("{holder} does not hold {lock} any more.")
    };
    operator.tell(&Done::new(said, json!({ "done": is_freed, "how": "forced", "holder": holder })))
}

async fn ask(
    operator: &Operator<'_>,
    holding: &Holding,
    request: Request,
    wait: Option<Duration>,
) -> Result<u8, Failure> {
    let (lock, term, holder) = (request.lock.clone(), request.term, &holding.by.holder);
    if !operator.agreed(&format!("ask {holder} to give {lock} back: its job is told to stop"))? {
        return operator.nothing_done();
    }
    let session = holding.by.session;
    if revoke(operator, Revocation::Ask { session, request }).await? != RevokeAnswer::Asked {
        let said = format!(
            "{holder} is dead and does not hear: {lock} is taken over by whoever wants it next; --force frees it now."
        );
        return operator.tell(&Done::new(said, json!({ "done": false, "holder": holder })));
    }
    let is_free = async |operator: &Operator<'_>| -> Result<bool, Failure> {
        let record = read(operator, &lock).await?;
        Ok(record.is_none_or(|record| record.holding.is_none() || record.term != term))
    };
    let Some(wait) = wait else {
        let seen = operator.look.observe([session]).await?;
        let silent = seen.record(session).is_some_and(|record| record.looks_dead(times::now()));
        let hint = if silent { ", but it has stopped beating: --force takes the key" } else { "" };
        let said = format!("{holder} was asked to give {lock} back{hint}.");
        return operator.tell(&Done::new(said, json!({ "done": true, "how": "asked", "holder": holder })));
    };
    let given_back = tokio::time::timeout(wait, async {
        while !is_free(operator).await? {
            tokio::time::sleep(PACE).await;
        }
        Ok::<_, Failure>(())
    });
    match given_back.await {
        Ok(done) => {
            done?;
            let said = format!("{holder} has given {lock} back.");
            operator.tell(&Done::new(said, json!({ "done": true, "how": "given_back", "holder": holder })))
        }
        Err(_) => Err(Failure::new(
            HELD,
            format!("{holder} was asked, and still holds {lock} after {}", humantime::format_duration(wait)),
        )),
    }
}

async fn revoke(operator: &Operator<'_>, revocation: Revocation) -> Result<RevokeAnswer, Failure> {
    match operator.look.store().revoke(revocation, LIMIT).await? {
        RevokeAnswer::Refused(refusal) => Err(Failure::failed(refusal.to_string())),
        answer => Ok(answer),
    }
}

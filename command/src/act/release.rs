//! `tenure release`: a key is asked back from its holder, taken, or opened.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure::{
    model::LockId,
    store::{Holding, LockRecord, LockSeen, StoreExt},
};
use tenure_look::NotDone;

use super::{Action, Because, Done};
use crate::{
    exit::{Failure, HELD},
    see::{look::LIMIT, named::Named},
    times,
};

/// Between two looks whether it was given back.
const PACE: Duration = Duration::from_millis(100);

/// Ask the holder of a key to release it, or take the key
///
/// The holder's job is asked to stop, and the key is free when the job has ended.
///
/// A holder that no longer runs loses the key after its ttl anyway. --force takes the key at once: the holder may
/// continue until it notices, so that two work at the same time; only the term protects what they write. A key that is
/// kept closed is opened.
#[derive(Args, Debug)]
pub(crate) struct Release {
    #[command(flatten)]
    named: Named,

    /// Take the key at once, without the consent of its holder
    #[arg(long)]
    force: bool,

    /// Wait until the key is released, for this time at most
    #[arg(long, value_name = "TIME", conflicts_with = "force")]
    wait: Option<String>,

    #[command(flatten)]
    pub(super) because: Because,
}

pub(super) async fn run(action: &Action<'_>, release: &Release) -> Result<u8, Failure> {
    let wait = release.wait.as_deref().map(|text| times::duration("--wait", text)).transpose()?;
    let lock = release.named.meant(&action.look).await?;
    let Some(record) = read(action, &lock).await? else {
        return Err(release.named.unknown(&action.look).await?);
    };
    match &record.holding {
        None => open(action, &record).await,
        Some(holding) if release.force => force(action, &record, holding).await,
        Some(holding) => ask(action, &record, holding, wait).await,
    }
}

async fn read(action: &Action<'_>, lock: &LockId) -> Result<Option<LockRecord>, Failure> {
    match action.look.store().locks(vec![lock.clone()], LIMIT).await?.pop() {
        Some(LockSeen::Found(record)) => Ok(Some(record)),
        Some(LockSeen::Refused(refusal)) => Err(Failure::failed(format!("{lock}: {refusal}"))),
        _ => Ok(None),
    }
}

async fn open(action: &Action<'_>, record: &LockRecord) -> Result<u8, Failure> {
    let lock = &record.id;
    let left = record.closed.map(|closed| closed.left(times::now())).unwrap_or_default();
    if left.is_zero() {
        return action.tell(&Done::new(format!("{lock} is not held."), json!({ "done": false })));
    }
    if !action.agreed(&format!("open {lock}, which is kept closed for another {}", times::length(left)))? {
        return action.nothing_done();
    }
    action.operator.put_back(lock, record.term, &action.why).await?;
    action.tell(&Done::new(format!("{lock} is open."), json!({ "done": true, "how": "opened" })))
}

async fn force(action: &Action<'_>, record: &LockRecord, holding: &Holding) -> Result<u8, Failure> {
    let (lock, holder) = (&record.id, &holding.by.holder);
    let what = format!(
        "take {lock} from {holder}, which may continue until it notices, while another instance works: only the \
         term protects what they write"
    );
    if !action.agreed(&what)? {
        return action.nothing_done();
    }
    let (is_freed, said) = match action.operator.force(lock, record.term, &action.why).await {
        Ok(()) => (true, format!("{lock} was taken from {holder}.")),
        Err(NotDone::Changed(_)) => (false, format!("{holder} does not hold {lock} any more.")),
        Err(not_done) => return Err(not_done.into()),
    };
    action.tell(&Done::new(said, json!({ "done": is_freed, "how": "forced", "holder": holder })))
}

async fn ask(
    action: &Action<'_>,
    record: &LockRecord,
    holding: &Holding,
    wait: Option<Duration>,
) -> Result<u8, Failure> {
    let (lock, term, holder) = (&record.id, record.term, &holding.by.holder);
    if !action.agreed(&format!("ask {holder} to release {lock}: its job is asked to stop"))? {
        return action.nothing_done();
    }
    match action.operator.release(lock, term, &action.why).await {
        Ok(_) => {}
        Err(not_done @ NotDone::Dead { .. }) => {
            let said = format!("{not_done}; --force frees it now.");
            return action.tell(&Done::new(said, json!({ "done": false, "holder": holder })));
        }
        Err(NotDone::Changed(_)) => {
            let said = format!("{holder} does not hold {lock} any more.");
            return action.tell(&Done::new(said, json!({ "done": false, "holder": holder })));
        }
        Err(not_done) => return Err(not_done.into()),
    }
    let session = holding.by.session;
    let is_free = async |action: &Action<'_>| -> Result<bool, Failure> {
        let record = read(action, lock).await?;
        Ok(record.is_none_or(|record| record.holding.is_none() || record.term != term))
    };
    let Some(wait) = wait else {
        let seen = action.look.observe([session]).await?;
        let silent = seen.record(session).is_some_and(|record| record.looks_dead(action.look.now()));
        let hint = if silent { ", but its heartbeats have stopped: --force takes the key" } else { "" };
        let said = format!("{holder} was asked to release {lock}{hint}.");
        return action.tell(&Done::new(said, json!({ "done": true, "how": "asked", "holder": holder })));
    };
    let given_back = tokio::time::timeout(wait, async {
        while !is_free(action).await? {
            tokio::time::sleep(PACE).await;
        }
        Ok::<_, Failure>(())
    });
    match given_back.await {
        Ok(done) => {
            done?;
            let said = format!("{holder} has released {lock}.");
            action.tell(&Done::new(said, json!({ "done": true, "how": "given_back", "holder": holder })))
        }
        Err(_) => Err(Failure::new(
            HELD,
            format!("{holder} was asked, and still holds {lock} after {}", humantime::format_duration(wait)),
        )),
    }
}

//! A transaction of a holder that came too late aborts, whatever that holder believes.
//!
//! ```sh
//! TENURE_STORE='mongodb://localhost/shop?replicaSet=rs0' cargo run --features mongodb --example fenced_transaction
//! ```
//!
//! Needs a replica set: only there MongoDB has transactions. Data that lies elsewhere is protected by the
//! term alone: keep the largest one beside it, and refuse a write that brings a smaller one.

mod support;

use std::{process::ExitCode, time::Duration};

use tenure::{
    Elect, Lease,
    model::Why,
    store::{
        Request, Revocation, StoreExt,
        mongo::{
            Armed, Fence, MongoOptions, MongoStore, Stale,
            driver::{
                Client,
                bson::{Document, doc},
            },
        },
    },
};

const LIMIT: Duration = Duration::from_secs(10);

/// Arms the fence for this lease: once, before the first transaction under it.
async fn arm(store: &MongoStore, lease: &Lease) -> Result<Fence, support::Failure> {
    match store.arm(lease.lock(), lease.term(), LIMIT).await? {
        Armed::Yes(fence) => Ok(fence),
        Armed::Late(stale) => Err(stale.into()),
    }
}

/// Books an entry, unless somebody holds a later term. Says whether it was booked.
async fn book(client: &Client, fence: &Fence, by: &str, amount: i64) -> Result<bool, support::Failure> {
    let entries = client.database("tenure_example").collection::<Document>("ledger");
    let mut session = client.start_session().await?;
    session.start_transaction().await?;
    // First, so that a holder that is too late does nothing at all.
    if let Err(error) = fence.pass(0, &mut session).await {
        session.abort_transaction().await?;
        return match Stale::in_error(&error) {
            Some(stale) => {
                println!("{by} is too late: {stale}");
                Ok(false)
            }
            None => Err(error.into()),
        };
    }
    entries.insert_one(doc! { "by": by, "amount": amount }).session(&mut session).await?;
    session.commit_transaction().await?;
    println!("{by} has booked {amount} under term {}", fence.term());
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<ExitCode, support::Failure> {
    let Some(uri) = support::uri() else {
        eprintln!(
            "transactions need a MongoDB replica set: TENURE_STORE=mongodb://localhost/shop?replicaSet=rs0"
        );
        return Ok(ExitCode::from(2));
    };
    let store = MongoStore::connect(&uri, MongoOptions::new()).await?;
    let client = Client::with_uri_str(&uri).await?;
    // A collection that is there already: creating one within a transaction is slow.
    let entries = client.database("tenure_example").collection::<Document>("ledger");
    entries.delete_many(doc! {}).await?;
    entries.insert_one(doc! { "by": "nobody", "amount": 0_i64 }).await?;

    let first = Elect::start(store.clone(), support::config("pod-1")?).await?;
    let second = Elect::start(store.clone(), support::config("pod-2")?).await?;

    let guard = first.acquire("ledger").await?;
    let fence = arm(&store, &guard.lease()).await?;
    book(&client, &fence, "pod-1", 100).await?;
    if let Some(busy) = second.key("ledger").try_acquire().await?.busy() {
        println!("pod-2 does not get the key: {}", support::in_words(&busy));
    }

    // Somebody takes the lock away by force, and pod-1 does not hear of it before its next transaction.
    let (lock, term) = (guard.lease().lock().clone(), guard.term());
    let by_force = Request { lock, term, by: "the operator".parse()?, why: Why::new("it hangs")? };
    store.revoke(Revocation::Force(by_force), LIMIT).await?;
    let next = second.acquire("ledger").await?;
    let next_fence = arm(&store, &next.lease()).await?;

    book(&client, &fence, "pod-1", 100).await?;
    book(&client, &next_fence, "pod-2", 200).await?;
    println!("the ledger has {} entries", entries.count_documents(doc! { "amount": { "$gt": 0 } }).await?);

    drop(guard);
    next.release().await?;
    first.close().await;
    second.close().await;
    Ok(ExitCode::SUCCESS)
}

//! An instance of a program runs a job. The other learns which one does, and gets its turn later.
//!
//! ```sh
//! cargo run --example lock_job
//! TENURE_STORE=mongodb://localhost/shop cargo run --features mongodb --example lock_job
//! ```

mod support;

use std::time::Duration;

use tenure::{
    Elect, Lease,
    elect::{JobEnd, Locked},
};

const KEY: &str = "nightly report";

/// Writes pages at this pace until it is done, or told to stop. Answers with how far it came.
async fn report(lease: Lease, from: u32, pace: Duration) -> Result<u32, String> {
    for page in from..=10 {
        tokio::select! {
            // Return soon after the token fires: when `stop_grace` is over, the future is dropped. `Ok` or `Err` is
            // for whoever joins the job: the key is given back either way.
            () = lease.cancelled() => return Ok(page - 1),
            () = tokio::time::sleep(pace) => {}
        }
        // What is written elsewhere carries the term: a write that comes too late can be refused there.
        println!("  page {page}, written under term {}", lease.term());
    }
    Ok(10)
}

#[tokio::main]
async fn main() -> Result<(), support::Failure> {
    let store = support::store().await?;
    let first = Elect::start(store.clone(), support::config("pod-1")?).await?;
    let second = Elect::start(store, support::config("pod-2")?).await?;

    let (slow, fast) = (Duration::from_millis(800), Duration::from_millis(100));
    // The answer comes at once; the job runs on a task of its own.
    let job = match first.key(KEY).why("first of the month").lock(move |lease| report(lease, 1, slow)).await?
    {
        Locked::Running(job) => job,
        Locked::Busy(busy) => return Err(support::in_words(&busy).into()),
    };
    println!("pod-1 runs the report under term {}", job.lease().term());

    if let Locked::Busy(busy) = second.lock(KEY, move |lease| report(lease, 1, fast)).await? {
        println!("pod-2 does not: {}", support::in_words(&busy));
    }

    // Whoever gives a key up gives the job time to return first.
    tokio::time::sleep(slow * 2).await;
    println!("pod-1 unlocks the key: {:?}", first.unlock(KEY).await?);
    let JobEnd::Finished(pages) = job.join().await else { return Err("the job did not return".into()) };
    println!("pod-1 wrote {pages} pages");

    let Locked::Running(job) = second.lock(KEY, move |lease| report(lease, pages + 1, fast)).await? else {
        return Err("nobody holds the key".into());
    };
    println!("pod-2 goes on under term {}, which is larger", job.lease().term());
    println!("pod-2 has {:?}", job.join().await);

    first.close().await;
    second.close().await;
    Ok(())
}

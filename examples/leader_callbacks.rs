//! An instance leads, the others stand by. When the leader goes, one of them takes over.
//!
//! ```sh
//! cargo run --example leader_callbacks
//! ```
//!
//! runs two instances in one process, stops the one that leads, and ends.
//!
//! ```sh
//! TENURE_STORE=mongodb://localhost/shop cargo run --features mongodb --example leader_callbacks
//! ```
//!
//! runs one instance until SIGTERM or Ctrl-C. Start it twice: one leads. Stop that one, and the other leads
//! at once; kill it (`kill -9`), and the other leads when it has seen no beat for a whole ttl (here 8 s).

mod support;

use std::{sync::Arc, time::Duration};

use tenure::{Elect, elect::Campaign, store::Store};

/// Starts an instance that contends for the key.
async fn stand(store: Arc<dyn Store>, name: &str) -> Result<(Elect, Campaign), support::Failure> {
    let elect = Elect::start(store, support::quick(name)?).await?;
    let me: Arc<str> = name.into();
    let (acquired, lost, leader) = (me.clone(), me.clone(), me);
    let campaign = elect
        .campaign("leader")
        .on_acquired(move |lease| {
            println!("{acquired} leads under term {}", lease.term());
            // What belongs to leading is spawned on the lease: it ends with it, and the lock is not released
            // before. It has `stop_grace` to return by itself.
            let (worker, until) = (acquired.clone(), lease.clone());
            lease.spawn(async move {
                loop {
                    println!("{worker} works");
                    tokio::select! {
                        // What it returns is for whoever joins this task.
                        () = until.cancelled() => return Ok::<_, String>(()),
                        () = tokio::time::sleep(Duration::from_millis(500)) => {}
                    }
                }
            });
            async {}
        })
        .on_lost(move |loss| {
            println!("{lost} leads no more: {loss}");
            async {}
        })
        .on_new_leader(move |held| {
            match held {
                Some(held) => println!("{leader} hears: {} leads under term {}", held.holder, held.term),
                None => println!("{leader} hears: nobody leads"),
            }
            async {}
        })
        .start()?;
    Ok((elect, campaign))
}

#[tokio::main]
async fn main() -> Result<(), support::Failure> {
    let store = support::store().await?;

    if support::uri().is_some() {
        let stop = support::stop_signal()?;
        let me = support::process_name();
        let (elect, campaign) = stand(store, &me).await?;
        println!("{me} stands");
        stop.await;
        campaign.stop().await;
        elect.close().await;
        println!("{me} has ended");
        return Ok(());
    }

    let (first, its_campaign) = stand(store.clone(), "pod-1").await?;
    its_campaign.led().await?;
    let (second, campaign) = stand(store, "pod-2").await?;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    println!("pod-2 stands by: {}", if campaign.is_leading() { "no" } else { "yes" });

    // Its worker ends, its lock is handed on, its session is closed.
    first.close().await;
    let lease = campaign.led().await?;
    println!("pod-2 has taken over under term {}", lease.term());
    tokio::time::sleep(Duration::from_millis(1200)).await;

    campaign.stop().await;
    second.close().await;
    Ok(())
}

//! A lock held by a value: acquired, checked, lost, and several keys of which one gets all or none.
//!
//! ```sh
//! cargo run --example guard
//! TENURE_STORE=mongodb://localhost/shop cargo run --features mongodb --example guard
//! ```

mod support;

use std::time::Duration;

use tenure::{Elect, elect::Acquired};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

/// Asks the holder of a lock for it, as an operator does.
async fn ask_for(elect: &Elect, key: &str, why: &str) -> Result<(), support::Failure> {
    let held = elect.locked_keys().await?.held;
    let held = held.into_iter().find(|held| held.lock.key.as_str() == key).ok_or("nobody holds it")?;
    let asked = elect.revoke(&held, why).await?;
    if asked { Ok(()) } else { Err("it was given back by itself".into()) }
}

#[tokio::main]
async fn main() -> Result<(), support::Failure> {
    let store = support::store().await?;
    let first = Elect::start(store.clone(), support::config("pod-1")?).await?;
    let second = Elect::start(store, support::config("pod-2")?).await?;

    let guard = first.acquire("accounts").await?;
    println!("pod-1 has the key under term {}", guard.term());
    if let Acquired::Busy(busy) = second.key("accounts").try_acquire().await? {
        println!("pod-2 does not: {}", support::in_words(&busy));
    }

    // From this machine's clock, at each call; and from the store, where a moment more of certainty is
    // worth two reads.
    println!("valid: {}, and the store says: {}", guard.is_valid(), guard.check().await?);

    // Nothing stops the code beside a guard: watch `lost`, or let `run` do it.
    ask_for(&second, "accounts", "maintenance").await?;
    println!("pod-1 is told: {}", guard.lost().await);
    guard.release().await?;
    let guard = second.acquire("accounts").await?;
    println!("pod-2 has the key under term {}", guard.term());
    drop(guard); // released in the background

    // Several keys: all of them within the time, or none.
    let savings = first.acquire("savings").await?;
    let keys = ["savings", "accounts"];
    let none = second.acquire_all(keys, Duration::from_millis(300)).await?;
    println!("pod-2 wants both, and has {}", if none.is_none() { "none" } else { "both" });
    let waits = second.acquire_all(keys, LIMIT);
    let (released, both) = tokio::join!(savings.release(), waits);
    released?;
    let both = both?.ok_or("nobody else wants them")?;
    for guard in both.each() {
        println!("pod-2 has {} under term {}", guard.key(), guard.term());
    }
    both.release().await?;

    first.close().await;
    second.close().await;
    Ok(())
}

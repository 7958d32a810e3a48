//! Instances that take turns on one key: how long each waits, and how many go before it.

#![allow(dead_code, reason = "each test binary uses its part of the support")]
#![allow(
    clippy::disallowed_methods,
    reason = "waits are measured in the time of the test, which may be paused"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tenure::{Elect, sim::Dice};
use tokio::{task::JoinSet, time::Instant};

/// Longest job, and the longest pause before the next.
const JOB: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(60);

/// The worst of all waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    pub(crate) wait: Duration,
    /// Grants of the key, during one wait, to those that asked for it later.
    pub(crate) passed_over: u64,
}

#[derive(Debug, Default)]
struct Turns {
    asked: AtomicU64,
    /// Of each grant, in their order, when it was asked for.
    granted: std::sync::Mutex<Vec<u64>>,
}

impl Turns {
    async fn take(self: Arc<Self>, elect: Elect, many: usize, mut dice: Dice) -> Worst {
        let mut worst = Worst::default();
        for _ in 0..many {
            let (begun, before) = (Instant::now(), self.granted.lock().unwrap().len());
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            let guard = elect.acquire("turns").await.unwrap();
            let passed_over = {
                let mut granted = self.granted.lock().unwrap();
                granted.push(number);
                granted[before..].iter().filter(|later| **later > number).count() as u64
            };
            worst.wait = worst.wait.max(begun.elapsed());
            worst.passed_over = worst.passed_over.max(passed_over);
            tokio::time::sleep(dice.up_to(JOB)).await;
            if dice.percent(50) {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            tokio::time::sleep(dice.up_to(PAUSE)).await;
        }
        worst
    }
}

/// Lets each of these take the key so many times, for a random time, after a random pause.
pub(crate) async fn take_turns(instances: &[Elect], many: usize, seed: u64) -> Worst {
    let (turns, mut dice) = (Arc::new(Turns::default()), Dice::new(seed));
    let mut tasks = JoinSet::new();
    for (label, elect) in (1..).zip(instances) {
        tasks.spawn(turns.clone().take(elect.clone(), many, dice.split(label)));
    }
    let worst = tasks.join_all().await.into_iter().reduce(|one, other| Worst {
        wait: one.wait.max(other.wait),
        passed_over: one.passed_over.max(other.passed_over),
    });
    worst.unwrap_or_default()
}

/// Has one of three give up a key in each of the ways there are, soon before or after another lets go of it, and the
/// third take it. Returns the third one's longest wait.
pub(crate) async fn take_after_others_gave_up([one, other, third]: [&Elect; 3], many: u64) -> Duration {
    let (mut dice, mut longest) = (Dice::new(many), Duration::ZERO);
    for round in 0..many {
        let (key, soon) = (format!("given-up-{}", round % 8), Duration::from_micros(dice.below(5000)));
        if round % 3 == 0 {
            // It may be granted, and is given back then.
            drop(tokio::time::timeout(soon, one.acquire(&key)).await);
        } else {
            let held = other.acquire(&key).await.unwrap();
            if round % 3 == 1 {
                assert!(one.key(&key).acquire_within(JOB).await.unwrap().is_none(), "{key} is held");
                tokio::time::sleep(soon).await;
                drop(held);
            } else {
                let campaign = one.campaign(&key).start().unwrap();
                tokio::time::sleep(JOB).await;
                drop(held);
                tokio::time::sleep(soon).await;
                drop(campaign);
            }
        }
        let begun = Instant::now();
        let guard = third.acquire(&key).await.unwrap();
        longest = longest.max(begun.elapsed());
        guard.release().await.unwrap();
    }
    longest
}

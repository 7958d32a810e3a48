//! Instances that hand a lock on to each other.

use std::time::Instant;

use tenure::{Elect, Guard};
use tokio::{sync::mpsc, task::JoinSet};

use super::measure::{micros, now};

/// A lock that goes round. Whoever waits says when it has the lock, and keeps it until it is told to go on.
pub(crate) struct Relay {
    guard: Option<Guard>,
    turns: mpsc::UnboundedReceiver<(Instant, Guard)>,
    /// End with this.
    _waiters: JoinSet<()>,
}

impl Relay {
    /// So many waiters in each of the instances. Answers when one of them has the lock.
    pub(crate) async fn start(instances: &[Elect], waiters: usize, key: &'static str) -> Self {
        let (acquired, mut turns) = mpsc::unbounded_channel();
        let mut calls = JoinSet::new();
        for elect in instances.iter().flat_map(|elect| std::iter::repeat_n(elect, waiters)) {
            let (elect, acquired) = (elect.clone(), acquired.clone());
            calls.spawn(async move {
                loop {
                    let Ok(guard) = elect.acquire(key).await else { return };
                    let instant = now();
                    if acquired.send((instant, guard)).is_err() {
                        return;
                    }
                }
            });
        }
        let (_, guard) = turns.recv().await.expect("somebody gets it");
        Self { guard: Some(guard), turns, _waiters: calls }
    }

    /// From the release to the moment when the next one has the lock.
    pub(crate) async fn hand_over(&mut self) -> f64 {
        let started = now();
        drop(self.guard.take());
        let (instant, next) = self.turns.recv().await.expect("the next one gets it");
        self.guard = Some(next);
        micros(instant.duration_since(started))
    }
}

//! Keys that live once: each is contended, handed over, listened to, or left in the hands of the dead.

use std::time::Duration;

use futures::future::join_all;
use tenure::{
    Elect,
    elect::{Acquired, Event, Guard},
};

/// Of so many keys one is left in the hands of an instance that dies.
const ONE_IS_LEFT: usize = 50;
/// Time after which a wait for a key counts as lost.
const PATIENCE: Duration = Duration::from_secs(600);

/// Three instances that live as long as the run, and how many keys they have seen.
pub(crate) struct Load {
    instances: [Elect; 3],
    seen: usize,
}

impl Load {
    pub(crate) fn new(instances: [Elect; 3]) -> Self {
        Self { instances, seen: 0 }
    }

    pub(crate) fn seen(&self) -> usize {
        self.seen
    }

    /// So many new keys, all at once; the one that is to die gets some of them, and keeps them.
    pub(crate) async fn pass(&mut self, keys: usize, doomed: &Elect) -> Vec<Guard> {
        let numbers = self.seen..self.seen + keys;
        self.seen += keys;
        let lives = numbers.map(|number| self.one(number, doomed));
        join_all(lives).await.into_iter().flatten().collect()
    }

    async fn one(&self, number: usize, doomed: &Elect) -> Option<Guard> {
        let key = format!("order-{number}");
        let [first, second, third] = &self.instances;
        if number.is_multiple_of(ONE_IS_LEFT) {
            let guard = doomed.acquire(&key).await.expect("nobody has the key");
            lose(first, &key).await;
            return Some(guard);
        }
        match number % 3 {
            0 => contend(first, second, third, &key).await,
            1 => hand_over(second, third, first, &key).await,
            _ => listen(third, first, &key).await,
        }
        None
    }

    pub(crate) async fn close(self) {
        for elect in &self.instances {
            elect.close().await;
        }
    }
}

async fn lose(elect: &Elect, key: &str) {
    let acquired = elect.key(key).try_acquire().await.expect("the store answers");
    assert!(matches!(acquired, Acquired::Busy(_)), "somebody has {key}");
}

/// Held by one, wanted in vain by two.
async fn contend(holder: &Elect, one: &Elect, other: &Elect, key: &str) {
    let guard = holder.acquire(key).await.expect("nobody has the key");
    tokio::join!(lose(one, key), lose(other, key));
    guard.release().await.expect("the store answers");
}

/// Held by one, waited for by another, who gives up the ticket of a third.
async fn hand_over(holder: &Elect, waiter: &Elect, gives_up: &Elect, key: &str) {
    let guard = holder.acquire(key).await.expect("nobody has the key");
    let waits = waiter.key(key).acquire_within(PATIENCE);
    let given_up = gives_up.key(key).acquire_within(Duration::from_millis(20));
    let releases = async {
        assert!(given_up.await.expect("the store answers").is_none(), "{key} is held");
        guard.release().await.expect("the store answers");
    };
    let (guard, ()) = tokio::join!(waits, releases);
    guard.expect("the store answers").expect("it is handed over").release().await.expect("the store answers");
}

/// Led for a moment, with everybody listening.
async fn listen(leads: &Elect, watches: &Elect, key: &str) {
    let mut leader = watches.watch(key).expect("the engine is open");
    let campaign = leads.campaign(key).start().expect("the key is within the limits");
    let mut events = campaign.events();
    campaign.led().await.expect("nobody else wants the key");
    while leader.changed().await.expect("the engine is open").is_none() {}
    campaign.stop().await;
    let released = async { while !matches!(events.next().await, Some(Event::Released { .. })) {} };
    tokio::time::timeout(PATIENCE, released).await.expect("the campaign has stopped");
}

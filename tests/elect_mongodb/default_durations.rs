//! With the default durations a primary may die, stand down or freeze: no lease is lost.

use std::{collections::BTreeMap, time::Duration};

use tenure::{
    Elect, Lease,
    elect::{Campaign, EventStream, JobEnd, Status, Unlocked},
    model::Term,
    store::mongo::MongoStore,
};

use crate::{
    fleet::{ATTEMPT, Place, SECOND, bounded, calm, config, losses, record, session, told, until},
    polls::{Polls, Told, now},
    support::mongod::{Deployment, Node, Shape},
};

const KEYS: usize = 50;
const PACE: Duration = Duration::from_millis(100);
const FROZEN: Duration = Duration::from_secs(15);

/// One instance that leads its part of the keys and stands for all the others.
struct Instance {
    elect: Elect,
    events: EventStream,
    campaigns: Vec<Campaign>,
}

/// Three instances, and what they hold.
struct Fleet {
    deployment: Deployment,
    instances: Vec<Instance>,
    leases: Vec<Lease>,
    terms: BTreeMap<String, Term>,
    polls: Polls,
    store: MongoStore,
}

fn key(number: usize) -> String {
    format!("key {number}")
}

impl Fleet {
    async fn start() -> Self {
        let deployment = Deployment::start(Shape::ReplicaSet, calm()).await;
        let place = Place::on(deployment.uri()).await;
        let polls = Polls::default();
        let mut instances = Vec::new();
        for number in 0..3 {
            let elect = place.instance(config(&format!("pod-{number}"))).await;
            instances.push(Instance { events: elect.events(), elect, campaigns: Vec::new() });
        }
        let stand = |elect: &Elect, number: usize| {
            let polls = polls.clone();
            let campaign = elect.campaign(key(number));
            campaign.run(move |lease| polls.job(lease, PACE, Told::GoesOn)).unwrap()
        };
        let (mut leases, mut terms) = (Vec::new(), BTreeMap::new());
        for (turn, instance) in instances.iter_mut().enumerate() {
            let own: Vec<_> = (turn..KEYS).step_by(3).map(|number| stand(&instance.elect, number)).collect();
            for campaign in &own {
                let lease = bounded("a free key is led", campaign.led()).await.unwrap();
                terms.insert(lease.key().to_string(), lease.term());
                leases.push(lease);
            }
            instance.campaigns = own;
        }
        for (turn, instance) in instances.iter_mut().enumerate() {
            for number in (0..KEYS).filter(|number| number % 3 != turn) {
                let campaign = stand(&instance.elect, number);
                instance.campaigns.push(campaign);
            }
        }
        let fleet = Self { store: place.store().await, deployment, instances, leases, terms, polls };
        until("all others wait", || async {
            let waiting: usize = fleet.instances.iter().map(|instance| instance.elect.health().waiting).sum();
            (waiting == 2 * KEYS).then_some(())
        })
        .await;
        fleet
    }

    async fn beats(&self) -> Vec<u64> {
        let mut beats = Vec::new();
        for instance in &self.instances {
            let id = instance.elect.health().session.expect("its session is valid");
            beats.push(session(&self.store, id).await.unwrap().beat.get());
        }
        beats
    }

    /// The new primary takes beats of all, and everybody knows.
    async fn beat_again(&self) {
        let before = self.beats().await;
        until("all beat again", || async {
            let after = self.beats().await;
            let fine = |instance: &Instance| {
                let health = instance.elect.health();
                health.status == Status::Healthy && health.last_beat < Some(config("x").refresh_interval())
            };
            let all = after.iter().zip(&before).all(|(after, before)| after > before);
            (all && self.instances.iter().all(fine)).then_some(())
        })
        .await;
    }

    /// Nothing was lost, nobody was told to stop, and everything runs under its old term.
    async fn unharmed(&mut self, what: &str) {
        for instance in &mut self.instances {
            let events = told(&mut instance.events);
            assert!(losses(&events).is_empty(), "{what}: {:?}", losses(&events));
        }
        let cancelled: Vec<_> = self.leases.iter().filter(|lease| lease.is_cancelled()).collect();
        assert!(cancelled.is_empty(), "{what}: {cancelled:?}");
        let mut terms = BTreeMap::new();
        for number in 0..KEYS {
            terms.insert(key(number), record(&self.store, &key(number)).await.unwrap().term);
        }
        assert_eq!(terms, self.terms, "{what}");
        let (polls, now) = (self.polls.all(), now());
        for (key, term) in &self.terms {
            let mut of_key = polls.iter().filter(|poll| poll.key.as_str() == key).peekable();
            assert!(of_key.peek().is_some());
            assert!(of_key.clone().all(|poll| poll.term == *term), "{what}: {key} ran under another term");
            let last = of_key.last().unwrap();
            assert!(now.since(last.at) < SECOND, "{what}: {key} was polled {:?} ago", now.since(last.at));
        }
    }

    /// Time left of the shortest lease now.
    fn least_left(&self) -> Duration {
        self.leases.iter().map(Lease::remaining).min().unwrap()
    }

    /// Watches how near the end came until the new primary is there.
    async fn primary_other_than(&self, old: u16) -> (&Node, Duration) {
        let mut least = self.least_left();
        let mut next = std::pin::pin!(self.deployment.wait_for_primary(Some(old)));
        loop {
            tokio::select! {
                biased;
                node = &mut next => return (node, least),
                () = tokio::time::sleep(PACE) => least = least.min(self.least_left()),
            }
        }
    }
}

#[tokio::test]
async fn no_lease_is_lost_when_the_primary_is_killed_or_stands_down_or_freezes() {
    let mut fleet = Fleet::start().await;
    fleet.unharmed("before").await;

    let start = now();
    let killed = fleet.deployment.kill_primary().await.port();
    let (next, left) = fleet.primary_other_than(killed).await;
    println!("killed {killed}: {} is primary {:.1?} later", next.port(), now().since(start));
    fleet.beat_again().await;
    println!("  all beat again {:.1?} after the kill, at least {left:.1?} were left", now().since(start));
    fleet.unharmed("killed").await;
    let gone = fleet.deployment.nodes().iter().find(|node| node.port() == killed).unwrap();
    fleet.deployment.restart(gone).await;

    let start = now();
    let stood_down = fleet.deployment.step_down().await.port();
    let (next, left) = fleet.primary_other_than(stood_down).await;
    println!("{stood_down} stood down: {} is primary {:.1?} later", next.port(), now().since(start));
    fleet.beat_again().await;
    println!("  all beat again {:.1?} after that, at least {left:.1?} were left", now().since(start));
    fleet.unharmed("stood down").await;

    // A lock that is given back while nobody answers: that is bounded, and done when somebody does.
    let elect = fleet.instances[0].elect.clone();
    let spare = elect.lock("spare", async |lease| {
        lease.cancelled().await;
        Ok::<_, String>(())
    });
    let spare = spare.await.unwrap().running().unwrap();
    let frozen = fleet.deployment.wait_for_primary(None).await;
    let old = frozen.port();
    let start = now();
    fleet.deployment.freeze(frozen).await;
    let unlocks = async {
        let outcome = elect.unlock("spare").await.unwrap();
        (outcome, now().since(start))
    };
    let next = async {
        let (next, left) = fleet.primary_other_than(old).await;
        println!("froze {old} for {FROZEN:?}: {} is primary {:.1?} later", next.port(), now().since(start));
        left
    };
    let thaws = async {
        tokio::time::sleep(FROZEN).await;
        fleet.deployment.thaw(frozen).await;
    };
    let ((outcome, took), left, ()) = tokio::join!(unlocks, next, thaws);
    println!("  unlock meanwhile: {outcome:?} after {took:.1?}");
    let bound = config("x").stop_grace() + ATTEMPT * 2;
    assert!(took <= bound + SECOND, "unlock took {took:?}, it is bounded by {bound:?}");
    fleet.beat_again().await;
    println!("  all beat again {:.1?} after the freeze, at least {left:.1?} were left", now().since(start));
    fleet.unharmed("frozen").await;
    assert_eq!(spare.join().await, JobEnd::Finished(()));
    let guard = bounded("the key is free", fleet.instances[1].elect.acquire("spare")).await.unwrap();
    guard.release().await.unwrap();
    assert_ne!(outcome, Unlocked::NotHeld);
}

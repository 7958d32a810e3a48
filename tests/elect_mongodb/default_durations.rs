//! With the default durations a primary may die, stand down or freeze: no lease is lost.

use std::{collections::BTreeMap, time::Duration};

use mongodb::bson::doc;
use tenure::{
    Elect, Lease,
    clock::Moment,
    elect::{Campaign, EventStream, JobEnd, Status, Unlocked},
    model::Term,
    store::mongo::MongoStore,
};
use tokio::time::timeout;

use crate::elect_mongodb::{
    fleet::{Place, SECOND, config, job, losses, obedient, record, session, told, until, when, within},
    polls::{Polls, Told, now},
};
use crate::support::mongod::{Deployment, Node, Options, Shape, Timing};

const KEYS: usize = 30;
const PACE: Duration = Duration::from_millis(100);
/// Elections of the set come after six seconds, and not after ten, for time to spare on a busy machine.
const TIMING: Timing = Timing::Millis { election_timeout: 6000, heartbeat: 1000 };
/// Time that is left of every lease when a client beside the fleet writes again, if the fleet is to be judged. It
/// is for beats that are sent again, and for a machine that stands still.
const LEAST: Duration = Duration::from_secs(8);

/// An instance that leads its part of the keys and stands for all the others.
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
        let deployment =
            Deployment::start(Shape::ReplicaSet, Options { timing: TIMING, ..Options::default() }).await;
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
                let lease = within("a free key is led", campaign.led()).await.unwrap();
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
        until("all others wait", async || {
            let waiting: usize = fleet.instances.iter().map(|instance| instance.elect.health().waiting).sum();
            when(waiting == 2 * KEYS, waiting)
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
        until("all beat again", async || {
            let after = self.beats().await;
            let healths: Vec<_> = self.instances.iter().map(|instance| instance.elect.health()).collect();
            let all = after.iter().zip(&before).all(|(after, before)| after > before);
            when(all && healths.iter().all(|health| health.status == Status::Healthy), healths)
        })
        .await;
    }

    /// No lock was lost, no job was told to stop, and everything runs under its old term.
    async fn unharmed(&mut self, what: &str) {
        let since = now();
        until("all jobs are polled", async || {
            let last = |key: &String| self.polls.of(key).last().is_some_and(|poll| poll.at > since);
            let waits: Vec<_> = self.terms.keys().filter(|key| !last(key)).collect();
            when(waits.is_empty(), format!("{waits:?}"))
        })
        .await;
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
        for poll in self.polls.all() {
            let key = poll.key.as_str();
            assert_eq!(self.terms.get(key), Some(&poll.term), "{what}: {key} ran under another term");
        }
    }

    fn node(&self, port: u16) -> &Node {
        self.deployment.nodes().iter().find(|node| node.port() == port).unwrap()
    }

    /// Time left of the shortest lease now.
    fn least_left(&self) -> Duration {
        self.leases.iter().map(Lease::remaining).min().unwrap()
    }

    /// Writes until a majority of the set keeps it, as any client would.
    async fn write(&self) {
        let database = self.deployment.client().await.database("beside");
        let insert = doc! { "insert": "writes", "documents": [{}], "writeConcern": { "w": "majority" } };
        until("a client writes", async || {
            match timeout(SECOND, database.run_command(insert.clone())).await {
                Ok(Ok(reply)) if !reply.contains_key("writeConcernError") => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }

    /// Watches how near the end came until there is a new primary and all beat again. Answers whether the set
    /// was as quick as it has to be: it is judged beside a client that does nothing but write.
    async fn survives(&mut self, what: &str, old: u16, since: Moment) -> bool {
        let mut least = self.least_left();
        let next = {
            let mut next = std::pin::pin!(self.deployment.wait_for_primary(Some(old)));
            loop {
                tokio::select! {
                    biased;
                    node = &mut next => break node.port(),
                    () = tokio::time::sleep(PACE) => least = least.min(self.least_left()),
                }
            }
        };
        let took = now().since(since);
        println!("{what} {old}: {next} is primary {took:.1?} later, at least {least:.1?} were left");
        self.write().await;
        let left = self.least_left();
        println!("  a client writes {:.1?} after that start, {left:.1?} are left", now().since(since));
        if left < LEAST {
            return false;
        }
        self.beat_again().await;
        println!("  all beat again {:.1?} after that start", now().since(since));
        self.unharmed(what).await;
        true
    }
}

#[tokio::test]
async fn no_lease_is_lost_when_the_primary_is_killed_or_stands_down_or_freezes() {
    // Nothing is promised of a set that takes longer: another one may be quicker.
    for _ in 0..5 {
        if goes_through_all().await {
            return;
        }
    }
    panic!("no set of three took writes again while {LEAST:?} were left of all leases");
}

async fn goes_through_all() -> bool {
    let mut fleet = Fleet::start().await;
    fleet.unharmed("before").await;

    let start = now();
    let killed = fleet.deployment.kill_primary().await.port();
    if !fleet.survives("killed", killed, start).await {
        return false;
    }
    fleet.deployment.restart(fleet.node(killed)).await;

    let start = now();
    let stood_down = fleet.deployment.step_down().await.port();
    if !fleet.survives("stood down", stood_down, start).await {
        return false;
    }

    // A lock that is given back while nobody answers: that is bounded, and done when somebody does. By how much:
    // `jobs::unlocking_waits_for_the_grace…` of `tests/elect/`, in paused time.
    let elect = fleet.instances[0].elect.clone();
    let spare = job(|| elect.key("spare"), obedient).await;
    let frozen = fleet.deployment.wait_for_primary(None).await.port();
    let start = now();
    fleet.deployment.freeze(fleet.node(frozen)).await;
    let unlocks = tokio::spawn(async move { elect.unlock("spare").await.unwrap() });
    let is_quick = fleet.survives("frozen", frozen, start).await;
    fleet.deployment.thaw(fleet.node(frozen)).await;
    if !is_quick {
        return false;
    }
    let outcome = within("unlocking is bounded", unlocks).await.unwrap();
    assert_ne!(outcome, Unlocked::NotHeld);
    fleet.beat_again().await;
    fleet.unharmed("thawed").await;
    assert_eq!(spare.join().await, JobEnd::Finished(()));
    let guard = within("the key is free", fleet.instances[1].elect.acquire("spare")).await.unwrap();
    drop(guard);
    true
}

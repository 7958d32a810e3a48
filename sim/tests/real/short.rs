//! A short round of faults that need no root: of the servers, of the network by way of proxies before all members, and
//! of the processes that hold the locks. One of each sort; with `SIM=whole` all of them.

use std::time::Duration;

use mongodb::bson::doc;
use tenure::clock::Moment;
use tokio::time::{sleep, timeout};

use crate::{
    fleet::{Fleet, Plan, Way, now},
    holder::{self, Pace},
    record::Record,
    support::{
        mongod::{Deployment, Node, Options, Shape, Timing},
        proxy::{Mode, Proxy},
        wait::{LIMIT, until, within},
    },
};

const HOLDERS: usize = 3;
const KEYS: usize = 4;
/// Number of tasks they share out.
const TASKS: usize = 6;
/// A member that worked so recently has the key.
pub(crate) const RECENT: Duration = Duration::from_secs(2);
const BEAT: &str = "findAndModify";

/// A set, each member of which is behind a proxy.
pub(crate) struct Set {
    pub(crate) deployment: Deployment,
    proxies: Vec<Proxy>,
}

impl Set {
    async fn start() -> (Self, String) {
        let timing = Timing::Millis { election_timeout: 1000, heartbeat: 250 };
        let options = Options { timing, ..Options::default() };
        let deployment = Deployment::start(Shape::ReplicaSet, options).await;
        let proxies: Vec<_> = deployment.nodes().iter().map(|node| Proxy::start(node.port())).collect();
        let ports: Vec<_> = proxies.iter().map(Proxy::port).collect();
        let uri = deployment.move_behind(&ports).await;
        (Self { deployment, proxies }, uri)
    }

    /// A set, and a fleet on it.
    pub(crate) async fn with_fleet(plan: Plan) -> (Self, Fleet) {
        let (set, uri) = Self::start().await;
        let client = mongodb::Client::with_uri_str(&uri).await.unwrap();
        let ways = vec![Way { uri, namespace: None }; plan.members];
        let record = Record::Mongo { client, database: plan.database.clone() };
        (set, Fleet::start(plan, record, ways).await)
    }

    pub(crate) async fn primary(&self) -> &Node {
        self.deployment.wait_for_primary(None).await
    }

    pub(crate) fn proxy(&self, node: &Node) -> &Proxy {
        let place = self.deployment.nodes().iter().position(|other| other.port() == node.port());
        &self.proxies[place.expect("it is one of them")]
    }
}

struct World {
    set: Set,
    fleet: Fleet,
    /// Every fault is made.
    whole: bool,
}

impl World {
    async fn start() -> Self {
        let plan = Plan {
            seed: 1,
            members: HOLDERS,
            keys: KEYS,
            tasks: TASKS,
            database: "real".to_owned(),
            one_time: true,
            pace: Pace::Quick,
            ills: Vec::new(),
            with_guards: false,
        };
        let (set, fleet) = Set::with_fleet(plan).await;
        let mut world = Self { set, fleet, whole: tenure_sim::is_whole() };
        world.settle("the start", now()).await;
        world
    }

    /// Does something to the primary until it has come of it what is to come. On a busy machine another one may rise
    /// meanwhile, and nothing comes of it: then it is done to that one.
    async fn at_the_primary<T>(&self, fault: impl AsyncFn(&Node, &Proxy) -> T) -> T {
        loop {
            let primary = self.set.primary().await;
            let made = tokio::select! {
                biased;
                made = fault(primary, self.set.proxy(primary)) => Some(made),
                () = self.deposed(primary) => None,
            };
            for proxy in &self.set.proxies {
                proxy.set_mode(Mode::Pass).await;
            }
            if let Some(made) = made {
                return made;
            }
        }
    }

    /// Returns when another one is the primary.
    async fn deposed(&self, primary: &Node) {
        while self.set.deployment.primary().await.is_none_or(|now| now.port() == primary.port()) {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until every key is held and worked under since then, and has all judged that happened.
    async fn settle(&mut self, after: &str, since: Moment) {
        self.fleet.trouble(after);
        let held = self.fleet.converges(since).await;
        let judged = self.fleet.judge().await;
        assert!(judged.is_none(), "after {after}: {}", judged.unwrap());
        let held =
            held.unwrap_or_else(|missing| panic!("after {after} not held within {LIMIT:?}: {missing:?}"));
        println!("{after}: every key held {held:.1?} later; {} entries judged", self.fleet.court.entries());
    }

    /// Puts the proxy of the primary into a mode in which no member follows it any more, until there is another
    /// primary and something was swallowed.
    async fn depose_by(&mut self, mode: Mode) {
        let before = self.set.primary().await;
        let proxy = self.set.proxy(before);
        let swallowed = proxy.swallowed();
        proxy.set_mode(mode).await;
        let after = self.set.deployment.wait_for_primary(Some(before.port())).await;
        proxy.until_swallowed(swallowed + 1).await;
        let lost = proxy.swallowed() - swallowed;
        proxy.set_mode(Mode::Pass).await;
        let what = format!("{mode:?}, {} -> {}, {lost} messages swallowed", before.port(), after.port());
        self.settle(&what, now()).await;
    }

    /// Closes all, and judges what is left to judge.
    async fn end(mut self) {
        self.fleet.has_written().await;
        let judged = self.fleet.end().await;
        assert!(judged.is_none(), "at the end: {}", judged.unwrap());
        let court = &self.fleet.court;
        println!("{} entries judged, {} writes kept", court.entries(), court.kept);
        assert!(court.kept > 0, "no fenced write was judged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_keeps_its_promises_when_servers_commands_the_network_and_processes_fail() {
    let mut world = World::start().await;
    servers_fail(&mut world).await;
    commands_fail(&mut world).await;
    replies_are_lost(&mut world).await;
    the_network_fails(&mut world).await;
    holders_fail(&mut world).await;
    world.end().await;
}

async fn servers_fail(world: &mut World) {
    let before = world.set.deployment.kill_primary().await;
    let after = world.set.deployment.wait_for_primary(Some(before.port())).await;
    let what = format!("a primary was killed, {} -> {}", before.port(), after.port());
    world.set.deployment.restart(before).await;
    world.settle(&what, now()).await;
    if !world.whole {
        return;
    }
    let before = world.set.deployment.step_down().await;
    let after = world.set.deployment.wait_for_primary(Some(before.port())).await;
    let what = format!("a primary stood down, {} -> {}", before.port(), after.port());
    world.settle(&what, now()).await;

    let before = world.set.primary().await;
    world.set.deployment.freeze(before).await;
    let after = world.set.deployment.wait_for_primary(Some(before.port())).await;
    let what = format!("a primary was frozen, {} -> {}", before.port(), after.port());
    world.set.deployment.thaw(before).await;
    world.settle(&what, now()).await;
}

async fn commands_fail(world: &mut World) {
    let failures = [
        doc! { "writeConcernError": { "code": 91, "errmsg": "on purpose" } },
        doc! { "closeConnection": true },
        doc! { "errorCode": 11600 },
    ];
    let made = if world.whole { failures.len() } else { 1 };
    for failure in failures.into_iter().take(made) {
        let fails = async |primary: &Node, _: &Proxy| {
            let before = primary.fail_command(&[BEAT], 3, failure.clone()).await;
            primary.until_fail_point("failCommand", before + 3).await;
            primary.clear_fail_point("failCommand").await;
        };
        world.at_the_primary(fails).await;
        world.settle(&format!("3 beats or takes failed by {failure}"), now()).await;
    }
}

async fn replies_are_lost(world: &mut World) {
    // A beat is sent again until it is answered, so its reply can be lost twice. A take is not always: what it
    // took may be read, or the plan be another one, before it is sent again.
    let twice: (&'static [&'static str], u32) = (&["sessions"], 2);
    let once: (&'static [&'static str], u32) = (&["sessions", "locks"], 1);
    let made = if world.whole { 2 } else { 1 };
    for (collections, times) in [twice, once].into_iter().take(made) {
        // A session that ends meanwhile, as it may after the fault before, sends nothing again: then another one's.
        let lasts = holder::config(0, Pace::Quick).ttl();
        let lost = async |_: &Node, proxy: &Proxy| loop {
            let before = proxy.dropped(BEAT);
            proxy.drop_replies_of_one(collections, times);
            if timeout(lasts, proxy.until_dropped(BEAT, before + u64::from(times))).await.is_ok() {
                return;
            }
        };
        world.at_the_primary(lost).await;
        world.settle(&format!("the reply to one operation was lost {times} times"), now()).await;
    }
}

async fn the_network_fails(world: &mut World) {
    world.depose_by(Mode::BlackHole).await;
    if !world.whole {
        return;
    }
    world.depose_by(Mode::RepliesLost).await;

    // The primary hears no requests and is heard: so it stays the primary, and no lock can be held.
    let here = &*world;
    let unheard = async |_: &Node, proxy: &Proxy| {
        let swallowed = proxy.swallowed();
        proxy.set_mode(Mode::RequestsLost).await;
        proxy.until_swallowed(swallowed + 1).await;
        until("nobody works", async || {
            let polls = (0..KEYS).filter_map(|key| here.fleet.last_poll(key));
            let last = polls.map(|(at, ..)| at).max();
            if last.is_some_and(|last| now().since(last) > Duration::from_millis(500)) {
                Ok(())
            } else {
                Err(last)
            }
        })
        .await;
        proxy.swallowed() - swallowed
    };
    let lost = here.at_the_primary(unheard).await;
    world.settle(&format!("requests to the primary were lost, {lost} messages swallowed"), now()).await;

    let way = Duration::from_millis(100);
    let late = async |_: &Node, proxy: &Proxy| {
        proxy.set_mode(Mode::Delay { to_server: way, to_client: way }).await;
        let client = mongodb::Client::with_uri_str(proxy.uri()).await.unwrap();
        let admin = client.database("admin");
        admin.run_command(doc! { "ping": 1 }).await.unwrap();
        let asked = now();
        admin.run_command(doc! { "ping": 1 }).await.unwrap();
        let took = now().since(asked);
        assert!(took >= 2 * way, "an answer took {took:?}");
        // Long enough for every holder to beat that way.
        let beats = proxy.passed(BEAT);
        proxy.until_passed(BEAT, beats + 2 * HOLDERS as u64).await;
    };
    within("every message is late", world.at_the_primary(late)).await;
    world.settle(&format!("every message came {way:?} late"), now()).await;

    let severed = async |_: &Node, proxy: &Proxy| {
        let before = proxy.severed();
        proxy.sever();
        proxy.until_severed(before + 1).await;
        proxy.severed() - before
    };
    let closed = world.at_the_primary(severed).await;
    world.settle(&format!("{closed} connections were closed"), now()).await;
}

async fn holders_fail(world: &mut World) {
    let (member, keys) = world.fleet.until_busiest(RECENT).await;
    world.fleet.freeze(member).await;
    let frozen = now();
    world.fleet.others_work(&keys, member, frozen).await;
    // Others may not have waited for less than that.
    sleep((holder::config(0, Pace::Quick).ttl()).saturating_sub(now().since(frozen))).await;
    world.fleet.thaw(member);
    world.settle(&format!("holder {member} was frozen, and others took {keys:?}"), now()).await;
    if !world.whole {
        return;
    }
    let (member, keys) = world.fleet.until_busiest(RECENT).await;
    world.fleet.kill(member).await;
    world.fleet.run(member);
    world.settle(&format!("holder {member} was killed, which held {keys:?}"), now()).await;
}

//! Ways to make each fault, and to know that it was made.

use std::{collections::BTreeMap, time::Duration};

use mongodb::bson::{Bson, Document, doc};
use tenure::clock::Moment;
use tokio::time::sleep;

use super::{
    SITES,
    faults::{Count, Failure, Fault},
    net::{self, Cut, Place},
    set::{MEMBERS, Set},
};
use crate::{
    fleet::{Fleet, now},
    holder::{self, Pace},
    support::wait::{LIMIT, until},
};

/// The set, the fleet, and what was done to them.
pub(crate) struct World {
    pub(crate) set: Set,
    pub(crate) fleet: Fleet,
    pub(crate) counts: BTreeMap<Count, u64>,
    /// Processes of the fleet that are to be started again.
    gone: Vec<usize>,
}

impl World {
    pub(crate) fn new(set: Set, fleet: Fleet) -> Self {
        Self { set, fleet, counts: BTreeMap::new(), gone: Vec::new() }
    }

    fn count(&mut self, count: Count) {
        *self.counts.entry(count).or_default() += 1;
    }

    pub(crate) fn name(fault: Fault, besides: Option<Fault>) -> String {
        besides.map_or_else(|| format!("{fault:?}"), |besides| format!("{fault:?} and {besides:?}"))
    }

    /// Makes a fault, asserts that it was made, and mends what is to be mended. Answers what came of it.
    pub(crate) async fn make(&mut self, fault: Fault, besides: Option<Fault>) -> String {
        let before = self.set.until_whole().await;
        self.fleet.trouble(format!("{fault:?} {besides:?}, the primary is member {before}"));
        if let Some(besides) = besides {
            // First, so that what it was meant for is still there.
            self.do_to_the_fleet(besides).await;
            self.count(besides.count());
        }
        let start = now();
        let says = if fault.is_of_the_fleet() {
            self.do_to_the_fleet(fault).await
        } else {
            self.do_to_the_set(fault, before).await
        };
        for member in std::mem::take(&mut self.gone) {
            self.fleet.run(member);
        }
        self.count(Count::Rounds);
        self.count(fault.count());
        let after = self.set.until_whole().await;
        self.fleet.trouble(format!("mended, the primary is member {after}"));
        if after != before {
            self.count(Count::Failovers);
        }
        let took = now().since(start).as_secs_f64();
        format!("primary {before} -> {after}, {says}, mended {took:.1} s later")
    }

    /// Waits until every key is held again, and has all judged. Answers how long that took.
    ///
    /// # Errors
    /// The violation.
    pub(crate) async fn settle(&mut self, since: Moment) -> Result<Duration, String> {
        let converged = self.fleet.converges(since).await;
        if let Err(missing) = &converged {
            let says = format!("these are not held {LIMIT:?} after all was mended: {missing:?}");
            self.fleet.court.violate("liveness", says);
        }
        match self.fleet.judge().await {
            Some(violation) => Err(violation.to_string()),
            None => Ok(converged.unwrap_or_default()),
        }
    }

    async fn do_to_the_set(&mut self, fault: Fault, primary: usize) -> String {
        match fault {
            Fault::KillPrimary => {
                self.set.kill(primary);
                self.another_than(primary).await;
                self.set.restart(primary);
                "it was killed".to_owned()
            }
            Fault::StepDown => {
                let command = doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 4 };
                // It may be refused while the others lag behind.
                until("the primary stands down", async || {
                    let done = self.set.ask_within(primary, command.clone(), Duration::from_secs(5)).await;
                    done.ok_or("refused")
                })
                .await;
                self.another_than(primary).await;
                "it stood down".to_owned()
            }
            Fault::FreezePrimary => {
                self.set.freeze(primary).await;
                let risen = self.another_than(primary).await;
                // A while with one that hangs, which is worse than one that is dead.
                sleep(Duration::from_secs(1)).await;
                self.set.thaw(primary);
                format!("it was frozen, and member {risen} rose")
            }
            Fault::CutFromMembers(cut) => {
                let others = (0..MEMBERS).filter(|other| *other != primary).map(Place::Member);
                let swallowed = self.cut(Place::Member(primary), others.collect(), cut, Some(primary)).await;
                format!("it was cut off from the others, {swallowed} packets swallowed")
            }
            Fault::CutFromFleet => {
                let sites = (0..SITES).map(Place::Site).collect();
                let place = Place::Member(primary);
                let swallowed = self.cut(place, sites, Cut::Both, None).await;
                format!("it was cut off from the fleet, {swallowed} packets swallowed")
            }
            Fault::CutFromAll => {
                let others = (0..MEMBERS).filter(|other| *other != primary).map(Place::Member);
                let everybody = others.chain((0..SITES).map(Place::Site)).collect();
                let swallowed = self.cut(Place::Member(primary), everybody, Cut::Both, Some(primary)).await;
                format!("it was cut off from all, {swallowed} packets swallowed")
            }
            Fault::CutFollower => {
                let follower = Place::Member((primary + 1) % MEMBERS);
                let swallowed = self.cut(follower, vec![Place::Member(primary)], Cut::Both, None).await;
                format!("a follower was cut off from it, {swallowed} packets swallowed")
            }
            Fault::CutSite { site, cut } => {
                let members = (0..MEMBERS).map(Place::Member).collect();
                let swallowed = self.cut(Place::Site(site), members, cut, None).await;
                format!("a site was cut off from all members, {swallowed} packets swallowed")
            }
            Fault::StepClock { member, millis } => {
                let before = self.set.offset(member);
                // From where it stands to where it does not.
                let millis = if millis == before { millis + 45_000 } else { millis };
                self.set.step_clock(member, millis).await;
                if millis < before {
                    // Its timers wait until the clock is where it was, which is too long to wait for. So after
                    // the length of a lease it is started again under that clock.
                    sleep(holder::config(0, Pace::Quick).ttl() + Duration::from_millis(700)).await;
                    self.set.kill(member);
                    if member == primary {
                        self.another_than(primary).await;
                    }
                    self.set.restart(member);
                }
                format!("the clock of member {member} went from {before} ms to {millis} ms")
            }
            Fault::Drop(collection) => self.drop_collection(collection, primary).await,
            Fault::RestartAll => {
                for member in 0..MEMBERS {
                    self.set.kill(member);
                }
                assert!(self.set.primary().await.is_none(), "somebody answers, and all were killed");
                for member in 0..MEMBERS {
                    self.set.restart(member);
                }
                "all were killed and started again".to_owned()
            }
            Fault::Fail { how, times } => self.fail(primary, how, times).await,
            of_the_fleet => unreachable!("{of_the_fleet:?} is done to the fleet"),
        }
    }

    /// Waits until another one is primary.
    async fn another_than(&self, primary: usize) -> usize {
        self.set.until_primary(Some(primary)).await
    }

    /// Cuts a place off from others, until it was noticed: until another one is primary than `deposed`, or for
    /// longer than a lease lasts. Answers how many packets were swallowed.
    async fn cut(&self, at: Place, others: Vec<Place>, cut: Cut, deposed: Option<usize>) -> u64 {
        for other in others {
            net::cut(at, other, cut);
        }
        match deposed {
            Some(deposed) => {
                self.another_than(deposed).await;
            }
            None => sleep(holder::config(0, Pace::Quick).ttl() + Duration::from_millis(700)).await,
        }
        let swallowed = net::swallowed(at);
        assert!(swallowed > 0, "no packet was swallowed at {at:?}");
        net::heal(at);
        swallowed
    }

    async fn drop_collection(&self, collection: &'static str, primary: usize) -> String {
        let mut collection = collection;
        if collection == "locks" {
            // A term that lies ahead of the clock must not be forgotten: that is outside the promise.
            let hello = self.set.hello(primary).await.expect("the set is whole");
            let clock = u64::try_from(hello.clock.timestamp_millis()).unwrap_or(0);
            let terms = self.fleet.largest_term().await.expect("the set is whole");
            if terms + 1_000 >= clock {
                collection = "sessions";
            }
        }
        let before = self.fleet.record.identity(collection).await;
        assert!(before.is_some(), "{collection} is there");
        self.fleet.record.drop_collection(collection).await;
        assert_ne!(
            self.fleet.record.identity(collection).await,
            before,
            "{collection} is the same as before"
        );
        format!("{collection} was dropped")
    }

    async fn fail(&self, primary: usize, how: Failure, times: u32) -> String {
        let commands = ["findAndModify", "update", "find"];
        let mut data = match how {
            Failure::Closed => doc! { "closeConnection": true },
            Failure::Refused => doc! { "errorCode": 91 },
            Failure::Unsure => doc! { "writeConcernError": { "code": 91, "errmsg": "on purpose" } },
            Failure::Late => doc! { "blockConnection": true, "blockTimeMS": 3500 },
        };
        // A read has no write concern.
        data.insert("failCommands", if how == Failure::Unsure { &commands[..2] } else { &commands[..] });
        let point = |mode: Bson, data: Document| {
            let command = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
            self.set.ask_within(primary, command, Duration::from_secs(5))
        };
        let met = |answer: &Document| match answer.get("count") {
            Some(Bson::Int32(count)) => i64::from(*count),
            Some(Bson::Int64(count)) => *count,
            _ => 0,
        };
        let times = i64::from(times);
        let on = point(doc! { "times": times }.into(), data).await.expect("the primary takes a fail point");
        let wait =
            doc! { "waitForFailPoint": "failCommand", "timesEntered": met(&on) + times, "maxTimeMS": 30_000 };
        let waited = self.set.ask_within(primary, wait, Duration::from_secs(40)).await;
        assert!(waited.is_some(), "{times} commands did not meet the fail point");
        point("off".into(), doc! {}).await.expect("the primary takes a fail point");
        format!("{times} commands failed")
    }

    async fn do_to_the_fleet(&mut self, fault: Fault) -> String {
        let since = now() - Duration::from_secs(3);
        let found = until("somebody works", async || self.fleet.busiest(since).ok_or("nobody")).await;
        let (member, keys) = found;
        match fault {
            Fault::KillHolder => {
                self.fleet.kill(member).await;
                self.gone.push(member);
                format!("holder {member} was killed, which held {keys:?}")
            }
            Fault::CloseHolder => {
                self.fleet.close(member).await;
                self.gone.push(member);
                format!("holder {member} was closed, which held {keys:?}")
            }
            Fault::FreezeHolder => {
                self.fleet.freeze(member).await;
                let frozen = now();
                self.fleet.others_work(&keys, member, frozen).await;
                self.fleet.thaw(member);
                format!("holder {member} was frozen, and others took {keys:?}")
            }
            Fault::FreezeHolderShortly(time) => {
                self.fleet.freeze(member).await;
                sleep(time).await;
                self.fleet.thaw(member);
                format!("holder {member} was frozen for {time:?}, which held {keys:?}")
            }
            of_the_set => unreachable!("{of_the_set:?} is done to the set"),
        }
    }
}

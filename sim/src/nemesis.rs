//! Faults that a fleet meets by chance, one after the other.

use std::{collections::BTreeSet, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use super::{
    Dice, EventKind, Fleet, Instance, NAMESPACE, Trouble, key_of, lock_id, programs, replicas::Replicas,
    stores::GROUPS,
};
use tenure::{
    model::Why,
    store::{Request, Revocation},
    testing::Fault,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Troubles, until the plan's time for them is over and the last of them has passed.
pub(super) async fn rage(fleet: &Fleet) {
    let mut dice = fleet.dice();
    let mut under_way = JoinSet::new();
    let until = fleet.history().now() + fleet.plan().chaos;
    while fleet.history().now() < until {
        sleep(dice.between(100 * MS, fleet.plan().trouble_every)).await;
        let one = Nemesis { fleet: fleet.clone(), dice: dice.split(6) };
        let member = dice.place(fleet.plan().instances);
        if let Some(trouble) = one_of(&fleet.plan().troubles, &mut dice) {
            under_way.spawn(one.befall(trouble, member));
        }
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

/// Draws one of the troubles, each as often as its weight says.
fn one_of(troubles: &BTreeSet<Trouble>, dice: &mut Dice) -> Option<Trouble> {
    let mut place = dice.below(troubles.iter().map(|trouble| trouble.weight()).sum());
    troubles.iter().copied().find(|trouble| {
        let weight = trouble.weight();
        let this = place < weight;
        place = place.saturating_sub(weight);
        this
    })
}

struct Nemesis {
    fleet: Fleet,
    dice: Dice,
}

impl Nemesis {
    async fn befall(mut self, trouble: Trouble, member: usize) {
        match trouble {
            Trouble::Freezes | Trouble::Crashes | Trouble::Closes | Trouble::CrashLoops => {
                self.alone(member, trouble).await;
            }
            Trouble::Unreachable => self.out_of_reach(member).await,
            Trouble::Outages => self.outage().await,
            Trouble::Failovers => self.failover().await,
            Trouble::Stalls => self.stall().await,
            Trouble::StoreClock => self.clock_jumps(),
            Trouble::WallClock => self.wall_clock_jumps(member),
            Trouble::Deletions if self.dice.percent(50) => self.delete_session().await,
            Trouble::Deletions => self.delete_lock().await,
            Trouble::Revokes => self.revoke().await,
            Trouble::Dependency => self.nothing_to_work_with().await,
            // Troubles that are there all the time.
            Trouble::Calls
            | Trouble::Hangs
            | Trouble::Hints
            | Trouble::TwoPrimaries
            | Trouble::Drift
            | Trouble::Jobs
            | Trouble::Versions
            | Trouble::Killers => {}
        }
    }

    /// Causes a trouble of which each instance has only one at a time.
    async fn alone(&mut self, member: usize, trouble: Trouble) {
        let free = !std::mem::replace(&mut self.fleet.slot(member).troubled, true);
        if !free {
            return;
        }
        if let Some(instance) = self.fleet.instance(member) {
            match trouble {
                Trouble::Freezes => self.freeze(&instance).await,
                Trouble::Crashes => self.crash(&instance).await,
                Trouble::CrashLoops => self.crash_again_and_again(member).await,
                _ => self.close(&instance).await,
            }
        }
        self.fleet.slot(member).troubled = false;
    }

    /// A time that matters to sessions: much shorter than a ttl, about as long, longer.
    fn time(&mut self, instance: &Instance) -> Duration {
        let ttl = instance.elect().config().ttl();
        match self.dice.below(4) {
            0 => self.dice.up_to(SECOND),
            1 => ttl * 3 / 4 + self.dice.up_to(ttl / 2),
            2 => self.dice.up_to(ttl),
            _ => self.dice.up_to(ttl * 2),
        }
    }

    async fn freeze(&mut self, instance: &Instance) {
        let time = self.time(instance);
        self.fleet.trouble(format!("{} is frozen for {time:?}", instance.life()));
        instance.freeze();
        sleep(time).await;
        instance.thaw(&mut self.dice, 4).await;
    }

    async fn crash(&mut self, instance: &Instance) {
        let time = self.time(instance);
        let member = instance.life().member;
        self.fleet.trouble(format!("{} crashes, and starts again after {time:?}", instance.life()));
        self.fleet.crash(member);
        sleep(time).await;
        self.start(member);
    }

    async fn crash_again_and_again(&mut self, member: usize) {
        let times = 2 + self.dice.below(4);
        self.fleet.trouble(format!("instance {member} dies young, {times} times"));
        for _ in 0..times {
            self.fleet.crash(member);
            sleep(self.dice.up_to(20 * SECOND)).await;
            self.start(member);
            sleep(self.dice.up_to(20 * SECOND)).await;
        }
    }

    /// Takes the dependency of the tasks' jobs away for a while.
    async fn nothing_to_work_with(&mut self) {
        let time = if self.dice.percent(50) { 30 * SECOND } else { 300 * SECOND };
        let time = self.dice.up_to(time);
        self.fleet.trouble(format!("what the jobs of tasks need is away for {time:?}"));
        self.fleet.take_away(true);
        sleep(time).await;
        self.fleet.take_away(false);
    }

    async fn close(&mut self, instance: &Instance) {
        let time = self.dice.up_to(2 * SECOND);
        let member = instance.life().member;
        let grace = if self.dice.percent(40) { self.dice.up_to(20 * SECOND) } else { Duration::ZERO };
        self.fleet.trouble(format!(
            "{} is closed, its tasks are kept for {grace:?}, and starts again after {time:?}",
            instance.life()
        ));
        // The program closes it, behind its gate like all the rest.
        let fleet = self.fleet.clone();
        let closes = instance.gate().spawn(async move { fleet.close_for_restart(member, grace).await });
        let _ = closes.await;
        sleep(time).await;
        self.start(member);
    }

    fn start(&self, member: usize) {
        let instance = self.fleet.start(member);
        programs::run_some(&instance);
    }

    fn fault(&mut self) -> Fault {
        match self.dice.below(6) {
            0..2 => Fault::Swallowed,
            2 => Fault::RequestLost,
            3 => Fault::AnswerLost,
            4 => Fault::Hang,
            _ => Fault::Refused,
        }
    }

    /// Puts the store, or a part of it, out of reach of one instance.
    async fn out_of_reach(&mut self, member: usize) {
        let Some(instance) = self.fleet.instance(member) else { return };
        let operations = GROUPS[self.dice.place(GROUPS.len())];
        let (fault, time) = (self.fault(), self.time(&instance));
        self.fleet.trouble(format!("{} meets {fault:?} in {operations:?} for {time:?}", instance.life()));
        instance.weather().script().always(operations, fault);
        sleep(time).await;
        instance.weather().script().heal();
    }

    /// Puts the store out of reach of all instances.
    async fn outage(&mut self) {
        let (fault, time) = (self.fault(), self.dice.up_to(8 * SECOND));
        self.fleet.trouble(format!("the store meets everybody with {fault:?} for {time:?}"));
        let all = self.fleet.instances();
        for instance in &all {
            instance.weather().script().always(GROUPS[0], fault);
        }
        sleep(time).await;
        for instance in &all {
            instance.weather().script().heal();
        }
    }

    /// No write is kept by a majority, for a while.
    async fn stall(&mut self) {
        let time = self.dice.up_to(8 * SECOND);
        self.fleet.trouble(format!("nothing reaches a majority for {time:?}"));
        self.replicas().stall(true);
        sleep(time).await;
        self.replicas().stall(false);
    }

    /// The primary changes: what no majority had is undone, and some may not hear of it for a while.
    async fn failover(&mut self) {
        let two = self.fleet.plan().has(Trouble::TwoPrimaries) && self.dice.percent(50);
        // Without its followers for a while, so that something is undone.
        if self.dice.percent(60) {
            self.replicas().stall(true);
            sleep(self.dice.up_to(4 * SECOND)).await;
        }
        let (fault, time) = (self.fault(), self.dice.up_to(8 * SECOND));
        let (unaware, aware): (Vec<_>, Vec<_>) =
            self.fleet.instances().into_iter().partition(|_| two && self.dice.percent(50));
        for instance in &aware {
            instance.weather().script().always(GROUPS[0], fault);
        }
        sleep(self.dice.up_to(time)).await;
        let undone = self.replicas().change_primary(two);
        for instance in &unaware {
            instance.lag_behind();
        }
        self.replicas().stall(false);
        let not_told: Vec<_> = unaware.iter().map(|instance| instance.life().to_string()).collect();
        self.fleet.trouble(format!(
            "the primary changes, {undone} writes are undone, the others meet {fault:?} for up to {time:?}, \
             not told: {not_told:?}"
        ));
        if self.fleet.plan().has(Trouble::StoreClock) && self.dice.percent(40) {
            self.clock_jumps();
        }
        sleep(self.dice.up_to(time)).await;
        for instance in &aware {
            instance.weather().script().heal();
        }
        if two {
            sleep(self.dice.up_to(15 * SECOND)).await;
            self.replicas().one_primary();
        }
    }

    fn replicas(&self) -> &Replicas {
        &self.fleet.0.common.replicas
    }

    fn wall_clock_jumps(&mut self, member: usize) {
        let (by, ahead) = (self.dice.up_to(3600 * SECOND), self.dice.percent(50));
        let Some(instance) = self.fleet.instance(member) else { return };
        let way = direction(ahead);
        self.fleet.trouble(format!("the wall clock of {} jumps {way} by {by:?}", instance.life()));
        instance.step_wall(by, ahead);
    }

    fn clock_jumps(&mut self) {
        let ahead = self.dice.percent(50);
        let room = *self.fleet.0.common.deleted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let room = self.fleet.store_now().since(tenure::model::StoreTime::from_millis(room + 1));
        let by = self.dice.up_to(3600 * SECOND);
        let by = if ahead { by } else { by.min(room) };
        self.fleet.trouble(format!("the store's clock jumps {} by {by:?}", direction(ahead)));
        if ahead {
            self.fleet.store_clock().step_wall(by);
        } else {
            self.fleet.store_clock().step_wall_back(by);
        }
        self.fleet.history().record(EventKind::StoreClock { shows: self.fleet.store_now() });
    }

    async fn delete_session(&mut self) {
        let Ok(namespace) = NAMESPACE.parse() else { return };
        let sessions = self.fleet.0.common.sessions(&namespace).await;
        if sessions.is_empty() {
            return;
        }
        let session = sessions[self.dice.place(sessions.len())].id;
        self.fleet.trouble("somebody deletes a session");
        self.fleet.0.common.delete_session(session);
    }

    fn some_lock(&mut self) -> usize {
        let locks: Vec<_> = self.fleet.plan().all_locks().collect();
        locks[self.dice.place(locks.len())]
    }

    async fn delete_lock(&mut self) {
        let key = self.some_lock();
        self.fleet.trouble(format!("somebody deletes the lock of key {key}"));
        self.fleet.0.common.delete_lock(&lock_id(key), self.fleet.store_now()).await;
    }

    async fn revoke(&mut self) {
        let lock = lock_id(self.some_lock());
        let Some(record) = self.fleet.0.common.record(&lock).await else { return };
        let Some(held) = &record.holding else { return };
        let Ok(by) = "operator".parse() else { return };
        let key = key_of(&lock.key);
        let request = Request { lock, term: record.term, by, why: Why::shortened("on purpose") };
        if let (Some(key), true) = (key, self.dice.percent(10)) {
            self.fleet.trouble(format!("an operator takes key {key} away by force"));
            self.replicas().force_by_hand(request, key);
            return;
        }
        self.fleet.trouble(format!("an operator wants {} back", request.lock.key));
        let revocation = Revocation::Ask { session: held.by.session, request };
        self.replicas().revoke_by_hand(revocation);
    }
}

const fn direction(ahead: bool) -> &'static str {
    if ahead { "ahead" } else { "back" }
}

//! What is done to a fleet by chance, one trouble after the other.

use std::time::Duration;

use tokio::{task::JoinSet, time::sleep};

use super::{Dice, Fleet, Instance, NAMESPACE, lock_id, programs, stores::GROUPS};
use crate::{
    model::{Request, Why},
    store::{Revocation, Store},
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
        let one = Trouble { fleet: fleet.clone(), dice: dice.split(6) };
        let member = dice.place(fleet.plan().instances);
        under_way.spawn(one.befall(member));
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

struct Trouble {
    fleet: Fleet,
    dice: Dice,
}

impl Trouble {
    async fn befall(mut self, member: usize) {
        match self.dice.below(20) {
            0..5 => self.alone(member, Kind::Freeze).await,
            5..7 => self.alone(member, Kind::Crash).await,
            7 => self.alone(member, Kind::Close).await,
            8..13 => self.out_of_reach(member).await,
            13 => self.outage().await,
            14 => self.clock_jumps(),
            15 => self.delete_session().await,
            16 => self.delete_lock().await,
            _ => self.revoke().await,
        }
    }

    /// One trouble of this sort at a time for each instance.
    async fn alone(&mut self, member: usize, kind: Kind) {
        let free = !std::mem::replace(&mut self.fleet.slot(member).troubled, true);
        if !free {
            return;
        }
        if let Some(instance) = self.fleet.instance(member) {
            match kind {
                Kind::Freeze => self.freeze(&instance).await,
                Kind::Crash => self.crash(&instance).await,
                Kind::Close => self.close(&instance).await,
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

    async fn close(&mut self, instance: &Instance) {
        let time = self.dice.up_to(2 * SECOND);
        let member = instance.life().member;
        self.fleet.trouble(format!("{} is closed, and starts again after {time:?}", instance.life()));
        // The program closes it, behind its gate like all the rest.
        let fleet = self.fleet.clone();
        let closes = instance.gate().spawn(async move { fleet.close(member).await });
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

    /// One instance does not reach the store, or a part of it.
    async fn out_of_reach(&mut self, member: usize) {
        let Some(instance) = self.fleet.instance(member) else { return };
        let operations = GROUPS[self.dice.place(GROUPS.len())];
        let (fault, time) = (self.fault(), self.time(&instance));
        self.fleet.trouble(format!("{} meets {fault:?} in {operations:?} for {time:?}", instance.life()));
        instance.weather().script().always(operations, fault);
        sleep(time).await;
        instance.weather().script().heal();
    }

    /// Nobody reaches the store.
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

    fn clock_jumps(&mut self) {
        let ahead = self.dice.percent(50);
        let room = *self.fleet.0.common.deleted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let room = self.fleet.store_now().since(crate::model::StoreTime::from_millis(room + 1));
        let by = self.dice.up_to(3600 * SECOND);
        let by = if ahead { by } else { by.min(room) };
        self.fleet
            .trouble(format!("the store's clock jumps {} by {by:?}", if ahead { "ahead" } else { "back" }));
        if ahead {
            self.fleet.store_clock().step_wall(by);
        } else {
            self.fleet.store_clock().step_wall_back(by);
        }
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

    async fn delete_lock(&mut self) {
        let key = self.dice.place(self.fleet.plan().keys);
        self.fleet.trouble(format!("somebody deletes the lock of key {key}"));
        self.fleet.0.common.delete_lock(&lock_id(key), self.fleet.store_now()).await;
    }

    async fn revoke(&mut self) {
        let lock = lock_id(self.dice.place(self.fleet.plan().keys));
        let Some(record) = self.fleet.0.common.record(&lock).await else { return };
        let Some(held) = &record.holding else { return };
        let Ok(by) = "operator".parse() else { return };
        let request = Request { lock, term: record.term, by, why: Why::shortened("on purpose") };
        self.fleet.trouble(format!("an operator wants {} back", request.lock.key));
        let revocation = Revocation::Ask { session: held.by.session, request };
        let _ = self.fleet.0.common.memory.revoke(revocation, SECOND).await;
    }
}

enum Kind {
    Freeze,
    Crash,
    Close,
}

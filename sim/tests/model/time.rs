//! Time passes; clocks run at nearly the same rate, and point anywhere.
//!
//! A tick is a third of a ttl or so, and the margin is one. That a clock runs fast is modelled as one tick
//! that it gains, once in a run: the assumption (1 %, and a margin of 2 %) is that no clock gains more
//! than the margin within a ttl. One that runs slow is one beside which all others run fast.

use crate::model::{
    action::Action,
    protocol::Protocol,
    world::{Id, World},
};

impl Protocol {
    pub(crate) fn time_actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < self.budget.ticks {
            actions.push(Action::Tick);
            if self.budget.drift && world.fast.is_none() {
                actions.extend((0..self.budget.instances).map(Action::Gain));
            }
        }
    }

    pub(crate) fn tick(&self, world: &mut World) {
        world.now += 1;
        self.expire(world);
    }

    pub(crate) fn gain(&self, world: &mut World, id: Id) {
        world.fast = Some(id);
        self.expire(world);
    }

    fn expire(&self, world: &mut World) {
        for id in 0..self.budget.instances {
            if world.at(id).is_valid() && self.is_past(world.clock(id), world.at(id).end) {
                self.end_session(world, id);
            }
        }
    }
}

//! The audit: what the store says that a session holds, compared with what runs here.
//!
//! Its read and what follows from it are two steps, with anything in between: that is where it could go
//! wrong. A lock that it does not find leads to a confirmation (`lock.rs`).

use crate::model::{
    action::Action,
    lock::{Meaning, grant_to, is_busy},
    protocol::Protocol,
    world::{Id, World},
    wrong::Wrong,
};

impl Protocol {
    pub(crate) fn audit_actions(&self, world: &World, id: Id, actions: &mut Vec<Action>) {
        let instance = world.at(id);
        if !self.budget.audit || !instance.is_valid() {
            return;
        }
        match instance.page {
            None => {
                let runs = |ticket| instance.held.is_some_and(|held| held.ticket == ticket);
                if grant_to(world, id).is_some_and(|grant| !runs(grant.ticket)) {
                    actions.push(Action::Audit(id));
                }
            }
            Some(_) if self.may_give_back(world, id) => actions.push(Action::GiveBack(id)),
            Some(_) => {}
        }
    }

    /// Neither what a ticket stands for, nor what an undecided operation may explain.
    fn may_give_back(&self, world: &World, id: Id) -> bool {
        let instance = world.at(id);
        if self.is(Wrong::HastyAudit) {
            return instance.returning.is_none();
        }
        instance.page.is_some_and(|grant| {
            !is_busy(world, id)
                && !instance.undecided
                && instance.stands != Some(grant.ticket)
                && self.meaning(world, id, grant) == Meaning::Unwanted
        })
    }

    /// Returns whether the next look, or an audit of now, would give back what a majority says is this session's.
    pub(crate) fn will_give_back(&self, world: &World, id: Id) -> bool {
        grant_to(world, id).is_some_and(|grant| self.meaning(world, id, grant) == Meaning::Unwanted)
    }

    pub(crate) fn audit(world: &mut World, id: Id) {
        world.at_mut(id).page = grant_to(world, id);
    }

    pub(crate) fn give_back(&self, world: &mut World, id: Id) {
        if let Some(grant) = world.at_mut(id).page.take() {
            self.pass_on(world, id, grant);
        }
    }
}

//! A key of one instance: tickets, takes, jobs, releases, hand-overs (R4, R6, R7, R9, R10).
//!
//! An instance has at most one ticket that stands, beside what it holds. It may stand in the queue from the
//! beginning, and look at any time: the engine does so only at certain moments, which are among these.

use crate::model::{
    action::Action,
    protocol::Protocol,
    wire::{Answer, Request},
    world::{Grant, Held, Id, Instance, Lock, Place, Term, Ticket, World},
    wrong::Wrong,
};

/// Meaning of a record that names the instance's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A job runs here under it, or it is given back already.
    Known,
    /// The ticket that stands is granted.
    Ours,
    /// Something runs here that has lost it, or an operation is under way that may explain it.
    Wait,
    /// The lock is not wanted here (any more).
    Unwanted,
}

impl Protocol {
    pub(crate) fn key_actions(&self, world: &World, id: Id, actions: &mut Vec<Action>) {
        let instance = world.at(id);
        if self.is(Wrong::NoCheckInPoll) && instance.held.is_some() && !instance.is_valid() {
            actions.push(Action::Finish(id));
        }
        if !instance.is_valid() {
            return;
        }
        let busy = is_busy(world, id);
        let room = self.has_room(world);
        if let Some(held) = instance.held {
            actions.push(Action::Finish(id));
            if !held.draining && world.spent.cancels < self.budget.cancels {
                actions.push(Action::Cancel(id));
            }
            if !busy && room && world.spent.expirations < self.budget.expirations {
                actions.push(Action::Confirm(id));
            }
        }
        if instance.stands.is_none() && instance.wanted < self.budget.tickets {
            actions.push(Action::Want(id));
        }
        if let Some(ticket) = instance.stands {
            if instance.held.is_none() && instance.returning.is_none() && !busy && room {
                actions.push(Action::Take(id));
            }
            if self.budget.gives_up {
                actions.push(Action::GiveUp(id));
            }
            let place = instance.place(ticket);
            let registered = world.primary.queue.has(place)
                || world.wire.iter().any(|message| message.request == Request::Wait(place));
            if self.budget.queue && room && !registered {
                actions.push(Action::Wait(id));
            }
        }
        if instance.returning.is_some() && !busy && room {
            actions.push(Action::Release(id, None));
            for to in world.primary.queue.places().filter(|to| may_be_handed(instance, *to)) {
                actions.push(Action::Release(id, Some(to)));
            }
        }
        if instance.news.is_some() {
            actions.push(Action::Hint(id));
        }
        if !busy && (instance.undecided || self.is_worth_a_look(world, id)) {
            actions.push(Action::Look(id));
        }
    }

    fn is_worth_a_look(&self, world: &World, id: Id) -> bool {
        grant_to(world, id)
            .is_some_and(|grant| matches!(self.meaning(world, id, grant), Meaning::Ours | Meaning::Unwanted))
    }

    // ----- tickets

    pub(crate) fn want(&self, world: &mut World, id: Id) {
        let instance = world.at_mut(id);
        instance.wanted += 1;
        instance.stands = Some(instance.wanted);
        self.changed(instance);
    }

    pub(crate) fn give_up(&self, world: &mut World, id: Id) {
        let instance = world.at_mut(id);
        let Some(ticket) = instance.stands.take() else { return };
        instance.undecided = !self.is(Wrong::UnknownIsNo);
        if self.is(Wrong::UnknownIsNo) {
            instance.wanted -= 1;
        }
        self.changed(instance);
        self.leave_queue(world, id, ticket);
    }

    pub(crate) fn send_take(&self, world: &mut World, id: Id) {
        let instance = world.at(id);
        if let Some(ticket) = instance.stands {
            let request = Request::Take { place: instance.place(ticket), dead: instance.dead };
            self.send(world, id, request, true);
        }
    }

    pub(crate) fn wait(&self, world: &mut World, id: Id) {
        let instance = world.at(id);
        if let Some(ticket) = instance.stands {
            self.send(world, id, Request::Wait(instance.place(ticket)), false);
        }
    }

    fn leave_queue(&self, world: &mut World, id: Id, ticket: Ticket) {
        let place = world.at(id).place(ticket);
        if world.primary.queue.has(place) {
            self.send(world, id, Request::Leave(place), false);
        }
    }

    // ----- grants

    /// R7: a record counts as ours if it names our session and a ticket that stands here now.
    fn matches(&self, instance: &Instance, grant: Grant) -> bool {
        match self.wrong {
            Some(Wrong::AnyTicket) => instance.stands.is_some(),
            Some(Wrong::NewerTerm) => instance.stands.is_some() && grant.term > instance.ended,
            _ => instance.stands == Some(grant.ticket),
        }
    }

    pub(crate) fn meaning(&self, world: &World, id: Id, grant: Grant) -> Meaning {
        let instance = world.at(id);
        let known = instance.held.is_some_and(|held| held.ticket == grant.ticket)
            || instance.returning == Some(grant.term);
        if known {
            Meaning::Known
        } else if instance.held.is_some() {
            Meaning::Wait
        } else if self.matches(instance, grant) {
            Meaning::Ours
        } else if is_busy(world, id) || instance.returning.is_some() {
            Meaning::Wait
        } else if self.is(Wrong::GivenUpIsKept) {
            Meaning::Known
        } else {
            Meaning::Unwanted
        }
    }

    /// The lock was granted to a ticket of ours, whichever message says so.
    fn learn(&self, world: &mut World, id: Id, grant: Grant) {
        match self.meaning(world, id, grant) {
            Meaning::Known => {}
            Meaning::Ours => self.begin(world, id, grant),
            Meaning::Wait => world.at_mut(id).undecided = true,
            Meaning::Unwanted => self.pass_on(world, id, grant),
        }
    }

    pub(crate) fn begin(&self, world: &mut World, id: Id, grant: Grant) {
        world.fell |= grant.term <= world.highest;
        world.highest = world.highest.max(grant.term);
        let instance = world.at_mut(id);
        instance.stands = None;
        instance.held = Some(Held { ticket: grant.ticket, term: grant.term, draining: false });
        self.changed(instance);
        self.leave_queue(world, id, grant.ticket);
    }

    pub(crate) fn pass_on(&self, world: &mut World, id: Id, grant: Grant) {
        let instance = world.at_mut(id);
        instance.returning = Some(grant.term);
        self.changed(instance);
        self.leave_queue(world, id, grant.ticket);
    }

    /// A hint: as good as a majority read at some moment before.
    pub(crate) fn hint(&self, world: &mut World, id: Id) {
        if let Some(grant) = world.at_mut(id).news.take() {
            self.learn(world, id, grant);
        }
    }

    /// A majority read. It is asked for while nothing else is under way, so that it is one step.
    pub(crate) fn look(&self, world: &mut World, id: Id) {
        world.at_mut(id).undecided = false;
        if let Some(grant) = grant_to(world, id) {
            self.learn(world, id, grant);
        }
    }

    pub(crate) fn take_answered(&self, world: &mut World, id: Id, place: Place, answer: Answer) {
        let instance = world.at_mut(id);
        self.changed(instance);
        let Answer::Granted(term) = answer else {
            // A job that runs here under that ticket has lost its lock: it is told, and ends.
            if instance.held.is_some_and(|held| held.ticket == place.ticket) {
                instance.held = None;
            }
            return;
        };
        let grant = Grant { ticket: place.ticket, term };
        if !instance.is_valid() {
            // R10: the end has passed. This is no lock, but for an engine that does not look.
            self.begin(world, id, grant);
            return;
        }
        if instance.held.is_some_and(|held| held.ticket == place.ticket && held.term != term) {
            // The record was free, and is ours again: it is given back, once the job has stopped.
            instance.held = None;
            instance.returning = Some(term);
            return;
        }
        self.learn(world, id, grant);
    }

    // ----- the end of a job

    pub(crate) fn cancel(&self, world: &mut World, id: Id) {
        world.spent.cancels += 1;
        let instance = world.at_mut(id);
        if let Some(held) = &mut instance.held {
            held.draining = true;
            if self.is(Wrong::ReleaseBeforeDrain) {
                instance.returning = Some(held.term);
            }
        }
    }

    /// The job has returned, or its drop has finished. Only then is the lock given back (R9).
    pub(crate) fn finish(&self, world: &mut World, id: Id) {
        let instance = world.at_mut(id);
        let Some(held) = instance.held.take() else { return };
        if instance.is_valid() {
            instance.returning = Some(held.term);
        }
        if self.is(Wrong::NewerTerm) {
            instance.ended = instance.ended.max(held.term);
        }
        self.changed(instance);
    }

    pub(crate) fn send_release(&self, world: &mut World, id: Id, to: Option<Place>) {
        let instance = world.at(id);
        if let Some(term) = instance.returning {
            self.send(world, id, Request::Release { session: instance.session, term, to }, true);
        }
    }

    /// R11: this answer makes no instance a holder.
    pub(crate) fn release_answered(&self, world: &mut World, id: Id, to: Option<Place>) {
        let instance = world.at_mut(id);
        let Some(term) = instance.returning.take() else { return };
        self.changed(instance);
        if let Some(to) = to
            && self.is(Wrong::ReleaseMakesHolder)
            && to.session == instance.session
            && instance.stands == Some(to.ticket)
        {
            self.begin(world, id, Grant { ticket: to.ticket, term: term + 1 });
        }
    }

    /// Something says that the lock is lost. The take is sent once more with the same ticket: it is not
    /// told as lost before a majority write has confirmed it.
    pub(crate) fn confirm(&self, world: &mut World, id: Id) {
        world.spent.expirations += 1;
        let instance = world.at(id);
        if let Some(held) = instance.held {
            self.send(world, id, Request::Take { place: instance.place(held.ticket), dead: 0 }, true);
        }
    }

    /// Marks an audit's page that was read before as older than what is known now.
    pub(crate) fn changed(&self, instance: &mut Instance) {
        if !self.is(Wrong::HastyAudit) {
            instance.page = None;
        }
    }

    /// A majority has granted the lock: a hint of it is on its way, and replaces an older one.
    pub(crate) fn tell_of_grant(world: &mut World) {
        let Lock { term, holding: Some(place), .. } = world.majority.lock else { return };
        for instance in world.instances.iter_mut().filter(|it| it.is_valid()) {
            if instance.session == place.session {
                instance.news = Some(Grant { ticket: place.ticket, term });
            }
        }
    }
}

/// Neither to one that is known dead, nor to a ticket of ours that stands no more.
fn may_be_handed(instance: &Instance, to: Place) -> bool {
    let gone = to.session == instance.session && instance.stands != Some(to.ticket);
    !gone && !instance.knows_dead(to.session)
}

/// Returns whether an operation on the key is under way: one at a time.
pub(crate) fn is_busy(world: &World, id: Id) -> bool {
    world.wire.is_awaited(id, Request::is_of_key)
}

/// Grant that a majority shows for this instance's session.
pub(crate) fn grant_to(world: &World, id: Id) -> Option<Grant> {
    let lock = world.majority.lock;
    let held = lock.holding.filter(|held| held.session == world.at(id).session)?;
    let term: Term = lock.term;
    Some(Grant { ticket: held.ticket, term })
}

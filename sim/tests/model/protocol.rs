//! The parts put together: where it begins, what can happen next, and what it leads to.

use stateright::{Model, Property};

use crate::model::{
    action::Action,
    budget::Budget,
    properties::properties,
    watch::Of,
    wire::Wire,
    world::{Held, Id, Instance, Life, Lock, Place, Records, SessionRecord, Spent, Standing, Time, World},
    wrong::Wrong,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) budget: Budget,
    /// The rule that is broken, if one is.
    pub(crate) wrong: Option<Wrong>,
}

impl Protocol {
    pub(crate) fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn delete(world: &mut World, session: u8) {
        world.spent.deletions += 1;
        world.primary.sessions[usize::from(session)] = SessionRecord::default();
    }

    fn perform_action(&self, world: &mut World, action: Action) {
        match action {
            Action::Tick => self.tick(world),
            Action::Gain(id) => self.gain(world, id),
            Action::Apply(message) => self.apply(world, message),
            Action::Answer(message) => self.answer(world, message),
            Action::Forget(message) => Self::forget(world, message),
            Action::Lose(message) => world.wire.take_out(message),
            Action::Double(message) => Self::double(world, message),
            Action::Commit => Self::commit(world),
            Action::Failover => self.failover(world),
            Action::Delete(session) => Self::delete(world, session),
            Action::Open(id) => self.open(world, id),
            Action::Beat(id) => self.beat(world, id),
            Action::Abandon(id) => self.abandon(world, id),
            Action::Close(id) => self.close(world, id),
            Action::Reopen(id) => Self::reopen(world, id),
            Action::Observe(id) => self.observe(world, id, Of::Majority),
            Action::ObserveFormer(id) => self.observe(world, id, Of::Former),
            Action::Declare(id) => self.declare(world, id),
            Action::Want(id) => self.want(world, id),
            Action::GiveUp(id) => self.give_up(world, id),
            Action::Take(id) => self.send_take(world, id),
            Action::Wait(id) => self.wait(world, id),
            Action::Hint(id) => self.hint(world, id),
            Action::Look(id) => self.look(world, id),
            Action::Confirm(id) => self.confirm(world, id),
            Action::Cancel(id) => self.cancel(world, id),
            Action::Finish(id) => self.finish(world, id),
            Action::Release(id, to) => self.send_release(world, id, to),
            Action::Audit(id) => Self::audit(world, id),
            Action::GiveBack(id) => self.give_back(world, id),
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut records = Records::default();
        let mut instances = [Instance::default(); crate::model::world::INSTANCES];
        for id in 0..self.budget.instances {
            let ttl = self.budget.ttl;
            records.sessions[usize::from(id)] =
                SessionRecord { standing: Standing::Alive, beat: 0, nonce: 1, ttl, beat_at: 0 };
            instances[usize::from(id)] = Instance {
                life: Life::Valid,
                session: id,
                end: ttl - self.margin(),
                nonce: 1,
                confirmed: 1,
                ..Instance::default()
            };
        }
        let lasting = self.budget.instances - self.budget.steady;
        for steady in &mut instances[usize::from(lasting)..usize::from(self.budget.instances)] {
            steady.end = Time::MAX;
        }
        if self.budget.begun {
            let place = Place { session: 0, ticket: 1 };
            records.lock = Lock { term: 1, holding: Some(place), handed: false };
            instances[0].held = Some(Held { ticket: 1, term: 1, draining: false });
            for instance in &mut instances[..usize::from(self.budget.instances)] {
                instance.wanted = 1;
                instance.stands = (instance.session != 0).then_some(1);
            }
        }
        vec![World {
            now: 0,
            fast: None,
            primary: records,
            majority: records,
            former: None,
            instances,
            wire: Wire::default(),
            opened: self.budget.instances,
            spent: Spent::default(),
            highest: u8::from(self.budget.begun),
            fell: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.time_actions(world, actions);
        self.wire_actions(world, actions);
        for id in 0..self.budget.instances {
            let id: Id = id;
            self.session_actions(world, id, actions);
            self.watch_actions(world, id, actions);
            self.key_actions(world, id, actions);
            self.audit_actions(world, id, actions);
        }
        if world.spent.deletions < self.budget.deletions {
            let alive =
                |session: &u8| world.primary.sessions[usize::from(*session)].standing == Standing::Alive;
            actions.extend((0..world.opened).filter(alive).map(Action::Delete));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = *world;
        self.perform_action(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }

    fn format_action(&self, action: &Action) -> String {
        action.to_string()
    }
}

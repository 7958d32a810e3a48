//! Properties that must hold in every state, and states that must be reachable for that to mean anything.

use stateright::Property;

use crate::model::{
    lock::is_busy,
    protocol::Protocol,
    world::{Id, Standing, World},
};

pub(crate) const EXCLUSION: &str = "exclusion";
pub(crate) const NO_THEFT: &str = "no theft from a living session";
pub(crate) const TERMS_RISE: &str = "terms rise";
pub(crate) const KNOWN: &str = "unknown starts nothing";
pub(crate) const IN_TIME: &str = "a job ends before its session";
pub(crate) const GIVEN_BACK: &str = "what nobody wants is given back";

pub(crate) const TAKEOVER: &str = "a dead holder is replaced";
pub(crate) const HAND_OVER: &str = "a lock is handed over";
pub(crate) const ROLLBACK: &str = "something is rolled back";
pub(crate) const REOPENED: &str = "a job runs under a second session";
pub(crate) const LATE: &str = "a ticket that was given up is granted";
pub(crate) const AUDITED: &str = "an audit finds what nobody wants";
pub(crate) const BEATEN: &str = "a session lives beyond its first end";
pub(crate) const EXPIRED: &str = "a session comes to its end";

/// Returns the instances whose job runs.
fn inside(world: &World) -> impl Iterator<Item = Id> + '_ {
    (0..3).filter(|id: &Id| world.at(*id).held.is_some())
}

/// Returns whether the lock is held by this instance, which lives, and neither wants it nor does anything about
/// it.
fn is_idle(world: &World, id: Id) -> bool {
    let instance = world.at(id);
    instance.is_valid()
        && world.majority.lock.holding.is_some_and(|held| held.session == instance.session)
        && instance.stands.is_none()
        && instance.held.is_none()
        && instance.returning.is_none()
        && !is_busy(world, id)
}

pub(crate) fn properties() -> Vec<Property<Protocol>> {
    vec![
        Property::always(EXCLUSION, |_, world: &World| inside(world).nth(1).is_none()),
        Property::always(NO_THEFT, |protocol: &Protocol, world: &World| {
            (0..protocol.budget.instances).filter(|id| world.at(*id).is_valid()).all(|id| {
                let session = world.at(id).session;
                world.majority.sessions[usize::from(session)].standing != Standing::Dead
            })
        }),
        Property::always(TERMS_RISE, |_, world: &World| !world.fell),
        // The instance that runs is the one that a majority names: none began on less, and none took it since.
        Property::always(KNOWN, |_, world: &World| {
            inside(world).all(|id| {
                let instance = world.at(id);
                let lock = world.majority.lock;
                instance.held.is_some_and(|held| {
                    lock.term == held.term && lock.holding == Some(instance.place(held.ticket))
                })
            })
        }),
        Property::always(IN_TIME, |_, world: &World| {
            inside(world).all(|id| world.at(id).is_valid() && world.clock(id) < world.at(id).end)
        }),
        Property::always(GIVEN_BACK, |protocol: &Protocol, world: &World| {
            (0..protocol.budget.instances)
                .filter(|id| is_idle(world, *id))
                .all(|id| protocol.will_give_back(world, id))
        }),
        Property::sometimes(TAKEOVER, |_, world: &World| {
            inside(world).any(|id| world.at(id).dead != 0 && world.highest > 1)
        }),
        Property::sometimes(HAND_OVER, |_, world: &World| {
            inside(world).next().is_some() && world.majority.lock.handed
        }),
        Property::sometimes(ROLLBACK, |_, world: &World| world.spent.failovers > 0),
        Property::sometimes(REOPENED, |protocol: &Protocol, world: &World| {
            inside(world).any(|id| world.at(id).session >= protocol.budget.instances)
        }),
        Property::sometimes(LATE, |_, world: &World| {
            world.instances.iter().any(|it| {
                let granted = |place: crate::model::world::Place| place.session == it.session;
                let wanted = |ticket| it.stands == Some(ticket) || it.held.is_some();
                let lock = world.majority.lock;
                it.is_valid()
                    && it.returning.is_none()
                    && lock.holding.is_some_and(|place| granted(place) && !wanted(place.ticket))
            })
        }),
        Property::sometimes(AUDITED, |_, world: &World| {
            world.instances.iter().any(|it| {
                it.page.is_some_and(|grant| it.stands != Some(grant.ticket)) && it.returning.is_none()
            })
        }),
        Property::sometimes(BEATEN, |protocol: &Protocol, world: &World| {
            world.instances.iter().any(|it| it.is_valid() && it.end > protocol.budget.ttl)
        }),
        Property::sometimes(EXPIRED, |_, world: &World| {
            world.spent.abandons == 0
                && world.instances.iter().any(|it| it.life == crate::model::world::Life::Over)
        }),
    ]
}

//! An instance of a fleet: an engine, its clock, its way to the store, and the gate its tasks go through.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{
    Deviation, Dice, Drifting, EventKind, Fleet, Gate, History, Life, Reported, WorkKind,
    replicas::Way,
    stores::{Deposed, FaultInjector, Recording, Wire},
};
use tenure::{
    Elect, ElectConfig,
    clock::{Clock, Moment},
    elect::{EventStream, KeyRequest},
    model::Term,
    store::Store,
    testing::{Intercept, Intercepted},
};

/// An instance that runs. Clones are the same one.
#[derive(Clone)]
pub struct Instance {
    pen: Pen,
    elect: Elect,
    fleet: Fleet,
    weather: Arc<Intercepted<FaultInjector>>,
    way: Arc<Way>,
    deposed: Arc<Deposed>,
    /// True if its part of the spread is not to be judged yet.
    unsettled: Arc<AtomicBool>,
    /// Fires when it is closed.
    ended: CancellationToken,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("life", &self.pen.life).finish_non_exhaustive()
    }
}

impl Instance {
    pub(super) fn start(
        fleet: &Fleet,
        life: Life,
        clock: Arc<Drifting>,
        config: ElectConfig,
        dice: &mut Dice,
    ) -> Self {
        let (shared, gate) = (&fleet.0, Gate::default());
        let pen = Pen { history: shared.history.clone(), life, clock: clock.clone(), gate: gate.clone() };
        pen.record(EventKind::Started);
        let way = Arc::new(shared.common.replicas.way(life));
        let deposed = Arc::new(Deposed::new(way.clone(), shared.store_clock.clone()));
        let (rates, tally) = (shared.plan.rates(), shared.tally.clone());
        let weather = FaultInjector::new(dice.split(2), rates, shared.plan.longest_way, tally);
        let weather = weather.around(deposed.clone());
        let ears = Ears { history: shared.history.clone(), life, clock: clock.clone() };
        let wire = Wire::new(weather.clone(), Arc::new(ears), clock.clone());
        let store: Arc<dyn Store> = Arc::new(wire);
        let mut builder =
            Elect::builder(store, config).clock(clock).seed(dice.roll()).tasks(Arc::new(gate.clone()));
        if let Some(flaw) = shared.plan.flaw {
            builder = builder.flaw(flaw);
        }
        let elect = builder.begin().expect("the fleet's configuration keeps the rules");
        gate.spawn(tell(elect.events(), pen.clone()));
        let ended = CancellationToken::new();
        let unsettled = Arc::default();
        let instance = Self { pen, elect, fleet: fleet.clone(), weather, way, deposed, unsettled, ended };
        instance.depose(shared.plan.deviation == Some(Deviation::DeposedPrimary) && life.member == 1);
        instance
    }

    /// Run of the instance.
    #[must_use]
    pub const fn life(&self) -> Life {
        self.pen.life
    }

    /// Returns its engine.
    #[must_use]
    pub const fn elect(&self) -> &Elect {
        &self.elect
    }

    /// Gate that its tasks go through.
    #[must_use]
    pub const fn gate(&self) -> &Gate {
        &self.pen.gate
    }

    /// Weather of its calls.
    #[must_use]
    pub fn weather(&self) -> &FaultInjector {
        self.weather.intercept()
    }

    pub(super) const fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub(super) const fn pen(&self) -> &Pen {
        &self.pen
    }

    /// Returns whether it waits for something that only time brings: it is held back since those before it died
    /// young.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Relaxed)
    }

    pub(super) fn set_unsettled(&self, unsettled: bool) {
        self.unsettled.store(unsettled, Ordering::Relaxed);
    }

    /// From now on it talks to a deposed primary, or to the real one again.
    pub fn depose(&self, deposed: bool) {
        self.deposed.depose(deposed);
    }

    /// Notes that it is closed.
    pub(super) fn ends(&self) {
        self.ended.cancel();
    }

    /// Fires when it is closed.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Keeps the next change of primary from it, as long as the former primary does not know of it either.
    pub fn lag_behind(&self) {
        self.way.lag_behind();
    }

    /// Makes its wall clock jump.
    pub fn step_wall(&self, by: Duration, ahead: bool) {
        self.pen.clock.step_wall(by, ahead);
    }

    /// Records an event of the instance.
    pub fn record(&self, what: EventKind) {
        self.pen.record(what);
    }

    /// Reading of its clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.pen.clock.now()
    }

    /// A ticket for a key, with a unique name.
    pub fn ask(&self, key: usize) -> (KeyRequest, String) {
        let tag = self.fleet.tag(self.life());
        (self.elect.key(format!("k{key}")).who(&tag), tag)
    }

    /// Stops all polls, whatever happens, until it is [thawed](Self::thaw).
    pub fn freeze(&self) {
        self.gate().shut();
        self.record(EventKind::Froze);
    }

    /// Lets it be polled again: some of its tasks later than others, if one in so many starves for a while.
    pub async fn thaw(&self, dice: &mut Dice, starve_one_in: u64) {
        if !self.gate().is_shut() {
            return;
        }
        self.record(EventKind::Thawed);
        let late = self.gate().open(dice, starve_one_in);
        if !late.is_empty() {
            self.record(EventKind::Froze);
            tokio::time::sleep(dice.up_to(Duration::from_secs(2))).await;
            self.gate().feed(&late);
            self.record(EventKind::Fed);
        }
    }
}

/// Writes into the history what happens in one instance, for as long as it lives.
#[derive(Clone)]
pub(super) struct Pen {
    history: History,
    life: Life,
    clock: Arc<Drifting>,
    gate: Gate,
}

impl Pen {
    pub(super) fn record(&self, what: EventKind) {
        if !self.gate.is_dead() {
            self.history.record_in(self.life, self.clock.now(), what);
        }
    }

    /// Something runs under a lock from now on.
    /// Answers with the task that waits for the token.
    pub(super) fn begins(
        &self,
        key: usize,
        term: Term,
        tag: &str,
        sort: WorkKind,
        token: CancellationToken,
    ) -> Option<AbortHandle> {
        self.record(EventKind::Began { key, term, tag: tag.to_owned(), sort });
        if token.is_cancelled() {
            self.record(EventKind::Cancelled { key, term });
            return None;
        }
        let pen = self.clone();
        // Not behind the gate: the token fires when it fires.
        let waits = tokio::spawn(async move {
            token.cancelled().await;
            pen.record(EventKind::Cancelled { key, term });
        });
        Some(waits.abort_handle())
    }

    /// Returns whether a job under this term has no right to its key any more, because the record was deleted by
    /// hand.
    pub(super) fn is_void(&self, key: usize, term: Term) -> bool {
        self.history.registry(|registry| registry.grant(key, term).is_none_or(|grant| grant.void))
    }
}

/// Writes into the history what one instance sends and hears.
#[derive(Debug)]
struct Ears {
    history: History,
    life: Life,
    clock: Arc<Drifting>,
}

impl Recording for Ears {
    fn write(&self, what: EventKind) {
        self.history.record_in(self.life, self.clock.now(), what);
    }
}

/// Tells the history what the engine tells.
async fn tell(mut events: EventStream, pen: Pen) {
    while let Some(event) = events.next().await {
        let Some(told) = Reported::of(&event) else { continue };
        pen.record(EventKind::Reported(told));
    }
}

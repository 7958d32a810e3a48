//! The schedules of a fleet: their settings, their jobs, and the orders that hold them back or want them run.

use std::{future::Future, panic::resume_unwind, task::Poll, time::Duration};

use tokio::{task::AbortHandle, time::sleep};

use super::{
    Dice, Ended, EventKind, FIRST_SCHEDULE, Fleet, Instance, Plan, TickId, Trouble, Watched, Witness,
    WorkKind, instance::Pen, programs::Work, schedule_name,
};
use tenure::{
    Lease,
    model::{Entry, Term, Why},
    schedule::{Misfire, OnCrash, Overlap, Retries, Schedule, Tick},
};

const SECOND: Duration = Duration::from_secs(1);
/// Number of tries to give an order in quiet until an answer says that it is written down.
const TRIES: u32 = 100;

/// Settings of a schedule of a fleet. One kind is due often, is made up for and is run at least once; another is
/// due seldom, takes a while, and is run at most once; the third is told to stop after a time, and by its next
/// tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// From one tick to the next.
    pub every: Duration,
    /// A run whose runner died is not begun again.
    pub at_most_once: bool,
    /// Tries of a tick that fails, in all.
    pub tries: u32,
    /// Beginnings of a tick, in all, whatever becomes of its runners.
    pub attempts: u32,
    /// Number of missed ticks that are made up for.
    pub at_most: u32,
    /// And no older than this.
    pub window: Duration,
    /// Policy for a tick that falls due while the run before it is on.
    pub overlap: Overlap,
    /// Longest time of a run.
    pub timeout: Option<Duration>,
}

impl Habits {
    pub(super) fn of(plan: &Plan, schedule: usize) -> Self {
        let pace = plan.slower.div_ceil(5).max(1);
        match schedule % 3 {
            0 => Self::often(2 * SECOND * pace),
            1 => Self::seldom(6 * SECOND * pace),
            _ => Self::hasty(3 * SECOND * pace),
        }
    }

    /// Due that often, and run at least once.
    #[must_use]
    pub fn often(every: Duration) -> Self {
        Self {
            every,
            at_most_once: false,
            tries: 2,
            attempts: 5,
            at_most: 5,
            window: every * 60,
            overlap: Overlap::Queue,
            timeout: None,
        }
    }

    /// Due that seldom, and run at most once.
    #[must_use]
    pub fn seldom(every: Duration) -> Self {
        Self {
            at_most_once: true,
            attempts: 2,
            at_most: 1,
            window: every * 10,
            overlap: Overlap::Skip,
            ..Self::often(every)
        }
    }

    /// Due that often, and told to stop shortly before the next one, or by it.
    #[must_use]
    pub fn hasty(every: Duration) -> Self {
        Self {
            tries: 3,
            at_most: 1,
            window: every * 10,
            overlap: Overlap::Cancel,
            timeout: Some(every * 4 / 5),
            ..Self::often(every)
        }
    }

    /// The schedule's expression.
    #[must_use]
    pub fn expression(&self) -> String {
        format!("@every {}", humantime::format_duration(self.every))
    }

    /// Policy for ticks that are late, overlap or fail.
    #[must_use]
    pub const fn misfire(&self) -> Misfire {
        if self.at_most_once {
            Misfire::One { window: self.window }
        } else {
            Misfire::All { window: self.window, at_most: self.at_most }
        }
    }

    /// Policy for a run whose runner died.
    #[must_use]
    pub const fn on_crash(&self) -> OnCrash {
        if self.at_most_once { OnCrash::AtMostOnce } else { OnCrash::AtLeastOnce { attempts: self.attempts } }
    }

    /// Policy for a job that failed.
    #[must_use]
    pub fn retries(&self) -> Retries {
        Retries { tries: self.tries, first: self.every / 20, longest: self.every / 10 }
    }
}

/// The number of a tick's schedule, and the rest of its name.
#[must_use]
pub fn tick_id(tick: &Tick) -> TickId {
    let schedule = super::schedule_of(tick.schedule().as_str()).unwrap_or(usize::MAX);
    let entry = if tick.is_ordered() { Entry::Order } else { Entry::Tick };
    TickId { schedule, instant: tick.scheduled_at(), entry }
}

/// Has an instance run all schedules of its fleet, until it is closed.
pub(super) fn run_all(instance: &Instance) {
    let plan = instance.fleet().plan();
    let schedules: Vec<_> = (0..plan.schedules).filter_map(|schedule| begin(instance, schedule)).collect();
    if schedules.is_empty() {
        return;
    }
    let ended = instance.ended();
    instance.gate().spawn(async move {
        let _keeps: Vec<Schedule> = schedules;
        ended.cancelled().await;
    });
}

fn begin(instance: &Instance, schedule: usize) -> Option<Schedule> {
    let habits = Habits::of(instance.fleet().plan(), schedule);
    let (worker, dice) = (instance.clone(), instance.fleet().dice());
    let run = move |tick: Tick, lease: Lease| {
        let moment = tick.scheduled_at().as_millis().unsigned_abs() ^ u64::from(tick.attempt());
        job(&worker, &tick, lease, dice.clone().split(moment), habits)
    };
    let schedule = instance.elect().schedule(schedule_name(schedule), habits.expression());
    let schedule = schedule.misfire(habits.misfire()).overlap(habits.overlap);
    let schedule = schedule.on_crash(habits.on_crash()).retries(habits.retries());
    let schedule = match habits.timeout {
        Some(timeout) => schedule.timeout(timeout),
        None => schedule,
    };
    schedule.keep_history(600 * SECOND, 20).run(run).ok()
}

/// Behaviour of the job of a tick.
#[derive(Clone, Copy, Debug)]
enum JobBehaviour {
    /// Takes so long, or until it is told to stop.
    Obeys(Duration),
    /// Takes so long, whatever it is told.
    Ignores(Duration),
    /// Fails after that time.
    Fails(Duration),
    /// Panics after that time.
    Panics(Duration),
}

impl JobBehaviour {
    fn any(instance: &Instance, dice: &mut Dice, habits: Habits) -> Self {
        let all = instance.fleet().plan().has(Trouble::Jobs);
        let usual = dice.up_to(habits.every * 3 / 4);
        match dice.below(if all { 20 } else { 16 }) {
            // Longer than it should.
            0..3 => Self::Obeys(dice.up_to(habits.every * 3)),
            3..16 => Self::Obeys(usual),
            16..18 => Self::Ignores(usual * 2),
            18 => Self::Fails(usual / 2),
            _ => Self::Panics(usual / 2),
        }
    }

    async fn run(self, work: &Work, lease: &Lease, dice: &mut Dice) -> Result<(), String> {
        let (time, obeys) = match self {
            Self::Obeys(time) | Self::Fails(time) | Self::Panics(time) => (time, true),
            Self::Ignores(time) => (time, false),
        };
        let enough = work.instance.fleet().enough();
        let works = async {
            work.round(dice).await;
            sleep(time).await;
            work.round(dice).await;
        };
        tokio::select! {
            biased;
            () = lease.cancelled(), if obeys => return Err("cancelled".to_owned()),
            // In quiet nothing takes long.
            () = enough.cancelled() => {}
            () = works => {}
        }
        match self {
            Self::Fails(_) => Err("on purpose".to_owned()),
            // As a panic, without the hook's message.
            Self::Panics(_) => resume_unwind(Box::new("on purpose")),
            Self::Obeys(_) | Self::Ignores(_) => Ok(()),
        }
    }
}

/// The job of a tick, watched.
fn job(
    instance: &Instance,
    tick: &Tick,
    lease: Lease,
    mut dice: Dice,
    habits: Habits,
) -> impl Future<Output = Result<(), String>> + Send + use<> {
    let (id, attempt, term) = (tick_id(tick), tick.attempt(), lease.term());
    let pen = instance.pen().clone();
    pen.record(EventKind::TickBegan { tick: id, attempt, term, lateness: tick.lateness() });
    let key = FIRST_SCHEDULE + id.schedule;
    // Of all that goes on under the lease: one run may be told to stop before.
    let waits = pen.begins(key, term, "", WorkKind::Job, lease.whole().token());
    let watch = TickWatch { pen, tick: id, attempt, key, term, how: "dropped", waits };
    let work = Work { instance: instance.clone(), key, term };
    let conduct = JobBehaviour::any(instance, &mut dice, habits);
    Watched::new(async move { conduct.run(&work, &lease, &mut dice).await }, watch)
}

struct TickWatch {
    pen: Pen,
    tick: TickId,
    attempt: u32,
    key: usize,
    term: Term,
    how: &'static str,
    waits: Option<AbortHandle>,
}

impl Witness for TickWatch {
    fn polls(&mut self) {
        self.pen.record(EventKind::Polled { key: self.key, term: self.term });
        self.how = "panicked";
    }

    fn polled(&mut self, answer: &Poll<Ended>) {
        self.how = match answer {
            Poll::Pending => "dropped",
            Poll::Ready(Ok(())) => "done",
            Poll::Ready(Err(_)) => "failed",
        };
    }
}

impl Drop for TickWatch {
    fn drop(&mut self) {
        if let Some(waits) = &self.waits {
            waits.abort();
        }
        let Self { tick, attempt, key, term, how, .. } = *self;
        self.pen.record(EventKind::TickEnded { tick, attempt, how });
        self.pen.record(EventKind::Ended { key, term });
    }
}

fn why() -> Why {
    Why::shortened("by chance")
}

/// Pauses a schedule, resumes it, or orders a run, by chance.
pub(super) async fn instruct(instance: &Instance, dice: &mut Dice) {
    let fleet = instance.fleet();
    let (name, schedules) = (schedule_name(dice.place(fleet.plan().schedules)), instance.elect().schedules());
    match dice.below(8) {
        0..2 => {
            let _ = schedules.pause(&name, why()).await;
            sleep(dice.up_to(10 * SECOND)).await;
            let _ = schedules.resume(&name).await;
        }
        2 => {
            let _ = schedules.resume(&name).await;
        }
        3 => {
            schedules.drain();
            sleep(dice.up_to(5 * SECOND)).await;
            schedules.undrain();
        }
        4 => {
            let _ = schedules.status(&name).await;
        }
        _ => {
            let _ = schedules.run_now(&name, why()).await;
        }
    }
}

/// In quiet: no schedule is held back any more, and each is wanted once.
pub(super) async fn let_go_on(fleet: &Fleet) {
    let Some(instance) = fleet.instance(0) else { return };
    for other in fleet.instances() {
        other.elect().schedules().undrain();
    }
    for schedule in 0..fleet.plan().schedules {
        let (name, schedules) = (schedule_name(schedule), instance.elect().schedules());
        for _ in 0..TRIES {
            if schedules.resume(&name).await.is_ok() {
                break;
            }
            sleep(SECOND / 10).await;
        }
        for _ in 0..TRIES {
            if let Ok(at) = schedules.run_now(&name, why()).await {
                let tick = TickId { schedule, instant: at, entry: Entry::Order };
                instance.record(EventKind::Ordered { tick });
                break;
            }
            sleep(SECOND / 10).await;
        }
    }
    // A pause that was on its way may have come after that.
    sleep(10 * SECOND).await;
    for schedule in 0..fleet.plan().schedules {
        let _ = instance.elect().schedules().resume(&schedule_name(schedule)).await;
    }
}

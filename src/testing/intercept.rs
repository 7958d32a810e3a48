//! Stores around a store: one hook decides what becomes of every call.

mod counting;
mod faulty;
mod operation;
mod slow;

use std::{fmt, panic, sync::Arc, time::Duration};

use futures::{FutureExt, TryFutureExt, future, stream::BoxStream};

pub use counting::{Counting, Counts};
pub use faulty::{Faulty, Rates};
pub use operation::Operation;
pub use slow::Slow;

use crate::{
    error::{Applied, StoreError},
    model::{Kind, LockId, Namespace, Retention, RunRecord, ScheduleId, SessionId},
    store::{
        Answer, BeatWrite, Capabilities, Claim, ClaimAnswer, Cursor, Declaration, Define, FinishRun, Held,
        Hint, Instruction, LockRecord, LockSeen, Open, Page, Presence, Purged, Queue, Release, ReleaseAnswer,
        Revocation, RevokeAnswer, RunPage, ScheduleRecord, ScheduleSeen, SessionRecord, SessionSeen,
        SetAnswer, SetValue, Store, Take, TakeAnswer, Ticket, Topics, Wait,
    },
};

/// A call on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Method called.
    pub operation: Operation,
    /// Number of locks, sessions or runs it names; 1 for calls that name none.
    pub keys: usize,
    /// Time its caller will wait.
    pub limit: Duration,
}

/// Faults of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Not applied, and the caller gets an error that says so ([`Applied::No`]).
    Refused,
    /// As [`Refused`](Self::Refused), and it will be until an operator grants a right: the error is not
    /// [retryable](StoreError::is_retryable).
    Forbidden,
    /// Not applied, and the caller cannot tell ([`Applied::Unknown`]).
    RequestLost,
    /// Applied, and the caller cannot tell ([`Applied::Unknown`]).
    AnswerLost,
    /// Not applied and never answered: [`Applied::Unknown`] when the caller's limit is over.
    Swallowed,
    /// Applied and never answered: [`Applied::Unknown`] when the caller's limit is over.
    Hang,
    /// Applied, its answer lost, then sent and applied again: the caller gets the second answer.
    Twice,
    /// Applied and answered, and applied once more when that time has passed. No caller gets the second answer.
    Echo(Duration),
}

/// Course of a call: a wait before it is applied, a fault, a wait before its answer arrives.
///
/// The caller waits no longer than its limit for all of it. What is under way then goes on without
/// the caller, so a long wait `before` is a write that arrives late.
///
/// ```
/// use std::time::Duration;
/// use tenure::testing::{Course, Fault};
///
/// let lost_after_a_while = Course::from(Fault::AnswerLost).late_by(Duration::from_secs(1));
/// assert_eq!(lost_after_a_while.before, Duration::from_secs(1));
/// assert!(Course::PLAIN.fault.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Time the call is on its way before it is applied.
    pub before: Duration,
    /// Fault of the call, if any.
    pub fault: Option<Fault>,
    /// Time its answer, or its error, is on its way.
    pub after: Duration,
}

impl Course {
    /// Course without a wait or a fault: the call goes to the store as if there were nothing between.
    pub const PLAIN: Self = Self { before: Duration::ZERO, fault: None, after: Duration::ZERO };

    /// The same, with so long a wait before the call is applied.
    #[must_use]
    pub const fn late_by(self, before: Duration) -> Self {
        Self { before, ..self }
    }

    /// The same, with so long a wait before the answer arrives.
    #[must_use]
    pub const fn answered_after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

impl From<Fault> for Course {
    fn from(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::PLAIN }
    }
}

/// Decides what becomes of the calls to a store.
///
/// ```
/// use std::sync::Arc;
/// use tenure::{store::MemoryStore, testing::{Call, Course, Fault, Intercept, Operation}};
///
/// /// A store that answers no read.
/// #[derive(Debug)]
/// struct WriteOnly;
///
/// impl Intercept for WriteOnly {
///     fn decide(&self, call: &Call) -> Course {
///         if call.operation.is_write() { Course::PLAIN } else { Fault::Refused.into() }
///     }
/// }
///
/// let store = WriteOnly.around(Arc::new(MemoryStore::default()));
/// # let _: Arc<dyn tenure::store::Store> = store;
/// ```
pub trait Intercept: fmt::Debug + Send + Sync + 'static {
    /// Decides on the course of this call. Called once for each, when its future is first polled.
    fn decide(&self, call: &Call) -> Course;

    /// Decides on the hints of one listener. Passed on unless this is overridden.
    fn hints(&self, hints: BoxStream<'static, Hint>) -> BoxStream<'static, Hint> {
        hints
    }

    /// A store around that one, whose calls this decides on.
    fn around(self, store: Arc<dyn Store>) -> Arc<Intercepted<Self>>
    where
        Self: Sized,
    {
        Arc::new(Intercepted::new(store, self))
    }
}

/// A store around a store: what becomes of each call is for `I` to decide.
///
/// A call that nothing happens to is passed on as it is, and ends if its caller drops it. Any other
/// runs on a task of its own (it needs a tokio runtime), so that it is applied also when its caller
/// has given up.
///
/// It wraps the [dedicated](Store::dedicated) store with the same `I`: calls of both are counted, and fail,
/// together.
#[derive(Debug)]
pub struct Intercepted<I> {
    store: Arc<dyn Store>,
    /// Shared with the stores of their own connection that are made of this one.
    intercept: Arc<I>,
}

/// Function that sends a call with those arguments.
type Sending<A, T> = for<'s> fn(&'s dyn Store, A, Duration) -> Answer<'s, T>;

impl<I: Intercept> Intercepted<I> {
    /// A store around that one.
    pub fn new(store: Arc<dyn Store>, intercept: I) -> Self {
        Self { store, intercept: Arc::new(intercept) }
    }

    /// Hook that decides: to set what it does next, or to ask what it has seen.
    #[must_use]
    pub fn intercept(&self) -> &I {
        &self.intercept
    }

    fn pass<A, T>(&self, call: Call, arguments: A, send: Sending<A, T>) -> Answer<'_, T>
    where
        A: Clone + Send + 'static,
        T: Send + 'static,
    {
        async move {
            let course = self.intercept.decide(&call);
            if course == Course::PLAIN {
                return send(&*self.store, arguments, call.limit).await;
            }
            let store = Arc::clone(&self.store);
            let errand = tokio::spawn(run(store, course, call, arguments, send));
            let answer = async {
                match errand.await {
                    Ok(Some(answer)) => answer,
                    Ok(None) => future::pending().await,
                    Err(failed) => match failed.try_into_panic() {
                        Ok(panic) => panic::resume_unwind(panic),
                        Err(_) => Err(self.error(&call, Applied::Unknown, "the runtime ended")),
                    },
                }
            };
            let late = |_| Err(self.error(&call, Applied::Unknown, "no answer within the limit"));
            tokio::time::timeout(call.limit, answer).await.unwrap_or_else(late)
        }
        .boxed()
    }

    fn error(&self, call: &Call, applied: Applied, cause: &'static str) -> StoreError {
        error(&*self.store, call, applied, cause)
    }
}

fn error(store: &dyn Store, call: &Call, applied: Applied, cause: &'static str) -> StoreError {
    StoreError::new(store.capabilities().name, call.operation.doing(), applied, true, cause)
}

/// The whole way of a call; nothing if no answer ever arrives.
async fn run<A: Clone + Send + 'static, T: Send + 'static>(
    store: Arc<dyn Store>,
    course: Course,
    call: Call,
    arguments: A,
    send: Sending<A, T>,
) -> Option<Result<T, StoreError>> {
    let Course { before, fault, after } = course;
    let failed = |applied, cause| Some(Err(error(&*store, &call, applied, cause)));
    wait(before).await;
    let answer = match fault {
        None => Some(send(&*store, arguments, call.limit).await),
        Some(Fault::Refused) => failed(Applied::No, "refused on purpose"),
        Some(Fault::Forbidden) => {
            let (name, doing) = (store.capabilities().name, call.operation.doing());
            Some(Err(StoreError::new(name, doing, Applied::No, false, "not authorized, on purpose")))
        }
        Some(Fault::RequestLost) => failed(Applied::Unknown, "request lost on purpose"),
        Some(Fault::AnswerLost) => {
            let _lost = send(&*store, arguments, call.limit).await;
            failed(Applied::Unknown, "answer lost on purpose")
        }
        Some(Fault::Swallowed) => None,
        Some(Fault::Hang) => {
            let _lost = send(&*store, arguments, call.limit).await;
            None
        }
        Some(Fault::Twice) => {
            let _lost = send(&*store, arguments.clone(), call.limit).await;
            Some(send(&*store, arguments, call.limit).await)
        }
        Some(Fault::Echo(later)) => {
            let answer = send(&*store, arguments.clone(), call.limit).await;
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                wait(later).await;
                let _unheard = send(&*store, arguments, call.limit).await;
            });
            Some(answer)
        }
    };
    wait(after).await;
    answer
}

/// A wait of zero makes no trip to the timer, so that the order of calls stays as it was.
async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

macro_rules! operations {
    ($($operation:ident $method:ident($($argument:ident: $type:ty),+) -> $answer:ty, $keys:expr;)+) => {
        impl<I: Intercept> Store for Intercepted<I> {
            fn capabilities(&self) -> Capabilities {
                self.store.capabilities()
            }

            $(fn $method(&self, $($argument: $type,)+ limit: Duration) -> Answer<'_, $answer> {
                let call = Call { operation: Operation::$operation, keys: $keys, limit };
                self.pass(call, ($($argument,)+), |store, ($($argument,)+), limit| {
                    store.$method($($argument,)+ limit)
                })
            })+

            fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
                self.intercept.hints(self.store.hints(topics))
            }

            // It goes to no record: nothing happens to it.
            fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
                self.store.presence(session)
            }

            fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
                let intercept = Arc::clone(&self.intercept);
                let around = |store| Arc::new(Intercepted { store, intercept }) as Arc<dyn Store>;
                self.store.dedicated().map_ok(|store| store.map(around)).boxed()
            }
        }
    };
}

operations! {
    Open open(open: Open) -> SessionSeen, 1;
    Beat beat(beat: BeatWrite) -> SessionSeen, 1;
    Observe observe(sessions: Vec<SessionId>) -> Vec<SessionSeen>, sessions.len();
    Declare declare(declaration: Declaration) -> SessionSeen, 1;
    Sessions sessions(namespace: Namespace, after: Option<Cursor>, at_most: usize) -> Page<SessionRecord>, 1;
    Take take(takes: Vec<Take>, dead: Vec<SessionId>) -> Vec<TakeAnswer>, takes.len();
    Release release(releases: Vec<Release>) -> Vec<ReleaseAnswer>, releases.len();
    Wait wait(waits: Vec<Wait>) -> (), waits.len();
    StopWaiting stop_waiting(waits: Vec<(LockId, SessionId, Ticket)>) -> (), waits.len();
    Waiters waiters(lock: LockId, at_most: usize) -> Queue, 1;
    Places places(places: Vec<(LockId, SessionId, Ticket)>) -> Vec<bool>, places.len();
    SetValue set_value(set: SetValue) -> SetAnswer, 1;
    Locks locks(locks: Vec<LockId>) -> Vec<LockSeen>, locks.len();
    ListLocks list_locks(
        namespace: Namespace, kind: Option<Kind>, after: Option<Cursor>, at_most: usize
    ) -> Page<LockRecord>, 1;
    HeldBy held_by(session: SessionId, after: Option<Cursor>, at_most: usize) -> Page<Held>, 1;
    LatestGrants latest_grants(sessions: Vec<SessionId>, at_most: usize) -> Vec<LockRecord>, sessions.len();
    Revoke revoke(revocation: Revocation) -> RevokeAnswer, 1;
    Define define(define: Define) -> ScheduleSeen, 1;
    Instruct instruct(schedule: ScheduleId, instruction: Instruction) -> ScheduleSeen, 1;
    Schedules schedules(schedules: Vec<ScheduleId>) -> Vec<ScheduleSeen>, schedules.len();
    ListSchedules list_schedules(
        namespace: Namespace, after: Option<Cursor>, at_most: usize
    ) -> Page<ScheduleRecord>, 1;
    DeleteSchedule delete_schedule(schedule: ScheduleId) -> bool, 1;
    Claim claim(claim: Claim) -> ClaimAnswer, 1;
    Finish finish(finish: FinishRun) -> ClaimAnswer, 1;
    History history(schedule: ScheduleId, after: Option<Cursor>, at_most: usize) -> RunPage, 1;
    LastRuns last_runs(
        schedules: Vec<ScheduleId>, at_most: usize
    ) -> Vec<Page<RunRecord>>, schedules.len();
    PurgeRuns purge_runs(schedule: ScheduleId, older_than: Duration, keep: usize) -> RunPage, 1;
    Purge purge(namespace: Namespace, retention: Retention, after: Option<Cursor>) -> Purged, 1;
}

#[cfg(test)]
mod tests;

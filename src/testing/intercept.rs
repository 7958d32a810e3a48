//! Stores around a store: one hook decides what becomes of every call.

mod counting;
mod faulty;
mod slow;

use std::{fmt, panic, sync::Arc, time::Duration};

use futures::{FutureExt, TryFutureExt, future, stream::BoxStream};

pub use counting::{Counting, Counts};
pub use faulty::{Faulty, Rates};
pub use slow::Slow;

pub use crate::store::Operation;
use crate::{
    error::{Applied, StoreError},
    model::SessionId,
    store::{Answer, Capabilities, Hint, Op, Presence, Reply, Store, Topics},
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

    fn error(&self, call: &Call, applied: Applied, cause: &'static str) -> StoreError {
        error(&*self.store, call, applied, cause)
    }
}

fn error(store: &dyn Store, call: &Call, applied: Applied, cause: &'static str) -> StoreError {
    StoreError::new(store.capabilities().name, call.operation.doing(), applied, true, cause)
}

/// The whole way of a call; nothing if no answer ever arrives.
async fn run(store: Arc<dyn Store>, course: Course, call: Call, op: Op) -> Option<Result<Reply, StoreError>> {
    let Course { before, fault, after } = course;
    let failed = |applied, cause| Some(Err(error(&*store, &call, applied, cause)));
    wait(before).await;
    let answer = match fault {
        None => Some(store.call(op, call.limit).await),
        Some(Fault::Refused) => failed(Applied::No, "refused on purpose"),
        Some(Fault::Forbidden) => {
            let (name, doing) = (store.capabilities().name, call.operation.doing());
            Some(Err(StoreError::new(name, doing, Applied::No, false, "not authorized, on purpose")))
        }
        Some(Fault::RequestLost) => failed(Applied::Unknown, "request lost on purpose"),
        Some(Fault::AnswerLost) => {
            let _lost = store.call(op, call.limit).await;
            failed(Applied::Unknown, "answer lost on purpose")
        }
        Some(Fault::Swallowed) => None,
        Some(Fault::Hang) => {
            let _lost = store.call(op, call.limit).await;
            None
        }
        Some(Fault::Twice) => {
            let _lost = store.call(op.clone(), call.limit).await;
            Some(store.call(op, call.limit).await)
        }
        Some(Fault::Echo(later)) => {
            let answer = store.call(op.clone(), call.limit).await;
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                wait(later).await;
                let _unheard = store.call(op, call.limit).await;
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

/// Returns how many locks, sessions or runs that names.
fn keys(op: &Op) -> usize {
    match op {
        Op::Observe(sessions) | Op::LatestGrants(sessions, _) => sessions.len(),
        Op::Take(takes, _) => takes.len(),
        Op::Release(releases) => releases.len(),
        Op::Wait(waits) => waits.len(),
        Op::StopWaiting(places) | Op::Places(places) => places.len(),
        Op::Locks(locks) | Op::Peek(locks) => locks.len(),
        Op::Schedules(schedules) | Op::LastRuns(schedules, _) => schedules.len(),
        _ => 1,
    }
}

impl<I: Intercept> Store for Intercepted<I> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        let call = Call { operation: op.operation(), keys: keys(&op), limit };
        async move {
            let course = self.intercept.decide(&call);
            if course == Course::PLAIN {
                return self.store.call(op, limit).await;
            }
            let errand = tokio::spawn(run(Arc::clone(&self.store), course, call, op));
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
            tokio::time::timeout(limit, answer).await.unwrap_or_else(late)
        }
        .boxed()
    }

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

    // Nor does this.
    fn at_rest(&self) -> Answer<'_, ()> {
        self.store.at_rest()
    }
}

#[cfg(test)]
mod tests;

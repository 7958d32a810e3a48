//! A future that is polled only while its lease is valid.

use std::{
    any::Any,
    convert::Infallible,
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Lease,
    hold::{Hold, LeaseCell},
    nesting::Nesting,
    parcel::Parcel,
};
use crate::{
    logic::flaw::Flaw,
    model::Loss,
    words::{self, JobSpan},
};

/// Output of work that is [spawned](crate::Lease::spawn) on a lease: a `Result`, or `()` for work that cannot fail.
pub trait JobOutput {
    /// Value of work that finished.
    type Value: Send + 'static;
    /// Error of work that failed.
    type Error: Send + 'static;

    /// Returns it as a result.
    ///
    /// # Errors
    /// The work failed.
    fn into_result(self) -> Result<Self::Value, Self::Error>;
}

impl<T: Send + 'static, E: Send + 'static> JobOutput for Result<T, E> {
    type Value = T;
    type Error = E;

    fn into_result(self) -> Self {
        self
    }
}

impl JobOutput for () {
    type Value = ();
    type Error = Infallible;

    fn into_result(self) -> Result<(), Infallible> {
        Ok(self)
    }
}

/// End of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobEnd<T, E> {
    /// The job returned `Ok` in time.
    Finished(T),
    /// The job returned `Err` in time.
    Failed(E),
    /// The job panicked, with this message.
    Panicked(String),
    /// The job was dropped before it returned.
    Cancelled(Loss),
    /// A poll of the job, or a blocking call, went on after the lease had ended. Another instance may have
    /// held the lock at the same time: only the term and a fence cover what the job did last.
    Overran {
        /// Time since the lease ended.
        by: Duration,
        /// Reason why the lease ended.
        loss: Loss,
    },
}

impl<T, E> JobEnd<T, E> {
    /// Returns the job's value, if it finished.
    #[must_use]
    pub fn finished(self) -> Option<T> {
        if let Self::Finished(value) = self { Some(value) } else { None }
    }

    /// Returns one word for it, as logs and metrics name it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Finished(_) => "finished",
            Self::Failed(_) => "failed",
            Self::Panicked(_) => "panicked",
            Self::Cancelled(_) => "cancelled",
            Self::Overran { .. } => "overran",
        }
    }
}

/// A job that runs. Dropping this lets it run on: it gives nothing up, as the other
/// [ways to give a key up](crate::elect#ways-to-give-a-key-up) do.
#[derive(Debug)]
pub struct JobHandle<T, E> {
    lease: Lease,
    end: oneshot::Receiver<JobEnd<T, E>>,
}

impl<T, E> JobHandle<T, E> {
    /// Returns the job's lease.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Waits for its end, and until its key is released: the next may have it then. A release that the store does not
    /// confirm is waited for no longer than `stop_grace` and two attempts.
    ///
    /// # Cancel safety
    /// Dropping this lets the job run on; its outcome is lost.
    pub async fn join(self) -> JobEnd<T, E> {
        // Without an answer the runtime was shut down, and the job with it.
        let end = self.end.await;
        let loss = self.lease.loss();
        // A lease that ran out is not given back: nothing is to be confirmed.
        if !matches!(loss, Some(Loss::Expired { .. })) {
            self.lease.cell.returned().await;
        }
        end.unwrap_or_else(|_| JobEnd::Cancelled(loss.unwrap_or(Loss::Closed)))
    }
}

/// Runs a job under its lock, and gives the lock back when it has ended.
pub(crate) fn start<T, E, F>(hold: Hold, job: impl FnOnce(Lease) -> F + Send + 'static) -> JobHandle<T, E>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let (lease, runtime) = (hold.lease(), hold.cell().engine().runtime.clone());
    let (reply, end) = oneshot::channel();
    let given = lease.clone();
    // Here and not in the task: a runtime that shuts down drops a task before it ran.
    let parcel = Parcel::of(&hold.cell().clone(), (hold.work(), hold));
    runtime.spawn(async move {
        let Some((worker, hold)) = parcel.open() else { return };
        let end = drive(hold.cell(), async move { job(given).await }).await;
        drop(worker);
        drop(hold);
        // An error only says that no caller waits for it.
        let _ = reply.send(end);
    });
    JobHandle { lease, end }
}

/// Runs a blocking job under its lock, on a thread of its own. It cannot be dropped: its lock is kept until it returns.
///
/// # Errors
/// There is no thread for it: it never begins, and its lock goes back.
pub(crate) fn start_blocking<T, E>(
    hold: Hold,
    job: impl FnOnce(Lease) -> Result<T, E> + Send + 'static,
) -> io::Result<JobHandle<T, E>>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let (lease, engine) = (hold.lease(), hold.cell().engine().clone());
    let (reply, end) = oneshot::channel();
    let (given, worker) = (lease.clone(), hold.work());
    // Dropped without a thread, it has not begun.
    lease.cell.mark_picked_up(false);
    engine.block(move || {
        hold.cell().mark_picked_up(true);
        let cell = hold.cell().clone();
        let mut span = JobSpan::new();
        let end = span.scope(&cell.lock, cell.term, cell.session.id, || match cell.check_stop(cell.now()) {
            Some(loss) => JobEnd::Cancelled(loss),
            None => judge(
                catch_unwind(AssertUnwindSafe(|| Nesting::of(&cell).scope(|| job(given)))),
                cell.overrun(cell.now()),
            ),
        });
        report(&cell, &end);
        drop(worker);
        drop(hold);
        let _ = reply.send(end);
    })?;
    Ok(JobHandle { lease, end })
}

/// Makes a call that blocks its thread, as a part of a job, on a thread of its own. The call cannot be dropped: if this
/// is, the call runs on, and its lock is kept until it returns. One that has not begun by then never does.
pub(crate) async fn call(
    lease: &Lease,
    call: impl FnOnce(Lease) -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let Some(worker) = lease.cell.enter() else { return Err("the lease has ended".to_owned()) };
    let (reply, end) = oneshot::channel();
    let given = lease.clone();
    let begun = lease.cell.engine().block(move || {
        let cell = given.cell.clone();
        let mut span = JobSpan::new();
        let end = span.scope(&cell.lock, cell.term, cell.session.id, || {
            if reply.is_closed() || cell.check_stop(cell.now()).is_some() {
                return None;
            }
            let end: JobEnd<(), String> =
                judge(catch_unwind(AssertUnwindSafe(|| call(given))), cell.overrun(cell.now()));
            Some(end)
        });
        let Some(end) = end else { return drop(worker) };
        // The caller that waits for it reports the rest.
        if matches!(end, JobEnd::Overran { .. }) || reply.is_closed() {
            report(&cell, &end);
        }
        let _ = reply.send(end);
        drop(worker);
    });
    begun.map_err(|error| no_thread(&error))?;
    match end.await {
        Ok(JobEnd::Finished(())) => Ok(()),
        Ok(JobEnd::Failed(error)) => Err(error),
        Ok(JobEnd::Panicked(panic)) => resume_unwind(Box::new(panic)),
        Ok(JobEnd::Cancelled(_) | JobEnd::Overran { .. }) | Err(_) => Err("the lease has ended".to_owned()),
    }
}

/// Says that a job that blocks could not begin.
pub(super) fn no_thread(error: &io::Error) -> String {
    format!("no thread could be started for a job that blocks: {error}")
}

/// Polls a future for as long as its lease is valid.
pub(crate) async fn drive<T, E>(
    cell: &Arc<LeaseCell>,
    job: impl Future<Output = Result<T, E>>,
) -> JobEnd<T, E> {
    let mut guarded =
        Guarded { cell, nesting: Nesting::of(cell), job: Some(Box::pin(job)), span: JobSpan::new() };
    let mut stopped = pin!(cell.stopped());
    let unchecked = cell.session.flaws.has(Flaw::NoCheckInPoll);
    let end = std::future::poll_fn(|cx| {
        // Only to be woken when the time has come: the check itself is in the guarded poll.
        while !unchecked && stopped.as_mut().poll(cx).is_ready() {
            if let Poll::Ready(end) = guarded.poll(cx) {
                return Poll::Ready(end);
            }
            // A beat was answered in between.
            stopped.set(cell.stopped());
        }
        guarded.poll(cx)
    })
    .await;
    report(cell, &end);
    end
}

struct Guarded<'a, F> {
    cell: &'a Arc<LeaseCell>,
    nesting: Arc<Nesting>,
    job: Option<Pin<Box<F>>>,
    span: JobSpan,
}

impl<T, E, F: Future<Output = Result<T, E>>> Guarded<'_, F> {
    /// R9: no poll begins after the end, also if the process was frozen until now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<JobEnd<T, E>> {
        let (cell, unchecked) = (self.cell, self.cell.session.flaws.has(Flaw::NoCheckInPoll));
        let Some(job) = &mut self.job else { return Poll::Pending };
        // Within the span: the log may take any time to enter and to leave it.
        let end = self.span.scope(&cell.lock, cell.term, cell.session.id, || {
            if !unchecked && let Some(loss) = cell.check_stop(cell.now()) {
                return Some(JobEnd::Cancelled(loss));
            }
            let polled = catch_unwind(AssertUnwindSafe(|| self.nesting.scope(|| job.as_mut().poll(cx))));
            let overrun = cell.overrun(cell.now());
            match polled {
                Ok(Poll::Pending) => {
                    overrun.filter(|_| !unchecked).map(|(by, loss)| JobEnd::Overran { by, loss })
                }
                Ok(Poll::Ready(result)) => Some(judge(Ok(result), overrun)),
                Err(panic) => Some(judge(Err(panic), overrun)),
            }
        });
        match end {
            Some(end) => Poll::Ready(self.discard(end)),
            None => Poll::Pending,
        }
    }

    /// Drops the future. A panic while it is dropped counts, too.
    fn discard(&mut self, end: JobEnd<T, E>) -> JobEnd<T, E> {
        let (job, cell) = (self.job.take(), self.cell);
        self.span.scope(&cell.lock, cell.term, cell.session.id, || {
            match catch_unwind(AssertUnwindSafe(|| drop(job))) {
                Ok(()) => end,
                Err(panic) => JobEnd::Panicked(panic_message(&*panic)),
            }
        })
    }
}

/// Returns the end of a job by its result, and by how much that came after the end of its lease.
fn judge<T, E>(
    result: Result<Result<T, E>, Box<dyn Any + Send>>,
    overrun: Option<(Duration, Loss)>,
) -> JobEnd<T, E> {
    if let Some((by, loss)) = overrun {
        return JobEnd::Overran { by, loss };
    }
    match result {
        Ok(Ok(value)) => JobEnd::Finished(value),
        Ok(Err(error)) => JobEnd::Failed(error),
        Err(panic) => JobEnd::Panicked(panic_message(&*panic)),
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn report<T, E>(cell: &LeaseCell, end: &JobEnd<T, E>) {
    let (crate::model::LockId { kind, key, namespace }, term) = (&cell.lock, cell.term);
    match end {
        JobEnd::Overran { by, loss } => {
            let holder = cell.engine().config.holder();
            words::error!(%kind, key = key.as_str(), %namespace, %term, %holder, overran_by = ?by, %loss, "a job kept running after its lease ended");
            cell.engine().overran(cell, *by);
        }
        JobEnd::Panicked(panic) => {
            cell.engine().panicked(cell, panic);
        }
        end => words::debug!(%kind, key = key.as_str(), %namespace, %term, end = end.name(), "a job ended"),
    }
}

//! An operation, as its caller has it: an answer within a limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    backlog::{Backlog, Job},
    trouble::Trouble,
};
use crate::{
    error::{Applied, StoreError},
    model::StoreTime,
    store::{
        Answer, Bell,
        sqlite::{
            hints,
            rows::{Outcome, SqlRows},
        },
        steps::Step,
    },
};

const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

/// The progress of an operation.
#[derive(Debug, Default)]
struct Progress(AtomicU8);

impl Progress {
    fn go_on(&self, to: u8) -> bool {
        self.0.compare_exchange(WAITS, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Gives an operation up when its caller goes away.
struct Caller(Arc<Progress>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.go_on(GIVEN_UP);
    }
}

struct Call<T, W> {
    progress: Arc<Progress>,
    is_synced: bool,
    doing: &'static str,
    work: W,
    done: Option<T>,
    /// The bells that it rang.
    rung: Vec<Bell>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, W> Job for Call<T, W>
where
    T: Send,
    W: Fn(&mut Step<'_, SqlRows<'_>>) -> Outcome<T> + Send,
{
    fn is_synced(&self) -> bool {
        self.is_synced
    }

    fn is_given_up(&self) -> bool {
        self.progress.0.load(Ordering::Acquire) == GIVEN_UP
    }

    fn begin(&self) -> bool {
        self.progress.go_on(BEGUN)
    }

    fn rung(&self) -> &[Bell] {
        &self.rung
    }

    fn run(&mut self, rows: &mut SqlRows<'_>, now: StoreTime) -> Outcome<()> {
        let mut step = Step::new(rows, now);
        let done = (self.work)(&mut step)?;
        self.rung = step.into_bells();
        hints::ring(rows.connection, &self.rung, now)?;
        self.done = Some(done);
        Ok(())
    }

    fn answer(self: Box<Self>, ended: Result<(), (Trouble, Applied)>) {
        let answer = match (ended, self.done) {
            (Ok(()), Some(done)) => Ok(done),
            (Ok(()), None) => Err(Trouble::ended().error(self.doing, Applied::Unknown)),
            (Err((trouble, applied)), _) => Err(trouble.error(self.doing, applied)),
        };
        // An error only says that the caller has gone.
        let _ = self.reply.send(answer);
    }
}

/// Performs an operation on the thread behind that backlog.
///
/// An operation that has not begun when the caller gives up never begins: then nothing was changed. One that has
/// begun is done to its end, and its outcome is unknown.
pub(crate) fn call<'a, T: Send + 'static>(
    backlog: &'a Backlog,
    is_synced: bool,
    doing: &'static str,
    limit: Duration,
    work: impl Fn(&mut Step<'_, SqlRows<'_>>) -> Outcome<T> + Send + 'static,
) -> Answer<'a, T> {
    Box::pin(async move {
        let progress = Arc::<Progress>::default();
        let (reply, answer) = oneshot::channel();
        let caller = Caller(Arc::clone(&progress));
        backlog.push(Box::new(Call {
            progress,
            is_synced,
            doing,
            work,
            done: None,
            rung: Vec::new(),
            reply,
        }));
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Trouble::ended().error(doing, Applied::Unknown)),
            Err(_) => {
                let applied = if caller.0.go_on(GIVEN_UP) { Applied::No } else { Applied::Unknown };
                Err(backlog.why_late().error(doing, applied))
            }
        }
    })
}

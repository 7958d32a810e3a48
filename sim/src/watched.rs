//! Jobs whose polls are recorded.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// Result of a job.
pub type Ended = Result<(), String>;

/// Witness of a job, which records what happens to it. It is dropped after the job.
pub trait Witness: Send + Unpin {
    /// Records that the job is about to be polled.
    fn polls(&mut self);

    /// Records the answer to a poll; there is none if the job panics.
    fn polled(&mut self, _answer: &Poll<Ended>) {}
}

/// A job whose polls are recorded.
pub struct Watched<W> {
    job: Pin<Box<dyn Future<Output = Ended> + Send>>,
    /// Dropped after the job.
    witness: W,
}

impl<W: Witness> Watched<W> {
    /// Returns the job, seen by this witness.
    pub fn new(job: impl Future<Output = Ended> + Send + 'static, witness: W) -> Self {
        Self { job: Box::pin(job), witness }
    }
}

impl<W> fmt::Debug for Watched<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl<W: Witness> Future for Watched<W> {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        self.witness.polls();
        let answer = self.job.as_mut().poll(cx);
        self.witness.polled(&answer);
        answer
    }
}

//! The span of a job: the program's lines carry it.

use std::{mem, thread};

use tracing::Span;

use crate::{
    model::{LockId, SessionId, Term},
    sync::caught,
};

/// The span of a job, made when it is entered first. It is made, entered, left and dropped by the job's own task or
/// call, and given up after the first panic of the log: without it, the job runs on.
#[derive(Debug)]
pub(crate) struct JobSpan(State);

#[derive(Debug)]
enum State {
    NotMade,
    Made(Span),
    GivenUp,
}

impl JobSpan {
    pub(crate) const fn new() -> Self {
        Self(State::NotMade)
    }

    /// Takes a step of the job, which does not panic, within its span.
    pub(crate) fn scope<T>(
        &mut self,
        LockId { kind, key, namespace }: &LockId,
        term: Term,
        session: SessionId,
        step: impl FnOnce() -> T,
    ) -> T {
        if matches!(self.0, State::NotMade) {
            let mut made = None;
            caught(|| {
                made = Some(tracing::info_span!(
                    target: "tenure::elect::job", "job", %kind, key = key.as_str(), %namespace, %term, %session
                ));
            });
            self.0 = made.map_or(State::GivenUp, State::Made);
        }
        self.with(|span| span.with_subscriber(|(id, log)| log.enter(id)));
        let result = step();
        self.with(|span| span.with_subscriber(|(id, log)| log.exit(id)));
        result
    }

    fn with(&mut self, step: impl FnOnce(&Span) -> Option<()>) {
        if let State::Made(span) = &self.0
            && !caught(|| step(span))
            && let State::Made(span) = mem::replace(&mut self.0, State::GivenUp)
        {
            mem::forget(span);
        }
    }
}

impl Drop for JobSpan {
    fn drop(&mut self) {
        let State::Made(span) = mem::replace(&mut self.0, State::GivenUp) else { return };
        if thread::panicking() {
            // A second panic would abort the process.
            mem::forget(span);
        } else {
            caught(move || drop(span));
        }
    }
}

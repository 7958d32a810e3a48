//! Code of the program that a client calls, on threads of its own ([R14](crate::store#rules-of-safety)): it may block
//! for ever, or panic, and no beat waits for it.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use futures::{FutureExt, future::BoxFuture};
use mongodb::event::{EventHandler, command::CommandEvent};
use tokio::{runtime, sync::oneshot};

use crate::sync::caught;

/// Number of events that may wait for a handler. Beyond that the next ones are dropped.
const EVENTS: usize = 8192;

/// Makes a handler that passes events on to the program's, which a thread calls.
pub(crate) fn events(handler: EventHandler<CommandEvent>) -> io::Result<EventHandler<CommandEvent>> {
    let (pass, events) = sync_channel(EVENTS);
    thread::Builder::new().name("tenure-events".to_owned()).spawn(move || handle(&handler, &events))?;
    Ok(EventHandler::callback(move |event| {
        // An error says that it is full.
        let _ = pass.try_send(event);
    }))
}

fn handle(handler: &EventHandler<CommandEvent>, events: &Receiver<CommandEvent>) {
    for event in events {
        caught(|| match handler {
            EventHandler::Callback(call) => call(event),
            EventHandler::AsyncCallback(call) => drop(run(call(event))),
            EventHandler::TokioMpsc(send) => drop(send.blocking_send(event)),
            // The driver has no other.
            _ => {}
        });
    }
}

/// Runs a future of the program's on a runtime that is there for it alone.
fn run<T>(future: impl Future<Output = T>) -> io::Result<T> {
    Ok(runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}

type Answered = Result<String, Box<dyn Error + Send + Sync>>;
type Ask = dyn Fn() -> BoxFuture<'static, Answered> + Send + Sync;

/// The source that the program has its connection string from.
#[derive(Clone)]
pub(crate) struct UriSource {
    ask: Arc<Ask>,
    /// A thread asks it. The next one begins after that has its answer: a source that never answers takes one thread.
    asked: Arc<AtomicBool>,
}

impl UriSource {
    pub(crate) fn new<F, A>(source: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Answered> + Send + 'static,
    {
        Self { ask: Arc::new(move || source().boxed()), asked: Arc::default() }
    }

    /// For another caller, which does not wait for the answers to others.
    pub(crate) fn for_another(&self) -> Self {
        Self { ask: Arc::clone(&self.ask), asked: Arc::default() }
    }

    /// Asks it. What it answers after its caller has given up is dropped.
    pub(crate) async fn ask(&self) -> Answered {
        if self.asked.swap(true, Ordering::AcqRel) {
            return Err("it has not answered the last time it was asked".into());
        }
        let (tell, answer) = oneshot::channel();
        let (ask, asked) = (Arc::clone(&self.ask), Answering(Arc::clone(&self.asked)));
        let call = move || {
            let answered = run(AssertUnwindSafe(async { ask().await }).catch_unwind());
            drop(asked);
            let answered = match answered {
                Ok(Ok(answered)) => answered,
                Ok(Err(_)) => Err("it panicked".into()),
                Err(error) => Err(error.into()),
            };
            let _ = tell.send(answered);
        };
        thread::Builder::new().name("tenure-uri".to_owned()).spawn(call)?;
        answer.await.unwrap_or_else(|_| Err("it panicked".into()))
    }
}

impl fmt::Debug for UriSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(..)")
    }
}

/// A source that is asked.
struct Answering(Arc<AtomicBool>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

//! The time thread: looks at the clock for all instances of the process, whatever keeps their keepers.
//!
//! A keeper polls the store, which may be the program's own. If that blocks, the keeper cannot tell any job that a
//! lease ends. This thread can: it polls no future, asks no store, wakes nobody, and knows nothing but sessions and the
//! clock (R14).
//! In the time of a test there is none, as all of an instance is on the test's runtime.

use std::{
    io, mem,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::Duration,
};

use super::{session::Session, wakes};
use crate::{
    clock::Clock,
    sync::{OwnThread, caught, locked},
    words::Under,
};

/// Longest time between two looks while leases are held: timers stop while a machine is suspended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A session, the clock it goes by, and the log that it is told of in.
struct Watch {
    session: Weak<Session>,
    clock: Arc<dyn Clock>,
    under: Under,
}

struct Watched {
    sessions: Vec<Arc<Watch>>,
    thread: OwnThread,
    /// There is nothing to look at, and it waits to be woken.
    is_idle: bool,
}

static WATCHED: Mutex<Watched> =
    Mutex::new(Watched { sessions: Vec::new(), thread: OwnThread::NONE, is_idle: false });
static NEWS: Condvar = Condvar::new();

/// Starts the thread, if there is none yet.
pub(super) fn start() -> io::Result<()> {
    let mut watched = locked(&WATCHED);
    if watched.thread.begin("tenure-time", look_always)? {
        watched.is_idle = false;
    }
    Ok(())
}

/// Watches a session from now on, until its last handle is gone.
pub(super) fn watch(session: &Arc<Session>, clock: &Arc<dyn Clock>, under: &Under) {
    let watch =
        Arc::new(Watch { session: Arc::downgrade(session), clock: clock.clone(), under: under.clone() });
    let mut watched = locked(&WATCHED);
    let gone = watched.take_gone();
    watched.sessions.push(watch);
    drop(watched);
    let_go(gone);
}

/// Drops these elsewhere. With a watch may go the last handle of a clock or of a log, whose drop is code of others.
fn let_go<T: Send + 'static>(gone: Vec<T>) {
    if !gone.is_empty() {
        wakes::later(move || drop(gone));
    }
}

/// Wakes the thread, as a lease has begun.
pub(super) fn wake() {
    let mut watched = locked(&WATCHED);
    if mem::take(&mut watched.is_idle) {
        NEWS.notify_one();
    }
}

fn look_always() {
    let mut watched = locked(&WATCHED);
    loop {
        let gone = watched.take_gone();
        let held: Vec<_> = watched.sessions.iter().filter_map(Watch::held).collect();
        drop(watched);
        let_go(gone);
        let waits = held.iter().map(|(session, watch)| {
            let mut wait = LOOK_EVERY;
            // The clock may be the program's.
            caught(|| wait = watch.under.run(|| session.look(&*watch.clock)));
            wait
        });
        let waits = waits.min();
        // These may be the last that have it.
        let (sessions, watches): (Vec<_>, Vec<_>) = held.into_iter().unzip();
        let_go(sessions.into_iter().filter_map(Arc::into_inner).collect());
        let_go(watches.into_iter().filter_map(Arc::into_inner).collect());
        watched = locked(&WATCHED);
        watched = match waits {
            Some(wait) => {
                let waited = NEWS.wait_timeout(watched, wait.min(LOOK_EVERY));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            // A lease may have begun since.
            None if watched.sessions.iter().any(|watch| watch.held().is_some()) => watched,
            None => {
                watched.is_idle = true;
                NEWS.wait(watched).unwrap_or_else(PoisonError::into_inner)
            }
        };
    }
}

impl Watched {
    /// Takes out the watches of sessions whose last handle is gone.
    fn take_gone(&mut self) -> Vec<Arc<Watch>> {
        self.sessions.extract_if(.., |watch| watch.session.strong_count() == 0).collect()
    }
}

impl Watch {
    /// Returns the session if there are leases under it.
    fn held(self: &Arc<Self>) -> Option<(Arc<Session>, Arc<Self>)> {
        let session = self.session.upgrade()?;
        (session.inside() > 0).then(|| (session, self.clone()))
    }
}

impl Session {
    /// Tells what runs under it if its time has come, though its keeper should have. Returns when to look again.
    fn look(&self, clock: &dyn Clock) -> Duration {
        let now = clock.now();
        if let Some(loss) = self.loss(now) {
            if self.finish(&loss) {
                self.cut_all(&loss);
            }
            return LOOK_EVERY;
        }
        if let Some(loss) = self.due(now).filter(|_| !self.is_expiring()) {
            self.cancel_all(&loss);
        }
        let end = self.end();
        let told = if self.is_expiring() { end } else { end - self.times.stop_grace };
        told.since(now)
    }
}

//! The threads that wake callers of the program.
//!
//! A waker is code of others: that of a bridge to another language may block until it has its lock. So what the keeper,
//! the time thread or a check of a lease has found is recorded first, and who waits for it is woken here (R14). A
//! waker that blocks keeps its thread, and another goes on with the rest. What is dropped here may run code of others
//! as well, such as that of a log.

use std::{
    collections::VecDeque,
    io, mem,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

use tokio::sync::watch;

use crate::sync::{OwnThread, caught, locked};

const NAME: &str = "tenure-wakes";
/// Wakers that may block at once. Beyond that, others wait for them.
const MOST: usize = 64;
/// Threads that stay when nothing is left to do: one that works, and one that takes over from it.
const STAY: usize = 2;

type Wake = Box<dyn FnOnce() + Send>;

struct Wakes {
    all: VecDeque<Wake>,
    first: OwnThread,
    threads: usize,
    /// Threads that have nothing to do, or have just begun.
    idle: usize,
}

static WAKES: Mutex<Wakes> =
    Mutex::new(Wakes { all: VecDeque::new(), first: OwnThread::NONE, threads: 0, idle: 0 });
static NEWS: Condvar = Condvar::new();

/// Place where callers are woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waking {
    /// On threads that nothing else waits for.
    Aside,
    /// At once: the time of a test would pass meanwhile.
    Here,
}

impl Waking {
    /// Returns the place for an engine, by whether time passes while something waits.
    pub(crate) const fn where_time(passes: bool) -> Self {
        if passes { Self::Aside } else { Self::Here }
    }

    /// Changes a value at once, and has those woken that wait for a change, if this is one.
    pub(crate) fn change<T: Send + Sync + 'static>(
        self,
        value: &Arc<watch::Sender<T>>,
        change: impl FnOnce(&mut T) -> bool,
    ) {
        let mut is_news = false;
        value.send_if_modified(|known| {
            is_news = change(known);
            false
        });
        if is_news {
            let value = value.clone();
            self.wake(move || value.send_if_modified(|_| true));
        }
    }

    /// Has this called. What it returns is not asked for: a caller that does not wait any more is not woken.
    pub(crate) fn wake<T>(self, wake: impl FnOnce() -> T + Send + 'static) {
        match self {
            Self::Aside => later(wake),
            Self::Here => _ = caught(wake),
        }
    }
}

/// Starts the first thread, if there is none yet.
pub(super) fn start() -> io::Result<()> {
    locked(&WAKES).start()
}

/// Has this called on one of the threads.
pub(super) fn later<T>(wake: impl FnOnce() -> T + Send + 'static) {
    let mut wakes = locked(&WAKES);
    // It was started with the first instance, unless this is a fork. If there is none to be had, the next tries again.
    let begun = wakes.start();
    wakes.all.push_back(Box::new(|| _ = wake()));
    if begun.is_ok() {
        wakes.keep_another();
    }
    if wakes.idle > 0 {
        NEWS.notify_one();
    }
}

fn wake_all() {
    let mut wakes = locked(&WAKES);
    loop {
        wakes = NEWS.wait_while(wakes, |wakes| wakes.all.is_empty()).unwrap_or_else(PoisonError::into_inner);
        wakes.idle -= 1;
        while let Some(wake) = wakes.all.pop_front() {
            // First: this one may block.
            wakes.keep_another();
            drop(wakes);
            caught(wake);
            wakes = locked(&WAKES);
        }
        if wakes.idle >= STAY {
            wakes.threads -= 1;
            return;
        }
        wakes.idle += 1;
    }
}

impl Wakes {
    fn start(&mut self) -> io::Result<()> {
        if self.first.begin(NAME, wake_all)? {
            (self.threads, self.idle) = (1, 1);
            // What a fork has of its parent's is the parent's to do.
            mem::forget(mem::take(&mut self.all));
        }
        Ok(())
    }

    /// Has a thread ready for the rest.
    fn keep_another(&mut self) {
        if self.idle == 0 && self.threads < MOST {
            let begun = thread::Builder::new().name(NAME.to_owned()).spawn(wake_all);
            // If there is none to be had, the next wake tries again.
            let more = usize::from(begun.is_ok());
            self.threads += more;
            self.idle += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_waker_that_blocks_keeps_no_other_from_being_called() {
        let (let_go, is_let_go) = mpsc::channel::<()>();
        let is_let_go = std::sync::Arc::new(Mutex::new(is_let_go));
        let (begun, begins) = mpsc::channel();
        for number in 0..5 {
            let (begun, is_let_go) = (begun.clone(), is_let_go.clone());
            later(move || {
                begun.send(number).unwrap();
                locked(&is_let_go).recv()
            });
        }
        let mut all: Vec<_> = begins.iter().take(5).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        drop(let_go);
    }
}

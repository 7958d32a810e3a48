//! A gate between an instance's tasks and the runtime they share with others.

use std::{
    any::Any,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinHandle},
    time::Instant,
};

use futures::future::BoxFuture;
use tenure::sim::Tasks;

use super::Dice;

/// Stands between the tasks of one instance and the runtime: shut, none of them is polled, as if its
/// process were stopped; killed, all of them end at once, as if it had crashed.
///
/// Give it to [`Builder::tasks`](tenure::elect::Builder::tasks), and spawn what the program does beside the
/// engine through it as well. Timers go on behind a shut gate, as they do for a stopped process.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    shut: bool,
    dead: bool,
    /// Tasks that were to be polled while they were not allowed to.
    parked: Vec<(u64, Waker)>,
    /// Tasks that are not polled although the gate is open.
    starved: BTreeSet<u64>,
    next: u64,
    tasks: Vec<AbortHandle>,
    /// The futures behind the gate, and where they were spawned.
    inside: BTreeMap<u64, &'static Location<'static>>,
    panics: Vec<String>,
    /// Number of polls of tasks, and the one since which time stands still.
    polled: u64,
    still_since: (Option<Instant>, u64),
}

/// A task that is polled so often while time stands still will not let it go on.
const TOO_OFTEN: u64 = 200_000;

impl State {
    #[expect(clippy::disallowed_methods, reason = "to see whether time goes on")]
    fn count_poll(&mut self) -> bool {
        self.polled += 1;
        // Clocks are dear, beside a poll.
        if !self.polled.is_multiple_of(1024) {
            return false;
        }
        let now = Some(Instant::now());
        if self.still_since.0 != now {
            self.still_since = (now, self.polled);
        }
        self.polled - self.still_since.1 > TOO_OFTEN
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("shut", &self.shut).field("dead", &self.dead).finish_non_exhaustive()
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No task is polled until the gate is [opened](Self::open).
    pub fn shut(&self) {
        self.state().shut = true;
    }

    /// Returns whether it is shut.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.state().shut
    }

    /// Opens it. Tasks that were to be polled in the meantime are, in an order that the dice say; some of
    /// them, named in the answer, [starve](Self::feed) for a while: a machine that comes back is busy, and
    /// nothing says which of its tasks runs first.
    pub fn open(&self, dice: &mut Dice, starve_one_in: u64) -> Vec<u64> {
        let mut late = Vec::new();
        let woken: Vec<_> = {
            let mut state = self.state();
            state.shut = false;
            let mut parked = std::mem::take(&mut state.parked);
            dice.shuffle(&mut parked);
            let (starved, woken): (Vec<_>, Vec<_>) =
                parked.into_iter().partition(|_| starve_one_in > 0 && dice.below(starve_one_in) == 0);
            for (task, waker) in starved {
                state.starved.insert(task);
                state.parked.push((task, waker));
                late.push(task);
            }
            woken
        };
        for (_, waker) in woken {
            waker.wake();
        }
        late.sort_unstable();
        late.dedup();
        late
    }

    /// Polls those again that starved.
    pub fn feed(&self, tasks: &[u64]) {
        let woken: Vec<_> = {
            let mut state = self.state();
            for task in tasks {
                state.starved.remove(task);
            }
            let (woken, parked) = std::mem::take(&mut state.parked)
                .into_iter()
                .partition::<Vec<_>, _>(|(task, _)| tasks.contains(task));
            state.parked = parked;
            woken
        };
        for (_, waker) in woken {
            waker.wake();
        }
    }

    /// Ends everything behind it, without another poll. Nothing can be spawned any more.
    pub fn kill(&self) {
        let tasks = {
            let mut state = self.state();
            state.dead = true;
            std::mem::take(&mut state.tasks)
        };
        for task in tasks {
            task.abort();
        }
    }

    /// Returns whether it was killed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// The tasks that are behind it: where each was spawned.
    #[must_use]
    pub fn inside(&self) -> Vec<String> {
        self.state().inside.values().map(ToString::to_string).collect()
    }

    /// Messages of the tasks behind it that panicked.
    #[must_use]
    pub fn panics(&self) -> Vec<String> {
        self.state().panics.clone()
    }

    /// Spawns a task behind the gate.
    #[track_caller]
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(&Handle::current(), task)
    }

    #[track_caller]
    fn spawn_on<F>(&self, runtime: &Handle, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let spawned = runtime.spawn(self.wrap(task));
        self.keep(spawned.abort_handle());
        spawned
    }

    /// A task that ends with the process; at once, if that is gone.
    fn keep(&self, task: AbortHandle) {
        let mut state = self.state();
        if state.dead {
            task.abort();
            return;
        }
        if state.tasks.len() > 64 && state.tasks.len() > 2 * state.inside.len() {
            state.tasks.retain(|task| !task.is_finished());
        }
        state.tasks.push(task);
    }

    /// A future that is polled only while the gate is open.
    #[track_caller]
    pub fn wrap<F: Future>(&self, task: F) -> Gated<F> {
        self.wrap_from(task, Location::caller())
    }

    fn wrap_from<F: Future>(&self, task: F, from: &'static Location<'static>) -> Gated<F> {
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        state.inside.insert(id, from);
        let pass = Pass { gate: self.clone(), id, from };
        Gated { pass, task: Box::pin(task) }
    }

    /// Runs a call that blocks, on a thread of its own, in turns with the runtime: it runs until it
    /// [blocks](block_for), and goes on when that time has passed and the gate is open.
    fn run_blocking(&self, runtime: &Handle, call: impl FnOnce() + Send + 'static) {
        let here = runtime.clone();
        let turns = Turns(Baton::start(move || {
            // The time is the runtime's on this thread, too.
            let _here = here.enter();
            call();
        }));
        self.spawn_on(runtime, async move {
            while let Some(time) = turns.0.pass(false) {
                tokio::time::sleep(time).await;
            }
        });
    }
}

impl Tasks for Gate {
    fn wrap(&self, task: BoxFuture<'static, ()>, from: &'static Location<'static>) -> BoxFuture<'static, ()> {
        Box::pin(self.wrap_from(task, from))
    }

    fn spawned(&self, task: AbortHandle) {
        self.keep(task);
    }

    fn spawn_blocking(&self, runtime: &Handle, call: Box<dyn FnOnce() + Send>) {
        self.run_blocking(runtime, call);
    }
}

/// A future behind a gate.
pub struct Gated<F> {
    task: Pin<Box<F>>,
    pass: Pass,
}

impl<F> fmt::Debug for Gated<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").field("id", &self.pass.id).finish_non_exhaustive()
    }
}

/// Dropped after the task: then it is not inside any more.
struct Pass {
    gate: Gate,
    id: u64,
    /// Place where it was spawned.
    from: &'static Location<'static>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.inside.remove(&self.id);
        state.starved.remove(&self.id);
    }
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let id = self.pass.id;
        {
            let mut state = self.pass.gate.state();
            if state.shut || state.dead || state.starved.contains(&id) {
                state.parked.retain(|(parked, _)| *parked != id);
                state.parked.push((id, cx.waker().clone()));
                return Poll::Pending;
            }
            if state.count_poll() {
                let from = self.pass.from;
                state.panics.push(format!("time stands still: the task of {from} is polled again and again"));
                state.shut = true;
                return Poll::Pending;
            }
        }
        match catch_unwind(AssertUnwindSafe(|| self.task.as_mut().poll(cx))) {
            Ok(polled) => polled,
            Err(panic) => {
                self.pass.gate.state().panics.push(said(&*panic));
                resume_unwind(panic)
            }
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Blocks the thread of a call that blocks, for so long in the simulation's time. Says whether the call
/// may go on; otherwise its process is gone.
///
/// On any other thread it does nothing.
#[must_use = "a call whose process is gone returns"]
pub fn block_for(time: Duration) -> bool {
    BATON.with(|baton| baton.borrow().as_ref().is_none_or(|baton| baton.block(time)))
}

thread_local! {
    static BATON: RefCell<Option<Arc<Baton>>> = const { RefCell::new(None) };
}

/// Right to run, which the runtime has, or the thread of a call that blocks.
struct Baton {
    turn: Mutex<Turn>,
    changed: Condvar,
}

enum Turn {
    /// The call has not begun.
    Call(Option<Box<dyn FnOnce() + Send>>),
    /// The thread runs; whether its process is gone.
    Thread { gone: bool },
    /// The thread blocks for so long.
    Blocks(Duration),
    /// The call has returned.
    Done,
}

impl Baton {
    fn start(call: impl FnOnce() + Send + 'static) -> Arc<Self> {
        let turn = Mutex::new(Turn::Call(Some(Box::new(call))));
        Arc::new(Self { turn, changed: Condvar::new() })
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the thread run until it blocks, or has returned.
    fn pass(self: &Arc<Self>, gone: bool) -> Option<Duration> {
        let mut turn = self.turn();
        match &mut *turn {
            Turn::Done => return None,
            Turn::Call(call) => {
                let call = call.take().filter(|_| !gone);
                let Some(call) = call else {
                    *turn = Turn::Done;
                    return None;
                };
                let baton = self.clone();
                thread::spawn(move || {
                    BATON.with(|mine| *mine.borrow_mut() = Some(baton.clone()));
                    // The panic is for its job to tell.
                    let _ = catch_unwind(AssertUnwindSafe(call));
                    *baton.turn() = Turn::Done;
                    baton.changed.notify_all();
                });
            }
            Turn::Thread { .. } | Turn::Blocks(_) => {}
        }
        *turn = Turn::Thread { gone };
        self.changed.notify_all();
        let turn = self
            .changed
            .wait_while(turn, |turn| matches!(turn, Turn::Thread { .. }))
            .unwrap_or_else(PoisonError::into_inner);
        if let Turn::Blocks(time) = &*turn { Some(*time) } else { None }
    }

    /// On the thread: lets the runtime run until that time has passed.
    fn block(&self, time: Duration) -> bool {
        let mut turn = self.turn();
        if matches!(&*turn, Turn::Thread { gone: true }) {
            return false;
        }
        *turn = Turn::Blocks(time);
        self.changed.notify_all();
        let turn = self
            .changed
            .wait_while(turn, |turn| matches!(turn, Turn::Blocks(_)))
            .unwrap_or_else(PoisonError::into_inner);
        !matches!(&*turn, Turn::Thread { gone: true })
    }
}

/// The runtime's side of a baton. When it goes, the thread runs to its end.
struct Turns(Arc<Baton>);

impl Drop for Turns {
    fn drop(&mut self) {
        while self.0.pass(true).is_some() {}
    }
}

//! The parts of a record: holdings and attempts, instances, and what changes their shares.

use std::time::Duration;

use tenure::clock::Moment;

/// A task at one instance, under one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) instance: usize,
    pub(crate) term: u64,
    pub(crate) began: Moment,
    /// Last moment at which it worked under a valid lease.
    pub(crate) worked: Moment,
    /// Time after that for which the lease was valid at least.
    pub(crate) left: Duration,
    pub(crate) ended: Option<Moment>,
}

/// An attempt at a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) instance: usize,
    pub(crate) number: u32,
    pub(crate) began: Moment,
    pub(crate) end: Option<(Moment, TickEnd)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TickEnd {
    Done,
    Stopped,
}

/// A process that runs, on a store that answers, is heard more often.
const STALL: Duration = Duration::from_millis(150);

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Starts,
    Runs,
    Frozen,
    Drains,
    Drained,
    Closes,
    /// Closed and ended.
    Left,
    Killed,
    /// Ended unexpectedly.
    Failed,
}

impl State {
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Left | Self::Killed | Self::Failed)
    }

    /// Returns whether the instance takes tasks.
    pub(crate) const fn takes(self) -> bool {
        matches!(self, Self::Runs)
    }
}

/// A time for which an instance was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Freeze {
    pub(crate) from: Moment,
    pub(crate) to: Option<Moment>,
    /// Moment at which the instance said that its session is over.
    pub(crate) noticed: Option<Moment>,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Death {
    /// A moment until which it ran at least.
    pub(crate) from: Moment,
    /// A moment by which it was gone.
    pub(crate) gone: Moment,
}

#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) state: State,
    pub(crate) ready: Option<Moment>,
    pub(crate) heard: Option<Moment>,
    /// Times, from and to, for which it did not run though it was not frozen, or the store did not answer it.
    pub(crate) stalls: Vec<(Moment, Moment)>,
    pub(crate) freezes: Vec<Freeze>,
    /// Moments at which it noticed that a session of its was over.
    pub(crate) lost: Vec<Moment>,
    pub(crate) death: Option<Death>,
    /// Time at which it was told to give its tasks away, and time at which it had none.
    pub(crate) drained: Option<(Moment, Option<Moment>)>,
    pub(crate) ticks: usize,
    pub(crate) failure: Option<String>,
}

impl Instance {
    pub(crate) const fn new(name: String, pid: u32) -> Self {
        Self {
            name,
            pid,
            state: State::Starts,
            ready: None,
            heard: None,
            stalls: Vec::new(),
            freezes: Vec::new(),
            lost: Vec::new(),
            death: None,
            drained: None,
            ticks: 0,
            failure: None,
        }
    }

    fn was_frozen(&self, from: Moment, to: Moment) -> bool {
        self.freezes.iter().any(|freeze| freeze.from <= to && freeze.to.is_none_or(|thawed| from <= thawed))
    }

    /// Takes note of a time for which it stood still.
    pub(crate) fn stalled(&mut self, from: Moment, to: Moment) {
        if to.since(from) <= STALL || self.was_frozen(from, to) {
            return;
        }
        match self.stalls.last_mut() {
            // It goes on.
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => self.stalls.push((from, to)),
        }
    }
}

/// An event that changes the assignment of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Started,
    Killed,
    Froze,
    Thawed,
    Drained,
    Joined,
    /// The session was over though the instance was not frozen: the machine did not let it beat in time.
    Lost,
}

impl RecordKind {
    /// The instance that it happened to works no more.
    pub(crate) const fn takes_away(self) -> bool {
        matches!(self, Self::Killed | Self::Froze | Self::Lost)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: Moment,
    pub(crate) what: RecordKind,
    pub(crate) instance: usize,
    /// Time at which all tasks ran, evenly, after it and before the next one.
    pub(crate) even: Option<Moment>,
}

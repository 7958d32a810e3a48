//! The end of all descendants: they are asked, then killed, until none is left.

use std::{collections::BTreeSet, time::Duration};

use rustix::process::Signal;

use super::super::kin::{self, LOOK};

/// Between two looks while they may end by themselves, which the end of a child shortens.
const PATIENT: Duration = Duration::from_millis(50);

/// Descendants that are being ended.
pub(super) struct Sweep {
    kill_at: Duration,
    asked: bool,
    killing_since: Option<Duration>,
    /// Number of looks since then.
    looks: u32,
    /// Processes already reported as impossible to end.
    named: BTreeSet<i32>,
    over: bool,
}

impl Sweep {
    pub(super) const fn new(kill_at: Duration) -> Self {
        Self { kill_at, asked: false, killing_since: None, looks: 0, named: BTreeSet::new(), over: false }
    }

    /// Brings the kill forward to `kill_at`, if that is earlier.
    pub(super) fn hurry(&mut self, kill_at: Duration) {
        self.kill_at = self.kill_at.min(kill_at);
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// Does what is to be done now. Returns the processes that turned out not to be ended.
    pub(super) fn step(&mut self, now: Duration, at_the_latest: Duration) -> Vec<i32> {
        let kill_at = self.kill_at.min(at_the_latest);
        if !kin::has_children() {
            self.over = true;
            return Vec::new();
        }
        // A process that is missed now is seen by the next look.
        let left = kin::descendants(&BTreeSet::new()).unwrap_or_default();
        if now < kill_at {
            if !self.asked {
                self.asked = true;
                for process in left {
                    kin::signal(process, Signal::TERM);
                    // One that is stopped hears it only then.
                    kin::signal(process, Signal::CONT);
                }
            }
            return Vec::new();
        }
        self.kill_at = kill_at;
        let since = *self.killing_since.get_or_insert(now);
        let is_late = kin::is_stuck(self.looks, now.saturating_sub(since));
        self.looks += 1;
        let mut stuck = Vec::new();
        for process in left {
            let is_allowed = kin::signal(process, Signal::KILL);
            if (!is_allowed || is_late) && self.named.insert(process.pid) {
                stuck.push(process.pid);
            }
        }
        stuck
    }

    /// Time of the next look.
    pub(super) fn next_step(&self, now: Duration) -> Duration {
        match self.killing_since {
            // They may be there for hours.
            Some(_) if !self.named.is_empty() => now + PATIENT,
            Some(_) => now + LOOK,
            None => self.kill_at.min(now + PATIENT),
        }
    }
}

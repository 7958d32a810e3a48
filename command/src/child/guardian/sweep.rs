//! The end of all descendants: they are asked, then killed, until none is left.

use std::{collections::BTreeSet, os::fd::OwnedFd, time::Duration};

use rustix::process::{Pid, Resource, Signal, WaitStatus, getrlimit, kill_process, pidfd_send_signal};

use super::super::kin::{self, LOOK, PATIENT};

/// Descendants that are being ended.
pub(super) struct Sweep {
    kill_at: Duration,
    /// Descendants that were asked to end: where processor time is scarce, there is enough for one call each.
    asked: Option<Vec<OwnedFd>>,
    killing_since: Option<Duration>,
    /// Number of looks since then.
    looks: u32,
    /// Processes already reported as impossible to end.
    named: BTreeSet<i32>,
    over: bool,
}

/// Outcome of a step.
#[derive(Default)]
pub(super) struct Step {
    /// Children that were collected.
    pub(super) ended: Vec<(i32, WaitStatus)>,
    /// Processes that turned out not to be ended.
    pub(super) stuck: Vec<i32>,
}

/// Asks all descendants to end, and returns those that can be killed without another look. Of those that are hidden in
/// `/proc` only children can be asked.
fn ask() -> Vec<OwnedFd> {
    let nobody = BTreeSet::new();
    let seen = kin::descendants(&nobody).unwrap_or_default();
    let mut hidden = kin::children_except(&nobody).unwrap_or_default();
    hidden.retain(|child| seen.iter().all(|process| process.pid != *child));
    // The other half is for what this process has open, and for its next looks.
    let most = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |limit| limit / 2);
    let mut asked = Vec::new();
    // A stopped process hears SIGTERM only when it goes on.
    let signals = [Signal::TERM, Signal::CONT];
    for descriptor in seen.into_iter().filter_map(kin::open) {
        for signal in signals {
            let _ = pidfd_send_signal(&descriptor, signal);
        }
        if (asked.len() as u64) < most {
            asked.push(descriptor);
        }
    }
    for child in hidden.into_iter().filter_map(Pid::from_raw) {
        for signal in signals {
            let _ = kill_process(child, signal);
        }
    }
    asked
}

impl Sweep {
    pub(super) const fn new(kill_at: Duration) -> Self {
        Self { kill_at, asked: None, killing_since: None, looks: 0, named: BTreeSet::new(), over: false }
    }

    /// Brings the kill forward to `kill_at`, if that is earlier.
    pub(super) fn hurry(&mut self, kill_at: Duration) {
        self.kill_at = self.kill_at.min(kill_at);
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// Does what is to be done now.
    pub(super) fn step(&mut self, now: Duration, at_the_latest: Duration) -> Step {
        let mut step = Step::default();
        let kill_at = self.kill_at.min(at_the_latest);
        if now < kill_at {
            self.asked.get_or_insert_with(ask);
            self.over = !kin::has_children();
            return step;
        }
        self.kill_at = kill_at;
        let since = *self.killing_since.get_or_insert(now);
        let is_late = kin::is_stuck(self.looks, now.saturating_sub(since));
        self.looks += 1;
        let nobody = BTreeSet::new();
        // First all that are known, one call each: the more run, the less time is left for the rest.
        match self.asked.take() {
            Some(asked) => {
                for descriptor in asked {
                    let _ = pidfd_send_signal(descriptor, Signal::KILL);
                }
            }
            None if self.looks == 1 => drop(kin::kill_seen(&nobody, false)),
            None => {}
        }
        let mut stuck = kin::kill_children(&nobody, &mut step.ended).unwrap_or_default();
        if !kin::has_children() {
            self.over = true;
            return step;
        }
        // Descendants of a child that cannot be ended now. One that is missed is seen by the next look.
        stuck.extend(kin::kill_seen(&nobody, is_late).ok().flatten().unwrap_or_default());
        if is_late {
            stuck.extend(kin::children_except(&nobody).unwrap_or_default());
        }
        stuck.retain(|pid| self.named.insert(*pid));
        step.stuck = stuck;
        step
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

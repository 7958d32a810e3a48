//! Sum of several runs.

use std::{fmt, ops::AddAssign, time::Duration};

use super::Summary;

/// Sum of several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "as those of a Summary")]
pub struct Sum {
    /// Number of runs.
    pub seeds: u64,
    pub time: Duration,
    pub operations: u64,
    pub faults: u64,
    pub grants: u64,
    pub hand_overs: u64,
    pub takeovers: u64,
    pub losses: u64,
}

impl Sum {
    /// For how long they ran.
    #[must_use]
    pub fn hours(&self) -> f64 {
        self.time.as_secs_f64() / 3600.0
    }
}

impl From<&Summary> for Sum {
    fn from(ran: &Summary) -> Self {
        let Summary { time, operations, faults, grants, hand_overs, takeovers, losses, .. } = *ran;
        Self { seeds: 1, time, operations, faults, grants, hand_overs, takeovers, losses }
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.time += other.time;
        self.operations += other.operations;
        self.faults += other.faults;
        self.grants += other.grants;
        self.hand_overs += other.hand_overs;
        self.takeovers += other.takeovers;
        self.losses += other.losses;
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, time: _, operations, faults, grants, hand_overs, takeovers, losses } = self;
        let hours = self.hours();
        write!(
            f,
            "{seeds} seeds, {hours:.1} simulated hours, {operations} store operations, {faults} faults, \
             {grants} acquisitions, {hand_overs} hand-overs, {takeovers} takeovers, {losses} losses"
        )
    }
}

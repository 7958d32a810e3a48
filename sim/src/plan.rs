//! Plan of a fleet: its parts, and the faults it meets.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use super::{Deviation, FIRST_SCHEDULE, FIRST_TASK};
use tenure::sim::Flaw;
use tenure::testing::Rates;

const SECOND: Duration = Duration::from_secs(1);

/// Parts of a fleet, and the faults it meets.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of instances.
    pub instances: usize,
    /// Number of keys they contend for.
    pub keys: usize,
    /// Number of tasks they share out.
    pub tasks: usize,
    /// Number of schedules they run.
    pub schedules: usize,
    /// By what durations they run.
    pub paces: Paces,
    /// Troubles that may happen.
    pub troubles: BTreeSet<Trouble>,
    /// By how many millionths a clock may run faster or slower than the reference: the promise is one per
    /// cent.
    pub drift: u32,
    /// Frequency of faults of single calls.
    pub rates: Rates,
    /// The longest way of a request or an answer if nothing is wrong.
    pub longest_way: Duration,
    /// Number of programs that each instance runs at once.
    pub programs: usize,
    /// The longest pause of a program between two things it does.
    pub rest: Duration,
    /// Factor by which everything that is done under a lock takes longer than usual.
    pub slower: u32,
    /// Time of faults, before all must settle.
    pub chaos: Duration,
    /// Number of such times.
    pub rounds: u32,
    /// Longest time from one trouble to the next.
    pub trouble_every: Duration,
    /// Flaw of the engines.
    pub flaw: Option<Flaw>,
    /// Deviation of the store.
    pub deviation: Option<Deviation>,
}

impl Default for Plan {
    /// A small fleet with much to do, for two minutes.
    fn default() -> Self {
        Self {
            instances: 5,
            keys: 8,
            tasks: 12,
            schedules: 3,
            paces: Paces::Mixed,
            troubles: Trouble::ALL.into(),
            drift: 10_000,
            rates: Rates::of_each(8),
            longest_way: Duration::from_millis(4),
            programs: 3,
            rest: SECOND,
            slower: 1,
            chaos: 120 * SECOND,
            rounds: 1,
            trouble_every: 4 * SECOND,
            flaw: None,
            deviation: None,
        }
    }
}

impl Plan {
    /// For hours: programs with less to do, and troubles that leave the fleet some time.
    #[must_use]
    pub fn for_hours(hours: f64, paces: Paces) -> Self {
        Self {
            paces,
            rates: Rates::of_each(4),
            programs: 1,
            rest: 180 * SECOND,
            slower: 24,
            tasks: 6,
            trouble_every: 60 * SECOND,
            ..Self::default()
        }
        .lasting(hours, 1800.0)
    }

    /// The same for so many hours, in rounds of about so many seconds.
    #[must_use]
    pub fn lasting(self, hours: f64, round: f64) -> Self {
        let seconds = hours * 3600.0;
        let rounds = (seconds / round).round().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        Self { chaos: Duration::from_secs_f64(seconds / rounds), rounds: rounds as u32, ..self }
    }

    /// Returns the numbers of the locks that are held all the time in quiet: keys, and tasks.
    pub(super) fn locks(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.keys).chain(FIRST_TASK..FIRST_TASK + self.tasks)
    }

    /// Returns the numbers of the same locks, and of those of schedules.
    pub(super) fn all_locks(&self) -> impl Iterator<Item = usize> + use<> {
        self.locks().chain(FIRST_SCHEDULE..FIRST_SCHEDULE + self.schedules)
    }

    /// Returns whether that may happen.
    #[must_use]
    pub fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }

    /// Frequency of each fault of a call, of those that may happen.
    pub(super) fn rates(&self) -> Rates {
        let mut rates = self.rates;
        if !self.has(Trouble::Calls) {
            (rates.refused, rates.request_lost, rates.answer_lost) = (0, 0, 0);
            (rates.twice, rates.echo, rates.late, rates.answer_late) = (0, 0, 0, 0);
        }
        if !self.has(Trouble::Hangs) {
            (rates.swallowed, rates.hang) = (0, 0);
        }
        if !self.has(Trouble::Hints) {
            (rates.hint_lost, rates.hint_doubled, rates.hint_late) = (0, 0, 0);
        }
        rates
    }

    /// By how many millionths clocks may be wrong.
    pub(super) fn drift(&self) -> u32 {
        if self.has(Trouble::Drift) { self.drift } else { 0 }
    }
}

/// By what durations the instances of a fleet run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paces {
    /// For a takeover in three seconds.
    Short,
    /// The defaults.
    Default,
    /// Some of them the defaults, the others short.
    Mixed,
}

impl Paces {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Short, Self::Default, Self::Mixed];

    /// By what durations the fleet of a seed runs, if all have their turn: mostly the default ones, which
    /// are what most programs run by, and cost least to simulate.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        match seed % 20 {
            0 => Self::Short,
            1 => Self::Mixed,
            _ => Self::Default,
        }
    }

    pub(super) fn is_short(self, member: usize) -> bool {
        match self {
            Self::Short => true,
            Self::Default => false,
            Self::Mixed => member % 3 != 2,
        }
    }

    /// Name in reports and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Default => "default",
            Self::Mixed => "mixed",
        }
    }
}

/// Something that may happen to a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Trouble {
    /// Requests and answers are lost, refused, late, out of order, doubled.
    Calls,
    /// Calls are never answered.
    Hangs,
    /// Hints are lost, late, doubled.
    Hints,
    /// The store, or a part of it, is out of reach of one instance.
    Unreachable,
    /// The store is out of reach of all instances.
    Outages,
    /// The primary changes, and what no majority had is undone.
    Failovers,
    /// Two primaries exist for a while.
    TwoPrimaries,
    /// No write reaches a majority.
    Stalls,
    /// The store's clock jumps, by up to an hour.
    StoreClock,
    /// An instance's wall clock jumps.
    WallClock,
    /// Clocks run at different rates.
    Drift,
    /// An instance is gone, and starts again under its name.
    Crashes,
    /// An instance closes, and starts again.
    Closes,
    /// An instance is frozen, and its clock goes on.
    Freezes,
    /// A lock or a session is deleted by hand.
    Deletions,
    /// An operator wants a lock back.
    Revokes,
    /// Jobs ignore their token, panic, fail, return at once.
    Jobs,
    /// The dependency of the tasks' jobs is away for a while: all of them fail.
    Dependency,
    /// Some instances know one task less than others.
    Versions,
    /// A task kills the process it runs in.
    Killers,
    /// An instance dies young, again and again.
    CrashLoops,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Calls,
        Self::Hangs,
        Self::Hints,
        Self::Unreachable,
        Self::Outages,
        Self::Failovers,
        Self::TwoPrimaries,
        Self::Stalls,
        Self::StoreClock,
        Self::WallClock,
        Self::Drift,
        Self::Crashes,
        Self::Closes,
        Self::Freezes,
        Self::Deletions,
        Self::Revokes,
        Self::Jobs,
        Self::Dependency,
        Self::Versions,
        Self::Killers,
        Self::CrashLoops,
    ];

    /// Name in reports and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Hangs => "hangs",
            Self::Hints => "hints",
            Self::Unreachable => "unreachable",
            Self::Outages => "outages",
            Self::Failovers => "failovers",
            Self::TwoPrimaries => "two-primaries",
            Self::Stalls => "stalls",
            Self::StoreClock => "store-clock",
            Self::WallClock => "wall-clock",
            Self::Drift => "drift",
            Self::Crashes => "crashes",
            Self::Closes => "closes",
            Self::Freezes => "freezes",
            Self::Deletions => "deletions",
            Self::Revokes => "revokes",
            Self::Jobs => "jobs",
            Self::Dependency => "dependency",
            Self::Versions => "versions",
            Self::Killers => "killers",
            Self::CrashLoops => "crash-loops",
        }
    }

    /// Frequency beside the others that happen one after the other; nothing for those that are there all the
    /// time.
    pub(super) const fn weight(self) -> u64 {
        match self {
            Self::Freezes | Self::Unreachable => 5,
            Self::Failovers | Self::Revokes => 3,
            Self::Crashes | Self::Deletions => 2,
            Self::Closes
            | Self::Outages
            | Self::Stalls
            | Self::StoreClock
            | Self::WallClock
            | Self::Dependency
            | Self::CrashLoops => 1,
            Self::Calls
            | Self::Hangs
            | Self::Hints
            | Self::TwoPrimaries
            | Self::Drift
            | Self::Jobs
            | Self::Versions
            | Self::Killers => 0,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Trouble {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|trouble| trouble.name() == name);
        found.ok_or_else(|| {
            format!("`{name}` is no fault; there are: {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

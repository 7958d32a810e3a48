//! A schedule as the program has defined it.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;

use super::{Misfire, OnCrash, Tick, Timing, failure::OnFailure};
use crate::{
    elect::{Error, Lease},
    logic::{calendar::Calendar, tick::Policies},
    model::{Key, Rules, ScheduleId, ScheduleName},
};

type TickJob = Arc<dyn Fn(Tick, Lease) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Job of a schedule.
#[derive(Clone)]
pub(super) struct Body {
    pub(super) call: TickJob,
    /// The job waits for a blocking call, which goes on if the job is dropped.
    pub(super) blocks: bool,
}

/// Schedule as the program has defined it.
#[derive(Clone)]
pub(super) struct ScheduleSpec {
    pub(super) id: ScheduleId,
    pub(super) calendar: Calendar,
    pub(super) policies: Policies,
    pub(super) timing: Rules,
    pub(super) keep: Keep,
    pub(super) body: Body,
    pub(super) on_failure: Option<OnFailure>,
}

/// Part of the history that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    pub(super) younger_than: Duration,
    pub(super) at_least: usize,
}

impl ScheduleSpec {
    pub(super) fn new(
        id: ScheduleId,
        timing: Timing,
        policies: Policies,
        keep: Keep,
        body: Body,
    ) -> Result<Self, Error> {
        let calendar = timing.named(&id.name).calendar();
        let calendar = calendar.map_err(|problem| cannot_be(&id.name, problem))?;
        let timing = Rules::new(calendar.timing()).expect("an expression is at most 256 bytes long");
        Ok(Self { id, calendar, policies, timing, keep, body, on_failure: None })
    }

    /// Returns the same with another timing.
    pub(super) fn retimed(&self, timing: Timing) -> Result<Self, Error> {
        let Self { id, policies, keep, body, .. } = self;
        let spec = Self::new(id.clone(), timing, *policies, *keep, body.clone())?;
        Ok(Self { on_failure: self.on_failure.clone(), ..spec })
    }

    /// Returns its policies and the rules of its zone in words: people see from them that two builds know different
    /// rules.
    pub(super) fn policies(&self) -> Rules {
        let text = self.policies.to_string() + &self.calendar.zone_rules().unwrap_or_default();
        Rules::new(text).expect("policies are one short line")
    }
}

/// Returns the key of a schedule's task.
pub(super) fn key_of(name: &ScheduleName) -> Key {
    Key::new(name).expect("a schedule's name is shorter than a key")
}

pub(super) fn name_of(key: &Key) -> ScheduleName {
    ScheduleName::new(key).expect("it was made of a schedule's name")
}

/// Policy with which nothing would ever run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PolicyError(String);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PolicyError {}

/// Most late ticks that are run one after the other: more would delay the next one for hours.
const MOST_LATE: u32 = 10_000;
/// Shortest window: no tick is on time to the millisecond.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// Shortest first rest between tries: each try costs the store a write.
const SHORTEST_REST: Duration = Duration::from_millis(10);
/// Smallest history of a schedule: its next owner continues from there.
const SHORTEST_HISTORY: Duration = Duration::from_secs(60 * 60);
const SMALLEST_HISTORY: usize = 10;

/// Checks that these policies let something run.
pub(super) fn check(schedule: &ScheduleName, policies: Policies, keep: Keep) -> Result<(), Error> {
    let (misfire, Policies { on_crash, retries, timeout, .. }) = (policies.misfire, policies);
    let (window, name) = match misfire {
        Misfire::Skip { tolerance } => (tolerance, "tolerance"),
        Misfire::One { window } | Misfire::All { window, .. } => (window, "window"),
    };
    let problem = if let Misfire::All { at_most, .. } = misfire
        && !(1..=MOST_LATE).contains(&at_most)
    {
        format!("misfire: at_most ({at_most}) must be from 1 to {MOST_LATE}")
    } else if window < SHORTEST_WINDOW {
        format!(
            "misfire: {name} ({window:?}) must be at least {SHORTEST_WINDOW:?}, else nearly every tick is too late"
        )
    } else if on_crash == (OnCrash::AtLeastOnce { attempts: 0 }) {
        "on_crash: at least once needs at least 1 attempt".to_owned()
    } else if retries.tries == 0 {
        "retries: tries must be at least 1, which means no retry".to_owned()
    } else if retries.tries > 1 && retries.first < SHORTEST_REST {
        let first = retries.first;
        format!("retries: the first rest ({first:?}) must be at least {SHORTEST_REST:?}")
    } else if timeout == Some(Duration::ZERO) {
        "timeout: must be longer than 0s".to_owned()
    } else if keep.younger_than < SHORTEST_HISTORY && keep.at_least < SMALLEST_HISTORY {
        let Keep { younger_than, at_least } = keep;
        format!(
            "history: {younger_than:?} and {at_least} entries are too few to continue from, keep at least {SHORTEST_HISTORY:?} or {SMALLEST_HISTORY} entries"
        )
    } else {
        return Ok(());
    };
    Err(cannot_be(schedule, PolicyError(problem)))
}

fn cannot_be(schedule: &ScheduleName, problem: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Schedule { schedule: schedule.clone(), problem: Arc::new(problem) }
}

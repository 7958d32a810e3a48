//! The durations and other numbers an instance runs by, and the rules they keep.

mod env;
mod near;
mod read;
mod shown;
mod sooner;
#[cfg(test)]
mod tests;

#[cfg(feature = "testing")]
pub use self::env::read as read_variables;

use std::{error::Error as StdError, fmt, ops::RangeInclusive, time::Duration};

use self::shown::Shown;
use crate::model::{Holder, LimitError, Namespace, Retention};

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Limits of an interval: no store answers in less, and no operator notices after a month that a job stands still.
/// Values beyond were meant in another unit.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(10)..=DAY.saturating_mul(30);
/// A part of an interval may be smaller than any interval.
const PARTS: RangeInclusive<Duration> = MS..=DAY.saturating_mul(30);
/// Records may be kept for years.
const RETENTIONS: RangeInclusive<Duration> = Duration::from_millis(10)..=DAY.saturating_mul(3650);

/// Configuration of an instance: its names, how long it holds its keys, and what it keeps.
///
#[doc = include_str!("../docs/configuration.md")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectConfig {
    namespace: Namespace,
    holder: Holder,
    takeover_within: Option<Duration>,
    hold_duration: Option<Duration>,
    refresh_interval: Duration,
    refresh_duration: Duration,
    stop_grace: Option<Duration>,
    margin: Option<Duration>,
    poll_interval: Option<Duration>,
    settle: Duration,
    retention: Retention,
    retention_runs: Duration,
    retention_run_entries: usize,
}

impl ElectConfig {
    /// Everything as it is by default.
    ///
    /// # Errors
    /// [`ConfigError`] if the namespace or the holder breaks a limit of its kind: see [`Namespace`] and [`Holder`].
    pub fn new(namespace: impl AsRef<str>, holder: impl AsRef<str>) -> Result<Self, ConfigError> {
        let broken = |field: &str, error: LimitError| ConfigError::new(field, error.to_string());
        let namespace = Namespace::new(namespace).map_err(|error| broken("namespace", error))?;
        let holder = Holder::new(holder).map_err(|error| broken("holder", error))?;
        Ok(Self::of(namespace, holder))
    }

    fn of(namespace: Namespace, holder: Holder) -> Self {
        // The one place that has these numbers. The documentation is checked against it.
        Self {
            namespace,
            holder,
            takeover_within: None,
            hold_duration: None,
            refresh_interval: Duration::from_secs(5),
            refresh_duration: Duration::from_secs(30),
            stop_grace: None,
            margin: None,
            poll_interval: None,
            settle: 200 * MS,
            retention: Retention::default(),
            retention_runs: 7 * DAY,
            retention_run_entries: 100,
        }
    }

    /// From the variables of the process: `TENURE_NAMESPACE`, `TENURE_REFRESH_INTERVAL`,
    /// `TENURE_RETENTION_LOCKS` and so on, for the prefix `TENURE_`.
    ///
    /// Other variables with that prefix are passed over, unless they look like one of these with a
    /// slip in it (up to two letters added, left out or changed): then that is an error.
    ///
    /// # Errors
    /// [`ConfigError`] if one that is required is not set, if one is not UTF-8 or cannot be read, or if a
    /// rule is broken.
    pub fn from_env(prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        env::read(prefix.as_ref(), std::env::vars_os())
    }

    /// Checks the rules. What was read from a file or the environment has been checked.
    ///
    /// # Errors
    /// [`ConfigError`] with the rule that is broken, and the numbers.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let [interval, refresh, stop_grace, margin, ttl] =
            [self.refresh_interval, self.refresh_duration, self.stop_grace(), self.margin(), self.ttl()];
        self.check_takeover_within()?;
        if let Some(hold_duration) = self.hold_duration {
            check("hold_duration", hold_duration, &INTERVALS)?;
        }
        check("refresh_interval", interval, &INTERVALS)?;
        check("refresh_duration", refresh, &INTERVALS)?;
        check("stop_grace", stop_grace, &PARTS)?;
        check("margin", margin, &PARTS)?;
        check("poll_interval", self.poll_interval(), &INTERVALS)?;
        check("settle", self.settle, &INTERVALS)?;
        check("retention.locks", self.retention.locks, &RETENTIONS)?;
        check("retention.runs", self.retention_runs, &RETENTIONS)?;
        check("retention.sessions", self.retention.sessions, &RETENTIONS)?;

        // No sum overflows from here on: all are within their ranges.
        if 2 * interval + margin + stop_grace > refresh {
            // One attempt may fail, and the next must still come before anything is cancelled.
            return Err(self.too_tight());
        }
        if margin < drift(ttl) {
            return Err(ConfigError::new(
                "margin",
                format!(
                    "margin ({}) must be at least 2 % of the ttl ({}{}), for clocks that run at different rates",
                    Shown(margin),
                    Shown(ttl),
                    self.ttl_comes_of()
                ),
            ));
        }
        if self.retention.sessions < ttl {
            return Err(ConfigError::new(
                "retention.sessions",
                format!(
                    "retention.sessions ({}) must be at least the ttl ({}{}), for as long as others may look \
                     for a session",
                    Shown(self.retention.sessions),
                    Shown(ttl),
                    self.ttl_comes_of()
                ),
            ));
        }
        Ok(())
    }

    /// Returns the error of a config in which one failed attempt to beat cancels something. Names the given settings,
    /// and for derived numbers those that they follow from.
    fn too_tight(&self) -> ConfigError {
        let comes_of = |set: Option<Duration>, of: &str| {
            if set.is_none() { format!(", derived from {of}") } else { String::new() }
        };
        let held = self.hold_duration.filter(|_| self.ttl() > self.refresh_duration);
        let of_margin = held
            .map_or_else(|| "refresh_duration".to_owned(), |hold| format!("hold_duration ({})", Shown(hold)));
        // A margin that only a long hold made so wide is not the business of the interval.
        let is_of_hold = self.margin.is_none() && held.is_some() && {
            let margin = drift(self.refresh_duration) + 200 * MS;
            2 * self.refresh_interval + margin + self.stop_grace() <= self.refresh_duration
        };
        ConfigError::new(
            if is_of_hold { "hold_duration" } else { "refresh_interval" },
            format!(
                "refresh_interval ({}) must fit twice into refresh_duration ({}) minus margin ({}{}) and \
                 stop_grace ({}{}){}",
                Shown(self.refresh_interval),
                Shown(self.refresh_duration),
                Shown(self.margin()),
                comes_of(self.margin, &of_margin),
                Shown(self.stop_grace()),
                comes_of(self.stop_grace, "refresh_duration"),
                self.way_out().unwrap_or_default(),
            ),
        )
    }

    /// Names the one setting that makes room for two beats, if there is one.
    fn way_out(&self) -> Option<String> {
        let usual = Self::of(self.namespace.clone(), self.holder.clone());
        let is_usual = [self.stop_grace, self.margin, self.hold_duration].iter().all(Option::is_none)
            && self.refresh_interval == usual.refresh_interval;
        let within = usual.takeover_within(self.refresh_duration);
        if is_usual && within.validate().is_ok() {
            let time = Shown(self.refresh_duration);
            return Some(format!(
                "; or set takeover_within = \"{time}\" alone, from which the others follow"
            ));
        }
        if self.takeover_within.is_some() {
            return Some("; set a longer takeover_within, or leave out stop_grace and margin".to_owned());
        }
        let mut fits = self.clone();
        while fits.refresh_duration <= *INTERVALS.end() {
            let needed = 2 * fits.refresh_interval + fits.margin() + fits.stop_grace();
            if needed <= fits.refresh_duration {
                let time = Shown(fits.refresh_duration);
                return fits
                    .validate()
                    .is_ok()
                    .then(|| format!("; refresh_duration = \"{time}\" is long enough"));
            }
            // A longer one makes the other durations longer, too, but by less.
            fits.refresh_duration = whole_seconds(needed);
        }
        None
    }

    /// Names the setting that a ttl follows from, as advice where it is too long.
    fn ttl_comes_of(&self) -> &'static str {
        if self.ttl() > self.refresh_duration {
            ", which is hold_duration plus refresh_interval"
        } else {
            ", which is refresh_duration"
        }
    }
}

/// So many seconds at least.
const fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + if time.subsec_nanos() > 0 { 1 } else { 0 })
}

// What the first line of each says is the table of docs/configuration.md, which a test compares.
impl ElectConfig {
    /// Instances of the same namespace share keys. Required.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Name of this instance for people. Required.
    #[must_use]
    pub const fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Time for which a key just taken is protected, even if its instance never beats again. Default: `refresh_duration - refresh_interval`.
    #[must_use]
    pub fn hold_duration(&self) -> Duration {
        self.hold_duration.unwrap_or_else(|| self.refresh_duration.saturating_sub(self.refresh_interval))
    }

    /// Time between two beats (heartbeats) of the session. Default: 5s.
    #[must_use]
    pub const fn refresh_interval(&self) -> Duration {
        self.refresh_interval
    }

    /// Time for which each beat keeps the session alive. Default: 30s.
    #[must_use]
    pub const fn refresh_duration(&self) -> Duration {
        self.refresh_duration
    }

    /// Time between the cancellation of a job and the drop of its future. Default: `refresh_duration / 6`.
    #[must_use]
    pub fn stop_grace(&self) -> Duration {
        self.stop_grace.unwrap_or_else(|| whole_ms(self.refresh_duration / 6))
    }

    /// Time taken off the local end of a lease, for clocks that drift and threads that wait. Default: 200ms + 2 % of the ttl.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.margin.unwrap_or_else(|| drift(self.ttl()).saturating_add(200 * MS))
    }

    /// Time between two looks of those who wait, if no hint comes. Default: `refresh_interval`.
    #[must_use]
    pub fn poll_interval(&self) -> Duration {
        self.poll_interval.unwrap_or(self.refresh_interval)
    }

    /// Time for which a spread gathers changes before it plans. Default: 200ms.
    #[must_use]
    pub const fn settle(&self) -> Duration {
        self.settle
    }

    /// Time for which a lock that nobody holds is kept. Default: 7d.
    #[must_use]
    pub const fn retention_locks(&self) -> Duration {
        self.retention.locks
    }

    /// Time for which a run is kept. Default: 7d.
    #[must_use]
    pub const fn retention_runs(&self) -> Duration {
        self.retention_runs
    }

    /// Number of runs kept of each schedule, however old. Default: 100.
    #[must_use]
    pub const fn retention_run_entries(&self) -> usize {
        self.retention_run_entries
    }

    /// Time for which a dead session is kept. Default: 1d.
    #[must_use]
    pub const fn retention_sessions(&self) -> Duration {
        self.retention.sessions
    }
}

impl ElectConfig {
    /// Time for which the session lives after its last beat, fixed for its life: `max(refresh_duration,
    /// hold_duration + refresh_interval)`.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.refresh_duration.max(self.hold_duration().saturating_add(self.refresh_interval))
    }

    /// Retention for a [purge](crate::store::StoreExt::purge).
    #[must_use]
    pub const fn retention(&self) -> Retention {
        self.retention
    }
}

macro_rules! setters {
    ($($setter:ident($field:ident: $type:ty) $to:ident$(.$of:ident)? = $value:expr;)+) => {
        /// Setters. They check nothing: [`validate`](ElectConfig::validate) does.
        impl ElectConfig {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $setter(mut self, $field: $type) -> Self {
                    self.$to$(.$of)? = $value;
                    self
                }
            )+
        }
    };
}

setters! {
    with_hold_duration(hold_duration: Duration) hold_duration = Some(hold_duration);
    with_refresh_interval(refresh_interval: Duration) refresh_interval = refresh_interval;
    with_refresh_duration(refresh_duration: Duration) refresh_duration = refresh_duration;
    with_stop_grace(stop_grace: Duration) stop_grace = Some(stop_grace);
    with_margin(margin: Duration) margin = Some(margin);
    with_poll_interval(poll_interval: Duration) poll_interval = Some(poll_interval);
    with_settle(settle: Duration) settle = settle;
    with_retention_locks(retention_locks: Duration) retention.locks = retention_locks;
    with_retention_runs(retention_runs: Duration) retention_runs = retention_runs;
    with_retention_run_entries(retention_run_entries: usize) retention_run_entries = retention_run_entries;
    with_retention_sessions(retention_sessions: Duration) retention.sessions = retention_sessions;
}

/// 2 % of a ttl, rounded up: twice as much as the promise lets the rates of two clocks differ.
fn drift(ttl: Duration) -> Duration {
    let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis.div_ceil(50))
}

/// The store keeps whole milliseconds.
fn whole_ms(time: Duration) -> Duration {
    Duration::new(time.as_secs(), time.subsec_millis() * 1_000_000)
}

fn check(field: &str, value: Duration, range: &RangeInclusive<Duration>) -> Result<(), ConfigError> {
    let shown = Shown(value);
    let refuse = |rule: String| Err(ConfigError::new(field, format!("{field} ({shown}) must be {rule}")));
    if !range.contains(&value) {
        return refuse(format!("between {} and {}", Shown(*range.start()), Shown(*range.end())));
    }
    if whole_ms(value) != value {
        return refuse("whole milliseconds".to_owned());
    }
    Ok(())
}

/// Checks the patience of a liveness probe, which is a setting of the program and in no file.
pub(crate) fn check_probe(patience: Duration) -> Result<(), ConfigError> {
    check("liveness_probe", patience, &INTERVALS)
}

/// A configuration that cannot be read, or breaks a rule. The message has the numbers in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: String,
    message: String,
}

impl ConfigError {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// Name of the field, such as `retention.locks`; or of the variable it was to be read from.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ConfigError {}

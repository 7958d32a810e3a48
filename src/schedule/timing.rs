//! Timings of schedules, as the program sets them.

use std::time::Duration;

use super::CalendarError;
use crate::{
    logic::calendar::Calendar,
    model::{LimitError, ScheduleName, StoreTime},
};

/// Timing of a schedule: its expression, and what its instants depend on besides.
///
/// | expression | meaning |
/// |---|---|
/// | `30 2 * * *` | minute, hour, day of month, month, weekday; `*/5`, `1-5`, `1,3`, `MON-FRI`, `JAN` as in any cron |
/// | `0 30 2 * * *` | the same with seconds first |
/// | `0 0 L * *`, `0 0 LW * *`, `0 0 15W * *` | the last day of the month, its last day from Monday to Friday, the one nearest to the 15th |
/// | `0 0 * * 5#3`, `0 0 * * FRIL` | the third Friday, the last one |
/// | `0 0 13 * FRI`, `0 0 13 * +FRI` | every 13th and every Friday; Fridays that are a 13th: [more](#days) |
/// | `H H(0-5) * * *`, `H/15 * * * *` | any minute, at night; four times an hour: whichever the schedule's name says |
/// | `@yearly`, `@monthly`, `@weekly`, `@daily`, `@hourly` | at its first minute |
/// | `@every 90s` | since 1970, shifted by the schedule's name; up to 366 days |
/// | `@at 2026-11-21T03:00:00Z` | once; [at once](#an-instant-that-is-past) if that is past; without the `Z`, by the clocks of the zone |
/// | `@after 10m` | once, so long after the schedule was first stored with this expression |
///
/// # Days
/// The day of month and the weekday go together as in Vixie's cron and cronie. If one of the two *begins* with `*`, a
/// day has to match both, and otherwise either. A `+` before the weekday always asks for both.
///
/// | expression | days | |
/// |---|---|---|
/// | `0 0 13 * *` | every 13th | of January 2026: 13 |
/// | `0 0 * * FRI` | every Friday | of January 2026: 2, 9, 16, 23, 30 |
/// | `0 0 13 * FRI` | every 13th and every Friday | of January 2026: 2, 9, 13, 16, 23, 30 |
/// | `0 0 13 * +FRI` | Fridays that are a 13th | of January 2026: none |
/// | `0 0 */2 * MON` | Mondays with an odd date | of January 2026: 5, 19 |
/// | `0 0 1-31/2 * MON` | odd dates and every Monday | of January 2026: 1, 3, 5, 7, 9, 11, 12, 13, 15, 17, 19, 21, 23, 25, 26, 27, 29, 31 |
/// | `0 0 1,2 * */2` | the 1st and the 2nd, on a Sunday, Tuesday, Thursday or Saturday | of January 2026: 1 |
/// | `0 0 L * *` | the last day of the month | of January 2026: 31 |
///
/// Weekdays are counted from Sunday, 0, as in any crontab. Quartz counts from Sunday, 1, and writes `?` for the other
/// field: beside a `?` numbers of weekdays are refused, and names are not.
///
/// # An instant that is past
/// An `@at` that is past when it is stored, and that the ledger does not know, is a late tick: it runs at once if its
/// [misfire window](super::Misfire) lasts, and is recorded as too late otherwise. So a program that is started anew gives
/// the same instant without harm. Later than `retention.runs` it is always too late: by then its record may be gone.
///
/// # Changes of the clocks
/// A time that they skip is run once, right after the gap, and one that comes twice at its first, as Vixie's cron does
/// it. An expression whose seconds, minutes or hours begin with `*` follows the clocks: nothing is run for what they
/// skip, and what comes twice is run twice.
///
/// ```
/// use tenure::{model::StoreTime, schedule::Timing};
///
/// let nightly = Timing::new("30 2 * * *").zone("Europe/Berlin");
/// let before_the_change = StoreTime::from_millis(1_774_483_200_000);
/// let next = nightly.next(4, before_the_change)?;
/// assert_eq!(
///     next.iter().map(ToString::to_string).collect::<Vec<_>>(),
///     [
///         "2026-03-26T01:30:00Z",
///         "2026-03-27T01:30:00Z",
///         "2026-03-28T01:30:00Z",
///         "2026-03-29T01:00:00Z", // 03:00 by the clocks, which skip 02:30 on that day
///     ]
/// );
///
/// let error = Timing::new("0 0 31 2 *").check().unwrap_err();
/// assert_eq!(error.to_string(), "the expression \"0 0 31 2 *\" names a day that does not exist");
/// # Ok::<_, tenure::schedule::CalendarError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it says nothing until it is asked"]
pub struct Timing {
    expression: String,
    zone: Option<String>,
    spread: Duration,
    name: Option<Result<ScheduleName, LimitError>>,
}

impl Timing {
    /// Creates a timing from an expression, read in UTC.
    pub fn new(expression: impl AsRef<str>) -> Self {
        let expression = expression.as_ref().to_owned();
        Self { expression, zone: None, spread: Duration::ZERO, name: None }
    }

    /// Sets the zone of the IANA database, such as `Europe/London`. The rules of zones come with the crate, whatever a
    /// machine has installed. Default: UTC.
    pub fn zone(self, zone: impl AsRef<str>) -> Self {
        Self { zone: Some(zone.as_ref().to_owned()), ..self }
    }

    /// Delays everything by a part of this, which the schedule's name decides: so that not all that is due at midnight
    /// starts at once. Whole seconds, up to 366 days. Default: none.
    pub fn spread_over(self, spread: Duration) -> Self {
        Self { spread, ..self }
    }

    /// Sets the schedule's name, by which `H`, `@every` and [`spread_over`](Self::spread_over) take their numbers.
    /// Default: `nobody`, so that they are not those of any other schedule.
    pub fn named(self, name: impl AsRef<str>) -> Self {
        Self { name: Some(ScheduleName::new(name)), ..self }
    }

    /// Returns the first `n` instants after `after`; fewer if there are no more. `@after` counts from `after`.
    ///
    /// # Errors
    /// [`CalendarError`] if no schedule can have this expression, zone, spread or name.
    pub fn next(&self, n: usize, after: StoreTime) -> Result<Vec<StoreTime>, CalendarError> {
        Ok(self.calendar()?.first(n, after))
    }

    /// Checks whether a schedule can have it.
    ///
    /// # Errors
    /// [`CalendarError`] if not: the input, and the rule it broke.
    pub fn check(&self) -> Result<(), CalendarError> {
        self.calendar().map(drop)
    }

    pub(super) fn calendar(&self) -> Result<Calendar, CalendarError> {
        let name = self.name.clone().unwrap_or_else(|| ScheduleName::new("nobody"));
        let name = name.map_err(|error| CalendarError::new(error.to_string()))?;
        Calendar::new(&self.expression, self.zone.as_deref(), self.spread, &name)
    }
}

impl<T: AsRef<str>> From<T> for Timing {
    fn from(expression: T) -> Self {
        Self::new(expression)
    }
}

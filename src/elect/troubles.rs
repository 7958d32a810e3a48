//! Registry of failing work, of all kinds that the engine repeats.
//!
//! Each call of the store goes through [`Engine::call`], which records here how it ended. [`Course::next`]
//! decides when a failure is logged, and reads no clock.

use std::{
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use futures::FutureExt;
use serde::Serialize;

use super::{Engine, Work, metrics};
use crate::{Applied, StoreError, clock::Moment, error::chain, sync::locked, words};

/// Time that a failure which may pass by itself has to last before it is logged: longer than an election.
const LASTS: Duration = Duration::from_secs(20);
/// Interval until the next line; it doubles each time.
const FIRST_REST: Duration = Duration::from_secs(60);
const LONGEST_REST: Duration = Duration::from_secs(10 * 60);
/// Time for which reopened work has to last to count as working.
const MENDED: Duration = Duration::from_secs(15);
/// Time, besides some polls, after which failed work that is not retried counts as no longer needed. Half of
/// it, if it may have passed by itself.
const QUIET: Duration = Duration::from_secs(5 * 60);

/// Work of the engine that fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Trouble {
    /// Kind of work.
    pub work: Work,
    /// Time since the first failure.
    #[serde(rename = "for_ms", serialize_with = "crate::model::serial::ms")]
    pub since: Duration,
    /// Number of failures since it last worked.
    pub failures: u64,
    /// Set if an operator has to change something first: a right, a password, disk space.
    pub lasting: bool,
    /// Last error, with its causes.
    pub error: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is failing: {}", self.work.subject(), self.error)
    }
}

/// History of one kind of work since it last worked.
#[derive(Clone, Debug)]
struct FailureRun {
    since: Moment,
    last: Moment,
    failures: u64,
    lasting: bool,
    error: String,
    is_logged: bool,
    /// Since when it may work again. That has to last, as no answer confirms it.
    mended: Option<Moment>,
}

/// Time at which one kind of work may be logged again. Kept when the trouble is over, so that one that comes and goes
/// does not fill the log.
#[derive(Clone, Copy, Debug)]
struct LogSchedule {
    next: Moment,
    rest: Duration,
    /// True if it was logged that an operator has to change something.
    lasting: bool,
}

impl FailureRun {
    /// Returns whether it is worth logging, whenever that was done last. Trouble that may pass is, when it
    /// was retried in vain for so long; not when it was not retried.
    fn is_lasting(&self, work: Work) -> bool {
        self.lasting || work.is_reported_at_once() || self.last.since(self.since) >= LASTS
    }

    /// Returns the next entry of the log's schedule if it is to be logged now.
    fn next(&self, work: Work, spoken: Option<LogSchedule>, now: Moment) -> Option<LogSchedule> {
        if work == Work::Requested || !self.is_lasting(work) {
            return None;
        }
        let lasting = self.lasting;
        let is_news = |speech: &LogSchedule| lasting && !speech.lasting;
        match spoken {
            Some(speech) if now < speech.next && !is_news(&speech) => None,
            // One that was over for so long begins anew.
            Some(speech) if now.since(speech.next) < LONGEST_REST => {
                let rest = (speech.rest * 2).min(LONGEST_REST);
                Some(LogSchedule { next: now + rest, rest, lasting })
            }
            _ => Some(LogSchedule { next: now + FIRST_REST, rest: FIRST_REST, lasting }),
        }
    }
}

/// The registry.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    registry: Mutex<TroubleRegistry>,
}

#[derive(Debug, Default)]
struct TroubleRegistry {
    courses: BTreeMap<Work, FailureRun>,
    spoken: BTreeMap<Work, LogSchedule>,
}

impl Troubles {
    fn registry(&self) -> MutexGuard<'_, TroubleRegistry> {
        locked(&self.registry)
    }

    /// Returns whether this kind of work fails at present, for however short a time.
    pub(crate) fn has(&self, work: Work) -> bool {
        self.registry().courses.contains_key(&work)
    }

    /// Returns the troubles worth reporting, the longest first.
    pub(crate) fn lasting(&self, now: Moment) -> Vec<Trouble> {
        let registry = self.registry();
        let lasting = registry.courses.iter().filter(|(work, course)| course.is_lasting(**work));
        let mut lasting: Vec<_> = lasting
            .map(|(work, course)| Trouble {
                work: *work,
                since: now.since(course.since),
                failures: course.failures,
                lasting: course.lasting,
                error: course.error.clone(),
            })
            .collect();
        lasting.sort_by_key(|trouble| std::cmp::Reverse(trouble.since));
        lasting
    }
}

impl Engine {
    /// Makes a call of the store that does not panic, keeps to its limit even if the store does not, and
    /// whose result is recorded.
    pub(crate) async fn call<T>(
        &self,
        work: Work,
        limit: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let sent = self.clock.now();
        let answer = careful(limit, call).await;
        match &answer {
            Ok(_) => self.record_success(work),
            Err(error) => self.record_failure(work, sent, error),
        }
        answer
    }

    /// Records a failure of this kind of work; the attempt began then.
    pub(crate) fn record_failure(&self, work: Work, begun: Moment, error: &StoreError) {
        self.record_trouble(work, begun, !error.is_retryable(), chain(error));
    }

    /// The same in words; lasting, if an operator has to change something first.
    pub(crate) fn record_trouble(&self, work: Work, begun: Moment, lasting: bool, error: String) {
        metrics::failed(self, work);
        if work == Work::Requested {
            return;
        }
        let now = self.clock.now();
        let mut registry = self.troubles.registry();
        let TroubleRegistry { courses, spoken } = &mut *registry;
        let course = courses.entry(work).or_insert_with(|| FailureRun {
            since: begun,
            last: now,
            failures: 0,
            lasting: false,
            error: String::new(),
            is_logged: false,
            mended: None,
        });
        course.mended = None;
        course.last = now;
        course.failures += 1;
        course.lasting = lasting;
        course.error = error;
        let speech = course.next(work, spoken.get(&work).copied(), now);
        let is_passing = !course.lasting;
        // While no beat is answered, that says it all: other work fails of the same.
        let is_out_of_reach = || work != Work::Beats && courses.contains_key(&Work::Beats);
        let Some(speech) = speech.filter(|_| !(is_passing && is_out_of_reach())) else { return };
        let Some(course) = courses.get_mut(&work) else { return };
        spoken.insert(work, speech);
        course.is_logged = true;
        let course = course.clone();
        drop(registry);
        metrics::trouble(self, work, true);
        words::warn!(
            namespace = %self.config.namespace(),
            work = work.name(),
            since = ?now.since(course.since),
            failures = course.failures,
            error = course.error,
            advice = work.advice(&course.error),
            "{} is failing: {}",
            work.subject(),
            work.consequence()
        );
    }

    /// Records a success of this kind of work.
    pub(crate) fn record_success(&self, work: Work) {
        let now = self.clock.now();
        let mut registry = self.troubles.registry();
        let Some(over) = registry.courses.remove(&work) else { return };
        if work == Work::Beats {
            // Work that failed beside the beats failed of the same: if it goes on, that begins now.
            for course in registry.courses.values_mut().filter(|course| !course.lasting && !course.is_logged)
            {
                course.since = now;
            }
        }
        drop(registry);
        if over.is_logged {
            metrics::trouble(self, work, false);
            let lasted = now.since(over.since);
            words::info!(
                namespace = %self.config.namespace(),
                work = work.name(),
                ?lasted,
                failures = over.failures,
                "{} works again",
                work.subject()
            );
        }
    }

    /// Returns the way in which hints come, if they do: hints that fail do not.
    pub(crate) fn hints(&self) -> Option<&'static str> {
        self.store().capabilities().hints.filter(|_| !self.troubles.has(Work::Hints))
    }

    /// Records that this kind of work may work again, unless it fails soon.
    pub(crate) fn record_recovery(&self, work: Work) {
        let now = self.clock.now();
        if let Some(course) = self.troubles.registry().courses.get_mut(&work) {
            course.mended.get_or_insert(now);
        }
    }

    /// Ends the troubles of work that has worked for some time, and of work that is not tried any more.
    pub(crate) fn forget_old_troubles(&self) {
        let now = self.clock.now();
        let mended = |course: &FailureRun| course.mended.is_some_and(|mended| now.since(mended) >= MENDED);
        let mended: Vec<Work> = {
            let registry = self.troubles.registry();
            let mended = registry.courses.iter().filter(|(_, course)| mended(course));
            mended.map(|(work, _)| *work).collect()
        };
        for work in mended {
            self.record_success(work);
        }
        let quiet = |course: &FailureRun| self.poll() * 3 + if course.lasting { QUIET } else { QUIET / 2 };
        let mut registry = self.troubles.registry();
        let old: Vec<Work> = registry
            .courses
            .iter()
            .filter(|(_, course)| now.since(course.last) >= quiet(course))
            .map(|(work, _)| *work)
            .collect();
        for work in old {
            if registry.courses.remove(&work).is_some_and(|course| course.is_logged) {
                metrics::trouble(self, work, false);
                words::info!(
                    namespace = %self.config.namespace(),
                    work = work.name(),
                    "{} is no longer needed and no longer retried",
                    work.subject()
                );
            }
        }
    }
}

/// Makes a call of the store that does not panic, and keeps to its limit even if the store does not.
pub(super) async fn careful<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let unknown = |why: &'static str| StoreError::new("the store", "answer", Applied::Unknown, true, why);
    let call = AssertUnwindSafe(call).catch_unwind();
    match tokio::time::timeout(limit + limit / 10, call).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => {
            words::error!("the store panicked");
            Err(unknown("it panicked"))
        }
        Err(_) => Err(unknown("it exceeded its time limit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    /// Seconds at which work is logged that has failed since the beginning, at each of these seconds.
    fn logged_at(work: Work, lasting: bool, failures: impl IntoIterator<Item = u64>) -> Vec<u64> {
        logged(work, failures.into_iter().map(|second| (second, lasting)))
    }

    fn logged(work: Work, failures: impl IntoIterator<Item = (u64, bool)>) -> Vec<u64> {
        let mut spoken = None;
        let mut course = FailureRun {
            since: at(0),
            last: at(0),
            failures: 1,
            lasting: false,
            error: String::new(),
            is_logged: false,
            mended: None,
        };
        let mut logged = Vec::new();
        for (second, lasting) in failures {
            course.last = at(second);
            course.lasting = lasting;
            if let Some(speech) = course.next(work, spoken, at(second)) {
                spoken = Some(speech);
                logged.push(second);
            }
        }
        logged
    }

    #[test]
    fn permanent_trouble_is_logged_at_once_and_then_at_growing_rests() {
        assert_eq!(logged_at(Work::Joining, true, 0..1000), [0, 60, 180, 420, 900]);
    }

    #[test]
    fn passing_trouble_is_logged_once_it_has_outlasted_an_election() {
        assert_eq!(logged_at(Work::Takes, false, 0..20), [0_u64; 0]);
        assert_eq!(logged_at(Work::Takes, false, 0..200), [20, 80]);
        assert_eq!(logged_at(Work::Takes, false, [0, 59]), [59], "nothing that fails for a minute is silent");
    }

    #[test]
    fn lasting_trouble_is_logged_at_rests_that_grow_to_ten_minutes() {
        let day = logged_at(Work::Hints, false, 0..24 * 3600);
        assert_eq!(day[..7], [20, 80, 200, 440, 920, 1520, 2120]);
        assert!(day[4..].windows(2).all(|two| two[1] - two[0] == 600), "{day:?}");
    }

    #[test]
    fn recurring_trouble_is_logged_no_more_often_than_permanent_trouble() {
        let comes_and_goes = (0..1000).filter(|second| second % 10 == 0);
        assert!(logged_at(Work::Joining, true, comes_and_goes).len() <= 5);
        // A new one after a long time is a new one.
        let much_later = [0, 60, 20_000, 20_060];
        assert_eq!(logged_at(Work::Joining, true, much_later), much_later);
    }

    #[test]
    fn trouble_that_turns_permanent_is_logged_at_once() {
        // A server that was away for half a minute, and knows another password since.
        let away_then_refused = (0..200).map(|second| (second, second >= 31));
        assert_eq!(logged(Work::Beats, away_then_refused), [20, 31, 151]);
        let in_turns = (0..1000).map(|second| (second, second % 2 == 0));
        assert!(logged(Work::Beats, in_turns).len() <= 10);
    }

    #[test]
    fn trouble_of_requested_work_is_not_logged() {
        assert_eq!(logged_at(Work::Requested, true, 0..1000), [0_u64; 0]);
    }

    #[test]
    fn an_error_is_logged_with_its_causes_and_none_of_them_twice() {
        let error = StoreError::new("mongodb", "take 3 locks", Applied::Unknown, true, "reply lost");
        let text = chain(&error);
        assert_eq!(text.matches("reply lost").count(), 1, "{text}");
        assert!(text.starts_with("mongodb"), "{text}");
    }

    #[test]
    fn the_command_that_a_server_repeats_is_not_logged_for_a_value_may_stand_in_it() {
        let said = "Kind: Command failed: Error code 13 (Unauthorized): not authorized on app to execute command \
                    { update: \"waiters\", updates: [ { value: \"s3cret\" } ] }, labels: {}, source: None, server \
                    response: Some(RawDocumentBuf { data: \"92\" })";
        let text = chain(&StoreError::new("mongodb", "join a queue", Applied::No, false, said));
        assert!(!text.contains("s3cret") && !text.contains("RawDocument"), "{text}");
        assert!(
            text.ends_with("(Unauthorized): not authorized on app to execute command { update: \"waiters\""),
            "{text}"
        );
    }
}

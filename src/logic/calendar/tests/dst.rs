//! Effects of a change of the clocks on a schedule, by name; the tables have the rest.

use super::*;

/// Instants due on the day in question, by the clocks there.
fn on(day: &str, zone: &'static str, expression: &str) -> Vec<String> {
    let calendar = within(zone).calendar(expression).unwrap();
    let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
    let noon: jiff::civil::Date = day.parse().unwrap();
    let noon = noon.at(12, 0, 0, 0).to_zoned(zone.clone()).unwrap().timestamp().as_second();
    let [after, to] = [noon - DAY, noon + DAY].map(seconds);
    let all = calendar.latest(after, to, after, 1000).into_iter().map(|at| {
        let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap();
        at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%:z").to_string()
    });
    all.filter(|at| at.starts_with(day)).map(|at| at[11..].to_owned()).collect()
}

const NEW_YORK: &str = "America/New_York";
const GAP: &str = "2026-03-08";
const FOLD: &str = "2026-11-01";

#[test]
fn a_skipped_time_runs_when_the_gap_ends() {
    assert_eq!(on(GAP, NEW_YORK, "30 2 * * *"), ["03:00:00-04:00"]);
}

#[test]
fn several_skipped_times_run_once() {
    assert_eq!(
        on(GAP, NEW_YORK, "0,15,30,45 1-2 * * *"),
        ["01:00:00-05:00", "01:15:00-05:00", "01:30:00-05:00", "01:45:00-05:00", "03:00:00-04:00"]
    );
}

#[test]
fn a_skipped_time_and_the_one_it_falls_on_are_one_tick() {
    assert_eq!(on(GAP, NEW_YORK, "30 2,3 * * *"), ["03:00:00-04:00", "03:30:00-04:00"]);
    assert_eq!(on(GAP, NEW_YORK, "0 2,3 * * *"), ["03:00:00-04:00"]);
}

#[test]
fn a_time_that_comes_twice_runs_once() {
    assert_eq!(on(FOLD, NEW_YORK, "30 1 * * *"), ["01:30:00-04:00"]);
}

#[test]
fn a_time_that_follows_the_clock_skips_the_gap_and_runs_the_fold_twice() {
    assert_eq!(
        on(GAP, NEW_YORK, "*/30 1-3 * * *"),
        ["01:00:00-05:00", "01:30:00-05:00", "03:00:00-04:00", "03:30:00-04:00"]
    );
    assert_eq!(
        on(FOLD, NEW_YORK, "*/30 1 * * *"),
        ["01:00:00-04:00", "01:30:00-04:00", "01:00:00-05:00", "01:30:00-05:00"]
    );
    assert_eq!(on(FOLD, NEW_YORK, "@hourly").len(), 25);
    assert_eq!(on(GAP, NEW_YORK, "@hourly").len(), 23);
}

#[test]
fn a_day_that_begins_at_one_has_its_midnight_then() {
    assert_eq!(on("2018-11-04", "America/Sao_Paulo", "@daily"), ["01:00:00-02:00"]);
    assert_eq!(on("2024-04-26", "Africa/Cairo", "@daily"), ["01:00:00+03:00"]);
}

#[test]
fn a_midnight_that_is_put_back_runs_once() {
    // 23:59:59 on the 17th is followed by 23:00:00 on the 17th.
    assert_eq!(on("2018-02-17", "America/Sao_Paulo", "30 23 * * *"), ["23:30:00-02:00"]);
    assert_eq!(on("2018-02-18", "America/Sao_Paulo", "@daily"), ["00:00:00-03:00"]);
}

#[test]
fn half_an_hour_is_a_gap_too() {
    assert_eq!(on("2026-10-04", "Australia/Lord_Howe", "15 2 * * *"), ["02:30:00+11:00"]);
    assert_eq!(on("2026-04-05", "Australia/Lord_Howe", "45 1 * * *"), ["01:45:00+11:00"]);
}

#[test]
fn a_whole_day_may_be_missing() {
    // Samoa had no 30 December in 2011.
    let apia = |expression| on("2011-12-31", "Pacific/Apia", expression);
    assert_eq!(apia("0 3 30 12 *"), ["00:00:00+14:00"]);
    assert_eq!(apia("0 3 * * *"), ["00:00:00+14:00", "03:00:00+14:00"]);
}

#[test]
fn a_restart_within_the_gap_finds_what_is_still_to_come() {
    // 07:00 UTC is the first instant after the gap.
    let next = |after| within(NEW_YORK).next("30 2 * * *", after, 1).remove(0);
    assert_eq!(next("2026-03-08T06:59:59Z"), "2026-03-08T07:00:00Z");
    assert_eq!(next("2026-03-08T07:00:00Z"), "2026-03-09T06:30:00Z");
    // And within the second pass of an hour, what ran in the first does not run again.
    let next = |after| within(NEW_YORK).next("30 1 * * *", after, 1).remove(0);
    assert_eq!(next("2026-11-01T05:29:59Z"), "2026-11-01T05:30:00Z");
    assert_eq!(next("2026-11-01T06:00:00Z"), "2026-11-02T06:30:00Z");
}

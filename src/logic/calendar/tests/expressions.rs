//! Meanings of expressions, and messages about those that have none.

use expect_test::expect;

use super::*;

const NEW_YEAR: &str = "2026-01-01T00:00:00Z";

#[test]
fn days_are_those_of_the_calendar() {
    let days = |expression, count| {
        let found = UTC.next(expression, NEW_YEAR, count);
        found.iter().map(|at| at[..10].to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(days("0 0 29 2 *", 3), "2028-02-29 2032-02-29 2036-02-29");
    assert_eq!(days("0 0 L * *", 4), "2026-01-31 2026-02-28 2026-03-31 2026-04-30");
    assert_eq!(days("0 0 LW * *", 5), "2026-01-30 2026-02-27 2026-03-31 2026-04-30 2026-05-29");
    assert_eq!(days("0 0 * * 5#3", 4), "2026-01-16 2026-02-20 2026-03-20 2026-04-17");
    assert_eq!(days("0 0 * * FRIL", 3), "2026-01-30 2026-02-27 2026-03-27");
    assert_eq!(days("0 0 * * fri#L", 3), "2026-01-30 2026-02-27 2026-03-27");
    // The 15th is a Thursday, then twice a Sunday: Monday is nearest.
    assert_eq!(days("0 9 15W * *", 4), "2026-01-15 2026-02-16 2026-03-16 2026-04-15");
    // The 1st of August is a Saturday; Friday would be of July.
    assert_eq!(days("0 9 1W 8 *", 1), "2026-08-03");
    assert_eq!(days("0 0 13 * +FRI", 3), "2026-02-13 2026-03-13 2026-11-13");
    assert_eq!(days("0 0 13 * FRI", 4), "2026-01-02 2026-01-09 2026-01-13 2026-01-16");
    assert_eq!(days("0 0 ? JAN-mar SAT-SUN", 4), "2026-01-03 2026-01-04 2026-01-10 2026-01-11");
    assert_eq!(days("0 0 ? * */2", 3), "2026-01-03 2026-01-04 2026-01-06");
    assert_eq!(days("@daily", 2), "2026-01-02 2026-01-03");
    assert_eq!(days("@yearly", 2), "2027-01-01 2028-01-01");
    assert_eq!(days("@weekly", 2), "2026-01-04 2026-01-11");
    // 2100 has no 29 February; and only this one of 40 years is a Sunday.
    assert_eq!(days("0 0 29 2 +SUN", 5), "2032-02-29 2060-02-29 2088-02-29 2128-02-29 2156-02-29");
}

#[test]
fn the_table_of_days_says_what_the_code_does() {
    let table = include_str!("../../../schedule/timing.rs")
        .lines()
        .filter(|line| line.contains("| of January 2026:"));
    let mut rows = 0;
    for row in table {
        let cells: Vec<_> = row.trim_start_matches("///").split('|').map(str::trim).collect();
        let (expression, said) =
            (cells[1].trim_matches('`'), cells[3].trim_start_matches("of January 2026:").trim());
        let days = UTC
            .next(expression, "2025-12-31T23:59:59Z", 31)
            .into_iter()
            .filter(|at| at.starts_with("2026-01-"));
        let days: Vec<_> = days.map(|at| at[8..10].trim_start_matches('0').to_owned()).collect();
        let days = if days.is_empty() { "none".to_owned() } else { days.join(", ") };
        assert_eq!(days, said, "{expression}");
        rows += 1;
    }
    assert_eq!(rows, 8);
}

#[test]
fn times_are_whole_seconds_strictly_after() {
    let daily = UTC.calendar("30 59 23 * * *").unwrap();
    let next = |millis: i64| daily.next(StoreTime::from_millis(millis), seconds(0)).unwrap().as_millis();
    let due = 86_370_000;
    assert_eq!(next(due - 1), due);
    assert_eq!(next(due), due + DAY * 1000);
    assert_eq!(next(due + 1), due + DAY * 1000);
    assert_eq!(next(i64::MIN), due);
}

#[test]
fn a_period_counts_from_1970_shifted_by_the_name() {
    let shift = |name, period: i64| {
        let calendar = Of { name, ..UTC }.calendar(&format!("@every {period}s")).unwrap();
        let first = calendar.next(seconds(0), seconds(0)).unwrap();
        assert_eq!(
            calendar.next(first, seconds(0)),
            Some(first.plus(Duration::from_secs(period.unsigned_abs())))
        );
        first.as_millis() / 1000 % period
    };
    // These must never change: a fleet that is updated machine by machine goes by them.
    expect!["54 50 2034"].assert_eq(&format!(
        "{} {} {}",
        shift("report", 90),
        shift("mail", 90),
        shift("report", 3600)
    ));
    let shifts: std::collections::BTreeSet<_> =
        ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| shift(name, 1_000_000)).into();
    assert_eq!(shifts.len(), 8, "{shifts:?}");
}

#[test]
fn an_expression_of_one_instant_is_due_once() {
    assert_eq!(UTC.next("@at 2026-11-21T03:00:00Z", NEW_YEAR, 9), ["2026-11-21T03:00:00Z"]);
    assert_eq!(UTC.next("@at 2026-11-21T03:00:00+01:30", NEW_YEAR, 9), ["2026-11-21T01:30:00Z"]);
    assert!(UTC.next("@at 2026-11-21T03:00:00Z", "2026-11-21T03:00:00Z", 9).is_empty());
    let london = within("Europe/London");
    assert_eq!(london.next("@at 2026-07-01t09:00:00", NEW_YEAR, 9), ["2026-07-01T08:00:00Z"]);
    // In the gap: the first instant after it. In the fold: the first of the two.
    assert_eq!(london.next("@at 2026-03-29T01:30:00", NEW_YEAR, 9), ["2026-03-29T01:00:00Z"]);
    assert_eq!(london.next("@at 2026-10-25T01:30:00", NEW_YEAR, 9), ["2026-10-25T00:30:00Z"]);
}

#[test]
fn a_delay_counts_from_when_the_timing_was_stored() {
    let soon = UTC.calendar("@after 10m").unwrap();
    let since = StoreTime::from_millis(1_795_230_000_001);
    let due = at("2026-11-21T03:10:01Z");
    assert_eq!(soon.next(since, since), Some(due));
    assert_eq!(soon.latest(since, due, since, 5), [due]);
    assert_eq!(soon.next(due, since), None);
    for since in [i64::MIN, -700_000, i64::MAX] {
        assert_eq!(soon.next(seconds(0), StoreTime::from_millis(since)), None);
    }
}

#[test]
fn h_is_a_number_by_name_and_field() {
    let resolved = |expression: &str, name: &str| {
        let fields: Vec<_> = expression.split(' ').collect();
        fields::read(&fields, &name.parse().unwrap()).unwrap().0
    };
    // These must never change, either.
    expect!["39 39 10 25 11 0"].assert_eq(&resolved("H H H H H H", "report"));
    expect!["2 29 21 1 3 2"].assert_eq(&resolved("H H H H H H", "mail"));
    expect!["9-59/15 4 25,15 * 0"].assert_eq(&resolved("H/15 H(0-5) H,15 * H", "report"));
    expect!["19-40/10 * * * *"].assert_eq(&resolved("H(10-40)/10 * * * *", "report"));
    for name in 0..300 {
        let name = name.to_string();
        let calendar = UTC.calendar("H H H H H *").unwrap();
        assert_eq!(calendar.timing(), "H H H H H * in UTC");
        let number = |field: usize| -> u32 {
            resolved("H H H H H H", &name).split(' ').nth(field).unwrap().parse().unwrap()
        };
        assert!(number(0) < 60 && number(1) < 60 && number(2) < 24, "{name}");
        assert!((1..=28).contains(&number(3)) && (1..=12).contains(&number(4)) && number(5) < 7, "{name}");
        let hour: u32 = resolved("0 H(3-5) * * *", &name).split(' ').nth(1).unwrap().parse().unwrap();
        assert!((3..=5).contains(&hour), "{name}");
    }
}

#[test]
fn a_spread_delays_everything_by_a_part_of_it() {
    let hour = Duration::from_secs(3600);
    let mut phases = std::collections::BTreeSet::new();
    for name in ["a", "b", "c", "d"] {
        let spread = Of { name, spread: hour, ..within("Europe/London") };
        let plain = Of { spread: Duration::ZERO, ..spread };
        let [later, due] = [&spread, &plain].map(|of| of.next("30 1 * * *", "2026-03-27T00:00:00Z", 5));
        let phase: Vec<_> = later.iter().zip(&due).map(|(later, due)| at(later).since(at(due))).collect();
        assert!(phase[0] < hour && phase.iter().all(|one| *one == phase[0]), "{phase:?}");
        phases.insert(phase[0]);
        assert_eq!(
            spread.calendar("30 1 * * *").unwrap().timing(),
            "30 1 * * * in Europe/London, vixie, spread over 1h"
        );
    }
    assert!(phases.len() > 2, "{phases:?}");
}

#[test]
fn equal_timings_are_written_the_same() {
    let timing = |of: &Of, expression: &str| of.calendar(expression).unwrap().timing().to_owned();
    let london = within(" europe/LONDON");
    let of_london = [
        "  */5   * * jan\tMon-Fri ",
        "@Daily",
        "@midnight",
        "0 0 * * *",
        "@every 90s",
        "@EVERY  1m 30s",
        "@every 31days",
        "@after 1h",
        "@at 2026-07-01T09:00:00",
        "@at 2026-07-01t08:00:00z",
    ];
    let written: Vec<_> = of_london.iter().map(|text| timing(&london, text)).collect();
    expect![[r"
        */5 * * JAN MON-FRI in Europe/London, vixie
        0 0 * * * in Europe/London, vixie
        0 0 * * * in Europe/London, vixie
        0 0 * * * in Europe/London, vixie
        @every 1m 30s
        @every 1m 30s
        @every 31d
        @after 1h
        @at 2026-07-01T08:00:00Z
        @at 2026-07-01T08:00:00Z"]]
    .assert_eq(&written.join("\n"));
    assert_eq!(timing(&UTC, "0 0 * * *"), timing(&within("utc"), "@daily"));
    assert_eq!(timing(&UTC, "@hourly"), "0 * * * * in UTC");
}

const WRONG: &[&str] = &[
    "",
    " ",
    "* * * *",
    "*",
    "* * * * * * *",
    "* * * * * * * *",
    "* * * * é",
    "* * *\n* *",
    "60 * * * *",
    "* 24 * * *",
    "* * 0 * *",
    "* * 32 * *",
    "* * * 13 *",
    "* * * * 8",
    "* * * JANUARY *",
    "JAN * * * *",
    "* * * * MONDAY",
    "1,,2 * * * *",
    ", * * * *",
    "1- * * * *",
    "5-1 * * * *",
    "1-2-3 * * * *",
    "*/0 * * * *",
    "5/10 * * * *",
    "/5 * * * *",
    "*/ * * * *",
    "*-5 * * * *",
    "+5 * * * *",
    "* * * * 1-+5",
    "* * L,LW * *",
    "* * 15W3 * *",
    "* * W * *",
    "* * L-3 * *",
    "* * * * L",
    "* * * * 5#6",
    "* * * * 5#2L",
    "* * * * #2",
    "0 0 9 ? * 2-6",
    "0 0 ? * 5#3,1L",
    "0 0 ? * +0-4/2",
    "H(5) * * * *",
    "H(0-60) * * * *",
    "H(9-3) * * * *",
    "H/0 * * * *",
    "H/61 * * * *",
    "H(0-3)/5 * * * *",
    "HH * * * *",
    "* * H(1-31) * *",
    "99999999999999999999 * * * *",
    "*/99999 * * * *",
    "*/90 * * * *",
    "0 1-5/25 * * *",
    "0 0 * */13 *",
    "TZ=Europe/Berlin 30 2 * * *",
    "cron_tz=Asia/Kolkata 30 2 * * *",
    "TZ= 30 2 * * *",
    "TZ=UTC",
    "0 0 31 2 *",
    "0 0 30 FEB *",
    "0 0 31 4,6,9,11 *",
    "0 0 30 2 +MON",
    "@",
    "@dayly",
    "@daily 5",
    "@every",
    "@every 0s",
    "@every 1500ms",
    "@every 367d",
    "@every 90",
    "@every -5s",
    "@every 99999999999s",
    "@after",
    "@at",
    "@at 2026-11-21",
    "@at 2026-02-30T00:00:00Z",
    "@at 2026-11-21T03:00:60Z",
    "@at 2026-11-21T03:00:00.5Z",
    "@at 1969-12-31T23:59:59Z",
    "@at 5000-01-01T00:00:00Z",
    "@at 9999-12-31T23:59:59",
    "@at 2026-11-21T03:00:00[Europe/London]",
];

#[test]
fn a_refusal_of_an_expression_names_the_value_and_the_rule() {
    let long = "* ".repeat(200);
    let wrong = WRONG.iter().copied().chain([&*long]);
    let said: Vec<_> = wrong.map(|text| UTC.refused(text)).collect();
    expect![[r##"
        the expression "" is empty
        the expression " " is empty
        the expression "* * * *" has 4 fields, and must have 5, or 6 with seconds first
        the expression "*" has 1 field, and must have 5, or 6 with seconds first
        the expression "* * * * * * *" has 7 fields, and must have 5, or 6 with seconds first; years cannot be given
        the expression "* * * * * * * *" has 8 fields, and must have 5, or 6 with seconds first
        the expression "* * * * é" has the character 'é', which is not ASCII text
        the expression "* * *\n* *" has the character '\n', which is not ASCII text
        the expression "60 * * * *" has the minute "60", which must be from 0 to 59
        the expression "* 24 * * *" has the hour "24", which must be from 0 to 23
        the expression "* * 0 * *" has the day of month "0", which must be from 1 to 31
        the expression "* * 32 * *" has the day of month "32", which must be from 1 to 31
        the expression "* * * 13 *" has the month "13", which must be from 1 to 12
        the expression "* * * * 8" has the weekday "8", which must be from 0 to 7
        the expression "* * * JANUARY *" has the month "JANUARY", which is not a number, a range, a step, or a name such as FEB
        the expression "JAN * * * *" has the minute "JAN", which is not a number, a range or a step
        the expression "* * * * MONDAY" has the weekday "MONDAY", which is not a number, a range, a step, or a name such as MON
        the expression "1,,2 * * * *" has the minute "1,,2", which has nothing between two commas, or at an end
        the expression ", * * * *" has the minute ",", which has nothing between two commas, or at an end
        the expression "1- * * * *" has the minute "1-", which is not a number, a range or a step
        the expression "5-1 * * * *" has the minute "5-1", which has a range that ends before it begins
        the expression "1-2-3 * * * *" has the minute "1-2-3", which is not a range such as 1-5
        the expression "*/0 * * * *" has the minute "*/0", which must have a number from 1 after the /
        the expression "5/10 * * * *" has the minute "5/10", which must have a range or * before the /, such as 0-59/5
        the expression "/5 * * * *" has the minute "/5", which must have a range or * before the /, such as 0-59/5
        the expression "*/ * * * *" has the minute "*/", which must have a number from 1 after the /
        the expression "*-5 * * * *" has the minute "*-5", which is not a number, a range or a step
        the expression "+5 * * * *" has the minute "+5", which is not a number, a range or a step
        the expression "* * * * 1-+5" has the weekday "1-+5", which is not a number, a range, a step, or a name such as MON
        the expression "* * L,LW * *" has the day of month "L,LW", which must have one of L and LW, not both
        the expression "* * 15W3 * *" has the day of month "15W3", which is not a number, a range or a step
        the expression "* * W * *" has the day of month "W", which is not a number, a range or a step
        the expression "* * L-3 * *" has the day of month "L-3", which is not a number, a range or a step
        the expression "* * * * L" has the weekday "L", which must have a weekday before the L, such as 5L
        the expression "* * * * 5#6" has the weekday "5#6", which must have a number from 1 to 5, or L, after the #
        the expression "* * * * 5#2L" has the weekday "5#2L", which is not a number, a range, a step, or a name such as MON
        the expression "* * * * #2" has the weekday "#2", which is not a number, a range, a step, or a name such as MON
        the expression "0 0 9 ? * 2-6" has the weekday "2-6" beside a ?, which means TUE-SAT here and MON-FRI in Quartz: write names
        the expression "0 0 ? * 5#3,1L" has the weekday "5#3,1L" beside a ?, which means FRI#3,MONL here and THU#3,SUNL in Quartz: write names
        the expression "0 0 ? * +0-4/2" has the weekday "+0-4/2" beside a ?, which means +SUN-THU/2 here and nothing in Quartz: write names
        the expression "H(5) * * * *" has the minute "H(5)", which is not one of H, H/15, H(0-29) or H(0-29)/10
        the expression "H(0-60) * * * *" has the minute "H(0-60)", which must stay within H(0-59)
        the expression "H(9-3) * * * *" has the minute "H(9-3)", which must stay within H(0-59)
        the expression "H/0 * * * *" has the minute "H/0", which must have a step from 1 to 60
        the expression "H/61 * * * *" has the minute "H/61", which must have a step from 1 to 60
        the expression "H(0-3)/5 * * * *" has the minute "H(0-3)/5", which must have a step from 1 to 4
        the expression "HH * * * *" has the minute "HH", which is not one of H, H/15, H(0-29) or H(0-29)/10
        the expression "* * H(1-31) * *" has the day of month "H(1-31)", which must stay within H(1-28)
        the expression "99999999999999999999 * * * *" has the minute "99999999999999999999", which is not a number, a range or a step
        the expression "*/99999 * * * *" has the minute "*/99999", which must have a number from 1 after the /
        the expression "*/90 * * * *" has the minute "*/90", which must have a number from 1 to 60 after the /, and there are no more of them; for a longer period there is @every
        the expression "0 1-5/25 * * *" has the hour "1-5/25", which must have a number from 1 to 24 after the /, and there are no more of them; for a longer period there is @every
        the expression "0 0 * */13 *" has the month "*/13", which must have a number from 1 to 12 after the /, and there are no more of them; for a longer period there is @every
        the expression "TZ=Europe/Berlin 30 2 * * *" begins with TZ=, but a zone is not part of the expression: set it with .zone("Europe/Berlin")
        the expression "cron_tz=Asia/Kolkata 30 2 * * *" begins with CRON_TZ=, but a zone is not part of the expression: set it with .zone("Asia/Kolkata")
        the expression "TZ= 30 2 * * *" begins with TZ=, but a zone is not part of the expression: set it with .zone("Europe/Berlin")
        the expression "TZ=UTC" begins with TZ=, but a zone is not part of the expression: set it with .zone("UTC")
        the expression "0 0 31 2 *" names a day that does not exist
        the expression "0 0 30 FEB *" names a day that does not exist
        the expression "0 0 31 4,6,9,11 *" names a day that does not exist
        the expression "0 0 30 2 +MON" names a day that does not exist
        the expression "@" begins with none of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @every, @at and @after
        the expression "@dayly" begins with none of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @every, @at and @after
        the expression "@daily 5" has more after @daily
        the expression "@every" must have a duration such as 90s or 1h 30m: value was empty
        the expression "@every 0s" must have whole seconds, from 1s to 366d
        the expression "@every 1500ms" must have whole seconds, from 1s to 366d
        the expression "@every 367d" must have whole seconds, from 1s to 366d
        the expression "@every 90" must have a duration such as 90s or 1h 30m: time unit needed, for example 90sec or 90ms
        the expression "@every -5s" must have a duration such as 90s or 1h 30m: expected number at 0
        the expression "@every 99999999999s" must have a duration such as 90s or 1h 30m
        the expression "@after" must have a duration such as 90s or 1h 30m: value was empty
        the expression "@at" must have an instant such as 2026-11-21T03:00:00Z, or a civil time of its zone without the Z
        the expression "@at 2026-11-21" must have an instant such as 2026-11-21T03:00:00Z, or a civil time of its zone without the Z
        the expression "@at 2026-02-30T00:00:00Z" must have an instant such as 2026-11-21T03:00:00Z, or a civil time of its zone without the Z
        the expression "@at 2026-11-21T03:00:60Z" must have an instant such as 2026-11-21T03:00:00Z, or a civil time of its zone without the Z
        the expression "@at 2026-11-21T03:00:00.5Z" must have an instant such as 2026-11-21T03:00:00Z, or a civil time of its zone without the Z
        the expression "@at 1969-12-31T23:59:59Z" must have an instant of the years 1970 to 4999
        the expression "@at 5000-01-01T00:00:00Z" must have an instant of the years 1970 to 4999
        the expression "@at 9999-12-31T23:59:59" must have an instant of the years 1970 to 4999
        the expression "@at 2026-11-21T03:00:00[Europe/London]" must have an instant such as 2026-11-21T03:00:00Z, or a civil time of its zone without the Z
        the expression "* * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * .." is 400 bytes long, at most 256 are allowed"##]].assert_eq(&said.join("\n"));
}

#[test]
fn zones_and_spreads_are_checked() {
    let zones = ["", "Europe/Londinium", "Local", "Etc/Unknown", "+01:00", "EST5EDT,M3.2.0,M11.1.0", "ü"];
    for zone in zones {
        let error = within(zone).refused("@daily");
        let said = format!("the zone {zone:?} is not one of the IANA database, such as \"Europe/London\"");
        assert_eq!(error, said);
    }
    let spread = |spread| Of { spread, ..UTC }.refused("@daily");
    assert_eq!(spread(Duration::from_millis(1500)), "the spread (1.5s) must be whole seconds");
    assert_eq!(spread(Duration::from_secs(400 * 86_400)), "the spread (400d) must be at most 366d");
}

#[test]
fn no_instant_and_no_window_goes_too_far() {
    let ends = [i64::MIN, -1, 0, LAST * 1000, i64::MAX - 1, i64::MAX].map(StoreTime::from_millis);
    let windows = || ends.iter().flat_map(|after| ends.iter().map(move |to| (*after, *to)));
    let expressions =
        ["* * * * * *", "0 0 29 2 *", "0 0 29 2 +SUN", "@every 7s", "@at 2026-11-21T03:00:00Z", "@after 5m"];
    for zone in ["UTC", "America/New_York", "Pacific/Apia"] {
        let of = Of { spread: Duration::from_secs(366 * 86_400), ..within(zone) };
        for calendar in expressions.map(|text| of.calendar(text).unwrap()) {
            for since in ends {
                assert!(calendar.next(since, since).is_none_or(|at| at > since));
            }
            for (after, to) in windows() {
                let last = calendar.latest(after, to, after, 3);
                assert!(last.is_sorted() && last.iter().all(|at| *at > after && *at <= to));
                assert_eq!(calendar.count(after, to, after, 3), last.len());
            }
        }
    }
}

//! Laws for any expression, zone and instant.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// Items of a field from `least` to `most`.
fn field(least: u32, most: u32) -> impl Strategy<Value = String> {
    let steps = 1..(most - least + 2).min(20);
    let item = prop_oneof![
        3 => (least..=most).prop_map(|one| one.to_string()),
        2 => (least..=most, least..=most).prop_map(|(one, other)| format!("{}-{}", one.min(other), one.max(other))),
        1 => (least..=most, least..=most, steps.clone())
            .prop_map(|(one, other, step)| format!("{}-{}/{step}", one.min(other), one.max(other))),
        1 => steps.prop_map(|step| format!("*/{step}")),
    ];
    prop_oneof![3 => Just("*".to_owned()), 4 => vec(item, 1..4).prop_map(|items| items.join(","))]
}

fn day() -> impl Strategy<Value = String> {
    let special = prop_oneof![
        Just("L".to_owned()),
        Just("LW".to_owned()),
        (1..32).prop_map(|day| format!("{day}W")),
        (1..32, 1..32).prop_map(|(one, other)| format!("{one}W,{other}")),
    ];
    prop_oneof![3 => field(1, 31), 1 => special]
}

fn weekday() -> impl Strategy<Value = String> {
    let special = prop_oneof![
        (0..8).prop_map(|day| format!("{day}L")),
        (0..8, 1..6).prop_map(|(day, nth)| format!("{day}#{nth}")),
        (0..7_u32, 0..7_u32).prop_map(|(one, other)| format!("+{}-{}", one.min(other), one.max(other))),
    ];
    prop_oneof![3 => Just("*".to_owned()), 2 => field(0, 7), 1 => special]
}

fn pattern() -> impl Strategy<Value = String> {
    let five = (field(0, 59), field(0, 23), day(), field(1, 12), weekday());
    let fields = (proptest::option::of(field(0, 59)), five);
    let text = fields.prop_map(|(second, (minute, hour, day, month, weekday))| {
        let second = second.map(|second| second + " ").unwrap_or_default();
        format!("{second}{minute} {hour} {day} {month} {weekday}")
    });
    text.prop_filter("it has days", |text| UTC.calendar(text).is_ok())
}

fn expression() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => pattern(),
        1 => (1..5_000_000).prop_map(|period| format!("@every {period}s")),
        1 => (1..5_000_000).prop_map(|delay| format!("@after {delay}s")),
        1 => (0..90, 0..24).prop_map(|(year, hour)| format!("@at 20{:02}-03-08T{hour:02}:30:00", year + 10)),
    ]
}

fn of() -> impl Strategy<Value = Of> {
    let zones = [
        "UTC",
        "America/New_York",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Africa/Casablanca",
        "Antarctica/Troll",
        "America/Sao_Paulo",
        "Asia/Kathmandu",
        "Africa/Monrovia",
    ];
    let spread = prop_oneof![3 => Just(0_u64), 1 => 1..200_000_u64];
    (select(zones.to_vec()), spread)
        .prop_map(|(zone, spread)| Of { spread: Duration::from_secs(spread), ..within(zone) })
}

/// From 1969 to 2100, often near a change of New York's clocks.
fn instant() -> impl Strategy<Value = i64> {
    prop_oneof![
        -31_536_000..4_102_444_800_i64,
        (-200_000..200_000_i64).prop_map(|near| 1_772_953_200 + near),
        (-200_000..200_000_i64).prop_map(|near| 1_793_512_800 + near),
        (-200_000..200_000_i64).prop_map(|near| 1_325_239_200 + near),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..crate::tests::seeded::config() })]

    #[test]
    fn the_next_is_later_and_nothing_lies_between(
        text in expression(), of in of(), start in instant(), apart in 0..100_000_i64,
    ) {
        let calendar = of.calendar(&text).unwrap();
        let since = seconds(start - 1000);
        let one = calendar.next(seconds(start), since);
        let other = calendar.next(seconds(start + apart), since);
        prop_assert!(one.is_none_or(|at| at > seconds(start) && at.as_millis() % 1000 == 0));
        prop_assert!(other.is_none() || other >= one, "{one:?} {other:?}");
        // From anywhere before the next it is still the next.
        if let Some(due) = one {
            let between = StoreTime::from_millis(i64::midpoint(start * 1000, due.as_millis() - 1));
            prop_assert_eq!(calendar.next(between, since), one);
            prop_assert_eq!(calendar.next(due.minus(Duration::from_millis(1)), since), one);
        }
    }

    #[test]
    fn the_latest_are_the_tail_of_all_and_the_count_is_theirs(
        text in expression(), of in of(), start in instant(), length in 0..40_u32, most in 0..30_usize,
    ) {
        let calendar = of.calendar(&text).unwrap();
        let since = seconds(start - 1000);
        let after = seconds(start);
        // Windows from a second to a year, cut where there would be too many.
        let mut to = after.plus(Duration::from_secs(1 << (length * 25 / 40)));
        let mut all = vec![];
        while let Some(at) = calendar.next(*all.last().unwrap_or(&after), since).filter(|at| *at <= to) {
            all.push(at);
            if all.len() == 400 {
                to = at;
                break;
            }
        }
        prop_assert_eq!(&calendar.latest(after, to, since, most), &all[all.len().saturating_sub(most)..]);
        prop_assert_eq!(&calendar.latest(after, to, since, usize::MAX), &all);
        prop_assert_eq!(calendar.count(after, to, since, most), all.len().min(most));
        prop_assert_eq!(calendar.count(after, to, since, usize::MAX), all.len());
    }

    #[test]
    fn a_day_matches_both_of_its_fields_if_one_begins_with_a_star_and_else_either(
        day in field(1, 31), weekday in field(0, 6), start in 0..2_000_000_000_i64,
    ) {
        // The values of a field of numbers, read once more and in the plainest way.
        let has = |field: &str, least: i64, most: i64, value: i64| field.split(',').any(|item| {
            let (range, step) = item.split_once('/').unwrap_or((item, "1"));
            let (from, to) = match range.split_once('-') {
                _ if range == "*" => (least, most),
                Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
                None => (range.parse().unwrap(), range.parse().unwrap()),
            };
            (from..=to).contains(&value) && (value - from) % step.parse::<i64>().unwrap() == 0
        });
        let of_month = |date: i64| i64::from(zone::timestamp(date * DAY).to_zoned(jiff::tz::TimeZone::UTC).day());
        let Ok(calendar) = UTC.calendar(&format!("0 0 {day} * {weekday}")) else { return Ok(()) };
        let mut expected = (start.div_euclid(DAY) + 1..).filter(|date| {
            let of_month = has(&day, 1, 31, of_month(*date));
            let of_week = has(&weekday, 0, 7, (date + 4).rem_euclid(7)) || has(&weekday, 0, 7, 7) && (date + 4).rem_euclid(7) == 0;
            if day.starts_with('*') || weekday.starts_with('*') { of_month && of_week } else { of_month || of_week }
        });
        let mut at = seconds(start);
        for _ in 0..5 {
            at = calendar.next(at, seconds(0)).unwrap();
            prop_assert_eq!(at, seconds(expected.next().unwrap() * DAY), "0 0 {} * {}", day, weekday);
        }
    }
}

//! Changes of every zone there is, against the definition: each instant has one civil time, a fixed
//! pattern's time runs where it is first shown or skipped.

use super::{zone::Transition, *};

/// Minutes round a change that are looked at: more than any gap or fold.
const AROUND: i64 = 27 * 60;

/// A pattern, what it matches in civil time, and whether it is fixed.
type Case<'a> = (&'static str, &'a dyn Fn(i64) -> bool, bool);

/// Instants by the definition, minute by minute.
fn defined(of: &Zone, matches: &dyn Fn(i64) -> bool, is_fixed: bool, change: i64) -> Vec<i64> {
    let begin = change - 2 * AROUND * 60;
    let end = change + AROUND * 60;
    let mut found = Vec::new();
    // The civil time that was not shown or skipped yet.
    let mut next = begin + of.offset(begin);
    for at in (begin..end).step_by(60) {
        let civil = at + of.offset(at);
        let is_due = if is_fixed { (next..civil + 60).step_by(60).any(matches) } else { matches(civil) };
        if is_due {
            found.push(at);
        }
        next = next.max(civil + 60);
    }
    found.into_iter().filter(|at| (change - AROUND * 60..end).contains(at)).collect()
}

fn changes(zone: &Zone) -> Vec<Transition> {
    // Until 2045.
    let until = 2_366_841_600;
    let next = |at: i64| zone.change_after(at, zone.offset(at)).filter(|change| change.at < until);
    std::iter::successors(next(0), |change| next(change.at)).collect()
}

fn all_zones() -> Vec<(String, Zone)> {
    let names = jiff::tz::TimeZoneDatabase::bundled();
    let names: Vec<_> = names.available().map(|name| name.to_string()).collect();
    names.into_iter().filter_map(|name| Zone::named(&name).ok().map(|zone| (name, zone))).collect()
}

#[test]
fn changes_are_less_than_a_day_and_none_is_missed() {
    let zones = all_zones();
    assert!(zones.len() > 400, "{}", zones.len());
    for (name, zone) in &zones {
        for change in changes(zone) {
            assert!((change.to - change.from).abs() <= DAY, "{name} {change:?}");
            assert_ne!(change.to, change.from, "{name} {change:?}");
        }
        // None is missed.
        for pair in changes(zone).windows(2) {
            let [one, other] = pair else { unreachable!("windows of two") };
            assert_eq!(one.to, other.from, "{name} {one:?} {other:?}");
            for part in 0..8 {
                let at = one.at + (other.at - 1 - one.at) * part / 7;
                assert_eq!(zone.offset(at), one.to, "{name} at {at}");
            }
        }
    }
}

#[test]
fn changes_of_every_zone_are_as_defined() {
    let civil = |civil: i64| (civil.rem_euclid(DAY) / 3600, civil.rem_euclid(3600) / 60);
    let quarters = |at: i64| matches!(civil(at), (_, 0 | 15 | 30 | 45));
    let midnight = |at: i64| civil(at) == (0, 0);
    let nights = |at: i64| matches!(civil(at), (0..=3 | 23, 20 | 50));
    let cases: [Case<'_>; 4] = [
        ("0,15,30,45 0-23 * * *", &quarters, true),
        ("*/15 * * * *", &quarters, false),
        ("0 0 * * *", &midnight, true),
        ("20,50 0-3,23 * * *", &nights, true),
    ];
    let name = "report".parse().unwrap();
    let mut seen = std::collections::HashSet::new();
    let mut nth = 0;
    for (zone_name, zone) in all_zones() {
        for change in changes(&zone) {
            // Many zones share their changes; and Monrovia's is not of whole minutes.
            let known = !seen.insert((change.at, change.from, change.to));
            if known || [change.at, change.from, change.to].iter().any(|time| time % 60 != 0) {
                continue;
            }
            nth += 1;
            // Of each zone every fifth, under one case: all of them take minutes.
            if nth % 5 != 0 {
                continue;
            }
            let (text, matches, is_fixed) = cases[nth / 5 % cases.len()];
            let calendar = Calendar::new(text, Some(&zone_name), Duration::ZERO, &name).unwrap();
            let [after, to] = [change.at - AROUND * 60 - 1, change.at + AROUND * 60 - 1].map(seconds);
            let found: Vec<_> = calendar.instants(after, to, after).map(|at| at.as_millis() / 1000).collect();
            let defined = defined(&zone, matches, is_fixed, change.at);
            assert_eq!(found, defined, "{text} in {zone_name}, {change:?}");
        }
    }
    assert!(nth > 1000, "{nth}");
}

#[test]
fn the_rules_of_a_zone_have_a_number_that_others_with_the_same_rules_have() {
    let rules = |zone| within(zone).calendar("@daily").unwrap().zone_rules();
    assert_eq!(rules("Europe/Berlin"), rules("Europe/Paris"), "the clocks of both do the same");
    assert_ne!(rules("Europe/Berlin"), rules("Europe/London"));
    assert_ne!(rules("America/New_York"), rules("America/Havana"), "on the same days, at other hours");
    assert_eq!(zone_rules_in("late: run, zone rules 1f"), Some("1f"));
    assert_eq!((rules("UTC"), zone_rules_in("late: run")), (None, None));
    assert_eq!(within("Asia/Tokyo").calendar("@every 90s").unwrap().zone_rules(), None);
}

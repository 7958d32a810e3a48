//! Against the tables of `scripts/dst_tables`, which were made second by second by another program's zones and
//! another matcher.

use super::*;

struct Window {
    begin: i64,
    end: i64,
}

/// Every pattern of a table, with its window and its instants.
fn cases(table: &str) -> Vec<(Window, String, Vec<i64>)> {
    let second = |text: &str| at(text).as_millis() / 1000;
    let mut cases: Vec<(_, _, Vec<i64>)> = Vec::new();
    let (mut begin, mut end) = (0, 0);
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).skip(1);
    for line in lines {
        if let Some(window) = line.strip_prefix("window ") {
            let (first, last) = window.split_once(' ').unwrap();
            (begin, end) = (second(first), second(last));
        } else if let Some(pattern) = line.strip_prefix("pattern ") {
            cases.push((Window { begin, end }, pattern.to_owned(), vec![]));
        } else {
            let words: Vec<_> = line.trim().split([' ', ',']).collect();
            let every = words.iter().position(|word| *word == "every");
            let (step, count) = every.map_or((0, 1), |at| {
                (words[at + 1].trim_end_matches('s').parse().unwrap(), words[at + 3].parse().unwrap())
            });
            cases.last_mut().unwrap().2.extend((0..count).map(|nth| second(words[0]) + nth * step));
        }
    }
    cases
}

fn holds(table: &str) {
    let zone = table.lines().find_map(|line| line.strip_prefix("zone ")).unwrap();
    let cases = cases(table);
    assert_eq!(cases.len(), 2 * 21, "every pattern round both changes");
    for (window, pattern, instants) in cases {
        let calendar =
            Calendar::new(&pattern, Some(zone), Duration::ZERO, &"report".parse().unwrap()).unwrap();
        let next = |after| calendar.next(seconds(after), seconds(0)).unwrap().as_millis() / 1000;
        let case = format!("{pattern} in {zone}");

        // From before to after.
        let mut found = vec![];
        let mut at = next(window.begin - 1);
        while at < window.end {
            found.push(at);
            at = next(at);
        }
        assert_eq!(found, instants, "{case}");

        // From every instant, as after a restart: round each tick and the change, and all over the window.
        let change = i64::midpoint(window.begin, window.end);
        let round = instants.iter().flat_map(|at| [at - 1, *at, at + 1]);
        let starts = (window.begin..window.end).step_by(4093).chain(change - 90..change + 90).chain(round);
        for start in starts.filter(|start| *start >= window.begin) {
            let due = instants.iter().find(|at| **at > start);
            let found = Some(next(start)).filter(|at| *at < window.end);
            assert_eq!(found.as_ref(), due, "{case}, after {start}");
        }

        // And back from everywhere.
        for (nth, to) in (window.begin..window.end).step_by(7321).enumerate() {
            let most = nth % 12 + 1;
            let before: Vec<_> = instants.iter().filter(|at| **at <= to).map(|at| seconds(*at)).collect();
            let latest = calendar.latest(seconds(window.begin - 1), seconds(to), seconds(0), most);
            assert_eq!(latest, before[before.len().saturating_sub(most)..], "{case}, {most} up to {to}");
        }
    }
}

#[test]
fn new_york_is_as_the_table_says() {
    holds(include_str!("../tables/new_york.txt"));
}

#[test]
fn london_is_as_the_table_says() {
    holds(include_str!("../tables/london.txt"));
}

#[test]
fn lord_howe_is_as_the_table_says() {
    holds(include_str!("../tables/lord_howe.txt"));
}

#[test]
fn sao_paulo_is_as_the_table_says() {
    holds(include_str!("../tables/sao_paulo.txt"));
}

#[test]
fn cairo_is_as_the_table_says() {
    holds(include_str!("../tables/cairo.txt"));
}

//! The numbers that docs/design.md quotes are those of the code. A line of `quoted.txt` has a row of its table, the file
//! and the name of a constant, and the fragment of the row that quotes it; then the initializer, if it is no plain number.

use std::{collections::BTreeSet, fs};

use crate::docs::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Initializer of a constant, which may be one of a type.
fn initializer(text: &str, name: &str) -> Option<String> {
    let (text, name) = match name.split_once("::") {
        Some((of, name)) => (text.split_once(&format!("impl {of} {{"))?.1, name),
        None => (text, name),
    };
    let (_, rest) = text.split_once(&format!("const {name}: "))?;
    let (_, value) = rest.split_once(" = ")?;
    let value = value.split_once(';')?.0;
    Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Value of a number, a product, or a duration in nanoseconds.
fn value(initializer: &str) -> Option<u128> {
    let units = [("secs", 1_000_000_000), ("millis", 1_000_000), ("micros", 1_000)];
    let duration = units.iter().find_map(|(unit, nanos)| {
        let within = initializer.strip_prefix(&format!("Duration::from_{unit}("))?.strip_suffix(')')?;
        Some((within, *nanos))
    });
    let (product, unit) = duration.unwrap_or((initializer, 1));
    product
        .split(" * ")
        .try_fold(unit, |product, factor| Some(product * factor.replace('_', "").parse::<u128>().ok()?))
}

/// Value of a number as people write it: `1,000`, `2.5 s`, `16 KiB`, `a minute`, `a twelfth`.
fn quoted(fragment: &str) -> Option<u128> {
    let words = [("a twelfth", 12), ("a quarter", 4), ("three", 3), ("five", 5), ("six", 6)];
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == fragment) {
        return Some(*value);
    }
    let fragment =
        ["up to ", "for ", "each "].iter().fold(fragment, |rest, word| rest.trim_start_matches(word));
    let fragment = fragment.trim_end_matches(", and");
    let (number, unit) = fragment.split_once(' ').unwrap_or((fragment, ""));
    let (number, unit) = if number == "minute" { ("1", "min") } else { (number, unit) };
    let number = if matches!(number, "a" | "an") { "1".to_owned() } else { number.replace(',', "") };
    let unit: u128 = match unit {
        "" | "bytes" => 1,
        "KiB" => 1024,
        "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" | "minute" => 60_000_000_000,
        "h" | "hour" => 3_600_000_000_000,
        "d" | "day" | "days" => 86_400_000_000_000,
        _ => return None,
    };
    match number.split_once('.') {
        Some((whole, tenths)) => {
            Some(unit * whole.parse::<u128>().ok()? + unit * tenths.parse::<u128>().ok()? / 10)
        }
        None => Some(unit * number.parse::<u128>().ok()?),
    }
}

/// Returns whether a cell has that fragment, not as the end of a longer number.
fn quotes(cell: &str, fragment: &str) -> bool {
    let is_number = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    cell.match_indices(fragment).any(|(start, _)| {
        let (before, after) = (&cell[..start], &cell[start + fragment.len()..]);
        !is_number(
            before.trim_end_matches(['.', ',']).chars().next_back().filter(|_| !before.ends_with(", ")),
        ) && !is_number(after.chars().next())
    })
}

#[test]
fn numbers_that_the_design_quotes_are_those_of_the_code() {
    let page = read("docs/design.md");
    let (_, section) = page.split_once("\n## Which numbers are fixed, and why?\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let cell =
        |row: &str, place: usize| row.trim_matches(['|', ' ']).split(" | ").nth(place).unwrap().to_owned();
    let mapping = read("tests/quoted.txt");
    let (mut mapped, mut wrong, mut compared) = (BTreeSet::new(), Vec::new(), 0);
    for line in mapping.lines() {
        let parts: Vec<_> = line.split(" | ").collect();
        mapped.insert(parts[0].to_owned());
        let Some(row) = rows.iter().find(|row| cell(row, 0) == parts[0]) else {
            wrong.push(format!("no such row: {line}"));
            continue;
        };
        let [_, file, name, fragment, more @ ..] = &parts[..] else {
            if parts.get(1) != Some(&"-") || parts.len() != 3 {
                wrong.push(format!("neither a constant nor a reason: {line}"));
            }
            continue;
        };
        let Some(found) = initializer(&read(file), name) else {
            wrong.push(format!("no such constant: {line}"));
            continue;
        };
        let is_right = match more {
            [] => value(&found).is_some() && value(&found) == quoted(fragment),
            more => found == more[0],
        };
        if !is_right || !quotes(&cell(row, 1), fragment) {
            wrong.push(format!(
                "{file} has {name} = {found}, and {:?} is {:?}: {line}",
                parts[0],
                cell(row, 1)
            ));
        }
        compared += 1;
    }
    wrong.extend(
        rows.iter().filter(|row| !mapped.contains(&cell(row, 0))).map(|row| format!("not mapped: {row}")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 140, "only {compared} constants");
}

//! What the documents say of names that others build upon: it is what the code says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

use std::{collections::BTreeSet, fs, path::Path};

use tenure::elect::Work;

const PAGE: &str = include_str!("../docs/operations.md");

/// All that lies in `src`, but what only tests use.
fn source() -> String {
    fn read(folder: &Path, all: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "testing") {
                    read(&path, all);
                }
            } else {
                *all += &fs::read_to_string(&path).unwrap();
            }
        }
    }
    let mut all = String::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    all
}

/// The cells of the rows of a section's table.
fn table(section: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).unwrap();
    let rows = rest.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The arguments of a call of a macro, whose text begins behind its opening bracket.
fn arguments(call: &str) -> Vec<String> {
    let (mut all, mut one, mut depth, mut quoted) = (Vec::new(), String::new(), 0, false);
    let mut letters = call.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if quoted => {
                one.push(letter);
                one.extend(letters.next());
                continue;
            }
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted && depth == 0 => break,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                all.push(std::mem::take(&mut one).trim().to_owned());
                continue;
            }
            _ => {}
        }
        one.push(letter);
    }
    all.push(one.trim().to_owned());
    all.retain(|argument| !argument.is_empty());
    all
}

/// A text as it is printed: what is filled in is three dots, and lines that go on are one.
fn printed(text: &str) -> String {
    let mut printed = String::new();
    let mut lines = text.split("\\\n");
    printed += lines.next().unwrap();
    lines.for_each(|line| printed += line.trim_start());
    while let Some((before, rest)) = printed.clone().split_once('{') {
        printed = format!("{before}...{}", rest.split_once('}').unwrap().1);
    }
    printed
}

/// The lines that the code logs: level, message, fields.
fn logged() -> BTreeSet<(String, String, String)> {
    let source = source();
    let mut logged = BTreeSet::new();
    for call in source.split("tracing::").skip(1) {
        let Some(level) = ["error", "warn", "info", "debug"]
            .into_iter()
            .find(|level| call.strip_prefix(level).is_some_and(|rest| rest.starts_with("!(")))
        else {
            continue;
        };
        let arguments = arguments(&call[level.len() + 2..]);
        let message = arguments.iter().position(|argument| argument.starts_with('"')).unwrap();
        let fields: Vec<_> = arguments[..message]
            .iter()
            .map(|field| format!("`{}`", field.split(" =").next().unwrap().trim_start_matches(['%', '?'])))
            .collect();
        let text = arguments[message].trim_matches('"');
        logged.insert((level.to_owned(), printed(text), fields.join(", ")));
    }
    assert!(logged.len() > 50, "these are all: {logged:?}");
    logged
}

#[test]
fn the_metrics_that_are_documented_are_those_of_the_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["src/elect/metrics.rs", "src/spread/metrics.rs", "src/schedule/metrics.rs"];
    let code: String = files.map(|file| fs::read_to_string(folder.join(file)).unwrap()).concat();
    let mut counted = BTreeSet::new();
    for (sort, call) in [("counter", " counter!("), ("gauge", " gauge!("), ("histogram", " histogram!(")] {
        for use_of in code.split(call).skip(1) {
            let arguments = arguments(use_of);
            let Some(name) = arguments[0].strip_prefix('"') else { continue };
            let labels: Vec<_> =
                arguments[1..].iter().map(|label| label.split('"').nth(1).unwrap()).collect();
            counted.insert(format!("{} {sort} {}", name.trim_matches('"'), labels.join(" ")));
        }
    }
    let told: BTreeSet<_> = table("Metrics")
        .iter()
        .map(|row| format!("{} {} {}", row[0], row[1], row[2].replace(',', "")).replace('`', ""))
        .collect();
    assert_eq!(told, counted);
}

#[test]
fn every_log_line_that_is_documented_is_in_the_code_with_these_fields() {
    let logged = logged();
    for row in table("Logs") {
        let row = (row[0].to_owned(), row[1].to_owned(), row[2].to_owned());
        let same: Vec<_> = logged.iter().filter(|line| line.1 == row.1).collect();
        assert!(logged.contains(&row), "no call logs {row:?}, but {same:?}");
    }
    for row in table("Warnings at start") {
        assert!(logged.iter().any(|line| line.1.starts_with(row[0])), "{:?} is not logged", row[0]);
    }
}

#[test]
fn every_line_that_is_logged_at_info_or_above_is_documented() {
    let told: BTreeSet<_> = table("Logs").iter().map(|row| (row[0].to_owned(), row[1].to_owned())).collect();
    let at_start = table("Warnings at start");
    for (level, message, fields) in logged() {
        let is_told = told.contains(&(level.clone(), message.clone()))
            || at_start.iter().any(|row| message.starts_with(row[0]));
        assert!(is_told || level == "debug", "not in docs/operations.md: | {level} | {message} | {fields} |");
    }
}

#[test]
fn every_line_about_a_lock_names_kind_key_and_namespace_apart() {
    for (level, message, fields) in logged() {
        let fields: BTreeSet<_> = fields.split(", ").collect();
        assert!(!fields.contains("`lock`"), "{level} {message}");
        if fields.contains("`key`") && level != "debug" {
            assert!(
                fields.contains("`kind`") && fields.contains("`namespace`"),
                "{level} {message} {fields:?}"
            );
        }
    }
}

#[test]
fn every_sort_of_work_is_documented_with_what_it_means_if_it_does_not_work() {
    let told: Vec<_> = table("What does not work");
    let works = Work::ALL.iter().filter(|work| **work != Work::Requested);
    let works: Vec<_> = works
        .map(|work| vec![format!("`{}`", work.name()), work.subject().into(), work.consequence().into()])
        .collect();
    assert_eq!(told, works);
}

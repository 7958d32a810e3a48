//! What the documents say of names that others build upon: it is what the code says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

use std::{collections::BTreeSet, fs, path::Path};

const PAGE: &str = include_str!("../docs/operations.md");

/// All that lies in `src`.
fn source() -> String {
    fn read(folder: &Path, all: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, all);
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

#[test]
fn the_metrics_that_are_documented_are_those_of_the_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["src/elect/metrics.rs", "src/spread/metrics.rs", "src/schedule/metrics.rs"];
    let code: String = files.map(|file| fs::read_to_string(folder.join(file)).unwrap()).concat();
    let mut counted = BTreeSet::new();
    for (sort, call) in [("counter", "counter!("), ("gauge", "gauge!("), ("histogram", "histogram!(")] {
        for use_of in code.split(call).skip(1) {
            let ends = [").", ");", ")\n"].iter().filter_map(|end| use_of.find(end));
            let arguments = &use_of[..ends.min().unwrap()];
            // The name, and before each `=>` a label.
            let mut texts = arguments.split('"').skip(1).step_by(2);
            let name = texts.next().unwrap();
            counted.insert(format!("{name} {sort} {}", texts.collect::<Vec<_>>().join(" ")));
        }
    }
    let told: BTreeSet<_> = table("Metrics")
        .iter()
        .map(|row| format!("{} {} {}", row[0], row[1], row[2].replace(',', "")).replace('`', ""))
        .collect();
    assert_eq!(told, counted);
}

#[test]
fn the_log_lines_that_are_documented_are_those_of_the_code() {
    let source = source();
    for row in table("Logs") {
        let (level, message) = (format!("{}!(", row[0]), format!("\"{}\"", row[1]));
        let of_level = source.split("tracing::").filter(|call| call.starts_with(&level));
        let calls: Vec<_> = of_level.filter_map(|call| Some(call.split_once(&message)?.0)).collect();
        // The fields stand before the message, and no other call in between.
        let fields = calls.iter().filter(|call| !call.contains(");")).find(|call| {
            let mut fields = row[2].split(", ").filter(|field| !field.is_empty());
            fields.all(|field| call.contains(field.trim_matches('`')))
        });
        assert!(fields.is_some(), "no call logs {row:?}, but {calls:?}");
    }
    for row in table("Warnings at start") {
        assert!(source.contains(row[0]), "{:?} is not logged", row[0]);
    }
}

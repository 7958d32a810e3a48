//! Tests that the command accepts the command lines in the documents.

use clap::Parser;

use crate::Cli;

const PAGES: [(&str, &str); 5] = [
    ("README.md", include_str!("../../README.md")),
    ("docs/command.md", include_str!("../../docs/command.md")),
    ("docs/page.md", include_str!("../../docs/page.md")),
    ("docs/recipes.md", include_str!("../../docs/recipes.md")),
    ("docs/operations.md", include_str!("../../docs/operations.md")),
];

/// The words of a line, of which some stand in quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Commands that a page shows: in blocks, and as `tenure ...` in a text.
fn shown(page: &str) -> Vec<String> {
    let mut all = Vec::new();
    // The word behind the fence. What a command prints is `text`, and a command only by chance.
    let mut block = None;
    for line in page.lines() {
        if let Some(word) = line.trim_start().strip_prefix("```") {
            block = if block.is_some() { None } else { Some(word) };
        } else if let Some(word) = block {
            if word == "text" {
                continue;
            }
            let line = line.split("  #").next().unwrap_or_default().trim();
            if let Some((_, command)) = line.split_once("tenure ").filter(|(before, _)| {
                before.is_empty() || before.ends_with("/bin/") || before.ends_with("*  ")
            }) {
                all.push(command.to_owned());
            }
        } else {
            for part in line.split('`').skip(1).step_by(2) {
                all.extend(part.strip_prefix("tenure ").map(ToOwned::to_owned));
            }
        }
    }
    all
}

#[test]
fn every_command_that_a_page_shows_is_understood() {
    let mut count = 0;
    for (name, page) in PAGES {
        for command in shown(page) {
            let command = command.replace(" # ", "\0");
            let command = command.split('\0').next().unwrap_or_default();
            let line = ["tenure".to_owned()].into_iter().chain(words(command));
            if let Err(error) = Cli::try_parse_from(line) {
                // A command that is named without what it needs.
                let is_only_named = words(command).len() == 1
                    && error.kind() == clap::error::ErrorKind::MissingRequiredArgument;
                assert!(is_only_named, "{name}: tenure {command}: {error}");
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

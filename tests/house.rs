//! The house rules of the code: rooms that use those below them, and comments that begin with their subject.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::docs::{files_below, logged, root};

/// Packages of the workspace, with their tests and what is run beside them.
const PACKAGES: [&str; 9] =
    ["src", "conformance", "look", "command", "ui", "sim", "tests", "benches", "examples"];

/// Words that no doc comment begins with: they stand for a subject that a reader has to guess.
const PRONOUNS: &str = "What Who Whoever Whose Whatever Whichever Those These This They It Its How Whether One That \
                        Nobody Somebody Nothing When Where Until";

/// Words that no message to a user uses: they hide who does what to whom.
const HOME_WORDS: &str =
    "nobody somebody whoever whatever those told tell tells hear heard hears say says said";

/// Rust sources below a folder.
fn rust(folder: &str) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    files_below(&root().join(folder), &mut |path| {
        if path.extension().is_some_and(|extension| extension == "rs") {
            all.push((path.to_owned(), fs::read_to_string(path).unwrap()));
        }
    });
    all
}

#[test]
fn doc_comments_begin_with_an_article_a_noun_or_a_verb() {
    let mut wrong = Vec::new();
    let mut read = 0;
    for (path, text) in PACKAGES.into_iter().flat_map(rust) {
        let mut is_within = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(comment) = comment.filter(|_| !is_within) {
                let first =
                    comment.trim_start().split(|letter: char| !letter.is_alphabetic()).next().unwrap();
                if PRONOUNS.split(' ').any(|pronoun| pronoun == first) {
                    wrong.push(format!("{}:{}: {}", path.display(), number + 1, comment.trim()));
                }
                read += 1;
            }
            is_within = comment.is_some() || is_within && line.starts_with("#[");
        }
    }
    assert!(read > 5000, "only {read} comments");
    assert!(wrong.is_empty(), "these begin with a pronoun:\n{}", wrong.join("\n"));
}

#[test]
fn log_messages_use_plain_words() {
    for (level, message, _) in logged() {
        assert_eq!(home_word(&message), None, "{level}: {message}");
    }
}

/// First of the home words in a text.
fn home_word(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let mut words = lower.split(|letter: char| !letter.is_alphabetic());
    words.find(|word| HOME_WORDS.split(' ').any(|home| home == *word)).map(ToOwned::to_owned)
}

/// String literals of a file with more than one word, without those of tests and of panics.
fn sentences(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code = text.lines().map(|line| line.split(" // ").next().unwrap());
    let code: Vec<_> = code.filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n").replace("'\"'", "").replace("\\\"", "");
    let parts: Vec<_> = code.split('"').collect();
    let is_shown = |before: &str| !before.ends_with("expect(") && !before.ends_with("reason = ");
    let pairs = parts.chunks_exact(2).filter(|pair| is_shown(pair[0]) && pair[1].contains(' '));
    pairs.map(|pair| pair[1].to_owned()).collect()
}

#[test]
fn sentences_of_command_and_page_use_plain_words() {
    let (mut read, mut wrong) = (0, Vec::new());
    for (path, text) in ["command/src", "ui/src", "look/src"].into_iter().flat_map(rust) {
        let inner = path.strip_prefix(root()).unwrap();
        if inner.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        for sentence in sentences(&text) {
            read += 1;
            // Names of values within braces are of the code.
            let shown = sentence.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
            if let Some(word) = home_word(&shown.collect::<Vec<_>>().join(" ")) {
                wrong.push(format!("{}: {word}: {sentence}", path.display()));
            }
        }
    }
    files_below(&root().join("command/tests/help"), &mut |path| {
        for line in fs::read_to_string(path).unwrap().lines() {
            if let Some(word) = home_word(line) {
                wrong.push(format!("{}: {word}: {line}", path.display()));
            }
        }
    });
    assert!(read > 800, "only {read} sentences");
    assert!(wrong.is_empty(), "these use home words:\n{}", wrong.join("\n"));
}

/// Rooms by the table of CONTRIBUTING.md, lowest first, with their floor: rooms of one row do not use each other, unless
/// they stand in that order.
fn rooms() -> Vec<String> {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, table) = page.split_once("| `src/` | what is in it |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2))
        .map(ToOwned::to_owned)
        .collect()
}

/// Room of each name that the library re-exports at its root.
fn re_exported() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let uses = text.lines().filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';'));
    let pairs = uses.flat_map(|path| {
        let (room, names) = path.split_once("::").unwrap();
        names.trim_matches(['{', '}']).split(", ").map(|name| (name.to_owned(), room.to_owned()))
    });
    pairs.collect()
}

/// Code of a file without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// First names of the paths that follow `crate::`.
fn used(code: &str) -> BTreeSet<String> {
    let name = |text: &str| {
        text.trim_start()
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .next()
            .unwrap()
            .to_owned()
    };
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(name(rest));
            continue;
        };
        let (mut depth, mut start) = (0, 0);
        for (place, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    names.insert(name(&group[start..place]));
                    start = place + 1;
                    if letter == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn no_room_uses_one_above_it() {
    let (rooms, re_exported) = (rooms(), re_exported());
    let floor = |room: &str| rooms.iter().position(|other| other == room);
    let folder = root().join("src");
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, text) in rust("src") {
        let inner = path.strip_prefix(&folder).unwrap();
        let is_test = inner.iter().any(|part| part == "tests" || part == "tests.rs");
        let room = Path::new(inner.iter().next().unwrap()).file_stem().unwrap().to_str().unwrap();
        if is_test || room == "lib" {
            continue;
        }
        let own = floor(room).unwrap_or_else(|| panic!("{room} is not in the table of CONTRIBUTING.md"));
        for name in used(&code(&text)) {
            let other = re_exported.get(&name).unwrap_or(&name);
            // A macro belongs to no room.
            let Some(other_floor) = floor(other) else { continue };
            seen += 1;
            if other_floor > own {
                wrong.push(format!("{} uses {other}", inner.display()));
            }
        }
    }
    assert!(seen > 500, "only {seen} arrows");
    assert!(wrong.is_empty(), "upwards: {wrong:#?}");
}

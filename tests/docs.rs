//! Documents against code: the names that others build upon, and the code blocks of every page.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use tenure::elect::Work;

const PAGE: &str = include_str!("../docs/operations.md");

/// Folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Source text of the library, without the module `testing`.
fn source() -> String {
    let (mut all, testing) = (String::new(), root().join("src/testing"));
    files_below(&root().join("src"), &mut |path| {
        if !path.starts_with(&testing) {
            all += &fs::read_to_string(path).unwrap();
        }
    });
    all
}

pub(crate) fn files_below(folder: &Path, each: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, each);
        } else {
            each(&path);
        }
    }
}

/// Cells of the rows of a section's table.
fn table(section: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).unwrap();
    let rows = rest.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Arguments of a macro call whose text begins behind its opening bracket.
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

/// Text as it is printed: three dots for each value, and continued lines joined.
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

/// Lines that the code logs: level, message, fields.
pub(crate) fn logged() -> BTreeSet<(String, String, String)> {
    let source = source();
    let mut logged = BTreeSet::new();
    let calls = source.split("words::").skip(1).chain(source.split("tracing::").skip(1));
    for call in calls {
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

/// The names of the labels in a list: `namespace(engine)`, `("reason", loss.name())`.
fn label_names(list: &str) -> Vec<String> {
    let labels = arguments(list.strip_prefix('[').unwrap());
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let name = |label: &String| {
        label.trim_start_matches(['(', '"']).split(|c| !is_letter(c)).next().unwrap().to_owned()
    };
    labels.iter().map(name).collect()
}

/// Calls of the log and the recorder may block and panic: no lease may wait for them (R14).
#[test]
fn the_log_and_the_recorder_are_named_in_the_words_room_only() {
    let mut read = 0;
    files_below(&root().join("src"), &mut |path| {
        let is_theirs =
            ["words", "testing"].iter().any(|room| path.starts_with(root().join("src").join(room)));
        if is_theirs {
            return;
        }
        read += 1;
        let text = fs::read_to_string(path).unwrap();
        let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for (number, line) in code.iter().enumerate() {
            let names = [
                "tracing::",
                "use tracing",
                "use metrics",
                " metrics::{",
                "::metrics::Recorder",
                "counter!(",
            ];
            let named = names.iter().find(|name| line.contains(**name));
            assert_eq!(named, None, "{}: line {number} of its code: {line}", path.display());
        }
    });
    assert!(read > 100, "{read} files");
}

#[test]
fn the_metrics_that_are_documented_are_those_of_the_code() {
    let folder = root();
    let files = ["src/elect/metrics.rs", "src/spread/metrics.rs", "src/schedule/metrics.rs"];
    let code: String = files.map(|file| fs::read_to_string(folder.join(file)).unwrap()).concat();
    let mut counted = BTreeSet::new();
    let calls = [("counter", " count("), ("gauge", " set("), ("gauge", " add("), ("histogram", " record(")];
    for (sort, call) in calls {
        for use_of in code.split(call).skip(1) {
            let arguments = arguments(use_of);
            let Some(name) = arguments[0].strip_prefix('"') else { continue };
            // `[namespace(engine), ("reason", loss.name())]`
            let labels = label_names(&arguments[1]);
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

/// Pages beside the folder `docs`.
const OTHER_PAGES: [&str; 5] =
    ["README.md", "CONTRIBUTING.md", "SECURITY.md", "benches/RESULTS.md", "sim/RUNS.md"];

/// Pages for users and contributors, by path.
fn pages() -> Vec<(String, String)> {
    let root = root();
    let mut paths = OTHER_PAGES.map(ToOwned::to_owned).to_vec();
    files_below(&root.join("docs"), &mut |path| {
        if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
        }
    });
    let read = |path: String| {
        let text = fs::read_to_string(root.join(&path)).unwrap();
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// Code blocks of a page: the words behind the fence, and the text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

#[test]
fn every_rust_block_of_a_page_is_compiled() {
    let source = source() + &fs::read_to_string(root().join("src/testing/mod.rs")).unwrap();
    let mut compiled = 0;
    for (path, page) in pages() {
        for (language, _) in blocks(&page).into_iter().filter(|(language, _)| language.starts_with("rust")) {
            if language == "rust,ignore" {
                // `tests/examples.rs` compares these with the example.
                assert_eq!(path, "docs/first-service.md", "a block of it is not compiled");
                continue;
            }
            assert!(["rust", "rust,no_run"].contains(&language), "{path}: {language}");
            assert!(source.contains(&format!("{path}\")")), "no doctest includes {path}");
            compiled += 1;
        }
    }
    assert!(compiled > 10, "only {compiled} blocks");
}

/// An `async |..|` closure that captures something does not compile where it is called many times.
#[test]
fn jobs_that_are_called_many_times_are_shown_with_a_closure_that_can_capture() {
    let texts = pages().into_iter().chain([("src".to_owned(), source())]);
    for (path, text) in texts {
        for call in ["run(", "run_blocking(", "on_acquired(", "on_new_leader("] {
            for form in ["async |", "async move |"] {
                assert!(!text.contains(&format!(".{call}{form}")), "{path} has .{call}{form}");
            }
        }
    }
}

#[test]
fn the_manifest_of_the_page_about_testing_names_this_version_and_a_feature() {
    let (_, page) = pages().into_iter().find(|(path, _)| path == "docs/testing.md").unwrap();
    let block = blocks(&page).into_iter().find(|(language, _)| *language == "toml").unwrap().1;
    let page: toml::Table = block.parse().unwrap();
    let own: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let tenure = &page["dev-dependencies"]["tenure"];
    let version = tenure["version"].as_str().unwrap();
    assert!(own["package"]["version"].as_str().unwrap().starts_with(&format!("{version}.")), "{version}");
    for feature in tenure["features"].as_array().unwrap() {
        assert!(own["features"].get(feature.as_str().unwrap()).is_some(), "{feature}");
    }
}

#[test]
fn commands_of_the_pages_name_examples_tests_and_scripts_that_exist() {
    let roots = ["", "sim/", "command/", "ui/"];
    let exists = |folder: &str, name: &str| {
        let forms = [format!("{name}.rs"), format!("{name}/main.rs"), name.to_owned()];
        roots
            .iter()
            .any(|root| forms.iter().any(|form| self::root().join(format!("{root}{folder}/{form}")).exists()))
    };
    let mut named = 0;
    for (path, page) in pages() {
        // The command has options of its own.
        let of_cargo = |line: &&str| !line.starts_with("tenure ");
        let page: Vec<_> = page.lines().filter(of_cargo).collect();
        let words: Vec<_> = page.iter().flat_map(|line| line.split([' ', '`'])).collect();
        for pair in words.windows(2) {
            let name = pair[1].trim_end_matches([',', '.', ';', ':', ')']);
            let folder = match pair[0] {
                "--example" => "examples",
                "--test" => "tests",
                _ => continue,
            };
            assert!(exists(folder, name), "{path}: {} {name}", pair[0]);
            named += 1;
        }
        for script in words.iter().filter(|word| word.starts_with("scripts/")) {
            let script = script.trim_end_matches([',', '.', ';', ':', ')']);
            assert!(root().join(script).exists(), "{path}: {script}");
            named += 1;
        }
    }
    assert!(named > 20, "only {named} names");
}

/// Rust sources of the repository, by path.
fn sources(folder: &Path, all: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Names like `jumps::an_outage_of_a_day…`: three dots stand for the rest of a name.
#[test]
fn every_test_that_a_promise_names_exists() {
    let mut all = Vec::new();
    for folder in [
        "src",
        "tests",
        "sim/src",
        "sim/tests",
        "command/src",
        "command/tests",
        "conformance/src",
        "look/src",
        "look/tests",
        "ui/src",
        "ui/tests",
    ] {
        sources(&root().join(folder), &mut all);
    }
    let mut functions = BTreeSet::new();
    for (_, text) in &all {
        let names = text.split("fn ").skip(1).map(|rest| rest.split(['(', '<']).next().unwrap());
        functions.extend(names);
    }
    let is_module = |name: &str| {
        let ends = [format!("/{name}.rs"), format!("/{name}/mod.rs"), format!("/{name}/main.rs")];
        let inline = format!("mod {name} {{");
        all.iter().any(|(path, text)| ends.iter().any(|end| path.ends_with(end)) || text.contains(&inline))
    };
    let (_, page) = pages().into_iter().find(|(path, _)| path == "docs/guarantees.md").unwrap();
    let mut named = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 1) {
        let checks = row.split(" | ").nth(1).unwrap();
        for name in checks.split('`').skip(1).step_by(2) {
            let last = name.rsplit("::").next().unwrap();
            let exists = match last.split_once('…') {
                Some((start, _)) => {
                    start.is_empty() || functions.iter().any(|function| function.starts_with(start))
                }
                None => functions.contains(last) || is_module(last) || last.contains(['/', ' ', '.']),
            };
            named += usize::from(exists);
            assert!(exists || !(name.contains("::") || name.contains('…')), "{name} in {row}");
        }
    }
    assert!(named > 200, "only {named} names");
}

/// Text of a page without its code blocks.
fn prose(page: &str) -> String {
    page.split("```").step_by(2).collect()
}

/// Name by which a link finds a heading.
fn anchor(heading: &str) -> String {
    let name = heading.trim().to_lowercase().replace(' ', "-");
    name.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
}

#[test]
fn every_link_between_pages_leads_to_a_file_and_a_heading() {
    let (mut followed, mut wrong) = (0, Vec::new());
    for (path, page) in pages() {
        let own = root().join(&path);
        for link in prose(&page).split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { own.clone() } else { own.parent().unwrap().join(file) };
            let has_heading = |page: String| {
                let text = prose(&page);
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                headings.any(|line| anchor(line.trim_start_matches('#')) == heading)
            };
            let exists = if heading.is_empty() {
                target.exists()
            } else {
                fs::read_to_string(&target).is_ok_and(has_heading)
            };
            if !exists {
                wrong.push(format!("{path}: {link}"));
            }
            followed += 1;
        }
    }
    assert!(followed > 100, "only {followed} links");
    assert!(wrong.is_empty(), "these lead nowhere: {wrong:#?}");
}

#[test]
fn each_word_of_the_glossary_has_one_meaning_and_is_a_word_of_the_code() {
    let mut all = Vec::new();
    for folder in ["src", "look/src", "command/src"] {
        sources(&root().join(folder), &mut all);
    }
    let code: String = all.into_iter().map(|(_, text)| text.to_lowercase()).collect();
    let page = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**: "));
    let words: Vec<_> = lines.map(|(word, _)| word).collect();
    assert!(words.len() > 60, "{words:?}");
    for word in &words {
        assert_eq!(words.iter().filter(|other| *other == word).count(), 1, "{word} stands there twice");
        assert!(code.contains(word), "no code says {word}");
    }
}

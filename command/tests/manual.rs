//! Help texts as they are printed, so that each change of them is seen, and man pages with the same options.
//!
//! `TENURE_BLESS=1 cargo test -p tenure-cli --test local manual` writes them anew.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::cli::{Folder, bare, output, stderr, stdout};

fn crate_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn is_blessing() -> bool {
    std::env::var_os("TENURE_BLESS").is_some()
}

/// Compares what is printed now with the files of a folder.
fn compare(folder: &Path, now: &[(String, String)]) {
    if is_blessing() {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).unwrap();
        for (name, text) in now {
            fs::write(folder.join(name), text).unwrap();
        }
        return;
    }
    let mut known: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    known.sort();
    let names: Vec<_> = now.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(known, names, "files of {}", folder.display());
    for (name, text) in now {
        let known = fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(&known, text, "{name}: bless it, if it is meant so");
    }
}

/// The commands, as the help of all lists them.
fn commands() -> Vec<String> {
    let help = stdout(&output(bare().arg("--help")));
    let list = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let words = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    words.filter_map(|line| line.split_whitespace().next()).map(ToOwned::to_owned).collect()
}

/// The options of a heading, up to the next one.
fn options<'a>(help: &'a str, heading: &str) -> Option<&'a str> {
    let begin = help.find(&format!("\n{heading}\n"))? + 1;
    let lines = help[begin + heading.len()..].split_inclusive('\n');
    let length: usize = lines.take_while(|line| line.starts_with([' ', '\n'])).map(str::len).sum();
    Some(help[begin..begin + heading.len() + length].trim_end())
}

/// A command's help. Options that stand in the help of all are named by their heading alone.
fn own(help: &str, of_all: &str) -> String {
    let shared =
        ["Store and names:", "Durations:", "Output:"].map(|heading| (heading, options(of_all, heading)));
    shared.into_iter().fold(help.to_owned(), |own, (heading, options)| {
        own.replace(options.expect("it is in the help of all"), &format!("{heading} as in tenure.txt"))
    })
}

#[test]
fn the_help_of_every_command_is_known() {
    let of_all = stdout(&output(bare().arg("--help").env("COLUMNS", "100")));
    let mut all = Vec::new();
    for command in commands() {
        if command == "help" {
            continue;
        }
        let help = output(bare().args([&command, "--help"]).env("COLUMNS", "100"));
        assert!(help.status.success(), "{command}: {}", stderr(&help));
        all.push((format!("{command}.txt"), own(&stdout(&help), &of_all)));
    }
    all.push(("tenure.txt".to_owned(), of_all));
    all.sort();
    assert!(all.len() > 20, "{all:?}");
    compare(&crate_folder("tests/help"), &all);
}

/// A page is made from what `--help` prints, so it is enough that all of that is in it.
#[test]
fn every_command_has_a_man_page_with_all_its_options() {
    let folder = Folder::new("man");
    let made = output(bare().arg("man").arg(folder.path()));
    assert!(made.status.success(), "{}", stderr(&made));
    let main = stdout(&output(bare().arg("man")));
    for command in commands().iter().filter(|command| *command != "help") {
        let help = stdout(&output(bare().args([command, "--help"])));
        let page = fs::read_to_string(folder.path().join(format!("tenure-{command}.1"))).unwrap();
        for heading in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"] {
            assert!(page.contains(heading), "{command}: {heading}");
        }
        let options = help.split_whitespace().filter_map(|word| word.strip_prefix("--"));
        for option in options.map(|word| word.trim_end_matches(|last: char| !last.is_alphanumeric())) {
            let escaped = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&escaped), "{command}: --{option} is not in its page");
        }
        assert!(main.contains(&format!("tenure\\-{}(1)", command.replace('-', "\\-"))), "{command}: {main}");
    }
}

#[test]
fn shells_complete_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = output(bare().args(["completions", shell]));
        assert!(script.status.success());
        assert!(stdout(&script).contains("put-back"), "{shell}");
    }
}

#[test]
fn mistyped_arguments_are_refused_with_what_was_meant() {
    for (words, said) in [
        (vec!["exce", "--key", "k", "--", "true"], "'exec'"),
        (vec!["ls", "--namespase", "x"], "'--namespace'"),
        (vec!["exec", "--key"], "--key <KEY>"),
        (vec!["exec", "--key", "k"], "<CMD>"),
        (vec![], "Usage"),
    ] {
        let refused = output(bare().args(&words));
        assert_eq!(refused.status.code(), Some(64), "{words:?}");
        assert!(stderr(&refused).contains(said), "{words:?}: {}", stderr(&refused));
    }
    let broken = std::ffi::OsStr::from_bytes(b"\xff");
    let refused = output(bare().args(["exec", "--key"]).arg(broken).args(["--", "true"]));
    assert_eq!(refused.status.code(), Some(64));
    assert!(stderr(&refused).contains("UTF-8"), "{}", stderr(&refused));
}

//! Help texts and man pages, as they are printed: each change of them is seen.
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

#[test]
fn the_man_pages_are_known() {
    let folder = Folder::new("man");
    let made = output(bare().arg("man").arg(folder.path()));
    assert!(made.status.success(), "{}", stderr(&made));
    let mut all: Vec<(String, String)> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect();
    all.sort();
    compare(&crate_folder("man"), &all);
    let main = stdout(&output(bare().arg("man")));
    assert!(main.contains("tenure\\-exec(1)"), "{main}");
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

//! `tenure check-config`: what results, where it comes from, and what is refused.

use std::{collections::BTreeMap, fs, process::Command};

use crate::cli::{Folder, bare, output, stderr, stdout};

/// Each setting with its value, and where it comes from.
fn settings(command: &mut Command) -> BTreeMap<String, (String, String)> {
    let shown = output(command.args(["check-config", "-o", "json"]));
    assert!(shown.status.success(), "{}", stderr(&shown));
    let shown: serde_json::Value = serde_json::from_str(&stdout(&shown)).unwrap();
    let word = |item: &serde_json::Value, name: &str| item[name].as_str().unwrap().to_owned();
    let items = shown["items"].as_array().unwrap();
    items.iter().map(|item| (word(item, "setting"), (word(item, "value"), word(item, "from")))).collect()
}

#[test]
fn an_option_counts_before_a_variable_and_that_before_the_file() {
    let folder = Folder::new("config");
    let file = folder.join("tenure.toml");
    fs::write(
        &file,
        "store = 'sqlite:/of/the/file.db'\nnamespace = 'file'\nrefresh_duration = '60s'\n\
         [retention]\nlocks = '3d'\nruns = '4d'\n",
    )
    .unwrap();
    let mut command = bare();
    command
        .env("TENURE_CONFIG", &file)
        .env("TENURE_NAMESPACE", "variable")
        .env("TENURE_RETENTION_RUNS", "5d");
    command.args(["--holder", "option"]);
    let settings = settings(&mut command);
    let is = |name: &str, value: &str, from: &str| {
        assert_eq!(settings[name], (value.to_owned(), from.to_owned()), "{name}");
    };
    is("store", "sqlite:/of/the/file.db", "file");
    is("namespace", "variable", "variable");
    is("holder", "option", "option");
    is("refresh_duration", "1m", "file");
    is("refresh_interval", "5s", "default");
    is("ttl", "1m", "derived");
    is("stop_grace", "10s", "default");
    is("retention.locks", "3days", "file");
    is("retention.runs", "5days", "variable");
}

#[test]
fn settings_that_follow_from_others_are_marked_as_derived() {
    let folder = Folder::new("config-derived");
    let settings = settings(bare().env("XDG_STATE_HOME", folder.path()).args(["--takeover-within", "10s"]));
    for name in ["refresh_interval", "refresh_duration", "ttl"] {
        assert_eq!(settings[name].1, "derived", "{name}");
    }
    assert_eq!(settings["retention.runs"].1, "default");
}

#[test]
fn settings_that_are_given_nowhere_have_their_defaults() {
    let folder = Folder::new("config-default");
    let settings = settings(bare().env("XDG_STATE_HOME", folder.path()));
    let file = format!("sqlite:{}", folder.join("tenure/tenure.db").display());
    assert_eq!(settings["store"], (file, "default".to_owned()));
    assert_eq!(settings["namespace"].0, "default");
    assert!(!folder.join("tenure").exists(), "nothing is made");
}

#[test]
fn slips_are_told_with_value_and_rule() {
    let folder = Folder::new("config-slips");
    let file = folder.join("tenure.toml");
    let refused = |of_file: &str, variables: &[(&str, &str)], options: &[&str]| {
        fs::write(&file, of_file).unwrap();
        let mut command = bare();
        command.env("TENURE_CONFIG", &file).envs(variables.iter().copied()).args(options);
        let refused = output(command.arg("check-config"));
        (refused.status.code().unwrap(), stderr(&refused))
    };
    for (file, variables, options, code, said) in [
        ("refresh_intervall = '1s'", &[][..], &[][..], 78, "refresh_interval"),
        ("refresh_interval = 5", &[], &[], 78, "refresh_interval"),
        ("store = 5", &[], &[], 78, "store in the configuration file is 5"),
        ("= 5", &[], &[], 78, "cannot be understood"),
        ("", &[("TENURE_REFRESH_INTERVALL", "1s")], &[], 78, "did you mean TENURE_REFRESH_INTERVAL?"),
        ("", &[("TENURE_MARGIN", "soon")], &[], 78, "margin"),
        ("", &[], &["--refresh-duration", "1000y"], 78, "refresh_duration"),
        ("", &[], &["--refresh-interval", "20s"], 78, "must fit twice into refresh_duration (30s)"),
        ("", &[], &["--refresh-interval", "20s"], 78, "; refresh_duration = \"50s\" is long enough"),
        ("", &[], &["--stop-grace", "20s"], 78, "; refresh_duration = \"31s\" is long enough"),
        ("", &[], &["--refresh-duration", "3s"], 78, "; or set takeover_within = \"3s\" alone, from which"),
        (
            "",
            &[],
            &["--takeover-within", "6s", "--stop-grace", "5s"],
            78,
            "; set a longer takeover_within, or leave",
        ),
        ("", &[], &["--namespace", ""], 78, "namespace"),
        ("", &[], &["--store", "redis://u:s3cret@host"], 64, "begins with redis:"),
        ("", &[], &["--store", "sqlite:"], 64, "names no file"),
        ("", &[], &["--store", "sqlite:a", "--store-file", "b"], 64, "name the store twice"),
        ("", &[], &["--store-file", "/none/here"], 78, "/none/here with the store's URI cannot be read"),
    ] {
        let (found, words) = refused(file, variables, options);
        assert!(found == code && words.contains(said), "{file} {variables:?} {options:?}: {found} {words}");
        assert!(!words.contains("s3cret"), "{words}");
    }
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let folder = Folder::new("config-state");
    fs::write(folder.join("file"), "no folder").unwrap();
    let refused = output(
        bare().env("XDG_STATE_HOME", folder.join("file")).args(["exec", "--key", "k", "--", "echo", "ran"]),
    );
    assert_eq!(refused.status.code(), Some(69));
    let said = stderr(&refused);
    assert!(said.contains("cannot be made") && said.contains("write --store sqlite:PATH"), "{said}");
    let refused = output(bare().env_remove("HOME").env_remove("XDG_STATE_HOME").args(["ls"]));
    assert_eq!(refused.status.code(), Some(78), "{}", stderr(&refused));
}

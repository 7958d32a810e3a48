//! A crontab: the usual dialect, with a name for each line.
//!
//! Read are lines `EXPR COMMAND` (five fields, or one that begins with `@`), `NAME=value` for the lines after it
//! (`CRON_TZ` and `SHELL` have a meaning), and comments, of which `# name: NAME` names the next line. A line without a
//! name is called by its command. `%` has no meaning but by itself: what other crons make of it is refused.

use std::{collections::BTreeMap, env, ffi::OsString, fs, path::Path};

use tenure::model::ScheduleName;

use crate::{exit::Failure, file::without_mark};

/// A line to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) expression: String,
    pub(crate) zone: Option<String>,
    pub(crate) command: Vec<OsString>,
    /// Variables set by the lines above it.
    pub(crate) variables: Vec<(&'static str, String)>,
}

pub(super) fn read(path: &Path, zone: Option<&str>) -> Result<Vec<Line>, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("the crontab {} cannot be read: {error}", path.display())))?;
    parse(&text, zone).map_err(|(line, rule)| Failure::usage(format!("{}:{line}: {rule}", path.display())))
}

/// Reads a whole crontab, or says in which line which rule is broken.
fn parse(text: &str, zone: Option<&str>) -> Result<Vec<Line>, (usize, String)> {
    let mut lines: Vec<Line> = Vec::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut name: Option<String> = None;
    let mut shell = "/bin/sh".to_owned();
    let mut zone = zone.map(ToOwned::to_owned);
    let mut variables: Vec<(String, String)> = Vec::new();
    for (number, line) in without_mark(text).lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        let broken = |rule: String| (number, rule);
        if let Some(comment) = line.strip_prefix('#') {
            if let Some(given) = comment.trim().strip_prefix("name:") {
                name = Some(given.trim().to_owned());
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        if let Some((variable, value)) = assignment(line) {
            match variable {
                "CRON_TZ" => zone = Some(value.to_owned()),
                "SHELL" if value.is_empty() => {
                    return Err(broken(
                        "SHELL= names no shell: write SHELL=/bin/sh, or remove the line".to_owned(),
                    ));
                }
                "SHELL" => value.clone_into(&mut shell),
                _ => {
                    variables.retain(|(known, _)| known != variable);
                    variables.push((variable.to_owned(), value.to_owned()));
                }
            }
            continue;
        }
        let (expression, command) = split(line).map_err(broken)?;
        let command = without_percent(&command).map_err(broken)?;
        let path = variables.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone().into());
        let path = path.or_else(|| env::var_os("PATH")).unwrap_or_default();
        begins_as_a_command(&command, |word| is_program(word, &path), is_user).map_err(broken)?;
        let called = name.take().unwrap_or_else(|| command.clone());
        ScheduleName::new(&called)
            .map_err(|error| broken(format!("{error}; write a line `# name: NAME` above it")))?;
        if let Some(first) = names.insert(called.clone(), number) {
            return Err(broken(format!(
                "the name {called:?} is that of line {first}, too: write a line `# name: NAME` above one of them"
            )));
        }
        // Through the shell, so that names that are known only here reach the child.
        let script = variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        let script = script.chain([command]).collect::<String>();
        lines.push(Line {
            name: called,
            expression,
            zone: zone.clone(),
            command: vec![shell.clone().into(), "-c".into(), script.into()],
            variables: Vec::new(),
        });
    }
    Ok(lines)
}

/// `NAME=value`, whose value may stand in quotes.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let unquoted = |quote: char| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    is_name.then(|| (name, unquoted('"').or_else(|| unquoted('\'')).unwrap_or(value)))
}

/// The expression and the command of a line.
fn split(line: &str) -> Result<(String, String), String> {
    // `@every 90s` and `@at TIME` have one more word, the other words none.
    let fields = match line.split_whitespace().next() {
        Some("@every" | "@at" | "@after") => 2,
        Some("@reboot") => return Err("@reboot is no time: start the program with the machine".to_owned()),
        Some(word) if word.starts_with('@') => 1,
        _ => 5,
    };
    let mut rest = line;
    let mut expression = Vec::new();
    for _ in 0..fields {
        let word = rest.split_whitespace().next().unwrap_or_default();
        expression.push(word);
        rest = rest.trim_start()[word.len()..].trim_start();
    }
    if rest.is_empty() {
        return Err(format!("{line:?} has no command after the time, which takes {fields} words here"));
    }
    Ok((expression.join(" "), rest.to_owned()))
}

/// A command with `\%` as `%`.
fn without_percent(command: &str) -> Result<String, String> {
    let plain = command.replace("\\%", "");
    if plain.contains('%') {
        return Err(
            "a bare % is the end of the line in other crons, and is refused here: write \\%".to_owned()
        );
    }
    Ok(command.replace("\\%", "%"))
}

/// Refuses a command that begins with what another dialect has there: a sixth field, or the name of a user.
fn begins_as_a_command(
    command: &str,
    is_program: impl Fn(&str) -> bool,
    is_user: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let first = words.next().unwrap_or_default();
    // Of a user's name that is the command itself, options follow.
    let is_followed = words.next().is_some_and(|second| !second.starts_with('-'));
    if is_program(first) {
        return Ok(());
    }
    if is_field(first) {
        return Err(format!(
            "the command begins with {first:?}: a line has five fields and no seconds: write @every 10s, or run one \
             `tenure cron \"EXPR\"` for it"
        ));
    }
    if is_followed && is_user(first) {
        return Err(format!(
            "the command begins with {first:?}, a user of this machine: a line has no column for the user: remove it, \
             all commands run as the user of tenure"
        ));
    }
    Ok(())
}

/// Returns whether a word could be a field of an expression.
fn is_field(word: &str) -> bool {
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let is_part = |part: &str| {
        part == "*"
            || DAYS.contains(&part.to_ascii_lowercase().as_str())
            || !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    word.split([',', '-', '/']).all(is_part)
}

/// Returns whether a folder of the path has a file of that name.
fn is_program(word: &str, path: &OsString) -> bool {
    env::split_paths(path).any(|folder| folder.join(word).is_file())
}

/// Returns whether the machine has a user of that name.
fn is_user(word: &str) -> bool {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    users.lines().any(|line| line.split(':').next() == Some(word))
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String, Option<String>, String)> {
        let lines = parse(text, None).unwrap();
        lines
            .into_iter()
            .map(|line| {
                (line.name, line.expression, line.zone, line.command[2].to_string_lossy().into_owned())
            })
            .collect()
    }

    fn line(
        name: &str,
        expression: &str,
        zone: Option<&str>,
        script: &str,
    ) -> (String, String, Option<String>, String) {
        (name.to_owned(), expression.to_owned(), zone.map(ToOwned::to_owned), script.to_owned())
    }

    #[test]
    fn the_usual_dialect_is_read() {
        let text = "\u{feff}# a comment\nMAILTO=\"ops\"\n\n30 2 * * *  backup --all\n# name: tidy\n@daily rm -r /tmp/x\nCRON_TZ=Europe/Berlin\n@every 90s date +\\%s\n";
        assert_eq!(
            read(text),
            [
                line("backup --all", "30 2 * * *", None, "export MAILTO='ops'\nbackup --all"),
                line("tidy", "@daily", None, "export MAILTO='ops'\nrm -r /tmp/x"),
                line("date +%s", "@every 90s", Some("Europe/Berlin"), "export MAILTO='ops'\ndate +%s"),
            ]
        );
    }

    #[test]
    fn slips_are_named_with_their_line() {
        for (text, number, rule) in [
            ("\n* * * * *", 2, "has no command"),
            ("@reboot x", 1, "@reboot is no time"),
            ("@daily date +%s", 1, "write \\%"),
            ("@daily x\n@hourly x", 2, "is that of line 1, too"),
            ("SHELL=\n@daily x", 1, "write SHELL=/bin/sh"),
            ("*/10 0 5 * * * date", 1, "begins with \"*\": a line has five fields"),
            ("0 5 2 * * MON-FRI date", 1, "write @every 10s, or run one `tenure cron"),
            ("0 5 2 * * root date", 1, "begins with \"root\", a user of this machine: a line has no column"),
        ] {
            let (at, said) = parse(text, None).unwrap_err();
            assert!(at == number && said.contains(rule), "{at}: {said}");
        }
    }

    #[test]
    fn a_user_or_a_field_before_the_command_is_no_command() {
        let judged = |command| {
            let judged =
                begins_as_a_command(command, |word| word == "sync", |word| ["root", "sync"].contains(&word));
            judged.is_ok()
        };
        for command in ["sync now", "root", "root --all", "./root x", "/root x", "7z x", "date", "date 5"] {
            assert!(judged(command), "{command}");
        }
        for command in ["root date", "* date", "*/5 date", "1-5 date", "1,2 date", "5 date", "mon date", "2"]
        {
            assert!(!judged(command), "{command}");
        }
    }

    #[test]
    fn quotes_in_values_reach_the_shell() {
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(assignment("A = 'b c'"), Some(("A", "b c")));
        assert_eq!(assignment("5 * * * * X=1 y"), None);
    }
}

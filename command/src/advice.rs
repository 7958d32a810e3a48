//! Advice for a command line that the parser refuses, where its own words have none.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

const QUOTE: &str =
    "quote the expression: \"30 2 * * *\" is one argument, or the shell takes its stars for files";
const DASHES: &str = "write -- before the program and its arguments: -- PROGRAM ARGUMENT...";
const ADDRESS: &str = "write an address and a port: 127.0.0.1:9150";
const UTF8: &str = "names, keys and expressions are UTF-8; only the program after -- may have other bytes";

/// The same error, with advice if there is any.
pub(crate) fn advised(mut error: Error, words: &[OsString]) -> Error {
    if let Some(advice) = of(&error, words) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    error
}

fn of(error: &Error, words: &[OsString]) -> Option<String> {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    let has = |word: &str| words.iter().any(|known| known == word);
    let advice = match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with('-') => return value_with_a_dash(argument, words),
        ErrorKind::UnknownArgument => {
            if (has("exec") || has("cron") || has("spread")) && !has("--") {
                Some(DASHES)
            } else {
                (has("cron") || has("next")).then_some(QUOTE)
            }
        }
        ErrorKind::ValueValidation if ["--metrics", "--listen"].iter().any(|of| argument.starts_with(of)) => {
            Some(ADDRESS)
        }
        ErrorKind::InvalidUtf8 => Some(UTF8),
        _ => None,
    };
    advice.map(ToOwned::to_owned)
}

/// Advice for the value of an option that was taken for an option itself.
fn value_with_a_dash(value: &str, words: &[OsString]) -> Option<String> {
    let mut pairs = words.windows(2).map(|pair| (pair[0].to_string_lossy(), pair[1].to_string_lossy()));
    let (option, value) = pairs.find(|(_, word)| word.starts_with(value))?;
    let is_option = option.len() > 2 && option.starts_with("--") && !option.contains('=');
    is_option.then(|| format!("a value that begins with a dash stands after a =: {option}={value}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Cli;

    #[test]
    fn a_command_line_that_is_refused_is_told_with_what_to_write() {
        for (line, advice) in [
            ("tenure cron 30 2 * * * --name a -- b", QUOTE),
            ("tenure next 30 2 * * *", QUOTE),
            ("tenure exec --key a ls -l", DASHES),
            ("tenure spread --name a --tasks b ls", DASHES),
            ("tenure cron @daily --metrics 9150 --name a -- b", ADDRESS),
            ("tenure exec --key -x -- b", "a value that begins with a dash stands after a =: --key=-x"),
        ] {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let error = Cli::try_parse_from(&words).map(|_| ()).unwrap_err();
            let told = advised(error, &words).to_string();
            assert!(told.contains(&format!("tip: {advice}")), "{line}: {told}");
        }
    }
}

//! The manual: completions for shells and man pages, made from the definition of the options.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, Command, CommandFactory, Subcommand};
use clap_complete::Shell;

use crate::{Cli, exit::Failure, out};

#[derive(Debug, Subcommand)]
pub(crate) enum Manual {
    /// Print completions for a shell
    Completions(Completions),
    /// Print the man page, or write a page for every command into a folder
    Man(Man),
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Folder for the pages; they are named tenure.1, tenure-exec.1 and so on
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(manual: Manual) -> Result<u8, Failure> {
    match manual {
        Manual::Completions(Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tenure", &mut script);
            out::text(&String::from_utf8_lossy(&script))?;
        }
        Manual::Man(Man { folder: None }) => {
            let page = page(Cli::command()).map_err(|error| Failure::failed(error.to_string()))?;
            out::text(&page)?;
        }
        Manual::Man(Man { folder: Some(folder) }) if !folder.is_dir() => {
            return Err(Failure::usage(format!("{} is not a folder: create it first", folder.display())));
        }
        Manual::Man(Man { folder: Some(folder) }) => write_all(&folder).map_err(|error| {
            Failure::failed(format!("the pages cannot be written into {}: {error}", folder.display()))
        })?,
    }
    Ok(0)
}

fn write_all(folder: &Path) -> io::Result<()> {
    for command in pages() {
        let file = folder.join(format!("{}.1", command.get_name()));
        fs::write(file, page(command)?)?;
    }
    Ok(())
}

/// The command and all that can be called below it, each by its whole name.
fn pages() -> Vec<Command> {
    // Only a built command passes on the options that all have.
    let mut whole = Cli::command();
    whole.build();
    let below =
        whole.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let below: Vec<_> =
        below.map(|command| command.clone().name(format!("tenure-{}", command.get_name()))).collect();
    [whole].into_iter().chain(below).collect()
}

fn page(command: Command) -> io::Result<String> {
    let mut page = Vec::new();
    // Without a date: the page is the same whenever it is made.
    clap_mangen::Man::new(command).date("").render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_options_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_page() {
        let names: Vec<_> = pages().iter().map(|command| command.get_name().to_owned()).collect();
        for name in ["tenure", "tenure-exec", "tenure-cron", "tenure-spread", "tenure-doctor"] {
            assert!(names.iter().any(|known| known == name), "{name} is not among {names:?}");
        }
    }
}

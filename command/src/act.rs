//! Commands of an operator: each prints what it will do, asks, and leaves a reason on record.

mod drain;
mod put_back;
pub(crate) mod raise_terms;
mod release;
mod schedules;

use std::io::{self, BufRead, IsTerminal};

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure::model::Why;
use tenure_look::Operator;

use crate::{
    common::Common,
    exit::Failure,
    out::{self, one_line},
    say,
    see::look::OpenNamespace,
    settings::Settings,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Act {
    Release(release::Release),
    /// Have an instance give all its tasks and schedules to others, and take none
    ///
    /// They move one after the other, and none comes back until the instance is undrained or restarted. The instance
    /// keeps its other keys: `tenure release` asks for a key.
    Drain(drain::Drain),
    /// Let a drained instance accept tasks again
    Undrain(drain::Drain),
    /// Pause a schedule: none of its ticks is run
    ///
    /// A run in progress continues. Ticks within the pause are not run later.
    Pause(schedules::Pause),
    /// Resume a paused schedule
    ///
    /// Ticks within the pause are not run later.
    Resume(schedules::Pause),
    Run(schedules::Run),
    Forget(schedules::Forget),
    PutBack(put_back::PutBack),
}

/// Options of all of these.
#[derive(Args, Debug)]
pub(crate) struct Because {
    /// Reason, kept on record; resume, put-back and forget keep none
    #[arg(long, default_value = "by hand", value_name = "TEXT")]
    why: String,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

/// An action that the command line asks for, with the store that is open for it.
pub(crate) struct Action<'a> {
    pub(crate) look: OpenNamespace,
    pub(crate) operator: Operator,
    pub(crate) why: Why,
    yes: bool,
    common: &'a Common,
}

/// The outcome for programs; `said` is the sentence for people.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    pub(crate) said: String,
    #[serde(flatten)]
    pub(crate) more: serde_json::Map<String, serde_json::Value>,
}

impl Done {
    pub(crate) fn new(said: impl Into<String>, more: serde_json::Value) -> Self {
        let more = if let serde_json::Value::Object(more) = more { more } else { serde_json::Map::new() };
        Self { said: said.into(), more }
    }
}

impl<'a> Action<'a> {
    async fn new(common: &'a Common, because: &Because) -> Result<Self, Failure> {
        let why = Why::new(&because.why).map_err(|error| Failure::usage(format!("--why: {error}")))?;
        let by = Settings::of(common)?.config.holder().clone();
        let look = OpenNamespace::open_to_act(common).await?;
        let operator = look.operator(by);
        Ok(Self { look, operator, why, yes: because.yes, common })
    }

    /// Says what will be done, and asks whether to. Returns false if it is not wanted.
    pub(crate) fn agreed(&self, what: &str) -> Result<bool, Failure> {
        agreed(self.yes, what)
    }

    /// Tells what was done.
    pub(crate) fn tell(&self, done: &Done) -> Result<u8, Failure> {
        tell(self.common, done)
    }

    pub(crate) fn nothing_done(&self) -> Result<u8, Failure> {
        nothing_done(self.common)
    }
}

fn agreed(yes: bool, what: &str) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(format!(
            "standard input or standard error is not a terminal, and this would {}: add --yes to do it without a question",
            one_line(what)
        )));
    }
    let failed = |error: io::Error| Failure::failed(format!("the answer cannot be read: {error}"));
    say::ask(format_args!("This will {}. Continue? [y/N] ", one_line(what))).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(is_yes(&answer))
}

fn tell(common: &Common, done: &Done) -> Result<u8, Failure> {
    out::print(common, done, || format!("{}\n", one_line(&done.said)))?;
    Ok(0)
}

fn nothing_done(common: &Common) -> Result<u8, Failure> {
    tell(common, &Done::new("Nothing was changed.", serde_json::json!({ "done": false })))?;
    Ok(1)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

pub(crate) async fn run(common: &Common, act: Act) -> Result<u8, Failure> {
    let because = match &act {
        Act::Release(release) => &release.because,
        Act::Drain(drain) | Act::Undrain(drain) => &drain.because,
        Act::Pause(pause) | Act::Resume(pause) => &pause.because,
        Act::Run(run) => &run.because,
        Act::Forget(forget) => &forget.because,
        Act::PutBack(put_back) => &put_back.because,
    };
    let action = Action::new(common, because).await?;
    let acted = match &act {
        Act::Release(release) => release::run(&action, release).await,
        Act::Drain(drain) => drain::run(&action, drain, true).await,
        Act::Undrain(drain) => drain::run(&action, drain, false).await,
        Act::Pause(pause) => schedules::pause(&action, pause, true).await,
        Act::Resume(pause) => schedules::pause(&action, pause, false).await,
        Act::Run(run) => schedules::run(&action, run).await,
        Act::Forget(forget) => schedules::forget(&action, forget).await,
        Act::PutBack(put_back) => put_back::run(&action, put_back).await,
    };
    action.look.close().await;
    acted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn y_and_yes_alone_are_consent() {
        for (answer, yes) in [("y\n", true), (" YES ", true), ("", false), ("n", false), ("yess", false)] {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}

//! Commands of an operator: each prints what it will do, asks, and leaves a reason on record.

mod drain;
mod put_back;
mod release;
mod schedules;

use std::io::{self, BufRead, IsTerminal, Write};

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure::model::{Holder, Why};

use crate::{
    common::Common,
    exit::Failure,
    out::{self, one_line},
    see::look::Look,
    settings::Settings,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Act {
    Release(release::Release),
    /// Have an instance give all its tasks and schedules to others, and take none
    ///
    /// They go one after the other, and none comes back until the instance is undrained or started anew. Keys that it
    /// holds otherwise are not concerned: `tenure release` asks for those.
    Drain(drain::Drain),
    /// Let a drained instance accept tasks again
    Undrain(drain::Drain),
    /// Hold a schedule back: no tick of it is run
    ///
    /// A run that is on goes on. Ticks within the pause are not made up for.
    Pause(schedules::Pause),
    /// Let a paused schedule go on
    ///
    /// Ticks within the pause are not made up for.
    Resume(schedules::Pause),
    Run(schedules::Run),
    PutBack(put_back::PutBack),
}

/// Options of all of these.
#[derive(Args, Debug)]
pub(crate) struct Because {
    /// Why: it goes on record, except that of resume and put-back, which keep none
    #[arg(long, default_value = "by hand", value_name = "TEXT")]
    why: String,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// The operator who acts on a store.
pub(crate) struct Operator<'a> {
    pub(crate) look: Look,
    pub(crate) by: Holder,
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

impl<'a> Operator<'a> {
    async fn new(common: &'a Common, because: &Because) -> Result<Self, Failure> {
        let why = Why::new(&because.why).map_err(|error| Failure::usage(format!("--why: {error}")))?;
        let by = Settings::of(common)?.config.holder().clone();
        Ok(Self { look: Look::open(common).await?, by, why, yes: because.yes, common })
    }

    /// Says what will be done, and asks whether to. Returns false if it is not wanted.
    pub(crate) fn agreed(&self, what: &str) -> Result<bool, Failure> {
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failure::usage(format!(
                "nobody is there to be asked, and this would {}: add --yes to do it",
                one_line(what)
            )));
        }
        eprint!("This will {}. Go on? [y/N] ", one_line(what));
        let failed = |error: io::Error| Failure::failed(format!("the answer cannot be read: {error}"));
        io::stderr().flush().map_err(failed)?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map_err(failed)?;
        Ok(is_yes(&answer))
    }

    /// Tells what was done.
    pub(crate) fn tell(&self, done: &Done) -> Result<u8, Failure> {
        out::print(self.common, done, || format!("{}\n", one_line(&done.said)))?;
        Ok(0)
    }

    pub(crate) fn nothing_done(&self) -> Result<u8, Failure> {
        self.tell(&Done::new("Nothing was changed.", serde_json::json!({ "done": false })))?;
        Ok(1)
    }
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
        Act::PutBack(put_back) => &put_back.because,
    };
    let operator = Operator::new(common, because).await?;
    let acted = match &act {
        Act::Release(release) => release::run(&operator, release).await,
        Act::Drain(drain) => drain::run(&operator, drain, true).await,
        Act::Undrain(drain) => drain::run(&operator, drain, false).await,
        Act::Pause(pause) => schedules::pause(&operator, pause, true).await,
        Act::Resume(pause) => schedules::pause(&operator, pause, false).await,
        Act::Run(run) => schedules::run(&operator, run).await,
        Act::PutBack(put_back) => put_back::run(&operator, put_back).await,
    };
    operator.look.close().await;
    acted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        for (answer, yes) in [("y\n", true), (" YES ", true), ("", false), ("n", false), ("yess", false)] {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}

//! Findings as monitors grade them, and the judgement of leaders. Pure.

use std::time::Duration;

use serde::Serialize;
use tenure::{
    model::{Key, ScheduleName, SpreadName},
    store::Refusal,
};
use tenure_look::{Grade, Liveness, Trouble};

use crate::{
    out::{count, one_line},
    times,
};

/// Findings that the line has room for.
const TOLD: usize = 10;

/// The state, as monitors grade it, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Ok,
    Warning,
    Unknown,
    Critical,
}

impl State {
    /// The state of that grade: all is well if it passes by itself.
    pub(crate) const fn of(grade: Grade) -> Self {
        match grade {
            Grade::Passing => Self::Ok,
            Grade::Warning => Self::Warning,
            Grade::Critical => Self::Critical,
        }
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// Something that is not well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) state: State,
    pub(super) kind: &'static str,
    /// The schedule, key or record.
    pub(super) about: Option<String>,
    pub(super) says: String,
}

impl Finding {
    fn new(state: State, kind: &'static str, about: Option<&str>, says: &str) -> Self {
        Self { state, kind, about: about.map(ToOwned::to_owned), says: one_line(says) }
    }

    /// Returns the finding that a trouble is for a monitor; none if it passes by itself.
    pub(super) fn of(trouble: Trouble) -> Option<Self> {
        let (state, about) = (State::of(trouble.grade), trouble.about.name().map(ToOwned::to_owned));
        (state > State::Ok).then_some(Self { state, kind: trouble.sort, about, says: trouble.says })
    }

    pub(super) fn unknown_schedule(name: &ScheduleName) -> Self {
        let says = format!("there is no schedule {:?}", name.as_str());
        Self::new(State::Critical, "unknown_schedule", Some(name.as_str()), &says)
    }

    pub(super) fn refused(record: &str, refusal: &Refusal) -> Self {
        Self::new(State::Critical, "refused", Some(record), &format!("{record}: {refusal}"))
    }

    /// The tasks that were not read may be as they should be, or not.
    pub(super) fn unread(spread: &SpreadName, why: &str) -> Self {
        Self::new(State::Unknown, "unread", Some(spread.as_str()), why)
    }

    pub(super) fn few_instances(alive: usize, least: usize) -> Self {
        let says = format!("{} alive, {least} required", count(alive, "instance"));
        Self::new(State::Critical, "few_instances", None, &says)
    }
}

/// The outcome of a check.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) state: State,
    pub(super) code: u8,
    pub(super) line: String,
    pub(super) findings: Vec<Finding>,
}

impl Verdict {
    /// The worst comes first.
    pub(super) fn of(mut findings: Vec<Finding>, well: &[String]) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.state));
        let state = findings.first().map_or(State::Ok, |first| first.state);
        let mut says: Vec<_> = findings.iter().take(TOLD).map(|finding| finding.says.clone()).collect();
        if findings.len() > TOLD {
            says.push(format!("and {} more", findings.len() - TOLD));
        }
        if says.is_empty() {
            says = well.to_vec();
        }
        let line = one_line(&format!("{}: {}", state.word(), says.join("; ")));
        Self { state, code: state.code(), line, findings }
    }

    /// The check could not be made.
    pub(super) fn unknown(why: &str) -> Self {
        Self::of(vec![Finding::new(State::Unknown, "not_checked", None, why)], &[])
    }
}

/// The leader of a key.
#[derive(Debug)]
pub(super) enum Leader {
    /// The key has no record.
    Never,
    Nobody,
    /// A holder; `beat` is the age of its last beat.
    Holder {
        name: String,
        life: Liveness,
        beat: Option<Duration>,
    },
}

/// Judges the leader of a key: the words if it is well.
pub(super) fn leader(key: &Key, leader: &Leader) -> Result<String, Finding> {
    let key = key.as_str();
    let finding = |kind, says: String| Err(Finding::new(State::Critical, kind, Some(key), &says));
    match leader {
        Leader::Never => finding("unknown_key", format!("the key {key:?} was never held")),
        Leader::Nobody => finding("no_leader", format!("the key {key:?} is not held")),
        Leader::Holder { name, life, beat } if life.looks_dead() => {
            let beat = beat.map_or_else(
                || "there is no record of its session".to_owned(),
                |beat| format!("its last beat is {} old", times::length(beat)),
            );
            finding("leader_looks_dead", format!("{name} holds {key:?} and looks dead: {beat}"))
        }
        Leader::Holder { name, .. } => Ok(one_line(&format!("{name} holds {key:?}"))),
    }
}

#[cfg(test)]
mod tests;

//! A change in words.

use std::fmt;

use tenure::model::{Ended, Kind, LockId, Why};

use super::{Change, What};
use crate::{out::one_line, times};

impl fmt::Display for Change {
    /// In one line, whatever the records say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, rest) = self.what.told();
        write!(f, "{}  {word:<9} {}", times::local(self.at), one_line(rest.trim_end()))
    }
}

impl What {
    pub(super) fn told(&self) -> (&'static str, String) {
        let named = |lock: &LockId| match lock.kind {
            Kind::Lock => lock.key.to_string(),
            _ => format!("{} ({})", lock.key, lock.kind),
        };
        let because = |note: &Option<Why>| note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        match self {
            Self::Watching { namespace, key, held, instances } => match key {
                Some(key) => ("watching", format!("{key} in namespace {namespace}")),
                None => (
                    "watching",
                    format!("namespace {namespace}: {held} keys held, {instances} instances alive"),
                ),
            },
            Self::Held { lock, holder, term, .. } => {
                ("held", format!("{} by {holder} since then, term {term}", named(lock)))
            }
            Self::Acquired { lock, holder, term, why, .. } => {
                ("acquired", format!("{} by {holder}, term {term}{}", named(lock), because(why)))
            }
            Self::Released { lock, holder, term, how, note } => (
                "released",
                format!("{} by {holder}, term {term}, {}{}", named(lock), how.as_str(), because(note)),
            ),
            Self::Lost { lock, holder, term, how, note } => (
                "lost",
                format!(
                    "{} by {holder}, term {term}, {}{}",
                    named(lock),
                    how.map_or("its record tells no more", Ended::as_str),
                    because(note)
                ),
            ),
            Self::InstanceStarted { holder, host, pid, program, .. } => {
                ("instance", format!("{holder} has started: pid {pid} on {host} {program}"))
            }
            Self::InstanceSilent { holder, .. } => {
                ("instance", format!("{holder} looks dead: this was its last beat"))
            }
            Self::InstanceBack { holder, .. } => ("instance", format!("{holder} beats again")),
            Self::InstanceClosed { holder, .. } => ("instance", format!("{holder} has closed")),
            Self::InstanceDied { holder, by, why, .. } => {
                ("instance", format!("{holder} is dead, says {by}: {why}"))
            }
            Self::RunStarted { schedule, instant, holder, attempt, .. } => {
                let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
                ("run", format!("{schedule} of {instant} begun by {holder}{again}"))
            }
            Self::RunEnded { schedule, instant, holder, outcome, error, .. } => {
                ("run", format!("{schedule} of {instant} {} by {holder}{}", outcome.as_str(), because(error)))
            }
            Self::NotRun { schedule, instant, count, why, .. } => {
                ("not run", format!("{schedule}: {count} up to {instant}: {why}"))
            }
            Self::Paused { schedule, by, why } => ("paused", format!("{schedule} by {by}: {why}")),
            Self::Resumed { schedule } => ("resumed", schedule.to_string()),
        }
    }
}

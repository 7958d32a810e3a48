//! A change in words.

use super::{Change, ChangeKind};
use tenure::{
    model::{Holder, Kind, LockId, Term, Why},
    store::{Ended, FailureRow, Note},
};

impl Change {
    /// Returns it in a word and a sentence. What records say is in it as it is.
    #[must_use]
    pub fn describe(&self) -> (&'static str, String) {
        self.what.describe()
    }
}

impl ChangeKind {
    pub(super) fn describe(&self) -> (&'static str, String) {
        let named = |lock: &LockId| match lock.kind {
            Kind::Lock => lock.key.to_string(),
            _ => format!("{} ({})", lock.key, lock.kind),
        };
        let because = |why: &Option<Why>| why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let ended = |lock: &LockId, holder: &Holder, term: &Term, how: &str, note: &Option<Note>| {
            let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            format!("{} by {holder}, term {term}, {how}{note}", named(lock))
        };
        match self {
            Self::Acquired { lock, holder, term, why, after, .. } => {
                let after =
                    after.as_ref().map(|after| format!(", after {} ({})", after.holder, after.how.as_str()));
                let after = after.unwrap_or_default();
                ("acquired", format!("{} by {holder}, term {term}{after}{}", named(lock), because(why)))
            }
            Self::Released { lock, holder, term, how, note } => match note {
                Some(Note::Failing(FailureRow { tries, error, .. })) => {
                    let times = if *tries == 1 { String::new() } else { format!(", after {tries} tries") };
                    ("gave up", format!("{} by {holder}, term {term}{times}: {error}", named(lock)))
                }
                _ => ("released", ended(lock, holder, term, how.as_str(), note)),
            },
            Self::Lost { lock, holder, term, how, note } => {
                let how = how.map_or("its record shows no more", Ended::as_str);
                ("lost", ended(lock, holder, term, how, note))
            }
            Self::InstanceStarted { holder, host, pid, program, .. } => {
                ("instance", format!("{holder} has started: pid {pid} on {host} {program}"))
            }
            Self::InstanceSilent { holder, .. } => {
                ("instance", format!("{holder} looks dead: this was its last beat"))
            }
            Self::InstanceBack { holder, .. } => ("instance", format!("{holder} beats again")),
            Self::InstanceClosed { holder, .. } => ("instance", format!("{holder} has closed")),
            Self::InstanceDied { holder, by, why, .. } => {
                ("instance", format!("{holder} is dead, declared by {by}: {why}"))
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
            Self::Drained { holder, by, why, .. } => ("drained", format!("{holder} by {by}: {why}")),
            Self::Ordered { schedule, by, why } => ("ordered", format!("{schedule} by {by}: {why}")),
        }
    }
}

//! Lines of the watch: the state when it begins, and then the changes.

use serde::Serialize;
use tenure::model::{Holder, Key, Kind, LockId, Namespace, SessionId, StoreTime, Term};
use tenure_look::{Change, Liveness, Records};

use super::snapshot::Scope;
use crate::{out::one_line, times};

/// Something that is told in a line.
pub(super) trait Line: Serialize {
    /// The time, a word, and a sentence.
    fn describe(&self) -> (StoreTime, &'static str, String);

    /// The line, whatever the records say.
    fn line(&self) -> String {
        let (at, word, rest) = self.describe();
        line(at, word, &rest)
    }
}

/// A line of the watch.
pub(crate) fn line(at: StoreTime, word: &str, sentence: &str) -> String {
    format!("{}  {word:<9} {}", times::local(at), one_line(sentence.trim_end()))
}

impl Line for Change {
    fn describe(&self) -> (StoreTime, &'static str, String) {
        let (word, rest) = Self::describe(self);
        (self.at, word, rest)
    }
}

/// A line printed when the watch begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct First {
    at: StoreTime,
    #[serde(flatten)]
    what: LineKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum LineKind {
    /// The watch has begun.
    Watching { namespace: Namespace, key: Option<Key>, held: usize, instances: usize },
    /// Held when the watch began.
    Held { lock: LockId, holder: Holder, session: SessionId, term: Term },
}

impl Line for First {
    fn describe(&self) -> (StoreTime, &'static str, String) {
        let (word, rest) = match &self.what {
            LineKind::Watching { namespace, key: Some(key), .. } => {
                ("watching", format!("{key} in namespace {namespace}"))
            }
            LineKind::Watching { namespace, held, instances, .. } => {
                ("watching", format!("namespace {namespace}: {held} keys held, {instances} instances alive"))
            }
            LineKind::Held { lock, holder, term, .. } => {
                let kind = if lock.kind == Kind::Lock { String::new() } else { format!(" ({})", lock.kind) };
                ("held", format!("{}{kind} by {holder} since then, term {term}", lock.key))
            }
        };
        (self.at, word, rest)
    }
}

/// Returns the first lines: the counts of held keys and instances, and the holders if one key is watched.
pub(super) fn begin(first: &Records, scope: &Scope) -> Vec<First> {
    let at = first.now.unwrap_or_else(times::now);
    let held = first.locks.values().filter(|record| record.holding.is_some());
    let alive = first.sessions.values().filter(|(_, life)| *life == Liveness::Alive);
    let (namespace, key) = (scope.namespace.clone(), scope.key.clone());
    let watching =
        LineKind::Watching { namespace, key, held: held.clone().count(), instances: alive.count() };
    let mut told = vec![First { at, what: watching }];
    if scope.key.is_some() {
        told.extend(held.filter_map(|record| {
            let held = record.holding.as_ref()?;
            let (lock, holder) = (record.id.clone(), held.by.holder.clone());
            let what = LineKind::Held { lock, holder, session: held.by.session, term: record.term };
            Some(First { at: held.acquired_at, what })
        }));
    }
    told
}

#[cfg(test)]
mod tests {
    use tenure::model::Why;

    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_the_records_say() {
        let what = tenure_look::ChangeKind::Paused {
            schedule: "backup".parse().unwrap(),
            by: "ops".parse().unwrap(),
            why: Why::shortened("two\nlines"),
        };
        let line = Change { at: StoreTime::from_millis(1_767_225_600_000), what }.line();
        assert!(line.ends_with("  paused    backup by ops: two\u{b7}lines"), "{line}");
    }
}

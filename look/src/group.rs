//! Changes that are one to their reader: thirty tasks that one instance takes over from another.

use std::{fmt::Write, time::Duration};

use serde::Serialize;

use crate::{Change, ChangeKind, PreviousHolder, Severity};
use tenure::model::{Holder, Key, Kind, StoreTime};

/// Changes that are no further apart belong together.
const TOGETHER: Duration = Duration::from_secs(5);
/// Groups that one more may still belong to: others happen in between.
const OPEN: usize = 16;
/// Keys of a group that are named.
const NAMED: usize = 5;

/// Changes that are told in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The one that is told in full, if there are no others: the last one.
    #[serde(flatten)]
    pub change: Change,
    /// The keys of all of them, the last one first.
    pub keys: Vec<Key>,
    /// Number of them.
    pub count: usize,
    /// Time of the first one.
    pub since: StoreTime,
}

/// Properties that the changes of one group have in common.
#[derive(PartialEq, Eq)]
struct Like<'a> {
    severity: Severity,
    word: &'static str,
    kind: &'a Kind,
    holder: &'a Holder,
    after: Option<&'a PreviousHolder>,
}

fn like(change: &Change) -> Option<(Like<'_>, &Key)> {
    let (lock, holder, after) = match &change.what {
        ChangeKind::Acquired { lock, holder, after, .. } => (lock, holder, after.as_ref()),
        ChangeKind::Lost { lock, holder, .. } | ChangeKind::Released { lock, holder, note: None, .. } => {
            (lock, holder, None)
        }
        _ => return None,
    };
    Some((
        Like { severity: change.severity(), word: change.describe().0, kind: &lock.kind, holder, after },
        &lock.key,
    ))
}

impl Group {
    /// Groups changes, the last one first.
    #[must_use]
    pub fn all<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for change in changes {
            let key = like(change).map(|(_, key)| key.clone());
            let same =
                |(at, group): &(usize, &mut Self)| group.repeats(change) || *at < OPEN && group.takes(change);
            if let Some((_, group)) = groups.iter_mut().rev().enumerate().find(same) {
                group.keys.extend(key);
                (group.count, group.since) = (group.count + 1, change.at);
            } else {
                let keys = key.into_iter().collect();
                groups.push(Self { change: change.clone(), keys, count: 1, since: change.at });
            }
        }
        groups
    }

    fn takes(&self, change: &Change) -> bool {
        let (ours, theirs) = (like(&self.change), like(change));
        let is_like = ours.zip(theirs).is_some_and(|((ours, _), (theirs, _))| ours == theirs);
        is_like && self.change.at.since(change.at) <= TOGETHER
    }

    /// Returns whether a run of the same schedule failed for the same reason: one noisy schedule hides no other.
    fn repeats(&self, change: &Change) -> bool {
        use ChangeKind::RunEnded;
        let is_failure = change.severity() == Severity::Failure;
        let (RunEnded { schedule, outcome, error, .. }, RunEnded { schedule: s, outcome: o, error: e, .. }) =
            (&self.change.what, &change.what)
        else {
            return false;
        };
        is_failure && (schedule, outcome, error) == (s, o, e)
    }

    /// Returns it in a word and a sentence. What records say is in it as it is.
    #[must_use]
    pub fn describe(&self) -> (&'static str, String) {
        let (word, mut sentence) = self.change.describe();
        if self.count > 1 && self.keys.is_empty() {
            let time = self.since.to_string();
            let _ = write!(sentence, " ({} times since {})", self.count, time.get(11..19).unwrap_or(&time));
        }
        let Some((like, _)) = like(&self.change).filter(|_| self.keys.len() > 1) else {
            return (word, sentence);
        };
        let what = match like.kind {
            Kind::Lock => "locks".to_owned(),
            Kind::Schedule => "schedules".to_owned(),
            Kind::Task(spread) => format!("tasks of {spread}"),
            kind => format!("keys of kind {kind}"),
        };
        let after = like.after.map(|after| format!(", after {} ({})", after.holder, after.how.as_str()));
        let named: Vec<_> = self.keys.iter().take(NAMED).map(ToString::to_string).collect();
        let others = if self.keys.len() > NAMED { ", ..." } else { "" };
        let sentence = format!(
            "{} {what} by {}{}: {}{others}",
            self.keys.len(),
            like.holder,
            after.unwrap_or_default(),
            named.join(", ")
        );
        (word, sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::{
        model::{LockId, Term},
        store::Ended,
    };

    fn change(key: &str, holder: &str, after: Option<&str>, ms: i64) -> Change {
        let lock = LockId {
            namespace: "n".parse().unwrap(),
            kind: Kind::Task("topics".parse().unwrap()),
            key: key.parse().unwrap(),
        };
        let after = after.map(|holder| PreviousHolder { holder: holder.parse().unwrap(), how: Ended::Died });
        let holder = holder.parse().unwrap();
        let what = ChangeKind::Acquired { lock, holder, term: Term::new(1), who: None, why: None, after };
        Change { at: StoreTime::from_millis(1_000_000 + ms), what }
    }

    #[test]
    fn tasks_taken_over_from_one_holder_are_told_in_one_line() {
        let changes = [
            change("g", "b", Some("a"), 9_000),
            change("f", "b", Some("a"), 2_000),
            change("x", "c", Some("a"), 1_900),
            change("e", "b", Some("a"), 1_800),
            change("d", "b", None, 1_700),
        ];
        let groups = Group::all(&changes);
        let described: Vec<_> = groups.iter().map(|group| group.describe().1).collect();
        assert_eq!(
            described,
            [
                "g (task:topics) by b, term 1, after a (died)",
                "2 tasks of topics by b, after a (died): f, e",
                "x (task:topics) by c, term 1, after a (died)",
                "d (task:topics) by b, term 1",
            ]
        );
        let many: Vec<_> = (0..40).map(|at| change(&format!("t{at}"), "b", Some("a"), -at)).collect();
        let groups = Group::all(&many);
        assert_eq!(groups.len(), 1);
        assert_eq!(
            groups[0].describe().1,
            "40 tasks of topics by b, after a (died): t0, t1, t2, t3, t4, ..."
        );
    }
}

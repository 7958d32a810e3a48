use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Invariant, Stage};
use crate::{Entry, EventKind, FIRST_TASK, Life, Registry, Reported, is_task};
use tenure::model::{SessionId, Term};

/// A cap that was changed lately: what began just then was right by the one before.
const CHANGED_LATELY: Duration = Duration::from_secs(1);
/// Time after the last trouble, besides two ttls, after which nothing moves any more.
const AT_REST: Duration = Duration::from_secs(10);

/// The tasks of a spread: no instance has more than its cap; and with nothing wrong all of them run before
/// long, evenly, and stay where they are.
#[derive(Default)]
pub(super) struct Spreading {
    /// The cap of each, the one before, and since when.
    caps: BTreeMap<Life, (usize, usize, Duration)>,
    /// Time at which each task was acquired.
    acquired: BTreeMap<(Life, usize, Term), Duration>,
    /// Tasks that have begun: they may begin again, for it is the same share.
    begun: BTreeSet<(Life, usize, Term)>,
    /// The tasks that each ever knew.
    known: BTreeMap<Life, BTreeSet<usize>>,
    judged: bool,
}

impl Invariant for Spreading {
    fn name(&self) -> &'static str {
        "spreading"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        match (&entry.what, entry.life) {
            (EventKind::Capped { cap }, Some(life)) => {
                let before = self.caps.get(&life).map_or(*cap, |(before, ..)| *before);
                self.caps.insert(life, (*cap, before, entry.at));
            }
            (EventKind::Reported(Reported::Acquired { key, term }), Some(life)) if is_task(*key) => {
                self.acquired.insert((life, *key, *term), entry.at);
            }
            (EventKind::Began { key, term, .. }, Some(life))
                if is_task(*key) && self.begun.insert((life, *key, *term)) =>
            {
                // One that is not begun at once had room when it came.
                let came = self.acquired.get(&(life, *key, *term));
                if came.is_none_or(|came| self.caps.get(&life).is_none_or(|(.., since)| came >= since)) {
                    self.is_capped(registry, entry, life)?;
                }
            }
            (EventKind::Knows { tasks }, Some(life)) => self.known.entry(life).or_default().extend(tasks),
            (EventKind::Calm, _) => self.judged = false,
            (EventKind::Granted { key, term, session, .. }, _) if is_task(*key) => {
                self.is_known(registry, key - FIRST_TASK, *session)?;
                if self.judged {
                    return Ok(());
                }
                let rest = registry.longest_ttl() * 2 + AT_REST;
                if registry.calm().is_some_and(|calm| entry.at > calm + rest) {
                    let task = key - FIRST_TASK;
                    return Err(format!(
                        "task {task} goes to somebody under term {term}, though nothing has changed"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn judge(&mut self, registry: &Registry, stage: &Stage) -> Result<(), (String, Option<usize>)> {
        let Stage::Settled(census) = stage else { return Ok(()) };
        self.judged = true;
        let mut counts: BTreeMap<Life, usize> = BTreeMap::new();
        let tasks: Vec<_> = census.wanted.iter().filter(|key| is_task(**key)).collect();
        for (key, _, session) in &census.held {
            if let (true, Some(life)) =
                (tasks.contains(&key), registry.session(*session).and_then(|session| session.life))
            {
                *counts.entry(life).or_default() += 1;
            }
        }
        let (fewest, most) = (tasks.len() / registry.members(), tasks.len().div_ceil(registry.members()));
        // Counts differ by what members gave up; one that gave up three fails, and is owed nothing.
        let gave_up = |life: &Life| match census.gave_up.iter().filter(|(_, by)| *by == life.member).count() {
            few @ 0..=2 => few,
            3.. => usize::MAX,
        };
        let more = if census.gave_up.is_empty() { most } else { usize::MAX };
        let uneven = counts
            .iter()
            .find(|(life, count)| **count + gave_up(life).min(tasks.len()) < fewest || **count > more);
        match uneven {
            Some((life, count)) => Err((
                format!(
                    "instance {life} has {count} of {} tasks, which is not its part: {counts:?}",
                    tasks.len()
                ),
                None,
            )),
            None => Ok(()),
        }
    }
}

impl Spreading {
    /// Checks that no instance is given a task that it never knew.
    fn is_known(&self, registry: &Registry, task: usize, session: SessionId) -> Result<(), String> {
        let life = registry.session(session).and_then(|session| session.life);
        let Some((life, known)) = life.and_then(|life| Some((life, self.known.get(&life)?))) else {
            return Ok(());
        };
        if known.contains(&task) {
            return Ok(());
        }
        Err(format!("task {task} goes to {life}, which does not know it"))
    }

    fn is_capped(&self, registry: &Registry, entry: &Entry, life: Life) -> Result<(), String> {
        let Some((cap, before, since)) = self.caps.get(&life) else { return Ok(()) };
        let lately = entry.at.saturating_sub(*since) < CHANGED_LATELY;
        let most = if lately { *cap.max(before) } else { *cap };
        let runs: BTreeSet<_> = registry
            .leases_of(life)
            .filter(|(key, _, lease)| is_task(*key) && lease.running > 0)
            .map(|(key, ..)| key)
            .collect();
        // The one that begins is not in the registry yet.
        if runs.len() >= most {
            return Err(format!("one more task begins where {} run, and the cap is {most}", runs.len()));
        }
        Ok(())
    }
}

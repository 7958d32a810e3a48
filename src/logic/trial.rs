//! Trials of tasks that may kill the processes that run them: each is tried by itself. From records
//! only: a session says in its own whom it has on trial, and is believed when it is dead.

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive, time::Duration};

use super::quarantine::Quarantine;
use crate::model::{Death, Ended, Holder, Key, Past, SessionId, SessionRecord, SpreadName, StoreTime, Trial};

/// Time after which a task has proved that it does not kill its holder.
const LONG: Duration = Duration::from_secs(600);
/// After so many deaths of its holders in a row a task is a suspect: with one, every task of an instance that
/// crashed would be.
const SUSPECT_AFTER: u32 = 2;
/// After so many deaths while it was tried alone it is not run for a while; where others die, too, up to so many:
/// what does not kill is on trial now and then when its process dies, and not always.
const GUILTY_AFTER: RangeInclusive<u32> = 2..=5;
/// A death is of no interest to anybody after so long: no row of short holdings that a record remembers is
/// longer.
const REMEMBERED: Duration = Duration::from_secs(2 * 60 * 60);
/// So many are tried one by one; of more, those whose digests begin alike are tried together, and those of a
/// group whose trial ended with a death in smaller ones.
const ONE_BY_ONE: usize = 16;

/// Words in the note of a task that was quarantined for this: others read them again.
const KILLED: &str = "it killed its process";

/// Dead session, with what its record says of its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gone {
    started: StoreTime,
    last_beat: StoreTime,
    ttl: Duration,
    /// Closed by itself: nothing killed it.
    closed: bool,
    trial: Option<Trial>,
}

/// The sessions that died lately, by their holders' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deaths(BTreeMap<Holder, BTreeMap<SessionId, Gone>>);

impl Deaths {
    /// Takes note of a dead session, and of its last record.
    pub(crate) fn learn(&mut self, record: &SessionRecord, spread: &SpreadName) {
        let share = record.shares.iter().find(|share| share.spread == *spread);
        let gone = Gone {
            started: record.started,
            last_beat: record.beat_at,
            ttl: record.ttl,
            closed: record.death.as_ref().is_some_and(Death::is_own),
            trial: share.and_then(|share| share.trial),
        };
        self.0.entry(record.about.holder.clone()).or_default().insert(record.id, gone);
    }

    /// Forgets deaths so old that no row of deaths has them.
    pub(crate) fn forget(&mut self, now: StoreTime) {
        self.0.retain(|_, gone| {
            gone.retain(|_, gone| now.since(gone.last_beat) < REMEMBERED);
            !gone.is_empty()
        });
    }

    /// Returns how many have died since then, and not closed themselves.
    fn since(&self, begun: StoreTime) -> u32 {
        let died = |gone: &&Gone| !gone.closed && gone.last_beat >= begun;
        u32::try_from(self.0.values().flat_map(BTreeMap::values).filter(died).count()).unwrap_or(u32::MAX)
    }

    /// The session under which that was held: of those of its holder's name the latest that had begun by then.
    fn of(&self, holding: &Past) -> Option<&Gone> {
        let gone = self.0.get(&holding.holder)?.values().filter(|gone| gone.started <= holding.from);
        // One that had ended before is another one, whose successor's record is gone.
        gone.max_by_key(|gone| gone.started).filter(|gone| holding.from.since(gone.last_beat) <= gone.ttl)
    }
}

/// Evidence against a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// Number of its holders that died with it, and nobody knows why.
    pub(crate) deaths: u32,
    /// Number that died while another was tried.
    pub(crate) beside: u32,
    /// Number that died while it was tried with others.
    pub(crate) shared: u32,
    /// Number that died while it was tried alone.
    pub(crate) blames: u32,
    /// The smallest group that was tried with it when its holder died: so many digits of its digest.
    pub(crate) narrowed: u8,
    /// Moment at which the first of these deaths was found.
    pub(crate) since: Option<StoreTime>,
    /// Number of all sessions that have died since the first of them had it.
    pub(crate) all: u32,
}

impl Suspicion {
    /// Returns whether it is to be tried before it runs like any other.
    pub(crate) const fn is_suspect(self) -> bool {
        self.deaths + self.beside >= SUSPECT_AFTER || self.blames > 0 || self.shared > 0
    }

    /// Returns whether it is not to be run for a while.
    pub(crate) fn is_guilty(self) -> bool {
        let (fewest, most) = GUILTY_AFTER.into_inner();
        self.blames >= self.odds().clamp(fewest, most)
    }

    /// For how many deaths there is one of its holders': with many, they die of something else.
    fn odds(self) -> u32 {
        self.all.div_ceil(self.holders().max(1)).max(1)
    }

    /// Returns how many of its holders died with it, one after the other.
    pub(crate) const fn holders(self) -> u32 {
        self.deaths + self.beside + self.shared + self.blames
    }

    /// Returns what is said of one that is guilty.
    pub(crate) fn verdict(self) -> String {
        format!("{KILLED} {} times while it was tried alone", self.blames)
    }
}

/// Returns what its last holders say of a task, the latest first. Of those that moved it on soon nothing is learned;
/// one that had it for long, in peace or not, ends the row. Who died while somebody else was tried may still make it
/// a suspect, lest it hide behind that, and blames the other.
pub(crate) fn suspicion(key: &Key, past: &[Past], deaths: &Deaths) -> Suspicion {
    let (mut found, mut begun) = (Suspicion::default(), None);
    for holding in past {
        if holding.to.since(holding.from) >= LONG {
            break;
        }
        if is_of_a_killer(holding) {
            // It may have been mended, and is tried again; once more is enough.
            found.blames += 1;
            found.all += 1;
            break;
        }
        if holding.how != Ended::Died {
            continue;
        }
        match deaths.of(holding) {
            Some(Gone { closed: true, .. }) => continue,
            Some(Gone { trial: Some(trial), .. }) if !trial.is_of(key) => found.beside += 1,
            Some(Gone { trial: Some(trial), .. }) if trial.is_of_one() => found.blames += 1,
            Some(Gone { trial: Some(trial), .. }) => {
                found.shared += 1;
                found.narrowed = found.narrowed.max(trial.digits());
            }
            Some(Gone { trial: None, .. }) | None => found.deaths += 1,
        }
        found.since = Some(holding.to);
        begun = Some(holding.from);
    }
    found.all += begun.map_or(0, |begun| deaths.since(begun));
    found
}

/// Returns whether it was quarantined for what it did to its processes.
pub(crate) fn is_of_a_killer(holding: &Past) -> bool {
    let quarantine = holding.note.as_ref().and_then(Quarantine::read);
    quarantine.is_some_and(|quarantine| quarantine.error.starts_with(KILLED))
}

/// Returns who of those that wait is tried next: what is blamed most, then what most holders died with, so that what
/// kills is found before it is mistaken for another.
pub(crate) fn next(waiting: &BTreeMap<Key, Suspicion>) -> Option<Trial> {
    let first = |(key, suspicion): &(&Key, &Suspicion)| {
        let Suspicion { deaths, beside, blames, narrowed, .. } = **suspicion;
        (Reverse(blames), Reverse(narrowed), Reverse(deaths), Reverse(beside), Trial::of(key))
    };
    let (key, suspicion) = waiting.iter().min_by_key(first)?;
    let alone = Trial::of(key);
    if suspicion.blames > 0 {
        return Some(alone);
    }
    // As large a part of those like it as leaves no more than so many parts.
    let part = alone.group(suspicion.narrowed);
    let like_it = waiting.keys().filter(|key| part.is_of(key)).count();
    Some(if like_it <= ONE_BY_ONE { alone } else { alone.group(suspicion.narrowed + 1) })
}

/// Returns how long a trial lasts: a third of a ttl, twice as long for each death more than makes a suspect, but not so
/// long that all who wait have to for longer than ten ttls; and shorter the more others die.
pub(crate) fn length(suspicion: Suspicion, waiting: usize, ttl: Duration) -> Duration {
    let doublings = suspicion.holders().saturating_sub(SUSPECT_AFTER).min(8);
    let parts = u32::try_from(waiting.clamp(1, ONE_BY_ONE)).unwrap_or(1);
    let longest = (ttl / 3 * (1 << doublings)).min(ttl * 10 / parts);
    // Where processes die of something else, those that wait die with them.
    longest / suspicion.odds()
}

#[cfg(test)]
mod tests;

//! Age a member must reach before it is given tasks: one whose earlier sessions died young may do so again,
//! and would take with it what it was given.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    model::{Beat, Death, Holder, SessionId, SessionRecord, StoreTime},
    store::SessionSeen,
};

/// Age at which a member has worked for longer than its death costs anybody.
const GROWN: Duration = Duration::from_secs(600);
/// A death is held against those of its name for so long.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Nobody is kept waiting for longer: what it died of may have been mended.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// Nor for more ttls: then its tasks stand still for a tenth of the time, whatever it does.
const MOST_TTLS: u32 = 10;

/// A session before this one, of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Before {
    session: SessionId,
    /// Its last beat, as long as nobody has declared it dead: it may live beside this one.
    undecided: Option<Beat>,
}

/// The sessions of one name that died young one after the other, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row(Vec<Before>);

impl Row {
    /// Those before a session that was opened then. A session that closed itself, or lived long, ends the
    /// row: whatever was wrong before it was over then.
    pub(crate) fn of(
        sessions: &[SessionRecord],
        holder: &Holder,
        own: Option<SessionId>,
        now: StoreTime,
    ) -> Self {
        Self::among(sessions.iter().filter(|session| session.about.holder == *holder), own, now)
    }

    /// The same of those of one name.
    fn among<'a>(
        same: impl Iterator<Item = &'a SessionRecord>,
        own: Option<SessionId>,
        now: StoreTime,
    ) -> Self {
        let mut same: Vec<_> = same.filter(|session| Some(session.id) != own).collect();
        same.sort_unstable_by_key(|session| std::cmp::Reverse((session.started, session.id)));
        // A listing may have one twice.
        same.dedup_by_key(|session| session.id);
        let young = same.into_iter().take_while(|session| died_young(session, now));
        let before = |session: &SessionRecord| Before {
            session: session.id,
            undecided: session.is_alive().then_some(session.beat),
        };
        Self(young.map(before).collect())
    }

    /// Those of whom it is not known yet whether they are dead.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = SessionId> {
        self.0.iter().filter(|before| before.undecided.is_some()).map(|before| before.session)
    }

    /// One of them was seen.
    pub(crate) fn saw(&mut self, session: SessionId, sighting: &SessionSeen) {
        let Some(at) = self.0.iter().position(|before| before.session == session) else { return };
        match (sighting, self.0[at].undecided) {
            // It beats: somebody else who has this name.
            (SessionSeen::Alive(record), Some(beat)) if record.beat > beat => drop(self.0.remove(at)),
            (SessionSeen::Dead(record), Some(_)) if record.death.as_ref().is_some_and(Death::is_own) => {
                self.0.truncate(at);
            }
            (SessionSeen::Dead(_), Some(_)) => self.0[at].undecided = None,
            _ => {}
        }
    }

    /// Returns their number.
    pub(crate) fn deaths(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

/// Returns how many deaths in a row are usual among those: half of them have no more. Where all die young, of what they
/// run or where, nobody is better than others to leave the tasks to.
pub(crate) fn usual<'a>(
    sessions: &[SessionRecord],
    members: impl Iterator<Item = &'a SessionRecord>,
    now: StoreTime,
) -> u32 {
    let members: Vec<_> = members.map(|member| (member.id, &member.about.holder)).collect();
    let mut by_name: BTreeMap<&Holder, Vec<&SessionRecord>> = BTreeMap::new();
    for session in sessions {
        by_name.entry(&session.about.holder).or_default().push(session);
    }
    let row = |(id, holder): (SessionId, &Holder)| {
        let same = by_name.get(holder).into_iter().flatten().copied();
        Row::among(same, Some(id), now).deaths()
    };
    let mut deaths: Vec<_> = members.into_iter().map(row).collect();
    deaths.sort_unstable();
    deaths.get(deaths.len() / 2).copied().unwrap_or(0)
}

/// Returns whether it ended, or may have, without having lived for long, and not long ago; its last beat counts, since
/// its death was found later. By the store's clock: wrong, it costs nothing but time.
fn died_young(session: &SessionRecord, now: StoreTime) -> bool {
    let closed = session.death.as_ref().is_some_and(Death::is_own);
    let (lived, gone) = (session.beat_at.since(session.started), now.since(session.beat_at));
    !closed && lived < GROWN && gone < REMEMBERED
}

/// Returns how long one is to have lived before it is given tasks, after so many deaths in a row: as long as its death
/// would keep its tasks from everybody, and twice as long with each death more.
pub(crate) fn least_age(deaths: u32, ttl: Duration) -> Duration {
    let Some(doublings) = deaths.checked_sub(1) else { return Duration::ZERO };
    let ttls = (1 << doublings.min(20)).min(MOST_TTLS);
    ttl.saturating_mul(ttls).min(LONGEST_WAIT.max(ttl))
}

#[cfg(test)]
mod tests;

//! Beats of sessions by the viewer's own monotonic clock: nobody is dead because clocks differ. No I/O.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use tenure::{
    clock::Moment,
    model::{Holder, SessionId, StoreTime},
    store::{Beat, Nonce, SessionRecord},
};

/// Most time for which a first look waits for a beat, and at most a fifth of the ttl: an instance beats more often.
const DOUBT: Duration = Duration::from_secs(6);
/// A session that was last seen so long ago is seen for the first time.
const GAP: Duration = Duration::from_secs(15);
/// Clocks that differ by less do not differ, and those that differ by more are told.
const SAME_MS: i64 = 1_000;
const TOLD_MS: i64 = 2_000;

/// A clock that differs from those of the other instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClockAhead {
    /// The instance; none for this machine, which looks.
    pub instance: Option<(SessionId, Holder)>,
    /// Milliseconds by which it is ahead; negative if it is behind.
    pub ahead_ms: i64,
}

/// Beats as they were seen.
#[derive(Debug, Default)]
pub(crate) struct Beats {
    seen: BTreeMap<SessionId, Seen>,
    last: Option<(Moment, StoreTime)>,
    /// First looks wait for beats until then.
    doubt: Option<Moment>,
    /// Milliseconds by which the fleet's clock is ahead of this machine's.
    offset: i64,
}

#[derive(Debug)]
struct Seen {
    holder: Holder,
    ttl: Duration,
    beat: (Beat, Nonce),
    /// First and last sight of this beat, and the last one of the beat before: it was written between the two.
    first: Moment,
    last: Moment,
    before: Option<Moment>,
    /// Milliseconds by which its stamps are ahead of this machine's clock: a guess before it was seen to change.
    ahead: Option<i64>,
}

impl Beats {
    /// Now by the fleet's clock, which most of the beats seen to change are stamped by.
    pub(crate) const fn now(&self, wall: StoreTime) -> StoreTime {
        StoreTime::from_millis(wall.as_millis().saturating_add(self.offset))
    }

    /// Takes in sessions that were asked for and answered then. Returns the time for which a beat is worth waiting for:
    /// clocks alone speak against one of them.
    pub(crate) fn take<'a>(
        &mut self,
        records: impl Iterator<Item = &'a SessionRecord> + Clone,
        asked: Moment,
        answered: Moment,
        wall: StoreTime,
    ) -> Option<Duration> {
        let is_set = |(moment, then)| (ahead(wall, then) - millis(answered.since(moment))).abs() > SAME_MS;
        if self.last.replace((answered, wall)).is_some_and(is_set) {
            *self = Self { last: self.last, ..Self::default() };
        }
        self.seen.retain(|_, seen| asked.since(seen.last) <= GAP.max(seen.ttl / 2));
        for record in records.clone() {
            self.see(record, asked, answered, wall);
        }
        let voices = self.seen.values().filter(|seen| answered.since(seen.first) <= seen.ttl);
        let mut voices: Vec<_> = voices.filter_map(|seen| seen.ahead).collect();
        voices.sort_unstable();
        if let (Some(a), Some(b)) =
            (voices.get(voices.len().saturating_sub(1) / 2), voices.get(voices.len() / 2))
        {
            self.offset = *if a.saturating_abs() < b.saturating_abs() { a } else { b };
        }
        let until = records.filter_map(|record| self.doubted_until(record, wall)).max()?;
        let end = self.doubt.filter(|end| answered.since(*end) <= GAP).unwrap_or(answered + DOUBT);
        self.doubt = Some(end);
        Some(until.min(end).since(answered)).filter(|left| !left.is_zero())
    }

    fn see(&mut self, record: &SessionRecord, asked: Moment, answered: Moment, wall: StoreTime) {
        let Some(ttl) = record.is_alive().then_some(record.ttl) else {
            self.seen.remove(&record.id);
            return;
        };
        let (beat, holder) = ((record.beat, record.nonce), record.about.holder.clone());
        let guess = (!self.is_off(record, wall)).then_some(self.offset);
        let new = Seen { holder, ttl, beat, first: answered, last: asked, before: None, ahead: guess };
        let seen = self.seen.entry(record.id).or_insert(new);
        if seen.beat != beat {
            let least = ahead(record.beat_at, wall);
            let most = least.saturating_add(millis(answered.since(seen.last)));
            let guess = seen.ahead.unwrap_or(0).clamp(least, most);
            seen.ahead = Some(if guess.saturating_abs() < SAME_MS { 0 } else { guess });
            (seen.beat, seen.first, seen.before) = (beat, answered, Some(seen.last));
        }
        seen.last = asked;
    }

    /// Returns whether its stamp is too old, or lies ahead, by the fleet's clock.
    fn is_off(&self, record: &SessionRecord, wall: StoreTime) -> bool {
        let age = ahead(self.now(wall), record.beat_at);
        age > millis(record.ttl) || age < -told(record.ttl)
    }

    /// Clocks alone speak against a session that was not seen to beat.
    fn doubted_until(&self, record: &SessionRecord, wall: StoreTime) -> Option<Moment> {
        let seen = self.seen.get(&record.id).filter(|seen| seen.before.is_none())?;
        self.is_off(record, wall).then(|| seen.first + DOUBT.min(seen.ttl / 5))
    }

    /// Dates its last beat by the fleet's clock, and between the two looks between which it was written.
    pub(crate) fn correct(&self, record: &mut SessionRecord, moment: Moment, wall: StoreTime) {
        let Some(seen) = self.seen.get(&record.id).filter(|seen| seen.beat == (record.beat, record.nonce))
        else {
            return;
        };
        let then = |seen: Moment| self.now(wall).as_millis() - millis(moment.since(seen));
        let own = seen.before.and(seen.ahead).unwrap_or(self.offset);
        let at = record.beat_at.as_millis().saturating_add(self.offset - own);
        let (least, most) = (seen.before.map_or(i64::MIN, |before| then(before) - SAME_MS), then(seen.first));
        record.beat_at = StoreTime::from_millis(if at > most + SAME_MS { most } else { at.max(least) });
    }

    /// The clocks that differ: this machine's from those of most instances, and an instance's from those of the others.
    pub(crate) fn clocks(&self) -> Vec<ClockAhead> {
        let is_told = self.seen.values().any(|seen| self.offset.abs() > told(seen.ttl));
        let own = is_told.then_some(ClockAhead { instance: None, ahead_ms: -self.offset });
        let others = self.seen.iter().filter(|(_, seen)| seen.before.is_some()).filter_map(|(id, seen)| {
            let ahead_ms = seen.ahead?.saturating_sub(self.offset);
            let instance = Some((*id, seen.holder.clone()));
            (ahead_ms.saturating_abs() > told(seen.ttl)).then_some(ClockAhead { instance, ahead_ms })
        });
        own.into_iter().chain(others).collect()
    }
}

/// Milliseconds by which one time is ahead of another.
fn ahead(one: StoreTime, other: StoreTime) -> i64 {
    one.as_millis().saturating_sub(other.as_millis())
}

/// The least difference of clocks that is told, in milliseconds.
fn told(ttl: Duration) -> i64 {
    TOLD_MS.max(millis(ttl / 10))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

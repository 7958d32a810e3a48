//! Beats of sessions for a viewer, by its own monotonic clock: nobody looks dead because clocks differ. For people: no
//! instance is judged by it ([R1](crate::store#rules-of-safety)).

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{Beat, Nonce, SessionRecord};
use crate::{
    clock::Moment,
    model::{Holder, SessionId, StoreTime},
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

/// Beats of sessions, as a viewer sees them change: for people, who cannot watch a session for a whole ttl. It entitles
/// nobody to anything ([R1](crate::store#rules-of-safety)).
///
/// A beat that was seen to change is dated between the two looks, whatever its stamp says. Of a session that was seen once,
/// clocks have to tell; where they speak against it, a second look tells more.
#[derive(Debug, Default)]
pub struct Beats {
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
    #[must_use]
    pub const fn now(&self, wall: StoreTime) -> StoreTime {
        StoreTime::from_millis(wall.as_millis().saturating_add(self.offset))
    }

    /// Takes in sessions that were asked for and answered then. Returns the time for which to look again, where clocks
    /// alone speak against one of them.
    pub fn take<'a>(
        &mut self,
        records: impl Iterator<Item = &'a SessionRecord> + Clone,
        asked: Moment,
        answered: Moment,
        wall: StoreTime,
    ) -> Option<Duration> {
        let drift = |(moment, then)| ahead(wall, then).saturating_sub(millis(answered.since(moment)));
        let is_set = |last| drift(last).saturating_abs() > SAME_MS;
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
        let doubts = records.filter_map(|record| self.doubted_until(record, wall));
        let until = doubts.filter(|until| *until > answered).max()?;
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
    pub fn correct(&self, record: &mut SessionRecord, moment: Moment, wall: StoreTime) {
        let Some(seen) = self.seen.get(&record.id).filter(|seen| seen.beat == (record.beat, record.nonce))
        else {
            return;
        };
        let then = |seen: Moment| self.now(wall).as_millis().saturating_sub(millis(moment.since(seen)));
        let own = seen.before.and(seen.ahead).unwrap_or(self.offset);
        let at = record.beat_at.as_millis().saturating_add(self.offset).saturating_sub(own);
        let (least, most) =
            (seen.before.map_or(i64::MIN, |before| then(before).saturating_sub(SAME_MS)), then(seen.first));
        record.beat_at =
            StoreTime::from_millis(if at > most.saturating_add(SAME_MS) { most } else { at.max(least) });
    }

    /// The clocks that differ: this machine's from those of most instances, and an instance's from those of the others.
    #[must_use]
    pub fn clocks(&self) -> Vec<ClockAhead> {
        let is_told = self.seen.values().any(|seen| self.offset.saturating_abs() > told(seen.ttl));
        let own = is_told.then_some(ClockAhead { instance: None, ahead_ms: self.offset.saturating_neg() });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::About;

    const TTL: Duration = Duration::from_secs(30);

    fn after(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_000 + seconds * 1000)
    }

    fn session(id: u128, beat: u64, beat_at: i64) -> SessionRecord {
        let about = About::new("n".parse().unwrap(), format!("pod-{id}").parse().unwrap());
        let mut record =
            SessionRecord::opened(SessionId::from_u128(id), about, Nonce::new(1), TTL, at(beat_at));
        record.beat = Beat::new(beat);
        record
    }

    /// A look at that second, by a wall clock that is so much ahead. Returns the lives, and the time to look again.
    fn look(
        beats: &mut Beats,
        second: u64,
        ahead: i64,
        records: &[SessionRecord],
    ) -> (Vec<bool>, Option<Duration>) {
        let (moment, wall) = (after(second), at(i64::try_from(second).unwrap() + ahead));
        let wait = beats.take(records.iter(), moment, moment, wall);
        let dead = records.iter().map(|record| {
            let mut record = record.clone();
            beats.correct(&mut record, moment, wall);
            record.looks_dead(beats.now(wall))
        });
        (dead.collect(), wait)
    }

    #[test]
    fn a_session_whose_beat_stands_still_for_its_ttl_looks_dead_whatever_clocks_say() {
        for ahead in [0, 20, 600, -600] {
            let mut beats = Beats::default();
            look(&mut beats, 100, ahead, &[session(1, 1, 99)]);
            for second in [101, 111, 121, 129] {
                let (dead, wait) = look(&mut beats, second, ahead, &[session(1, 2, 101)]);
                assert_eq!((dead, wait), (vec![false], None), "{ahead} s ahead, at {second}");
            }
            assert_eq!(
                look(&mut beats, 133, ahead, &[session(1, 2, 101)]),
                (vec![true], None),
                "{ahead} s ahead"
            );
            let (dead, _) = look(&mut beats, 134, ahead, &[session(1, 3, 134)]);
            assert_eq!(dead, [false], "it beats again, {ahead} s ahead");
        }
    }

    #[test]
    fn a_first_look_is_enough_unless_clocks_speak_against_a_session() {
        let mut beats = Beats::default();
        assert_eq!(
            look(&mut beats, 100, 0, &[session(1, 1, 71), session(2, 1, 101)]),
            (vec![false; 2], None)
        );
        let mut beats = Beats::default();
        let dead = [session(1, 1, 60)];
        assert_eq!(look(&mut beats, 100, 0, &dead).1, Some(DOUBT));
        assert_eq!(look(&mut beats, 104, 0, &dead).1, Some(DOUBT.saturating_sub(Duration::from_secs(4))));
        assert_eq!(look(&mut beats, 106, 0, &dead), (vec![true], None));
        assert_eq!(look(&mut beats, 200, 0, &dead).1, Some(DOUBT), "nobody looked for long");
    }

    #[test]
    fn the_clock_that_differs_from_most_is_told_and_moves_no_other() {
        let mut beats = Beats::default();
        let fleet = |beat, second| {
            [session(1, beat, second), session(2, beat, second), session(3, beat, second + 40)]
        };
        assert_eq!(look(&mut beats, 100, 0, &fleet(1, 100)).0, [false; 3]);
        assert_eq!(look(&mut beats, 101, 0, &fleet(2, 101)), (vec![false; 3], None));
        let told = |beats: &Beats| {
            let told =
                |clock: ClockAhead| (clock.instance.map(|(_, holder)| holder.to_string()), clock.ahead_ms);
            beats.clocks().into_iter().map(told).collect::<Vec<_>>()
        };
        assert_eq!(told(&beats), [(Some("pod-3".to_owned()), 40_000)]);
        // The viewer's clock is set ahead: all is forgotten, and learned anew.
        assert_eq!(look(&mut beats, 102, 60, &fleet(2, 101)).1, Some(DOUBT));
        assert_eq!(look(&mut beats, 103, 60, &fleet(3, 103)), (vec![false; 3], None));
        // A second was between the two looks: of what may be, the least is told.
        assert_eq!(told(&beats)[0], (None, 59_000));
        assert_eq!(told(&beats)[1], (Some("pod-3".to_owned()), 40_000));
    }

    #[test]
    fn stamps_that_make_no_sense_do_no_harm() {
        for stamp in [i64::MIN, i64::MAX] {
            let mut beats = Beats::default();
            for beat in 1..4 {
                let mut record = session(1, beat, 0);
                record.beat_at = StoreTime::from_millis(stamp);
                look(&mut beats, 100 + beat, 0, &[record]);
                assert!(!beats.clocks().is_empty() || beat == 1);
            }
        }
    }
}

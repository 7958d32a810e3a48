//! Observation of other sessions: whether one is dead, by what was seen of it, and for how long (R3).

use std::time::Duration;

use super::flaw::{Flaw, Flaws};
use crate::{
    clock::Moment,
    model::{Holder, Namespace, StoreTime},
    store::{Beat, Evidence, Nonce, SessionRecord, SessionSeen},
};

/// Looks are never closer together than this, whatever the store's clock makes one guess.
const SHORTEST_LOOK: Duration = Duration::from_millis(50);

/// Session of a holder as the lock's record has it, for when the session itself is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) namespace: Namespace,
    pub(crate) holder: Holder,
    pub(crate) ttl: Duration,
}

/// The next thing to do about a session that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Wait until then.
    At(Moment),
    /// Read it.
    Look,
    /// Declare it dead.
    Declare(Evidence),
}

/// State in which a session was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// Beats, or may do so yet.
    Alive,
    /// Late: its next beat is overdue.
    Overdue,
    /// Dead, by majority.
    Dead,
}

#[derive(Clone, Debug)]
enum Mark {
    /// Beat on record.
    Beat { nonce: Nonce, number: Beat, at: StoreTime },
    /// No record at all.
    Missing,
}

#[derive(Clone, Debug)]
struct BeatSeen {
    mark: Mark,
    /// Arrival of the first answer that showed it.
    since: Moment,
    /// Age of the beat at `since`, as far as the store's clock can be estimated.
    age: Duration,
    ttl: Duration,
    overdue: bool,
}

/// Knowledge of one observer about one session.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// As the locks name it; nothing until one did.
    named: Option<Named>,
    flaws: Flaws,
    own_ttl: Duration,
    /// The observer's own pace: no wait between two looks is longer.
    pace: Duration,
    seen: Option<BeatSeen>,
    /// Time between its beats, as far as two sightings tell.
    interval: Option<Duration>,
    next_look: Moment,
    /// Not to be declared before, after a declaration that found another beat or was not answered.
    not_before: Moment,
    dead: bool,
}

impl Observation {
    pub(crate) fn new(own_ttl: Duration, pace: Duration, flaws: Flaws, now: Moment) -> Self {
        Self {
            named: None,
            flaws,
            own_ttl,
            pace,
            seen: None,
            interval: None,
            next_look: now,
            not_before: now,
            dead: false,
        }
    }

    /// A lock's record names it as its holder. The longest ttl counts, should the session be missing.
    pub(crate) fn name(&mut self, named: Named) {
        let longest = self.named.as_ref().is_none_or(|known| known.ttl < named.ttl);
        if longest {
            self.named = Some(named);
        }
    }

    pub(crate) fn liveness(&self) -> Option<Liveness> {
        if self.dead {
            return Some(Liveness::Dead);
        }
        let seen = self.seen.as_ref()?;
        Some(if seen.overdue { Liveness::Overdue } else { Liveness::Alive })
    }

    /// Returns whether it was seen to beat, and its next beat is not due yet. A guess, by the store's clock, for
    /// choices that do no harm if they are wrong.
    pub(crate) fn beats(&self, now: Moment) -> bool {
        let Some(seen) = self.seen.as_ref().filter(|seen| !self.dead && !seen.overdue) else { return false };
        // Beats come up to 2 % earlier than their interval, each by itself.
        let due = self.interval_of(seen.ttl) * 49 / 50;
        matches!(seen.mark, Mark::Beat { .. }) && seen.age + now.since(seen.since) < due
    }

    /// Returns how often it beats; until two of its beats were seen, as often as this observer if its ttl is the same.
    fn interval_of(&self, ttl: Duration) -> Duration {
        let guess = if ttl == self.own_ttl { self.pace } else { ttl / 6 };
        self.interval.unwrap_or(guess).clamp(SHORTEST_LOOK, (ttl / 2).max(SHORTEST_LOOK))
    }

    /// Returns how long the beat that was seen last has been the last.
    pub(crate) fn silent_for(&self, now: Moment) -> Option<Duration> {
        self.seen.as_ref().map(|seen| now.since(seen.since))
    }

    pub(crate) fn due(&self, now: Moment) -> Due {
        if let Some(seen) = &self.seen {
            let ttl = match (&seen.mark, &self.named) {
                (Mark::Beat { .. }, _) if self.flaws.has(Flaw::OwnTtl) => Some(self.own_ttl),
                (Mark::Beat { .. }, _) => Some(seen.ttl),
                (Mark::Missing, named) => named.as_ref().map(|named| named.ttl),
            };
            // A ttl that no record has is never over. What the store cut off of it is added again.
            let over = ttl.map(|ttl| self.not_before.max(seen.since + ttl + Duration::from_millis(1)));
            if let Some(over) = over {
                if now >= over
                    && let Some(ground) = self.ground(seen)
                {
                    return Due::Declare(ground);
                }
                return if now >= self.next_look { Due::Look } else { Due::At(over.min(self.next_look)) };
            }
        }
        if now >= self.next_look { Due::Look } else { Due::At(self.next_look) }
    }

    fn ground(&self, seen: &BeatSeen) -> Option<Evidence> {
        match (&seen.mark, &self.named) {
            (Mark::Beat { .. }, _) if self.flaws.has(Flaw::UnnamedBeat) => Some(Evidence::Operator),
            (Mark::Beat { nonce, .. }, _) => Some(Evidence::Unbeaten { nonce: *nonce }),
            (Mark::Missing, Some(Named { namespace, holder, ttl })) => {
                Some(Evidence::Missing { namespace: namespace.clone(), holder: holder.clone(), ttl: *ttl })
            }
            (Mark::Missing, None) => None,
        }
    }

    /// A read or a declaration was answered: sent then, arrived now.
    pub(crate) fn answered(
        &mut self,
        sent: Moment,
        now: Moment,
        sighting: &SessionSeen,
        store_now: Option<StoreTime>,
    ) -> Liveness {
        match sighting {
            SessionSeen::Dead(_) => self.dead = true,
            // It counts as alive, and is never declared.
            SessionSeen::Refused(_) => {
                self.seen = None;
                self.next_look = now + self.pace;
                return Liveness::Alive;
            }
            SessionSeen::Missing => {
                if !matches!(self.seen, Some(BeatSeen { mark: Mark::Missing, .. })) {
                    self.see(sent, now, Mark::Missing, Duration::ZERO);
                }
                self.next_look = now + self.pace;
            }
            SessionSeen::Alive(record) => self.alive(sent, now, record, store_now),
        }
        self.liveness().unwrap_or(Liveness::Alive)
    }

    /// Makes the next look due now.
    pub(crate) fn hurry(&mut self, now: Moment) {
        self.next_look = self.next_look.min(now);
    }

    /// A read or a declaration failed.
    pub(crate) fn failed(&mut self, now: Moment, wait: Duration) {
        self.next_look = now + wait;
        self.not_before = now + wait;
    }

    fn see(&mut self, sent: Moment, now: Moment, mark: Mark, ttl: Duration) {
        let since = if self.flaws.has(Flaw::CountFromSending) { sent } else { now };
        self.seen = Some(BeatSeen { mark, since, age: Duration::ZERO, ttl, overdue: false });
    }

    fn alive(&mut self, sent: Moment, now: Moment, record: &SessionRecord, store_now: Option<StoreTime>) {
        let mark = Mark::Beat { nonce: record.nonce, number: record.beat, at: record.beat_at };
        match &mut self.seen {
            Some(BeatSeen { mark: Mark::Beat { nonce, .. }, .. }) if *nonce == record.nonce => {}
            Some(seen) if self.flaws.has(Flaw::AnyBeat) => seen.mark = mark,
            Some(BeatSeen { mark: Mark::Beat { number, at, .. }, .. }) => {
                let beats = record.beat.get().saturating_sub(number.get());
                if let Ok(beats) = u32::try_from(beats)
                    && beats > 0
                {
                    self.interval = Some(record.beat_at.since(*at) / beats);
                }
                self.see(sent, now, mark, record.ttl);
            }
            _ => self.see(sent, now, mark, record.ttl),
        }
        // Just after the next beat is due, so that what is seen is fresh. A guess, and bounded: the
        // store's clock may stand anywhere.
        let interval = self.interval_of(record.ttl);
        let age = store_now.map_or(Duration::ZERO, |store| store.since(record.beat_at)).min(record.ttl);
        let after_due = (interval / 20).min(Duration::from_millis(250));
        let overdue = age > interval + after_due * 2;
        if let Some(seen) = &mut self.seen {
            seen.overdue = overdue;
            seen.age = age.saturating_sub(now.since(seen.since));
        }
        let wait = if overdue { interval / 4 } else { (interval + after_due).saturating_sub(age) };
        self.next_look = now + wait.clamp(SHORTEST_LOOK, self.pace.max(SHORTEST_LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::SessionId, store::About};

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    fn named(ttl: Duration) -> Named {
        Named { namespace: "n".parse().unwrap(), holder: "pod".parse().unwrap(), ttl }
    }

    fn beat(number: u64, nonce: u64, beat_at: i64) -> SessionSeen {
        let about = About::new("n".parse().unwrap(), "pod".parse().unwrap());
        let (id, nonce, at) = (SessionId::from_u128(1), Nonce::new(nonce), StoreTime::from_millis(beat_at));
        let opened = SessionRecord::opened(id, about, nonce, TTL, at);
        SessionSeen::Alive(SessionRecord { beat: Beat::new(number), ..opened })
    }

    fn observation() -> Observation {
        let mut seen = Observation::new(3 * SECOND, 5 * SECOND, Flaws::default(), at(0));
        seen.name(named(TTL));
        seen
    }

    #[test]
    fn a_beat_that_stands_for_its_whole_ttl_since_the_first_answer_is_declared() {
        let mut seen = observation();
        assert_eq!(seen.due(at(0)), Due::Look);
        seen.answered(at(0), at(2), &beat(3, 33, 0), None);
        for second in (7..32).step_by(5) {
            assert_eq!(seen.due(at(second)), Due::Look, "{second}");
            seen.answered(at(second), at(second), &beat(3, 33, 0), None);
        }
        assert!(matches!(seen.due(at(32)), Due::At(_) | Due::Look));
        assert_eq!(seen.due(at(33)), Due::Declare(Evidence::Unbeaten { nonce: Nonce::new(33) }));
    }

    #[test]
    fn the_same_beat_with_another_nonce_starts_a_new_count() {
        let mut seen = observation();
        seen.answered(at(0), at(0), &beat(3, 33, 0), None);
        seen.answered(at(29), at(29), &beat(3, 34, 0), None);
        assert!(!matches!(seen.due(at(58)), Due::Declare(_)));
        assert_eq!(seen.due(at(60)), Due::Declare(Evidence::Unbeaten { nonce: Nonce::new(34) }));
    }

    #[test]
    fn a_missing_session_is_watched_for_the_ttl_the_lock_carries() {
        let mut seen = observation();
        seen.name(named(TTL + SECOND));
        seen.answered(at(0), at(0), &beat(3, 33, 0), None);
        seen.answered(at(20), at(20), &SessionSeen::Missing, None);
        assert!(!matches!(seen.due(at(51)), Due::Declare(_)));
        assert!(matches!(seen.due(at(52)), Due::Declare(Evidence::Missing { .. })));
        seen.answered(at(52), at(52), &beat(4, 35, 0), None);
        assert!(!matches!(seen.due(at(81)), Due::Declare(_)));
    }

    #[test]
    fn a_refused_record_counts_as_alive_for_ever() {
        let mut seen = observation();
        seen.answered(at(0), at(0), &beat(3, 33, 0), None);
        for second in (5..500).step_by(5) {
            assert_eq!(seen.due(at(second)), Due::Look);
            let refused = SessionSeen::Refused(crate::store::Refusal::Foreign);
            assert_eq!(seen.answered(at(second), at(second), &refused, None), Liveness::Alive);
            // It is looked for at the observer's pace, not without a pause.
            assert_eq!(seen.due(at(second)), Due::At(at(second + 5)));
        }
    }

    #[test]
    fn a_missing_session_is_looked_for_at_the_observers_pace_and_by_the_longest_ttl_that_a_lock_carries() {
        let mut seen = observation();
        seen.name(named(TTL + SECOND));
        seen.name(named(TTL));
        for second in [0, 5, 10, 15, 20, 25] {
            assert_eq!(seen.due(at(second)), Due::Look);
            assert_eq!(seen.answered(at(second), at(second), &SessionSeen::Missing, None), Liveness::Alive);
            assert_eq!(seen.due(at(second)), Due::At(at(second + 5)));
        }
        assert!(!matches!(seen.due(at(31)), Due::Declare(_)));
        let Due::Declare(Evidence::Missing { ttl, .. }) = seen.due(at(32)) else {
            panic!("its time is over")
        };
        assert_eq!(ttl, TTL + SECOND);
    }

    #[test]
    fn a_missing_session_that_no_lock_names_is_never_declared() {
        let mut seen = Observation::new(3 * SECOND, 5 * SECOND, Flaws::default(), at(0));
        for second in (0..500).step_by(5) {
            assert_eq!(seen.due(at(second)), Due::Look);
            seen.answered(at(second), at(second), &SessionSeen::Missing, None);
        }
    }

    #[test]
    fn a_declaration_that_failed_waits_and_then_still_names_the_beat() {
        let mut seen = observation();
        seen.answered(at(0), at(0), &beat(3, 33, 0), None);
        assert!(matches!(seen.due(at(31)), Due::Declare(_)));
        seen.failed(at(31), 2 * SECOND);
        assert_eq!(seen.due(at(31)), Due::At(at(33)));
        assert_eq!(seen.due(at(33)), Due::Declare(Evidence::Unbeaten { nonce: Nonce::new(33) }));
        assert_eq!(seen.silent_for(at(33)), Some(33 * SECOND));
    }

    #[test]
    fn dead_is_for_ever() {
        let mut seen = observation();
        assert_eq!(seen.liveness(), None);
        let SessionSeen::Alive(record) = beat(3, 33, 0) else { unreachable!("it is alive") };
        assert_eq!(seen.answered(at(0), at(0), &SessionSeen::Dead(record), None), Liveness::Dead);
        assert_eq!(seen.answered(at(1), at(1), &beat(4, 34, 0), None), Liveness::Dead);
        assert_eq!(seen.liveness(), Some(Liveness::Dead));
    }

    #[test]
    fn looks_fall_just_after_the_next_beat_is_due() {
        let mut seen = observation();
        // Beats of a session that beats every two seconds; the first is seen half a second old.
        let store = |millis| Some(StoreTime::from_millis(millis));
        seen.answered(at(10), at(10), &beat(1, 1, 1_000), store(1_500));
        seen.answered(at(14), at(14), &beat(3, 3, 5_000), store(5_500));
        let look = Moment::after_start(Duration::from_millis(14_000 + 1_600));
        assert_eq!(seen.due(at(14)), Due::At(look));
        // The beat does not come: it is overdue, and looked for more often.
        assert_eq!(seen.answered(look, look, &beat(3, 3, 5_000), store(7_300)), Liveness::Overdue);
        assert_eq!(seen.due(look), Due::At(look + Duration::from_millis(500)));
    }

    #[test]
    fn a_session_beats_from_a_sighting_until_its_next_beat_is_due() {
        let store = |millis| Some(StoreTime::from_millis(millis));
        let millis = |millis| Moment::after_start(Duration::from_millis(millis));
        let mut seen = observation();
        assert!(!seen.beats(at(0)), "it was never seen");
        // A sixth of its ttl is guessed, less what beats come early; the first is seen two seconds old.
        seen.answered(at(10), at(10), &beat(1, 1, 1_000), store(3_000));
        assert!(seen.beats(millis(12_899)) && !seen.beats(millis(12_900)));
        // The same beat again is no younger for that.
        seen.answered(at(12), at(12), &beat(1, 1, 1_000), store(5_000));
        assert!(seen.beats(millis(12_899)) && !seen.beats(millis(12_900)));
        // It beats every three seconds.
        seen.answered(at(13), at(13), &beat(2, 2, 4_000), store(6_000));
        assert!(seen.beats(millis(13_939)) && !seen.beats(millis(13_940)));
        seen.answered(at(15), at(15), &SessionSeen::Missing, store(8_000));
        assert!(!seen.beats(at(15)), "nothing is known of it");
    }

    #[test]
    fn a_session_with_the_observers_own_ttl_is_taken_to_beat_as_often() {
        let mut seen = Observation::new(TTL, 2 * SECOND, Flaws::default(), at(0));
        seen.answered(at(10), at(10), &beat(1, 1, 1_000), Some(StoreTime::from_millis(1_000)));
        assert!(seen.beats(at(11)) && !seen.beats(at(12)));
    }

    #[test]
    fn a_crazy_store_clock_moves_no_look_beyond_the_observers_pace_and_no_death() {
        for store in [i64::MIN, 0, i64::MAX] {
            let mut seen = observation();
            seen.answered(at(0), at(0), &beat(1, 1, 1_000_000), Some(StoreTime::from_millis(store)));
            assert!(matches!(seen.due(at(5)), Due::Look));
            assert!(matches!(seen.due(at(31)), Due::Declare(_)));
            assert!(!matches!(seen.due(at(29)), Due::Declare(_)));
        }
    }
}

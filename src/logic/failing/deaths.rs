//! Tasks and members whose processes die: how many times in a row, and how long each pauses before its next start.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    backoff::fraction,
    model::{Holder, SessionId, StoreTime},
    store::{Death, DeathRow, Ended, Note, Past, SessionRecord},
};

/// Pauses after so many deaths in a row, in seconds; after more, as after the last one. Chance kills no task three
/// times within minutes, and one that kills again and again costs a process each ten minutes.
const PAUSES: [u64; 9] = [0, 0, 0, 10, 30, 60, 180, 300, 600];
/// After so long a time of running the next death begins another row.
pub(crate) const WELL: Duration = Duration::from_secs(5 * 60);
/// After so many in a row a task is not moved to even out the counts: what dies together would move together.
const AGAIN: u32 = 2;
/// A death is of no interest after so long: longer than a row whose pauses have grown.
const REMEMBERED: Duration = Duration::from_secs(2 * 60 * 60);

/// Deaths in a row as they count now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) row: DeathRow,
    /// For so long the task has run since the last of them.
    ran: Duration,
}

impl Counted {
    /// Returns when the row is over, for a holder that has had the task since then.
    pub(crate) fn lasts_until(self, taken: StoreTime) -> StoreTime {
        taken.plus(WELL.saturating_sub(self.ran))
    }

    /// Returns whether the task is not moved to even out the counts.
    pub(crate) const fn stays(self) -> bool {
        self.row.deaths >= AGAIN
    }
}

/// Returns the pause before the next start, after so many deaths in a row.
pub(crate) fn pause(deaths: u32) -> Duration {
    Duration::from_secs(PAUSES[(deaths as usize).min(PAUSES.len() - 1)])
}

/// The longest row of a task that one death left behind, that death counted in, and whether several have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Longest {
    deaths: u32,
    is_shared: bool,
}

impl Longest {
    /// Of the rows of these tasks as they were before.
    pub(crate) fn of(rows: &[u32]) -> Self {
        let longest = rows.iter().copied().max().unwrap_or(0);
        Self {
            deaths: longest.saturating_add(1),
            is_shared: rows.iter().filter(|row| **row == longest).count() > 1,
        }
    }

    /// Returns the pause of a task with so many deaths before its next start. Of several with the longest row each has a
    /// part of it that is as random as `roll`: so what died together comes back apart.
    pub(crate) fn pause(self, deaths: u32, roll: u64) -> Duration {
        match deaths {
            less if less < self.deaths => Duration::ZERO,
            same if same == self.deaths && self.is_shared => fraction(pause(same), roll),
            more => pause(more),
        }
    }
}

/// A session, as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    holder: Holder,
    started: StoreTime,
    last_beat: StoreTime,
    ttl: Duration,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Alive,
    Closed,
    Died,
}

/// The sessions that were seen lately, and how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deaths {
    seen: BTreeMap<SessionId, Seen>,
    /// The process that asks: it lives.
    own: Option<u64>,
}

impl Deaths {
    /// Sets the process that asks.
    pub(crate) const fn ask_for(&mut self, process: u64) {
        self.own = Some(process);
    }

    /// Takes note of a session's record.
    pub(crate) fn learn(&mut self, record: &SessionRecord) {
        let end = match &record.death {
            None => End::Alive,
            Some(death) if Death::is_own(death) => End::Closed,
            Some(_) => End::Died,
        };
        let (holder, started) = (record.about.holder.clone(), record.started);
        let seen = Seen { holder, started, last_beat: record.beat_at, ttl: record.ttl, end };
        // A read from before its end may come later.
        if end != End::Alive || self.seen.get(&record.id).is_none_or(|known| known.end == End::Alive) {
            self.seen.insert(record.id, seen);
        }
    }

    /// Forgets sessions so old that no row has them.
    pub(crate) fn forget(&mut self, now: StoreTime) {
        self.seen.retain(|_, seen| now.since(seen.last_beat) < REMEMBERED);
    }

    /// A process did not die with its session if it has a later one.
    fn is_outlived(&self, id: SessionId, session: &Seen) -> bool {
        let first = SessionId::from_u128(u128::from(id.process()) << 64);
        let mut same = self.seen.range(first..).take_while(|(other, _)| other.process() == id.process());
        self.own == Some(id.process())
            || same.any(|(other, seen)| *other != id && seen.started >= session.started)
    }

    /// Returns whether the process that had a task is known to go on, or to have ended in order.
    fn is_well(&self, holding: &Past) -> bool {
        let session = holding.session.and_then(|id| Some((id, self.seen.get(&id)?)));
        session.is_some_and(|(id, seen)| seen.end == End::Closed || self.is_outlived(id, seen))
    }

    /// For how long a holder had a task and was seen to live.
    fn time_of(&self, holding: &Past) -> Duration {
        let seen = holding.session.and_then(|id| self.seen.get(&id));
        seen.map_or(holding.to, |seen| seen.last_beat.min(holding.to)).since(holding.from)
    }

    /// The row of a task, from its last holders, the latest first.
    pub(crate) fn of_task(&self, past: &[Past]) -> Option<Counted> {
        let (mut counted, mut ran): (Option<Counted>, _) = (None, Duration::ZERO);
        let and = |counted: Option<Counted>, more: u32, since, ran| {
            let deaths = counted.map_or(0, |one| one.row.deaths).saturating_add(more);
            Counted { row: DeathRow { deaths, since }, ran: counted.map_or(ran, |one| one.ran) }
        };
        for one in past {
            if ran >= WELL {
                break;
            }
            if let Some(Note::Dying(before)) = &one.note {
                return Some(and(counted, before.deaths, before.since, ran));
            }
            if one.how == Ended::Died && !self.is_well(one) {
                counted = Some(and(counted, 1, one.to, ran));
                ran = self.time_of(one);
            } else {
                ran += self.time_of(one);
            }
        }
        counted
    }

    /// The deaths in a row of processes of that name, before this session. One that may still live counts if it is
    /// silent.
    pub(crate) fn of_member(&self, holder: &Holder, own: SessionId, now: StoreTime) -> u32 {
        let same = self.seen.iter().filter(|(_, seen)| seen.holder == *holder);
        let mut same: Vec<_> = same.filter(|(id, _)| id.process() != own.process()).collect();
        same.sort_unstable_by_key(|(id, seen)| (seen.started, **id));
        let mut deaths = 0;
        for (id, seen) in same {
            let is_silent = now.since(seen.last_beat) > seen.ttl / 3;
            if seen.end == End::Closed {
                deaths = 0;
            } else if self.is_outlived(*id, seen) || seen.end == End::Alive && !is_silent {
                // It did not die.
            } else if seen.last_beat.since(seen.started) >= WELL + pause(deaths) {
                deaths = 1;
            } else {
                deaths += 1;
            }
        }
        deaths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Term, Why},
        store::{About, Beat, Nonce},
    };

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(30);

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    fn holder(name: &str) -> Holder {
        name.parse().unwrap()
    }

    fn id(process: u128, session: u128) -> SessionId {
        SessionId::from_u128(process << 64 | session)
    }

    /// A session that began then, and beat for the last time then.
    fn session(
        name: &str,
        id: SessionId,
        began: i64,
        beat: i64,
        death: impl Into<Option<Death>>,
    ) -> SessionRecord {
        let death = death.into();
        let about = About::new("n".parse().unwrap(), holder(name));
        let opened = SessionRecord::opened(id, about, Nonce::new(1), TTL, at(began));
        SessionRecord { beat: Beat::new(9), beat_at: at(beat), death, ..opened }
    }

    fn died(at_second: i64) -> Death {
        Death { at: at(at_second), by: holder("x"), why: Why::new("it did not beat").unwrap() }
    }

    fn closed(at_second: i64) -> Death {
        Death { why: Death::own(), ..died(at_second) }
    }

    fn had(name: &str, from: i64, to: i64) -> Past {
        Past::new(holder(name), Term::new(7), at(from), at(to), Ended::Died)
    }

    fn gave(name: &str, from: i64, to: i64) -> Past {
        Past { how: Ended::HandedOver, ..had(name, from, to) }
    }

    fn deaths(past: &[Past]) -> u32 {
        Deaths::default().of_task(past).map_or(0, |counted| counted.row.deaths)
    }

    #[test]
    fn the_last_holders_that_died_count_until_it_ran_for_five_minutes() {
        assert_eq!(deaths(&[]), 0);
        assert_eq!(deaths(&[had("b", 100, 140), had("a", 0, 40)]), 2);
        assert_eq!(deaths(&[had("c", 100, 140), gave("b", 50, 90), had("a", 0, 40)]), 2, "moved, in between");
        assert_eq!(deaths(&[had("c", 400, 440), gave("b", 50, 350), had("a", 0, 40)]), 1, "it ran well");
        assert_eq!(deaths(&[gave("c", 400, 700), had("b", 50, 90)]), 0);
        let twice = [had("d", 400, 440), gave("c", 200, 350), gave("b", 50, 200), had("a", 0, 40)];
        assert_eq!(deaths(&twice), 1, "5 min in all, wherever");
        assert_eq!(
            deaths(&[had("b", 400, 440), had("a", 0, 390)]),
            2,
            "one that it killed late begins a row"
        );
        assert_eq!(deaths(&[had("c", 400, 440), had("b", 45, 390), had("a", 0, 40)]), 2);
    }

    #[test]
    fn a_pause_is_noted_and_the_row_goes_on_after_it() {
        let row =
            Deaths::default().of_task(&[had("c", 200, 240), had("b", 100, 140), had("a", 0, 40)]).unwrap();
        assert_eq!(row, Counted { row: DeathRow { deaths: 3, since: at(40) }, ran: Duration::ZERO });
        let paused = Past { note: Some(Note::Dying(row.row)), ..gave("d", 245, 246) };
        assert_eq!(deaths(std::slice::from_ref(&paused)), 3);
        let again = Deaths::default().of_task(&[had("a", 260, 300), paused.clone()]).unwrap();
        assert_eq!((again.row.deaths, again.row.since), (4, at(40)));
        assert_eq!(deaths(&[had("a", 700, 740), gave("b", 260, 660), paused]), 1, "it ran well");
    }

    #[test]
    fn a_process_with_a_later_session_did_not_die() {
        let mut deaths = Deaths::default();
        let under = |session, holding: Past| Past { session: Some(session), ..holding };
        let past = [under(id(2, 1), had("b", 100, 140)), under(id(1, 1), had("a", 0, 40))];
        deaths.learn(&session("a", id(1, 1), 0, 10, died(40)));
        deaths.learn(&session("b", id(2, 1), 0, 110, died(140)));
        assert_eq!(deaths.of_task(&past).map(|counted| counted.row.deaths), Some(2));
        deaths.learn(&session("a", id(1, 2), 60, 200, None));
        assert_eq!(deaths.of_task(&past).map(|counted| counted.row.deaths), Some(1));
        deaths.ask_for(2);
        assert_eq!(deaths.of_task(&past), None, "the own process lives");
        deaths.ask_for(9);
        deaths.learn(&session("b", id(3, 1), 150, 200, None));
        assert_eq!(
            deaths.of_task(&past).map(|counted| counted.row.deaths),
            Some(1),
            "another process of that name"
        );
        deaths.learn(&session("b", id(2, 2), 150, 200, died(240)));
        assert_eq!(deaths.of_task(&past), None, "that later one died counts for what it had then");
        let mut closed_itself = Deaths::default();
        closed_itself.learn(&session("a", id(1, 1), 0, 10, closed(20)));
        assert_eq!(closed_itself.of_task(&past[1..]), None);
        closed_itself.forget(at(2 * 60 * 60 + 11));
        assert_eq!(closed_itself, Deaths::default());
    }

    #[test]
    fn a_member_has_the_row_of_the_processes_of_its_name() {
        let row = |sessions: &[SessionRecord], now: i64| {
            let mut deaths = Deaths::default();
            for session in sessions {
                deaths.learn(session);
            }
            deaths.of_member(&holder("a"), id(9, 1), at(now))
        };
        let one = |process: u128, began: i64, beat: i64, death: Option<Death>| {
            session("a", id(process, 1), began, beat, death)
        };
        let two = [one(1, 0, 20, died(50).into()), one(2, 60, 80, died(110).into()), one(9, 120, 130, None)];
        assert_eq!(row(&two, 130), 2);
        assert_eq!(
            row(&[two[0].clone(), one(2, 60, 80, closed(80).into())], 130),
            0,
            "closed: it begins anew"
        );
        assert_eq!(
            row(&[one(1, 0, 20, died(50).into()), one(2, 60, 360, died(390).into())], 400),
            1,
            "it lived for 5 min"
        );
        let waited = [
            one(1, 0, 20, died(50).into()),
            one(2, 60, 80, died(110).into()),
            one(3, 120, 140, died(170).into()),
            one(4, 180, 485, died(500).into()),
        ];
        assert_eq!(row(&waited, 500), 4, "10 s of its life were a pause");
        assert_eq!(row(&[session("b", id(1, 1), 0, 20, died(50))], 100), 0, "another name");
        assert_eq!(row(&[one(9, 0, 20, died(50).into())], 100), 0, "of this process");
        assert_eq!(
            row(&[one(1, 0, 20, died(50).into()), one(1, 60, 80, died(110).into())], 120),
            1,
            "of one process"
        );
        assert_eq!((row(&[one(1, 0, 20, None)], 29), row(&[one(1, 0, 20, None)], 31)), (0, 1), "silent");
    }

    #[test]
    fn pauses_grow_up_to_ten_minutes() {
        for (deaths, whole) in
            [(0, 0), (1, 0), (2, 0), (3, 10), (4, 30), (5, 60), (6, 180), (7, 300), (8, 600), (99, 600)]
        {
            assert_eq!(pause(deaths), SECOND * whole);
        }
    }

    #[test]
    fn of_what_one_death_left_behind_those_with_the_longest_row_pause_and_come_back_apart() {
        let half = 1 << 63;
        let one = Longest::of(&[3, 0, 2]);
        assert_eq!([3, 4, 5].map(|deaths| one.pause(deaths, half)), [0, 30, 60].map(|pause| SECOND * pause));
        let two = Longest::of(&[3, 0, 3]);
        assert_eq!([3, 4, 5].map(|deaths| two.pause(deaths, half)), [0, 15, 60].map(|pause| SECOND * pause));
        assert_eq!(Longest::of(&[]).pause(3, half), SECOND * 10, "nothing is known of it");
    }

    #[test]
    fn a_task_with_two_deaths_in_a_row_stays_where_it_is_until_the_row_is_over() {
        let until = |past: &[Past]| {
            let row = Deaths::default().of_task(past)?;
            row.stays().then(|| row.lasts_until(at(500)).since(at(500)).as_secs())
        };
        assert_eq!(until(&[had("a", 0, 40)]), None);
        assert_eq!(until(&[had("b", 100, 140), had("a", 0, 40)]), Some(300));
        assert_eq!(until(&[gave("c", 150, 250), had("b", 100, 140), had("a", 0, 40)]), Some(200));
        let row = Deaths::default().of_task(&[had("b", 100, 140), had("a", 0, 40)]).unwrap();
        let paused = Past { note: Some(Note::Dying(row.row)), ..gave("c", 145, 146) };
        assert_eq!(until(&[gave("d", 200, 260), paused]), Some(240));
    }
}

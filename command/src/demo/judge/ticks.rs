//! Every tick runs, and once: again only if its runner may have died before the store knew that it was done.

use std::time::Duration;

use tenure::clock::Moment;

use super::{Bounds, Verdict, after as known, count, seconds, stalled};
use crate::demo::record::{Attempt, Freeze, Record, TickEnd};

/// The schedule ticks every second.
const EVERY_MS: i64 = 1000;
/// Time within which a store that answers knows that a tick is done.
const KNOWN: Duration = Duration::from_secs(2);

pub(super) fn ticks(record: &Record, bounds: &Bounds) -> Verdict {
    let mut broken = record.not_run.clone();
    let mut first_starts = Vec::new();
    let mut again = 0;
    for (instant, attempts) in &record.ticks {
        let mut attempts: Vec<&Attempt> = attempts.iter().collect();
        attempts.sort_by_key(|attempt| attempt.began);
        first_starts.extend(attempts.first().map(|attempt| attempt.began));
        again += attempts.len().saturating_sub(1);
        for pair in attempts.windows(2) {
            if !may_be_begun_again(record, pair[0], pair[1]) {
                let name = |attempt: &Attempt| &record.instances[attempt.instance].name;
                let (before, after) = (name(pair[0]), name(pair[1]));
                broken.push(format!("{} ran at {before}, and again at {after}", of_day(*instant)));
            }
        }
    }
    broken.extend(missing(record));
    broken.extend(standstill(record, bounds, &first_starts));
    let done = record.ticks.values().filter(|attempts| attempts.iter().any(is_done)).count();
    let mut seen = Vec::new();
    if done > 0 {
        let more = if again == 0 {
            ", each once".to_owned()
        } else {
            format!(", {again} begun again as its runner was gone, or had no answer, at its end")
        };
        seen.push(format!(
            "{}{more}; longest wait between two {}",
            count(done, "tick"),
            longest(&first_starts)
        ));
    }
    Verdict::new("every tick runs, and once unless its runner dies", seen, broken)
}

fn is_done(attempt: &Attempt) -> bool {
    matches!(attempt.end, Some((_, TickEnd::Done)))
}

/// The attempt before was told to stop; or its process may have died, stood still, or lost its session before the store
/// knew that it was done.
fn may_be_begun_again(record: &Record, before: &Attempt, after: &Attempt) -> bool {
    let instance = &record.instances[before.instance];
    let (began, until) = match before.end {
        Some((_, TickEnd::Stopped)) => return true,
        Some((done, TickEnd::Done)) => (before.began, after.began.min(known(record, done, KNOWN))),
        None => (before.began, after.began),
    };
    let meets = |from: Moment, to: Moment| from <= until && began <= to;
    let freezes = |freeze: &Freeze| meets(freeze.from, freeze.to.unwrap_or(after.began));
    instance.death.is_some_and(|death| meets(death.from, death.gone))
        || instance.freezes.iter().any(freezes)
        || instance.lost.iter().any(|lost| meets(*lost, *lost))
}

/// Ticks between the first and the last that are not done.
fn missing(record: &Record) -> Vec<String> {
    let done = |instant: &i64| record.ticks.get(instant).is_some_and(|attempts| attempts.iter().any(is_done));
    let (Some(first), Some(last)) =
        (record.ticks.keys().next(), record.ticks.keys().rev().find(|at| done(at)))
    else {
        return Vec::new();
    };
    let mut instants =
        std::iter::successors(Some(*first), |at| Some(at + EVERY_MS)).take_while(|at| at <= last);
    let mut missing = Vec::new();
    for instant in instants.by_ref().filter(|at| !done(at)) {
        missing.push(format!("{} was not run", of_day(instant)));
    }
    missing
}

/// For a longer time than any takeover takes nothing ticked.
fn standstill(record: &Record, bounds: &Bounds, starts: &[Moment]) -> Option<String> {
    let end = record.closing?;
    let ready = record.instances.iter().filter_map(|instance| instance.ready).min()?;
    let mut starts: Vec<Moment> = starts.iter().copied().filter(|at| *at < end).collect();
    starts.push(ready);
    starts.push(end);
    starts.sort_unstable();
    let (from, to) = starts.windows(2).map(|pair| (pair[0], pair[1])).max_by_key(|(a, b)| b.since(*a))?;
    let deaths = record
        .changes
        .iter()
        .filter(|change| change.what.takes_away() && change.at <= to && change.at + bounds.frozen >= from);
    let more = u32::try_from(deaths.count()).unwrap_or(u32::MAX).max(1);
    let allowed = bounds.frozen.saturating_mul(more) + Duration::from_secs(1) + stalled(record, from, to);
    (to.since(from) > allowed).then(|| format!("nothing ticked for {}", seconds(to.since(from))))
}

fn longest(starts: &[Moment]) -> String {
    let mut starts = starts.to_vec();
    starts.sort_unstable();
    seconds(starts.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap_or_default())
}

/// `the tick at 12:26:40`, in UTC.
fn of_day(instant: i64) -> String {
    let second = instant.div_euclid(1000).rem_euclid(86_400);
    format!("the tick at {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        judge::Kept,
        message::InstanceMessage,
        record::{
            Death,
            tests::{PULSE, at, fleet},
        },
    };

    const BOUNDS: Bounds = Bounds {
        ttl: Duration::from_secs(3),
        killed: Duration::from_secs(1),
        frozen: Duration::from_secs(5),
        notices: Duration::from_secs(1),
        even: Duration::from_secs(15),
    };

    fn ran(record: &mut Record, who: usize, second: i64, attempt: u32, ms: u64) {
        let instant = second * 1000;
        record.hear(who, at(ms), InstanceMessage::TickBegan { instant, attempt });
        record.hear(who, at(ms + 30), InstanceMessage::TickDone { instant, attempt });
        // In between they ran, though they have not said so here.
        record.instances.iter_mut().for_each(|instance| instance.stalls.clear());
    }

    #[test]
    fn ticks_that_run_once_each_keep_the_promise() {
        let mut record = fleet(1, 0);
        for second in 1..=3 {
            ran(&mut record, 0, second, 1, u64::try_from(second).unwrap() * 1000);
        }
        record.closing = Some(at(3500));
        let verdict = ticks(&record, &BOUNDS);
        assert_eq!(verdict.kept, Kept::Held);
        assert_eq!(verdict.seen, ["3 ticks, each once; longest wait between two 1.00 s"]);
    }

    #[test]
    fn a_tick_may_run_twice_after_a_kill_alone() {
        let mut record = fleet(2, 0);
        ran(&mut record, 0, 1, 1, 1000);
        ran(&mut record, 1, 1, 2, 1400);
        let verdict = ticks(&record, &BOUNDS);
        assert_eq!(verdict.broken, ["the tick at 00:00:01 UTC ran at demo-1, and again at demo-2"]);
        record.instances[0].death = Some(Death { from: at(1035), gone: at(1050) });
        assert_eq!(ticks(&record, &BOUNDS).kept, Kept::Held);
        // A death that came later is no excuse.
        record.instances[0].death = Some(Death { from: at(1600), gone: at(1605) });
        assert_eq!(ticks(&record, &BOUNDS).kept, Kept::Broken);
        // Nor is one so long after it that the store knew.
        record.ticks.clear();
        ran(&mut record, 0, 1, 1, 1000);
        ran(&mut record, 1, 1, 2, 9000);
        record.instances[0].death = Some(Death { from: at(8000), gone: at(8005) });
        assert_eq!(ticks(&record, &BOUNDS).kept, Kept::Broken);
    }

    #[test]
    fn a_store_that_does_not_answer_does_not_know_that_it_is_done() {
        let mut record = fleet(2, 0);
        ran(&mut record, 0, 1, 1, 1000);
        record.hear(0, at(4500), InstanceMessage::Lost { why: "expired".to_owned() });
        ran(&mut record, 1, 1, 2, 6000);
        assert_eq!(ticks(&record, &BOUNDS).kept, Kept::Broken);
        record.instances[0].stalls = vec![(at(1500), at(4500))];
        assert_eq!(ticks(&record, &BOUNDS).kept, Kept::Held);
    }

    #[test]
    fn a_tick_that_was_stopped_may_begin_again() {
        let mut record = fleet(2, 0);
        record.hear(0, at(1000), InstanceMessage::TickBegan { instant: 1000, attempt: 1 });
        record.hear(0, at(1010), InstanceMessage::TickStopped { instant: 1000, attempt: 1 });
        ran(&mut record, 1, 1, 2, 1400);
        assert_eq!(ticks(&record, &BOUNDS).kept, Kept::Held);
    }

    #[test]
    fn a_missing_tick_is_reported_and_an_unfinished_last_one_is_not() {
        let mut record = fleet(1, 0);
        ran(&mut record, 0, 1, 1, 1000);
        ran(&mut record, 0, 3, 1, 3000);
        assert_eq!(ticks(&record, &BOUNDS).broken, ["the tick at 00:00:02 UTC was not run"]);
        // The last one may still be on its way when the fleet ends.
        record.ticks.remove(&3000);
        record.hear(0, at(2000), InstanceMessage::TickBegan { instant: 2000, attempt: 1 });
        assert_eq!(ticks(&record, &BOUNDS).kept, Kept::Held);
    }

    #[test]
    fn a_schedule_that_stands_still_is_told() {
        let mut record = fleet(1, 0);
        for ms in (10..20_000).step_by(50) {
            record.hear(0, at(ms), PULSE);
        }
        ran(&mut record, 0, 1, 1, 1000);
        record.closing = Some(at(20_000));
        assert_eq!(ticks(&record, &BOUNDS).broken, ["nothing ticked for 19.00 s"]);
    }
}

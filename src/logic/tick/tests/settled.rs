//! Ticks that waited for a pause, for a run, or for their owner, and what becomes of them.

use super::*;
use crate::store::PauseBefore;

#[test]
fn missed_ticks_still_to_be_run_are_judged_again_after_a_pause() {
    let policies = Policies { misfire: Misfire::All { window: HOUR, at_most: 100 }, ..Policies::default() };
    let mut ticks = by_the_minute(policies, &[], at(180));
    assert_eq!(ticks.next(at(180)), first(at(60)));
    let held = |until| ScheduleRecord { pause: Some(paused(at(190), until)), ..record() };
    ticks.hear(&held(None), at(190));
    assert_eq!(ticks.next(at(200)), TickStep::Wait(None));
    let later = 3 * 3600;
    ticks.hear(&held(Some(at(later))), at(later));
    let late = TickStep::Skip { from: at(120), to: at(180), count: 2, why: NotRun::Late };
    assert_eq!(ticks.next(at(later + 10)), late, "they are too late by now");
}

#[test]
fn ticks_of_a_pause_before_the_last_one_are_not_late() {
    let before = |since, until| PauseBefore { since: at(since), until: at(until) };
    let record = ScheduleRecord {
        pause: Some(paused(at(540), Some(at(660)))),
        pauses_before: vec![before(90, 150), before(270, 370)],
        ..record()
    };
    let all = Policies { misfire: Misfire::All { window: HOUR, at_most: 100 }, ..Policies::default() };
    let mut ticks = Ticks::load(calendar("* * * * *"), all, &record, &[], at(700));
    let skipped = |from, to, count| TickStep::Skip { from: at(from), to: at(to), count, why: NotRun::Paused };
    let steps: Vec<_> = (0..12).map(|_| ticks.next(at(700))).collect();
    assert_eq!(
        steps,
        [
            first(at(60)),
            skipped(120, 120, 1),
            first(at(180)),
            first(at(240)),
            skipped(300, 360, 2),
            first(at(420)),
            first(at(480)),
            skipped(540, 600, 2),
            first(at(660)),
            TickStep::Wait(Some(at(720))),
            TickStep::Wait(Some(at(720))),
            TickStep::Wait(Some(at(720))),
        ]
    );
}

#[test]
fn a_schedule_that_never_waits_remembers_no_run_that_is_dealt_with() {
    let mut ticks = by_the_minute(Policies::default(), &[], at(60));
    let mut now = 60;
    for _ in 0..100 {
        // A run of 90 s; by its end another tick is due.
        if matches!(ticks.next(at(now)), TickStep::Run(_)) {
            ticks.ended(at(now), at(now + 90));
            now += 90;
        }
        assert!(ticks.busy.len() <= 2, "{:?}", ticks.busy);
    }
}

#[test]
fn an_unbegun_tick_is_claimed_again_in_its_place_and_counts_as_no_try() {
    let not_begun = |attempt| [run(Entry::Tick, at(60), attempt, Some(Outcome::NotBegun))];
    for on_crash in [OnCrash::default(), OnCrash::AtMostOnce] {
        let policies = Policies { on_crash, ..Policies::default() };
        let mut ticks = by_the_minute(policies, &not_begun(1), at(100));
        let instead_of = Some((Term::new(5), 1));
        let again = Attempt { entry: Entry::Tick, instant: at(60), number: 1, instead_of };
        assert_eq!(ticks.next(at(100)), TickStep::Run(again), "{on_crash:?}");
        assert_eq!(ticks.next(at(100)), TickStep::Wait(Some(at(120))));
    }
}

#[test]
fn an_unbegun_tick_that_is_too_late_is_recorded_once() {
    let skip = Policies { misfire: Misfire::Skip { tolerance: MINUTE }, ..Policies::default() };
    let not_begun = run(Entry::Tick, at(60), 1, Some(Outcome::NotBegun));
    let mut ticks = by_the_minute(skip, std::slice::from_ref(&not_begun), at(121));
    let late = TickStep::Skip { from: at(60), to: at(60), count: 1, why: NotRun::Late };
    assert_eq!(ticks.next(at(121)), late);
    let recorded = [run(Entry::Skipped, at(60), 1, Some(Outcome::Skipped)), not_begun];
    let mut ticks = by_the_minute(skip, &recorded, at(121));
    assert_eq!(ticks.next(at(121)), first(at(120)), "it was recorded before");
}

#[test]
fn an_unbegun_tick_counts_among_the_late_ticks() {
    let not_begun = [run(Entry::Tick, at(60), 1, Some(Outcome::NotBegun))];
    let instead_of = Some((Term::new(5), 1));
    let again = TickStep::Run(Attempt { entry: Entry::Tick, instant: at(60), number: 1, instead_of });
    let mut one = by_the_minute(Policies::default(), &not_begun, at(130));
    let late = TickStep::Skip { from: at(60), to: at(60), count: 1, why: NotRun::Late };
    let wait = TickStep::Wait(Some(at(180)));
    let steps: Vec<_> = (0..3).map(|_| one.next(at(130))).collect();
    assert_eq!(steps, [late, first(at(120)), wait.clone()], "the latest of them is run");

    let all = Policies { misfire: Misfire::All { window: HOUR, at_most: 2 }, ..Policies::default() };
    let mut all = by_the_minute(all, &not_begun, at(130));
    let steps: Vec<_> = (0..3).map(|_| all.next(at(130))).collect();
    assert_eq!(steps, [again.clone(), first(at(120)), wait], "two of them are run");

    let record = ScheduleRecord { pause: Some(paused(at(100), Some(at(190)))), ..record() };
    let mut held = Ticks::load(calendar("* * * * *"), Policies::default(), &record, &not_begun, at(200));
    let paused = TickStep::Skip { from: at(120), to: at(180), count: 2, why: NotRun::Paused };
    let steps: Vec<_> = (0..2).map(|_| held.next(at(200))).collect();
    assert_eq!(steps, [again, paused], "those of a pause are not late");
}

#[test]
fn a_tick_may_begin_within_its_window_and_another_attempt_at_any_time() {
    let skip = Policies { misfire: Misfire::Skip { tolerance: MINUTE }, ..Policies::default() };
    let ticks = by_the_minute(skip, &[], at(10));
    let first = Attempt::first(Entry::Tick, at(60));
    assert_eq!(ticks.latest_begin(&first), Some(at(120)));
    assert_eq!(ticks.latest_begin(&first.again(Term::new(5))), None);
    assert_eq!(ticks.latest_begin(&Attempt::first(Entry::Order, at(60))), None);
}

#[test]
fn ticks_whose_window_ends_while_others_run_are_recorded_as_too_late() {
    let all = Policies { misfire: Misfire::All { window: 3 * MINUTE, at_most: 5 }, ..Policies::default() };
    let mut ticks = by_the_minute(all, &[], at(190));
    assert_eq!([ticks.next(at(190)), ticks.next(at(240))], [first(at(60)), first(at(120))]);
    let late = TickStep::Skip { from: at(180), to: at(180), count: 1, why: NotRun::Late };
    assert_eq!(ticks.next(at(361)), late);
    let mut ticks = by_the_minute(all, &[], at(190));
    assert_eq!(ticks.next(at(190)), first(at(60)));
    let late = TickStep::Skip { from: at(120), to: at(180), count: 2, why: NotRun::Late };
    assert_eq!(ticks.next(at(361)), late);
}

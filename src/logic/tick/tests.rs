use proptest::prelude::*;

use super::*;
use crate::{
    model::{Finish, Holder, Namespace, Rules, ScheduleId, ScheduleName, SessionId, Skipped, Why},
    store::{Definition, Pause},
};

mod settled;

/// Midnight.
const BEGINNING: i64 = 1_767_225_600_000;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: i64) -> StoreTime {
    StoreTime::from_millis(BEGINNING + seconds * 1000)
}

fn id() -> ScheduleId {
    ScheduleId { namespace: Namespace::new("n").unwrap(), name: ScheduleName::new("s").unwrap() }
}

fn calendar(expression: &str) -> Calendar {
    Calendar::new(expression, None, Duration::ZERO, &id().name).unwrap()
}

/// Defined at the beginning.
fn record() -> ScheduleRecord {
    let rules = || Rules::new("r").unwrap();
    let definition = Definition { timing: rules(), policies: rules(), since: at(0), term: Term::new(1) };
    ScheduleRecord { definition: Some(definition), ..ScheduleRecord::new(id()) }
}

fn run(entry: Entry, instant: StoreTime, attempt: u32, outcome: Option<Outcome>) -> RunRecord {
    RunRecord {
        id: crate::model::RunId { schedule: id(), instant, entry },
        session: SessionId::from_u128(1),
        holder: Holder::new("a").unwrap(),
        term: Term::new(5),
        attempt,
        started: instant,
        finish: outcome.map(|outcome| Finish { at: instant, outcome, error: None, last: false }),
        skipped: (entry == Entry::Skipped).then(|| Skipped {
            from: instant,
            count: 1,
            why: Why::shortened("paused"),
        }),
    }
}

fn paused(since: StoreTime, until: Option<StoreTime>) -> Pause {
    Pause { since, until, by: Holder::new("op").unwrap(), why: Why::shortened("a look") }
}

/// By the minute, at that time, after these entries (last first).
fn by_the_minute(policies: Policies, runs: &[RunRecord], now: StoreTime) -> Ticks {
    Ticks::load(calendar("* * * * *"), policies, &record(), runs, now)
}

fn first(instant: StoreTime) -> TickStep {
    TickStep::Run(Attempt::first(Entry::Tick, instant))
}

#[test]
fn ticks_in_the_ledger_are_not_run_again() {
    let runs = [
        run(Entry::Order, at(500), 1, Some(Outcome::Succeeded)),
        run(Entry::Skipped, at(180), 1, Some(Outcome::Skipped)),
        run(Entry::Tick, at(60), 1, Some(Outcome::Succeeded)),
    ];
    let mut ticks = by_the_minute(Policies::default(), &runs, at(200));
    assert_eq!(ticks.next(at(200)), TickStep::Wait(Some(at(240))), "an order is no tick");
    assert_eq!(ticks.next(at(240)), first(at(240)));
    assert_eq!(ticks.next(at(240)), TickStep::Wait(Some(at(300))));
}

#[test]
fn ticks_that_were_purged_or_precede_the_definition_are_not_run() {
    let mut marked = ScheduleRecord { mark: Some(at(600)), ..record() };
    let all = Policies { misfire: Misfire::All { window: HOUR, at_most: 100 }, ..Policies::default() };
    let mut ticks = Ticks::load(calendar("* * * * *"), all, &marked, &[], at(700));
    assert_eq!(ticks.next(at(700)), first(at(660)));
    marked.mark = None;
    let mut ticks = Ticks::load(calendar("* * * * *"), all, &marked, &[], at(90));
    assert_eq!(ticks.next(at(90)), first(at(60)));
    let before = by_the_minute(Policies::default(), &[], at(-600)).next(at(-600));
    assert_eq!(before, TickStep::Wait(Some(at(-540))), "the clock was ahead when it was defined");
}

#[test]
fn a_run_at_or_below_the_mark_is_abandoned_and_not_begun_again() {
    let load = |mark| {
        let runs =
            [run(Entry::Tick, at(120), 1, None), run(Entry::Tick, at(60), 1, Some(Outcome::Succeeded))];
        let record = ScheduleRecord { mark, ..record() };
        Ticks::load(calendar("* * * * *"), Policies::default(), &record, &runs, at(150))
    };
    assert!(matches!(load(Some(at(60))).next(at(150)), TickStep::Run(attempt) if attempt.number == 2));
    let mut ticks = load(Some(at(120)));
    assert!(matches!(ticks.next(at(150)), TickStep::Abandon(run) if run.id.instant == at(120)));
    assert_eq!(ticks.next(at(150)), TickStep::Wait(Some(at(180))));
}

#[test]
fn ticks_purged_by_a_clock_that_is_ahead_are_not_run() {
    let mut ticks = by_the_minute(Policies::default(), &[], at(10));
    assert_eq!(ticks.next(at(60)), first(at(60)));
    ticks.purged(Some(at(200)));
    assert_eq!(ticks.next(at(120)), TickStep::Wait(Some(at(240))));
}

#[test]
fn a_ledger_that_is_ahead_of_its_owner_is_not_purged() {
    let month = 30 * 24 * 3600;
    let runs = [
        run(Entry::Tick, at(month), 1, Some(Outcome::Succeeded)),
        run(Entry::Tick, at(120), 1, Some(Outcome::Succeeded)),
    ];
    let mut ticks = by_the_minute(Policies::default(), &runs, at(170));
    assert!(!ticks.may_purge());
    assert!(by_the_minute(Policies::default(), &runs[1..], at(170)).may_purge());
    assert!(by_the_minute(Policies::default(), &[], at(170)).may_purge());
    ticks.purged(Some(at(month)));
    assert!(ticks.may_purge(), "it has forgotten all of it");
}

#[test]
fn entries_of_a_clock_that_was_ahead_hold_nothing_up() {
    let month = 30 * 24 * 3600;
    let runs = [
        run(Entry::Tick, at(month), 1, Some(Outcome::Succeeded)),
        run(Entry::Skipped, at(month - 60), 1, Some(Outcome::Skipped)),
        run(Entry::Tick, at(120), 1, Some(Outcome::Succeeded)),
    ];
    let mut ticks = by_the_minute(Policies::default(), &runs, at(170));
    assert_eq!(ticks.next(at(170)), TickStep::Wait(Some(at(180))));
    // The owner that saw the clock go back reads again.
    let mut ticks = by_the_minute(Policies::default(), &runs, at(month + 10));
    assert_eq!(ticks.next(at(month + 10)), TickStep::Wait(Some(at(month + 60))));
    assert_eq!(ticks.next(at(170)), TickStep::Reload);
    assert_eq!(
        ticks.next(at(month - 30)),
        TickStep::Wait(Some(at(month + 60))),
        "a small step is waited out"
    );
}

#[test]
fn an_order_that_was_run_is_not_wanted_any_more() {
    let mut ticks = by_the_minute(Policies::default(), &[], at(10));
    let order = RunNow { at: at(3), by: Holder::new("op").unwrap(), why: Why::shortened("") };
    let record = ScheduleRecord { orders: vec![order], ..record() };
    ticks.hear(&record, at(10));
    assert_eq!(ticks.next(at(10)), TickStep::Run(Attempt::first(Entry::Order, at(3))));
    // Something else is heard while it is run.
    ticks.hear(&record, at(11));
    ticks.ordered(at(3));
    assert_eq!(ticks.next(at(12)), TickStep::Wait(Some(at(60))));
}

#[test]
fn a_changed_definition_in_the_record_is_read_again() {
    let mut ticks = by_the_minute(Policies::default(), &[], at(10));
    let mut other = record();
    other.definition.as_mut().unwrap().term = Term::new(2);
    ticks.hear(&other, at(20));
    assert_eq!(ticks.next(at(60)), TickStep::Overwritten);
    ticks.hear(&record(), at(60));
    assert_eq!(ticks.next(at(60)), first(at(60)), "that was old news");
    other.definition.as_mut().unwrap().since = at(119);
    ticks.hear(&other, at(130));
    assert_eq!(ticks.next(at(130)), TickStep::Overwritten);
    ticks.define(&other, at(130));
    assert_eq!(ticks.next(at(130)), first(at(120)), "and nothing is forgotten");
}

#[test]
fn an_unsettled_run_is_tried_again_or_abandoned_as_the_policies_say() {
    let lost = |attempt| [run(Entry::Tick, at(60), attempt, None)];
    let again = |attempt, number| {
        let instead_of = Some((Term::new(5), attempt));
        TickStep::Run(Attempt { entry: Entry::Tick, instant: at(60), number, instead_of })
    };
    let least = Policies { on_crash: OnCrash::AtLeastOnce { attempts: 3 }, ..Policies::default() };
    let most = Policies { on_crash: OnCrash::AtMostOnce, ..Policies::default() };
    assert_eq!(by_the_minute(least, &lost(1), at(70)).next(at(70)), again(1, 2));
    assert!(matches!(by_the_minute(least, &lost(3), at(70)).next(at(70)), TickStep::Abandon(_)));
    assert!(matches!(by_the_minute(most, &lost(1), at(70)).next(at(70)), TickStep::Abandon(_)));

    let cancelled = [run(Entry::Tick, at(60), 1, Some(Outcome::Cancelled))];
    assert_eq!(by_the_minute(least, &cancelled, at(70)).next(at(70)), again(1, 2));
    assert_eq!(by_the_minute(most, &cancelled, at(70)).next(at(70)), TickStep::Wait(Some(at(120))));

    let failed = [run(Entry::Tick, at(60), 1, Some(Outcome::Failed))];
    assert_eq!(by_the_minute(least, &failed, at(70)).next(at(70)), TickStep::Wait(Some(at(120))));
    let tried = Policies { retries: Retries { tries: 2, ..Retries::default() }, ..most };
    assert_eq!(by_the_minute(tried, &failed, at(70)).next(at(70)), again(1, 2), "its tries are not used up");

    // A later run says that this one is not waited for any more.
    let old = [run(Entry::Tick, at(120), 1, Some(Outcome::Succeeded)), cancelled[0].clone()];
    assert_eq!(by_the_minute(least, &old, at(130)).next(at(130)), TickStep::Wait(Some(at(180))));
    // But one without an end is settled wherever it stands.
    let open = [old[0].clone(), lost(1)[0].clone()];
    assert_eq!(by_the_minute(least, &open, at(130)).next(at(130)), again(1, 2));
}

#[test]
fn orders_go_first_also_while_nothing_else_is_run() {
    let order = |seconds| RunNow { at: at(seconds), by: Holder::new("op").unwrap(), why: Why::shortened("") };
    let mut record = record();
    record.orders = vec![order(3), order(5)];
    record.pause = Some(paused(at(4), None));
    let mut ticks = Ticks::load(calendar("* * * * *"), Policies::default(), &record, &[], at(10));
    let ordered = |seconds| TickStep::Run(Attempt::first(Entry::Order, at(seconds)));
    assert_eq!([ticks.next(at(10)), ticks.next(at(10))], [ordered(3), ordered(5)]);
    assert_eq!(ticks.next(at(10)), TickStep::Wait(None));
    assert_eq!(ticks.next(at(600)), TickStep::Wait(None), "until there is news");
    record.pause.as_mut().unwrap().until = Some(at(500));
    record.orders.clear();
    ticks.hear(&record, at(600));
    let skipped = TickStep::Skip { from: at(60), to: at(480), count: 8, why: NotRun::Paused };
    assert_eq!(ticks.next(at(600)), skipped);
    let late = TickStep::Skip { from: at(540), to: at(540), count: 1, why: NotRun::Late };
    assert_eq!([ticks.next(at(600)), ticks.next(at(600))], [late, first(at(600))]);
}

/// Goes through the ticks of a schedule by the second with an owner that is there at some times only.
fn go_through(policies: Policies, looks: &[(i64, i64)]) -> Vec<(StoreTime, i64)> {
    let (mut runs, mut ledger, mut now): (Vec<_>, Vec<RunRecord>, _) = (Vec::new(), Vec::new(), 0);
    for (pause, takes) in looks {
        now += pause;
        let mut ticks = Ticks::load(calendar("* * * * * *"), policies, &record(), &ledger, at(now));
        for _ in 0..200 {
            match ticks.next(at(now)) {
                TickStep::Run(attempt) => {
                    runs.push((attempt.instant, now));
                    let begun = at(now);
                    now += takes;
                    ticks.ended(begun, at(now));
                    ledger.insert(0, run(Entry::Tick, attempt.instant, 1, Some(Outcome::Succeeded)));
                }
                TickStep::Skip { to, .. } => {
                    ledger.insert(0, run(Entry::Skipped, to, 1, Some(Outcome::Skipped)));
                }
                TickStep::Wait(_) => break,
                other => panic!("{other:?}"),
            }
        }
    }
    runs
}

fn any_policies() -> impl Strategy<Value = Policies> {
    let misfire = prop_oneof![
        (0_u64..30).prop_map(|seconds| Misfire::Skip { tolerance: Duration::from_secs(seconds) }),
        (0_u64..300).prop_map(|seconds| Misfire::One { window: Duration::from_secs(seconds) }),
        (0_u64..300, 1_u32..20)
            .prop_map(|(seconds, at_most)| Misfire::All { window: Duration::from_secs(seconds), at_most }),
    ];
    let overlap = prop_oneof![Just(Overlap::Skip), Just(Overlap::Queue), Just(Overlap::Cancel)];
    (misfire, overlap).prop_map(|(misfire, overlap)| Policies { misfire, overlap, ..Policies::default() })
}

proptest! {
    #![proptest_config(crate::tests::seeded::config())]

    #[test]
    fn a_tick_is_never_run_twice_or_too_late_under_any_policies(
        policies in any_policies(),
        looks in proptest::collection::vec((0_i64..400, 0_i64..4), 1..12),
    ) {
        let runs = go_through(policies, &looks);
        prop_assert!(runs.is_sorted_by(|a, b| a.0 < b.0), "{runs:?}");
        let (window, _) = policies.misfire.bounds();
        for (instant, now) in &runs {
            prop_assert!(*instant <= at(*now), "not before it is due");
            prop_assert!(at(*now).since(*instant) <= window, "{instant:?} at {now}");
        }
    }

    #[test]
    fn all_ticks_are_run_where_all_of_them_are_wanted(
        looks in proptest::collection::vec((0_i64..150, Just(0_i64)), 1..12),
    ) {
        let misfire = Misfire::All { window: HOUR, at_most: 1000 };
        let policies = Policies { misfire, overlap: Overlap::Queue, ..Policies::default() };
        let runs = go_through(policies, &looks);
        let end: i64 = looks.iter().map(|(pause, _)| pause).sum();
        let instants: Vec<_> = runs.iter().map(|(instant, _)| *instant).collect();
        prop_assert_eq!(instants, (1..=end).map(at).collect::<Vec<_>>());
    }
}

#[test]
fn a_tick_that_is_late_by_less_than_its_tolerance_is_on_time() {
    let skip = Policies { misfire: Misfire::Skip { tolerance: MINUTE }, ..Policies::default() };
    let hourly = |now| Ticks::load(calendar("@hourly"), skip, &record(), &[], now).next(now);
    assert_eq!(hourly(at(3660)), first(at(3600)), "by as much as that is, too");
    let late = TickStep::Skip { from: at(3600), to: at(3600), count: 1, why: NotRun::Late };
    assert_eq!(hourly(StoreTime::from_millis(BEGINNING + 3_660_002)), late);
}

#[test]
fn a_run_ahead_of_the_clock_does_not_hide_a_run_to_be_begun_again() {
    let month = 30 * 24 * 3600;
    let runs = |outcome| {
        [
            run(Entry::Tick, at(month), 1, Some(Outcome::Failed)),
            run(Entry::Tick, at(120), 1, Some(outcome)),
            run(Entry::Tick, at(60), 1, Some(Outcome::Failed)),
        ]
    };
    let mut ticks = by_the_minute(Policies::default(), &runs(Outcome::Cancelled), at(170));
    assert!(
        matches!(ticks.next(at(170)), TickStep::Run(attempt) if attempt.number == 2 && attempt.instant == at(120))
    );
    assert_eq!(by_the_minute(Policies::default(), &runs(Outcome::Succeeded), at(170)).failures(), 0);
}

#[test]
fn a_ledger_of_orders_is_purged() {
    let order = |seconds| run(Entry::Order, at(seconds), 1, Some(Outcome::Succeeded));
    let runs = [order(170), order(150), run(Entry::Tick, at(120), 1, Some(Outcome::Succeeded))];
    assert!(by_the_minute(Policies::default(), &runs, at(175)).may_purge());
    let ahead = [order(30 * 24 * 3600), runs[2].clone()];
    assert!(!by_the_minute(Policies::default(), &ahead, at(175)).may_purge(), "it is ahead");
}

#[test]
fn ticks_of_two_runs_one_after_the_other_overlap_as_those_of_one() {
    let runs = [run(Entry::Tick, at(60), 1, Some(Outcome::Succeeded))];
    let mut ticks = by_the_minute(Policies::default(), &runs, at(100));
    assert_eq!(ticks.next(at(120)), first(at(120)));
    ticks.ended(at(120), at(190));
    // A run ordered meanwhile comes first.
    ticks.ended(at(190), at(200));
    let (from, to) = (at(180), at(180));
    assert_eq!(ticks.next(at(200)), TickStep::Skip { from, to, count: 1, why: NotRun::Overlapped });
}

#[test]
fn a_tick_that_is_to_be_tried_again_has_not_failed_yet() {
    let policies = Policies { retries: Retries { tries: 2, ..Retries::default() }, ..Policies::default() };
    let runs = [
        run(Entry::Tick, at(120), 1, Some(Outcome::Failed)),
        run(Entry::Tick, at(60), 2, Some(Outcome::Failed)),
    ];
    let mut ticks = by_the_minute(policies, &runs, at(125));
    assert_eq!(ticks.failures(), 1);
    assert!(matches!(ticks.next(at(125)), TickStep::Run(attempt) if attempt.number == 2));
}

#[test]
fn ticks_due_within_a_run_overlap_also_after_a_pause_within_it() {
    let runs = [run(Entry::Tick, at(60), 1, Some(Outcome::Succeeded))];
    let mut ticks = by_the_minute(Policies::default(), &runs, at(100));
    assert_eq!(ticks.next(at(120)), first(at(120)));
    ticks.hear(&ScheduleRecord { pause: Some(paused(at(210), Some(at(270)))), ..record() }, at(330));
    ticks.ended(at(120), at(330));
    let skip = |instant, why| TickStep::Skip { from: at(instant), to: at(instant), count: 1, why };
    assert_eq!(ticks.next(at(330)), skip(180, NotRun::Overlapped));
    assert_eq!(ticks.next(at(330)), skip(240, NotRun::Paused));
    assert_eq!(ticks.next(at(330)), skip(300, NotRun::Overlapped));
    assert_eq!(ticks.next(at(330)), TickStep::Wait(Some(at(360))));
}

#[test]
fn ticks_due_between_two_runs_are_late() {
    let runs = [run(Entry::Tick, at(60), 1, Some(Outcome::Succeeded))];
    let mut ticks = by_the_minute(Policies::default(), &runs, at(100));
    assert_eq!(ticks.next(at(120)), first(at(120)));
    ticks.ended(at(120), at(130));
    ticks.ended(at(250), at(260));
    assert_eq!(
        ticks.next(at(260)),
        TickStep::Skip { from: at(180), to: at(180), count: 1, why: NotRun::Late }
    );
    assert_eq!(ticks.next(at(260)), first(at(240)));
}

#[test]
fn a_try_is_made_by_whoever_takes_over_however_long_the_rest_and_the_pause() {
    let runs = [run(Entry::Tick, at(60), 1, Some(Outcome::Failed))];
    let retries = Retries { tries: 2, first: 10 * MINUTE, longest: MINUTE };
    let policies =
        Policies { misfire: Misfire::Skip { tolerance: MINUTE / 60 }, retries, ..Policies::default() };
    let is_tried = |pause, now| {
        let record = ScheduleRecord { pause, ..record() };
        let mut ticks = Ticks::load(calendar("* * * * *"), policies, &record, &runs, now);
        matches!(ticks.next(now), TickStep::Run(attempt) if attempt.number == 2)
    };
    assert!(is_tried(None, at(60 + 600)), "it rests for so long");
    assert!(!is_tried(None, at(60 + 7200)));
    assert!(
        is_tried(Some(paused(at(90), Some(at(60 + 7100)))), at(60 + 7200)),
        "it was held back for so long"
    );
}

fn hour(hours: i64) -> StoreTime {
    at(hours * 3600)
}

/// Held back from then until then, in minutes; nothing if it still is.
fn held_back(since: i64, until: Option<i64>) -> ScheduleRecord {
    let pause = Some(paused(at(since * 60), until.map(|until| at(until * 60))));
    ScheduleRecord { pause, ..record() }
}

/// By the hour; it ran the tick of one o'clock until half past three, and is held back since half past two.
fn held_back_in_a_run() -> Ticks {
    let runs = [run(Entry::Tick, hour(0), 1, Some(Outcome::Succeeded))];
    let mut ticks = Ticks::load(calendar("@hourly"), Policies::default(), &record(), &runs, hour(1));
    assert_eq!(ticks.next(hour(1)), first(hour(1)));
    ticks.hear(&held_back(150, None), at(150 * 60));
    ticks.ended(hour(1), at(210 * 60));
    ticks
}

#[test]
fn overlapped_ticks_before_a_pause_are_recorded_before_it_ends() {
    let mut ticks = held_back_in_a_run();
    let (from, to) = (hour(2), hour(2));
    assert_eq!(ticks.next(at(210 * 60)), TickStep::Skip { from, to, count: 1, why: NotRun::Overlapped });
    assert_eq!(ticks.next(at(210 * 60)), TickStep::Wait(None));
}

#[test]
fn overlapped_ticks_before_a_pause_are_not_run_after_an_order_within_it() {
    let mut ticks = held_back_in_a_run();
    ticks.ended(hour(5), at(5 * 3600 + 600));
    ticks.hear(&held_back(150, Some(390)), at(390 * 60));
    let skip = |from, to, count, why| TickStep::Skip { from, to, count, why };
    assert_eq!(ticks.next(at(391 * 60)), skip(hour(2), hour(2), 1, NotRun::Overlapped));
    assert_eq!(ticks.next(at(391 * 60)), skip(hour(3), hour(6), 4, NotRun::Paused));
    assert_eq!(ticks.next(at(391 * 60)), TickStep::Wait(Some(hour(7))));
}

#[test]
fn a_try_that_a_pause_held_back_is_made_also_if_that_began_before_the_failure() {
    let runs = [run(Entry::Tick, at(60), 1, Some(Outcome::Failed))];
    let retries = Retries { tries: 2, ..Retries::default() };
    let policies =
        Policies { misfire: Misfire::Skip { tolerance: MINUTE / 60 }, retries, ..Policies::default() };
    let mut ticks =
        Ticks::load(calendar("* * * * *"), policies, &held_back(0, Some(120)), &runs, at(120 * 60));
    assert!(matches!(ticks.next(at(120 * 60)), TickStep::Run(attempt) if attempt.number == 2));
}

#[test]
fn a_tick_that_a_run_made_way_for_begins_within_its_window_or_not_at_all() {
    let policies = Policies {
        misfire: Misfire::Skip { tolerance: MINUTE / 60 },
        overlap: Overlap::Cancel,
        ..Policies::default()
    };
    let runs = [run(Entry::Tick, at(0), 1, Some(Outcome::Succeeded))];
    let skip = |at, why| TickStep::Skip { from: at, to: at, count: 1, why };
    let mut ticks = by_the_minute(policies, &runs, at(1));
    assert_eq!(ticks.next(at(60)), first(at(60)));
    ticks.ended(at(60), at(122));
    assert_eq!(ticks.next(at(122)), skip(at(120), NotRun::Late));
    let mut ticks = by_the_minute(policies, &runs, at(1));
    assert_eq!(ticks.next(at(60)), first(at(60)));
    ticks.ended(at(60), at(121));
    assert_eq!(ticks.next(at(121)), first(at(120)));
    // Nor one that was held back after it.
    ticks.ended(at(121), at(182));
    ticks.hear(&held_back(3, None), at(183));
    assert_eq!(ticks.next(at(183)), TickStep::Wait(None));
    ticks.hear(&held_back(3, Some(4)), at(250));
    assert_eq!(ticks.next(at(250)), skip(at(180), NotRun::Paused));
    assert_eq!(ticks.next(at(250)), skip(at(240), NotRun::Late));
    assert_eq!(ticks.next(at(250)), TickStep::Wait(Some(at(300))));
}

#[test]
fn a_pause_that_ended_by_a_clock_that_was_ahead_swallows_nothing_later() {
    let month = Some(30 * 24 * 60);
    let record = held_back(10, month);
    let mut ticks = Ticks::load(calendar("@hourly"), Policies::default(), &record, &[], at(20 * 60));
    assert_eq!(ticks.next(hour(1)), first(hour(1)));
    // No owner was at work for a while.
    ticks.hear(&record, hour(4));
    let late = TickStep::Skip { from: hour(2), to: hour(3), count: 2, why: NotRun::Late };
    assert_eq!([ticks.next(hour(4)), ticks.next(hour(4))], [late.clone(), first(hour(4))], "the same owner");
    let runs = [run(Entry::Tick, hour(1), 1, Some(Outcome::Succeeded))];
    let mut ticks = Ticks::load(calendar("@hourly"), Policies::default(), &record, &runs, hour(4));
    assert_eq!([ticks.next(hour(4)), ticks.next(hour(4))], [late, first(hour(4))], "another");
}

#[test]
fn a_pause_that_began_by_a_clock_that_was_ahead_began_when_it_was_heard_of() {
    let month = 30 * 24 * 60;
    let runs = [run(Entry::Tick, at(60), 1, Some(Outcome::Succeeded))];
    let mut ticks = by_the_minute(Policies::default(), &runs, at(61));
    ticks.hear(&held_back(month, None), at(90));
    assert_eq!(ticks.next(at(130)), TickStep::Wait(None));
    ticks.hear(&held_back(month, Some(month + 2)), at(210));
    let paused = TickStep::Skip { from: at(120), to: at(180), count: 2, why: NotRun::Paused };
    assert_eq!([ticks.next(at(210)), ticks.next(at(210))], [paused, TickStep::Wait(Some(at(240)))]);
}

#[test]
fn a_tick_that_was_held_back_displaces_nothing() {
    let policies = Policies { overlap: Overlap::Cancel, ..Policies::default() };
    let mut ticks = Ticks::load(calendar("@hourly"), policies, &record(), &[], hour(1));
    assert_eq!(ticks.next(hour(1)), first(hour(1)));
    assert_eq!(ticks.displaced_at(hour(1)), Some(hour(2)));
    ticks.hear(&held_back(90, None), at(90 * 60));
    assert_eq!(ticks.displaced_at(hour(1)), None);
    ticks.hear(&held_back(90, Some(150)), at(150 * 60));
    assert_eq!(ticks.displaced_at(hour(1)), Some(hour(3)), "also to one that asks from before the pause");
}

#[test]
fn an_order_within_a_pause_says_nothing_of_its_end() {
    let record = held_back(90, Some(30 * 24 * 60));
    let runs = [
        run(Entry::Order, at(130 * 60), 1, Some(Outcome::Succeeded)),
        run(Entry::Tick, hour(1), 1, Some(Outcome::Succeeded)),
    ];
    let mut ticks = Ticks::load(calendar("@hourly"), Policies::default(), &record, &runs, at(310 * 60));
    let paused = TickStep::Skip { from: hour(2), to: hour(5), count: 4, why: NotRun::Paused };
    assert_eq!([ticks.next(at(310 * 60)), ticks.next(at(310 * 60))], [paused, TickStep::Wait(Some(hour(6)))]);
}

#[test]
fn a_pause_that_began_by_a_clock_that_was_ahead_is_one_for_whoever_takes_over() {
    let month = 30 * 24 * 60;
    let runs = [run(Entry::Tick, hour(1), 1, Some(Outcome::Succeeded))];
    let load = |record| Ticks::load(calendar("@hourly"), Policies::default(), &record, &runs, at(190 * 60));
    let mut ticks = load(held_back(month, None));
    assert_eq!(ticks.next(at(190 * 60)), TickStep::Wait(None));
    ticks.hear(&held_back(month, Some(250)), at(250 * 60));
    let paused = TickStep::Skip { from: hour(2), to: hour(4), count: 3, why: NotRun::Paused };
    assert_eq!(ticks.next(at(250 * 60)), paused);
    let mut new =
        Ticks::load(calendar("@hourly"), Policies::default(), &held_back(month, None), &[], at(190 * 60));
    new.hear(&held_back(month, Some(250)), at(250 * 60));
    let all = TickStep::Skip { from: hour(1), to: hour(4), count: 4, why: NotRun::Paused };
    assert_eq!(new.next(at(250 * 60)), all, "also of a schedule that has run nothing yet");
    // Both by such a clock: the times are unknown.
    let late = TickStep::Skip { from: hour(2), to: hour(2), count: 1, why: NotRun::Late };
    assert_eq!(load(held_back(month, Some(month + 1))).next(at(190 * 60)), late);
}

#[test]
fn missed_ticks_still_to_be_run_are_left_behind_by_another_timing() {
    let policies = Policies { misfire: Misfire::All { window: HOUR, at_most: 100 }, ..Policies::default() };
    let mut ticks = by_the_minute(policies, &[], at(300));
    assert_eq!(ticks.next(at(300)), first(at(60)));
    let left = TickStep::Skip { from: at(120), to: at(300), count: 4, why: NotRun::Retimed };
    assert_eq!(ticks.left_behind(&record(), at(310)), None, "it is the timing that it was");
    let mut other = record();
    other.definition.as_mut().unwrap().since = at(310);
    let month = at(30 * 24 * 3600);
    let mut ahead = other.clone();
    ahead.definition.as_mut().unwrap().since = month;
    assert_eq!(ticks.clone().left_behind(&ahead, at(330)), Some(left.clone()), "no further than is due");
    assert_eq!(ticks.left_behind(&other, at(309)), Some(left));
    assert_eq!(ticks.left_behind(&other, at(320)), None);
}

#[test]
fn a_tick_that_was_missed_is_made_up_for_within_a_week() {
    let week = 7 * 24 * 3600;
    let yearly = |now| Ticks::load(calendar("0 0 1 1 *"), Policies::default(), &record(), &[], at(now));
    let next_year = 365 * 24 * 3600;
    assert_eq!(yearly(next_year + week).next(at(next_year + week)), first(at(next_year)));
    let late = TickStep::Skip { from: at(next_year), to: at(next_year), count: 1, why: NotRun::Late };
    assert_eq!(yearly(next_year + week + 1).next(at(next_year + week + 1)), late);
}

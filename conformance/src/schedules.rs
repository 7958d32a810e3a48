//! Schedules: what each goes by, when it is held back, and what is wanted of it.

use std::sync::Arc;

use crate::{
    fixture::{Fixture, LIMIT, all_pages, eventually, holder, name, race, sure, why},
    purge_runs::{ledger, left, purge_down_to},
    texts::{ODD, full},
};
use tenure::{
    model::{Holder, Rules, ScheduleId, ScheduleName, StoreTime, Term, Why},
    store::{
        Define, Definition, Instruction, MAX_ORDERS, MAX_PAUSES_BEFORE, Pause, PauseBefore, Refusal, RunNow,
        ScheduleRecord, ScheduleSeen, StoreExt,
    },
};

pub(crate) fn define(schedule: &ScheduleId, term: u64, timing: &str, policies: &str) -> Define {
    Define {
        schedule: schedule.clone(),
        term: Term::new(term),
        timing: name(Rules::new(timing)),
        policies: name(Rules::new(policies)),
        instead_of: None,
    }
}

pub(crate) fn pause() -> Instruction {
    Instruction::Pause { by: holder("admin"), why: why("the {$disk} is full") }
}

pub(crate) fn order(at: i64) -> RunNow {
    RunNow { at: StoreTime::from_millis(at), by: holder("admin"), why: why("$now, please") }
}

fn ran(at: i64) -> Instruction {
    Instruction::Ran { at: StoreTime::from_millis(at) }
}

#[track_caller]
fn found(seen: ScheduleSeen) -> ScheduleRecord {
    match seen {
        ScheduleSeen::Found(record) => record,
        other => panic!("the schedule must have a record, but was {other:?}"),
    }
}

async fn look(fixture: &Fixture, schedule: &ScheduleId) -> ScheduleSeen {
    let mut seen = sure(fixture.store().schedules(vec![schedule.clone()], LIMIT)).await;
    assert_eq!(seen.len(), 1, "reading one schedule must answer with one");
    seen.remove(0)
}

/// Defines a schedule; what is answered must be what is read.
pub(crate) async fn defined(fixture: &Fixture, define: Define) -> ScheduleRecord {
    let schedule = define.schedule.clone();
    let record = found(sure(fixture.store().define(define, LIMIT)).await);
    assert_eq!(found(look(fixture, &schedule).await), record, "the answer must be how it stands afterwards");
    record
}

/// Instructs a schedule; what is answered must be what is read.
pub(crate) async fn instructed(
    fixture: &Fixture,
    schedule: &ScheduleId,
    instruction: Instruction,
) -> ScheduleRecord {
    let record = found(sure(fixture.store().instruct(schedule.clone(), instruction, LIMIT)).await);
    assert_eq!(found(look(fixture, schedule).await), record, "the answer must be how it stands afterwards");
    record
}

#[track_caller]
fn definition(record: &ScheduleRecord) -> &Definition {
    record.definition.as_ref().expect("it was defined")
}

#[track_caller]
fn paused(record: &ScheduleRecord) -> &Pause {
    record.pause.as_ref().expect("it was held back")
}

/// Waits until the store's clock has gone on.
async fn wait_beyond(fixture: &Fixture, time: StoreTime) {
    eventually("the store's clock goes on", async || (fixture.opened().await.started > time).then_some(()))
        .await;
}

/// A schedule with a definition, a pause and an order.
async fn full_record(fixture: &Fixture, schedule: &ScheduleId) -> ScheduleRecord {
    defined(fixture, define(schedule, 7, "0 3 * * *", "retry 3")).await;
    instructed(fixture, schedule, pause()).await;
    instructed(fixture, schedule, Instruction::Run(order(5))).await
}

/// A definition records its rules, its time by the store's clock, and its owner's term: and nothing else.
pub async fn a_definition_is_there_afterwards(fixture: &Fixture) {
    let schedule = fixture.schedule("$nightly.report 👑");
    assert_eq!(look(fixture, &schedule).await, ScheduleSeen::Absent, "nobody has said anything of it");
    let before = fixture.opened().await.started;
    let define = define(&schedule, 7, "0 3 * * * Europe/Zurich", "$late: run");
    let record = defined(fixture, define.clone()).await;
    let after = fixture.opened().await.started;
    let since = definition(&record).since;
    assert!(
        before <= since && since <= after,
        "{since:?} is not now by the store's clock: {before:?}, {after:?}"
    );
    let Define { timing, policies, term, .. } = define;
    let definition = Some(Definition::new(timing, policies, since, term));
    assert_eq!(
        record,
        with!(
            ScheduleRecord::new(schedule);
            definition: definition,
            pause: None,
            pauses_before: Vec::new(),
            orders: Vec::new(),
            mark: None,
        )
    );
}

/// Also in the name of a later owner: the first owner that said it stays on record.
pub async fn the_same_definition_again_changes_nothing(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let first = defined(fixture, define(&schedule, 7, "0 3 * * *", "retry 3")).await;
    wait_beyond(fixture, definition(&first).since).await;
    for term in [7, 8, 6] {
        let again = defined(fixture, define(&schedule, term, "0 3 * * *", "retry 3")).await;
        assert_eq!(again, first, "it was known already, and is said again under term {term}");
    }
}

/// Policies do not change the instants of a schedule.
pub async fn other_policies_keep_the_timing_and_since_when(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let first = defined(fixture, define(&schedule, 7, "0 3 * * *", "retry 3")).await;
    wait_beyond(fixture, definition(&first).since).await;
    let second = defined(fixture, define(&schedule, 8, "0 3 * * *", "$retry 4")).await;
    let expected =
        with!(definition(&first).clone(); policies: name(Rules::new("$retry 4")), term: Term::new(8));
    assert_eq!(second, with!(first; definition: Some(expected)));
}

/// Before that it had no such tick. Also if it had the timing once before.
pub async fn another_timing_counts_from_then_on(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let mut last = definition(&defined(fixture, define(&schedule, 7, "first", "late: run")).await).since;
    for timing in ["second", "first", "$first"] {
        wait_beyond(fixture, last).await;
        let record = defined(fixture, define(&schedule, 7, timing, "late: run")).await;
        assert_eq!(definition(&record).timing.as_str(), timing);
        let since = definition(&record).since;
        assert!(since > last, "{timing} counts from now on, not from {since:?}");
        last = since;
    }
}

/// If it comes instead of the one on record, and of no other.
pub async fn a_timing_in_other_words_counts_from_when_the_one_before_did(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let first = defined(fixture, define(&schedule, 7, "0 * * * *", "late: run")).await;
    let since = definition(&first).since;
    wait_beyond(fixture, since).await;
    let instead_of = |timing: &str| Some(name(Rules::new(timing)));
    let same =
        Define { instead_of: instead_of("0 * * * *"), ..define(&schedule, 8, "0 0-23 * * *", "$late") };
    let record = defined(fixture, same).await;
    let Definition { timing, policies, since: kept, term, .. } = definition(&record);
    assert_eq!((timing.as_str(), policies.as_str(), *kept, term.get()), ("0 0-23 * * *", "$late", since, 8));
    let other = Define { instead_of: instead_of("0 * * * *"), ..define(&schedule, 8, "30 * * * *", "$late") };
    let record = defined(fixture, other).await;
    assert!(definition(&record).since > since, "it is another timing that is on record");
}

/// In the order of their names, each once, those of one namespace, whatever their ledgers hold.
pub async fn schedules_are_listed_by_name(fixture: &Fixture) {
    let other = fixture.another();
    let mut expected = Vec::new();
    for name in ["nightly", "hourly", "$weekly 👑", "night", "Zoo"] {
        let schedule = fixture.schedule(name);
        expected.push(defined(fixture, define(&schedule, 7, name, "late: run")).await);
        ledger(fixture, &schedule, &[1, 2, 3]).await;
    }
    // One that has entries, and no record.
    ledger(fixture, &fixture.schedule("unknown"), &[1]).await;
    defined(&other, define(&other.schedule("of another"), 7, "first", "late: run")).await;
    expected.sort_by(|one, other| one.id.name.as_str().cmp(other.id.name.as_str()));
    let namespace = expected[0].id.namespace.clone();
    for at_most in [0, 1, 2, 5, 100] {
        let store = fixture.store();
        let listed = all_pages(at_most.max(1), async |after| {
            sure(store.list_schedules(namespace.clone(), after, at_most, LIMIT)).await
        })
        .await;
        assert_eq!(listed, expected, "pages of {at_most} must list every schedule once, by name");
    }
}

/// With its record and its ledger, and no other.
pub async fn a_schedule_that_is_deleted_leaves_nothing(fixture: &Fixture) {
    let [mine, other] = [fixture.schedule("nightly"), fixture.schedule("nightly2")];
    for schedule in [&mine, &other] {
        full_record(fixture, schedule).await;
        ledger(fixture, schedule, &[1, 2, 3]).await;
    }
    let kept = look(fixture, &other).await;
    for _ in 0..2 {
        while !sure(fixture.store().delete_schedule(mine.clone(), LIMIT)).await {}
        assert_eq!(look(fixture, &mine).await, ScheduleSeen::Absent);
        assert_eq!(left(fixture, &mine).await, (vec![], None));
    }
    assert_eq!(look(fixture, &other).await, kept);
    assert_eq!(left(fixture, &other).await, (vec![3, 2, 1], None));
    let again = defined(fixture, define(&mine, 1, "0 3 * * *", "retry 3")).await;
    assert_eq!(again.orders, [], "it begins anew, also under a smaller term");
}

/// The last twenty, earliest first, beside the last one.
pub async fn the_pauses_before_the_last_one_are_remembered(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let mut expected = Vec::new();
    for number in 0..MAX_PAUSES_BEFORE + 3 {
        let record = instructed(fixture, &schedule, pause()).await;
        let first = expected.len().saturating_sub(MAX_PAUSES_BEFORE);
        assert_eq!(record.pauses_before, expected[first..], "{number}");
        assert_eq!(instructed(fixture, &schedule, pause()).await, record, "it is on already");
        let record = instructed(fixture, &schedule, Instruction::Resume).await;
        let Pause { since, until, .. } = paused(&record).clone();
        expected.push(PauseBefore { since, until: until.expect("it is over") });
    }
}

/// An owner that has lost the schedule cannot define it any more.
pub async fn an_owner_of_a_smaller_term_defines_nothing(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let first = defined(fixture, define(&schedule, 7, "0 3 * * *", "retry 3")).await;
    for (timing, policies) in [("late", "late"), ("0 3 * * *", "late"), ("late", "retry 3")] {
        let late = defined(fixture, define(&schedule, 6, timing, policies)).await;
        assert_eq!(late, first, "a later owner has said something");
    }
}

/// The owner may change its mind, and the next owner has its own.
pub async fn an_owner_of_an_equal_or_larger_term_defines(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    for (term, timing) in [(7, "first"), (7, "second"), (9, "third")] {
        let record = defined(fixture, define(&schedule, term, timing, "late: run")).await;
        let definition = definition(&record);
        assert_eq!((definition.term.get(), definition.timing.as_str()), (term, timing));
    }
}

/// Of definitions at the same moment that of the latest owner is kept.
pub async fn of_definitions_that_race_the_latest_owners_stands(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let answers = race(16, |owner| {
        let define = define(&schedule, owner as u64 + 1, &format!("timing {owner}"), "late: run");
        let store = Arc::clone(fixture.store());
        async move { found(sure(store.define(define, LIMIT)).await) }
    })
    .await;
    let stands = found(look(fixture, &schedule).await);
    assert_eq!(definition(&stands).timing.as_str(), "timing 15");
    assert!(answers.contains(&stands), "whoever was last must have seen it");
}

/// Holding back twice is holding back once: since when, by whom and why stay.
pub async fn a_pause_is_kept_from_its_first_moment(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let before = fixture.opened().await.started;
    let first = instructed(fixture, &schedule, pause()).await;
    let (since, by, why) = (paused(&first).since, holder("admin"), why("the {$disk} is full"));
    let expected = with!(Pause::new(since, by, why); until: None);
    assert_eq!(
        first,
        with!(ScheduleRecord::new(schedule.clone()); pause: Some(expected), orders: Vec::new())
    );
    wait_beyond(fixture, since).await;
    assert!(before <= since && since <= fixture.opened().await.started, "{since:?} is not now");
    let louder = Instruction::Pause { by: holder("boss"), why: crate::fixture::why("I say so") };
    for again in [pause(), louder] {
        assert_eq!(instructed(fixture, &schedule, again).await, first);
    }
}

/// Letting go on twice is letting go on once; and what is not held back goes on anyway.
pub async fn a_pause_ends_once(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let first = instructed(fixture, &schedule, pause()).await;
    wait_beyond(fixture, paused(&first).since).await;
    let over = instructed(fixture, &schedule, Instruction::Resume).await;
    let until = paused(&over).until.expect("it is over");
    assert!(until > paused(&first).since, "it must end when it was ended");
    let expected = with!(paused(&first).clone(); until: Some(until));
    assert_eq!(over, with!(first; pause: Some(expected)));
    wait_beyond(fixture, until).await;
    assert_eq!(instructed(fixture, &schedule, Instruction::Resume).await, over, "it was over before");
}

/// With a beginning, an author and a reason of its own.
pub async fn after_a_pause_there_may_be_another(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    instructed(fixture, &schedule, pause()).await;
    let over = instructed(fixture, &schedule, Instruction::Resume).await;
    let until = paused(&over).until.expect("it is over");
    wait_beyond(fixture, until).await;
    let next = Instruction::Pause { by: holder("boss"), why: why("once more") };
    let again = instructed(fixture, &schedule, next).await;
    assert!(paused(&again).is_on() && paused(&again).since > until, "{again:?}");
    assert_eq!((&paused(&again).by, &paused(&again).why), (&holder("boss"), &why("once more")));
}

/// Earliest first, however they came.
pub async fn orders_stand_in_the_order_of_their_instants(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let mut expected = Vec::new();
    for at in [1_700_000_000_000, 5, 0, -7, 1_700_000_000_001, 6] {
        expected.push(order(at));
        expected.sort_by_key(|order| order.at);
        let record = instructed(fixture, &schedule, Instruction::Run(order(at))).await;
        assert_eq!(record.orders, expected);
    }
}

/// An instant is one order, in the words of the first.
pub async fn an_order_given_twice_is_one(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    instructed(fixture, &schedule, Instruction::Run(order(9))).await;
    let first = instructed(fixture, &schedule, Instruction::Run(order(5))).await;
    let louder = RunNow { by: holder("boss"), why: why("now!"), ..order(5) };
    for again in [order(5), louder] {
        assert_eq!(instructed(fixture, &schedule, Instruction::Run(again)).await, first);
    }
}

/// Removes that order, and no other; reported twice, it is gone once.
pub async fn an_order_that_ran_is_gone(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    for at in [5, 6, 7] {
        instructed(fixture, &schedule, Instruction::Run(order(at))).await;
    }
    for (at, left) in [(6, vec![5, 7]), (6, vec![5, 7]), (8, vec![5, 7]), (7, vec![5]), (5, vec![])] {
        let record = instructed(fixture, &schedule, ran(at)).await;
        let expected: Vec<_> = left.into_iter().map(order).collect();
        assert_eq!(record.orders, expected, "the order of {at} has run");
    }
    let again = instructed(fixture, &schedule, Instruction::Run(order(6))).await;
    assert_eq!(again.orders, [order(6)], "what has run may be wanted again");
}

/// A schedule carries [`MAX_ORDERS`] orders; more are refused until some have run, and none is lost.
pub async fn orders_beyond_the_limit_are_refused_until_some_have_run(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let run = async |at: usize| {
        let order = order(i64::try_from(at).expect("a small number"));
        sure(fixture.store().instruct(schedule.clone(), Instruction::Run(order), LIMIT)).await
    };
    for at in 1..=MAX_ORDERS {
        assert_eq!(found(run(at).await).orders.len(), at, "there is still room");
    }
    let most = look(fixture, &schedule).await;
    let full = ScheduleSeen::Refused(Refusal::Full { what: "orders", most: MAX_ORDERS });
    for at in [MAX_ORDERS + 1, 0] {
        assert_eq!(run(at).await, full, "one more than the most must be refused");
    }
    assert_eq!(run(1).await, most, "what is wanted already is not one more");
    assert_eq!(look(fixture, &schedule).await, most, "a refused order must change nothing");
    instructed(fixture, &schedule, ran(50)).await;
    let orders = found(run(0).await).orders;
    let expected = (0..=100).filter(|at| *at != 50).map(order);
    assert!(expected.eq(orders.iter().cloned()), "there is room again: {orders:?}");
}

/// Of orders at the same moment each is kept.
pub async fn of_orders_that_race_none_is_lost(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    race(16, |number| {
        // Each instant twice.
        let run = Instruction::Run(order((number / 2).try_into().expect("a small number")));
        let (store, schedule) = (Arc::clone(fixture.store()), schedule.clone());
        async move { found(sure(store.instruct(schedule, run, LIMIT)).await) }
    })
    .await;
    let expected: Vec<_> = (0..8).map(order).collect();
    assert_eq!(found(look(fixture, &schedule).await).orders, expected);
}

/// An instruction makes the schedule's record, even if it changes nothing yet; and its effect stays when the schedule
/// is defined.
pub async fn a_schedule_nobody_defined_may_be_instructed(fixture: &Fixture) {
    for (number, instruction) in
        [Instruction::Resume, ran(5), pause(), Instruction::Run(order(5))].into_iter().enumerate()
    {
        let schedule = fixture.schedule(&format!("schedule {number}"));
        let record = instructed(fixture, &schedule, instruction.clone()).await;
        assert_eq!((&record.definition, record.mark), (&None, None));
        let says = [record.pause.is_some(), !record.orders.is_empty()];
        assert_eq!(says, [number == 2, number == 3], "{instruction:?}");
        let defined = defined(fixture, define(&schedule, 7, "0 3 * * *", "late: run")).await;
        let definition = Some(definition(&defined).clone());
        assert_eq!(defined, with!(record; definition: definition));
    }
}

/// A schedule's definition, its pause and its orders are independent.
pub async fn an_instruction_to_a_schedule_leaves_the_rest(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let all = full_record(fixture, &schedule).await;
    let again = defined(fixture, define(&schedule, 8, "other", "late: run")).await;
    assert_eq!((&again.pause, &again.orders), (&all.pause, &all.orders));
    let over = instructed(fixture, &schedule, Instruction::Resume).await;
    assert_eq!((&over.definition, &over.orders), (&again.definition, &all.orders));
    let empty = instructed(fixture, &schedule, ran(5)).await;
    assert_eq!(empty, with!(over; orders: Vec::new()));
}

/// The mark stands in the same record, and neither disturbs the other.
pub async fn a_purge_raises_the_mark_and_leaves_the_rest(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let all = full_record(fixture, &schedule).await;
    let marked = async |instants: &[i64]| {
        ledger(fixture, &schedule, instants).await;
        Some(StoreTime::from_millis(purge_down_to(fixture, &schedule, 0, &[]).await))
    };
    let mark = marked(&[10, 20]).await;
    assert_eq!(found(look(fixture, &schedule).await), with!(all.clone(); mark: mark));
    let over = instructed(fixture, &schedule, Instruction::Resume).await;
    let run = instructed(fixture, &schedule, Instruction::Run(order(6))).await;
    let again = defined(fixture, define(&schedule, 7, "other", "late: run")).await;
    for said in [&over, &run, &again] {
        assert_eq!(said.mark, Some(StoreTime::from_millis(20)), "only a purge raises the mark");
    }
    let mark = marked(&[30]).await;
    assert_eq!(found(look(fixture, &schedule).await), with!(again; mark: mark));

    let other = fixture.schedule("hourly");
    ledger(fixture, &other, &[1]).await;
    assert_eq!(look(fixture, &other).await, ScheduleSeen::Absent, "a claim says nothing of the schedule");
    let mark = Some(StoreTime::from_millis(purge_down_to(fixture, &other, 0, &[]).await));
    let record = found(look(fixture, &other).await);
    assert_eq!(record, with!(ScheduleRecord::new(other.clone()); mark: mark));
    assert_eq!(full_record(fixture, &other).await.mark, mark);
}

/// A schedule that has no mark yet has none in its history either.
pub async fn a_record_is_no_mark(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    full_record(fixture, &schedule).await;
    let history = sure(fixture.store().history(schedule.clone(), None, 10, LIMIT)).await;
    assert_eq!((history.items, history.mark), (vec![], None));
    ledger(fixture, &schedule, &[-5, 5]).await;
    let history = sure(fixture.store().history(schedule, None, 10, LIMIT)).await;
    assert_eq!((history.items.len(), history.mark), (2, None));
}

/// As they were asked for, also twice, also absent ones.
pub async fn schedules_are_read_in_the_order_asked_for(fixture: &Fixture) {
    let [first, second, none] = ["b", "a", "none"].map(|name| fixture.schedule(name));
    let one = ScheduleSeen::Found(full_record(fixture, &first).await);
    let other = ScheduleSeen::Found(defined(fixture, define(&second, 7, "hourly", "late: run")).await);
    let asked = [&first, &none, &second, &first].map(Clone::clone).to_vec();
    let seen = sure(fixture.store().schedules(asked, LIMIT)).await;
    assert_eq!(seen, [one.clone(), ScheduleSeen::Absent, other, one]);
    assert_eq!(sure(fixture.store().schedules(vec![], LIMIT)).await, []);
}

/// Any text in a schedule's name, rules or pause is read back as it was written.
pub async fn any_text_may_be_said_of_a_schedule(fixture: &Fixture) {
    let most = [full(Rules::MAX_BYTES, "$"), full(Rules::MAX_BYTES, "👑")];
    let sayings: Vec<_> = ODD.iter().map(|text| (*text).to_owned()).chain(most).collect();
    let cut = |text: &str, most: usize| Why::shortened(text).as_str().chars().take(most).collect::<String>();
    let mut records = Vec::new();
    for text in &sayings {
        let schedule = fixture.schedule(&cut(text, ScheduleName::MAX_BYTES / 4));
        let by = name(Holder::new(cut(text, Holder::MAX_BYTES / 4)));
        let reason = why(&cut(&format!("{text}\n\u{0}\t\"{text}"), Why::MAX_BYTES));
        defined(fixture, define(&schedule, 7, text, text)).await;
        let said = Instruction::Pause { by: by.clone(), why: reason.clone() };
        instructed(fixture, &schedule, said).await;
        let order = RunNow { at: StoreTime::from_millis(5), by: by.clone(), why: reason.clone() };
        let record = instructed(fixture, &schedule, Instruction::Run(order.clone())).await;
        assert_eq!((&record.id, &record.orders), (&schedule, &vec![order]));
        let definition = definition(&record);
        assert_eq!((definition.timing.as_str(), definition.policies.as_str()), (&**text, &**text));
        assert_eq!((&paused(&record).by, &paused(&record).why), (&by, &reason));
        records.push(record);
    }
    let asked = records.iter().map(|record| record.id.clone()).collect();
    let seen = sure(fixture.store().schedules(asked, LIMIT)).await;
    let seen: Vec<_> = seen.into_iter().map(found).collect();
    assert_eq!(seen, records, "each must be a schedule of its own");
}

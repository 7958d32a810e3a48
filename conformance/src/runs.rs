//! Runs: a tick is claimed by one attempt, which ends once.

use std::sync::Arc;

use crate::fixture::{Fixture, LIMIT, all_pages, holder, race, sure, why};
use tenure::{
    model::{Finish, Outcome, RunId, RunRecord, ScheduleId, SessionId, StoreTime, Term},
    store::{Claim, ClaimAnswer, FinishRun, StoreExt},
};

pub(crate) fn run(schedule: &ScheduleId, instant: i64) -> RunId {
    RunId::tick(schedule.clone(), StoreTime::from_millis(instant))
}

pub(crate) fn claim(run: &RunId, session: SessionId, attempt: u32) -> Claim {
    Claim {
        run: run.clone(),
        session,
        holder: holder("pod-$1"),
        term: Term::new(7),
        attempt,
        instead_of: None,
        skipped: None,
    }
}

pub(crate) fn finish(claim: &Claim, outcome: Outcome) -> FinishRun {
    let Claim { run, session, term, attempt, .. } = claim.clone();
    FinishRun { run, session, term, attempt, outcome, error: None, last: false }
}

pub(crate) async fn claimed(fixture: &Fixture, claim: &Claim) -> RunRecord {
    match make(fixture, claim).await {
        ClaimAnswer::Yours(record) => record,
        other => panic!("a tick nobody claimed must be granted, not {other:?}"),
    }
}

pub(crate) async fn make(fixture: &Fixture, claim: &Claim) -> ClaimAnswer {
    sure(fixture.store().claim(claim.clone(), LIMIT)).await
}

async fn end(fixture: &Fixture, finish: FinishRun) -> ClaimAnswer {
    sure(fixture.store().finish(finish, LIMIT)).await
}

pub(crate) async fn all_runs(fixture: &Fixture, schedule: &ScheduleId, at_most: usize) -> Vec<RunRecord> {
    let store = fixture.store();
    all_pages(at_most, async |after| {
        sure(store.history(schedule.clone(), after, at_most, LIMIT)).await.into()
    })
    .await
}

/// The record says what the claim said, and has no end.
pub async fn a_tick_nobody_claimed_is_granted(fixture: &Fixture) {
    let schedule = fixture.schedule("$nightly.report 👑");
    for instant in [1_700_000_000_000, 0, -1, i64::from(i32::MIN)] {
        let claim = Claim { term: Term::new(9), ..claim(&run(&schedule, instant), fixture.session(), 1) };
        let record = claimed(fixture, &claim).await;
        let expected = with!(
            RunRecord::new(claim.run.clone(), claim.session, claim.holder.clone(), claim.term, record.started);
            attempt: 1,
            finish: None,
            skipped: None,
        );
        assert_eq!(record, expected, "the run must say what the claim said");
        assert!(all_runs(fixture, &schedule, 10).await.contains(&record));
    }
}

/// A claim sent again is recognised, also after its attempt has ended.
pub async fn a_claim_sent_again_is_recognised(fixture: &Fixture) {
    let claim = claim(&run(&fixture.schedule("nightly"), 1000), fixture.session(), 1);
    let first = claimed(fixture, &claim).await;
    assert_eq!(make(fixture, &claim).await, ClaimAnswer::Yours(first), "a claim sent again changes nothing");
    let ended = end(fixture, finish(&claim, Outcome::Succeeded)).await;
    assert_eq!(make(fixture, &claim).await, ended, "nor does it take back an end");
}

/// Another session, another term, another attempt: the others learn which came first.
pub async fn a_claimed_tick_is_granted_to_nobody_else(fixture: &Fixture) {
    let run = run(&fixture.schedule("nightly"), 1000);
    let first = claim(&run, fixture.session(), 1);
    let record = claimed(fixture, &first).await;
    let others = [
        Claim { session: fixture.session(), ..first.clone() },
        Claim { term: Term::new(8), ..first.clone() },
        Claim { attempt: 2, ..first.clone() },
    ];
    for other in &others {
        let answer = make(fixture, other).await;
        assert_eq!(answer, ClaimAnswer::Others(record.clone()), "{other:?} must not get a claimed tick");
    }
    end(fixture, finish(&first, Outcome::Failed)).await;
    for other in &others {
        let answer = make(fixture, other).await;
        assert!(matches!(answer, ClaimAnswer::Others(_)), "an end does not open the tick: {answer:?}");
    }
}

/// In place of the attempt it names, by term and number, and of no other.
pub async fn a_claim_replaces_the_attempt_it_names(fixture: &Fixture) {
    let run = run(&fixture.schedule("nightly"), 1000);
    let first = claim(&run, fixture.session(), 1);
    claimed(fixture, &first).await;
    let ended = end(fixture, finish(&first, Outcome::Failed)).await;
    let ClaimAnswer::Yours(record) = ended else { panic!("it must end its own attempt, not {ended:?}") };
    let second = Claim { term: Term::new(8), ..claim(&run, fixture.session(), 2) };
    for wrong in [(Term::new(7), 2), (Term::new(8), 1), (Term::new(6), 1)] {
        let answer = make(fixture, &Claim { instead_of: Some(wrong), ..second.clone() }).await;
        assert_eq!(answer, ClaimAnswer::Others(record.clone()), "{wrong:?} is not the one on record");
    }
    let second = Claim { instead_of: Some((Term::new(7), 1)), ..second };
    let replaced = claimed(fixture, &second).await;
    assert_eq!((replaced.session, replaced.attempt, &replaced.finish), (second.session, 2, &None));
    assert_eq!(make(fixture, &second).await, ClaimAnswer::Yours(replaced.clone()), "sent again: the same");
    for late in [&first, &Claim { instead_of: Some((Term::new(7), 1)), ..claim(&run, fixture.session(), 2) }]
    {
        let answer = make(fixture, late).await;
        assert_eq!(answer, ClaimAnswer::Others(replaced.clone()), "{late:?} came late");
    }
    assert_eq!(all_runs(fixture, &run.schedule, 10).await, [replaced], "one tick is one run");
}

/// The same attempt, under a later term: it was not made. What was sent before changes nothing of that.
pub async fn an_attempt_that_did_not_begin_is_claimed_again_under_its_number(fixture: &Fixture) {
    let run = run(&fixture.schedule("nightly"), 1000);
    let first = claim(&run, fixture.session(), 1);
    claimed(fixture, &first).await;
    let given_back = FinishRun { last: false, ..finish(&first, Outcome::NotBegun) };
    let ClaimAnswer::Yours(record) = end(fixture, given_back.clone()).await else {
        panic!("it must give back its own attempt");
    };
    assert!(record.was_not_begun(), "{record:?}");
    assert_eq!(make(fixture, &first).await, ClaimAnswer::Yours(record.clone()), "its claim comes late");
    let next =
        Claim { term: Term::new(8), instead_of: Some((first.term, 1)), ..claim(&run, fixture.session(), 1) };
    let running = claimed(fixture, &next).await;
    assert_eq!((running.attempt, running.term, &running.finish), (1, next.term, &None));
    assert_eq!(end(fixture, given_back).await, ClaimAnswer::Others(running.clone()), "it is somebody else's");
    assert_eq!(make(fixture, &first).await, ClaimAnswer::Others(running));
}

/// A tick whose job did its work is over: no session runs it again, not even one that takes the attempt
/// for failed.
pub async fn an_attempt_that_succeeded_is_not_replaced(fixture: &Fixture) {
    let run = run(&fixture.schedule("nightly"), 1000);
    let first = claim(&run, fixture.session(), 1);
    claimed(fixture, &first).await;
    let ClaimAnswer::Yours(done) = end(fixture, finish(&first, Outcome::Succeeded)).await else {
        panic!("it must end its own attempt");
    };
    let second = Claim { instead_of: Some((first.term, 1)), ..claim(&run, fixture.session(), 2) };
    assert_eq!(make(fixture, &second).await, ClaimAnswer::Others(done));
}

/// An attempt that failed for good was the last, also for an owner that has read the entry before its end arrived.
pub async fn an_attempt_that_was_the_last_is_not_replaced(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    for (instant, outcome) in (1..).zip([Outcome::Failed, Outcome::Cancelled, Outcome::Abandoned]) {
        let first = claim(&run(&schedule, instant), fixture.session(), 1);
        claimed(fixture, &first).await;
        let last = FinishRun { last: true, ..finish(&first, outcome) };
        let ClaimAnswer::Yours(done) = end(fixture, last).await else {
            panic!("it must end its own attempt");
        };
        let second = Claim { instead_of: Some((first.term, 1)), ..claim(&first.run, fixture.session(), 2) };
        assert_eq!(make(fixture, &second).await, ClaimAnswer::Others(done));
    }
}

/// A claim in place of an attempt that was never made is the first.
pub async fn a_claim_in_place_of_nobody_is_granted(fixture: &Fixture) {
    let run = run(&fixture.schedule("nightly"), 1000);
    let claim = Claim { instead_of: Some((Term::new(3), 1)), ..claim(&run, fixture.session(), 2) };
    assert_eq!(claimed(fixture, &claim).await.attempt, 2);
}

/// Of 32 claims of one tick at the same moment one is granted, and all learn which; so it is with
/// those that replace one attempt.
pub async fn of_claims_that_race_one_wins(fixture: &Fixture) {
    let run = run(&fixture.schedule("nightly"), 1000);
    for (attempt, instead_of) in [(1, None), (2, Some((Term::new(7), 1)))] {
        let answers = race(32, |_| {
            let claim = Claim { instead_of, ..claim(&run, fixture.session(), attempt) };
            let store = Arc::clone(fixture.store());
            async move { sure(store.claim(claim, LIMIT)).await }
        })
        .await;
        let [record] = &all_runs(fixture, &run.schedule, 10).await[..] else { panic!("one tick is one run") };
        assert_eq!(record.attempt, attempt);
        let won = answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Yours(_))).count();
        assert_eq!(won, 1, "of 32 claims one must win");
        for answer in &answers {
            let (ClaimAnswer::Yours(seen) | ClaimAnswer::Others(seen)) = answer else {
                panic!("a race is won or lost, not {answer:?}");
            };
            assert_eq!(seen, record, "winner and losers must see the run as it is afterwards");
        }
    }
}

/// The end is written with its outcome and error, and nothing else changes.
pub async fn an_attempt_ends_as_it_says(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let errors = [None, Some(why("")), Some(why("$no\n{\"$where\": 1}")), Some(why(&"é".repeat(512)))];
    for (instant, (outcome, error)) in (1..).zip(Outcome::ALL.into_iter().zip(errors.into_iter().cycle())) {
        let (claim, last) = (claim(&run(&schedule, instant), fixture.session(), 1), instant % 2 == 0);
        let running = claimed(fixture, &claim).await;
        let answer = end(fixture, FinishRun { error: error.clone(), last, ..finish(&claim, outcome) }).await;
        let ClaimAnswer::Yours(record) = &answer else { panic!("its own attempt must end: {answer:?}") };
        let at = record.finish.as_ref().map(|finish| finish.at);
        let at = at.unwrap_or_else(|| panic!("the attempt must have an end: {record:?}"));
        assert!(at >= running.started, "nothing ends before it starts");
        let expected =
            with!(running; finish: Some(with!(Finish::new(at, outcome); error: error, last: last)));
        assert_eq!(*record, expected, "an end must be written as it was said, and nothing else");
        assert_eq!(all_runs(fixture, &schedule, 10).await[0], expected);
    }
}

/// An end that another attempt might have followed becomes the last by a finish of its outcome, for ever. Neither
/// its time nor its error changes, and no other finish changes anything.
pub async fn an_end_may_become_the_last(fixture: &Fixture) {
    for (instant, outcome) in (1..).zip(Outcome::ALL) {
        let claim = claim(&run(&fixture.schedule("nightly"), instant), fixture.session(), 1);
        claimed(fixture, &claim).await;
        let said = FinishRun { error: Some(why("no disk")), ..finish(&claim, outcome) };
        let ClaimAnswer::Yours(first) = end(fixture, said.clone()).await else { panic!("it must end") };
        let other = if outcome == Outcome::Failed { Outcome::Abandoned } else { Outcome::Failed };
        let others = FinishRun { last: true, ..finish(&claim, other) };
        assert_eq!(end(fixture, others).await, ClaimAnswer::Yours(first.clone()), "another outcome");
        let is_last = FinishRun { last: true, error: None, ..said.clone() };
        let known = first.finish.clone().expect("it was finished");
        let expected = with!(first; finish: Some(with!(known; last: true)));
        assert_eq!(end(fixture, is_last).await, ClaimAnswer::Yours(expected.clone()));
        assert_eq!(end(fixture, said).await, ClaimAnswer::Yours(expected), "it stays the last");
    }
}

/// The first end stays: a finish sent again, or another, changes nothing.
pub async fn an_attempt_ends_once(fixture: &Fixture) {
    let claim = claim(&run(&fixture.schedule("nightly"), 1000), fixture.session(), 1);
    claimed(fixture, &claim).await;
    let first = end(fixture, finish(&claim, Outcome::Succeeded)).await;
    for (outcome, error) in [(Outcome::Succeeded, None), (Outcome::Abandoned, Some(why("no beat")))] {
        let again = end(fixture, FinishRun { error, ..finish(&claim, outcome) }).await;
        assert_eq!(again, first, "the first end must stay, and be the answer");
    }
}

/// An attempt that was replaced, or never claimed it, writes nothing, and learns which is on record.
pub async fn only_the_attempt_on_record_ends(fixture: &Fixture) {
    let run = run(&fixture.schedule("nightly"), 1000);
    let first = claim(&run, fixture.session(), 1);
    claimed(fixture, &first).await;
    let second = Claim { instead_of: Some((Term::new(7), 1)), ..claim(&run, fixture.session(), 2) };
    let running = claimed(fixture, &second).await;
    for other in [
        first.clone(),
        Claim { session: fixture.session(), ..second.clone() },
        Claim { term: Term::new(6), ..second.clone() },
        Claim { attempt: 3, ..second.clone() },
    ] {
        let answer = end(fixture, finish(&other, Outcome::Succeeded)).await;
        assert_eq!(answer, ClaimAnswer::Others(running.clone()), "another attempt is on record");
    }
    assert_eq!(all_runs(fixture, &run.schedule, 10).await, [running]);
}

/// An end needs a claim.
pub async fn a_tick_nobody_claimed_cannot_end(fixture: &Fixture) {
    let run = run(&fixture.schedule("nightly"), 1000);
    let claim = claim(&run, fixture.session(), 1);
    assert_eq!(end(fixture, finish(&claim, Outcome::Succeeded)).await, ClaimAnswer::Absent);
    assert_eq!(all_runs(fixture, &run.schedule, 10).await, [], "a finish must make no run");
}

/// Each once, latest instant first, whatever the size of a page and whenever they started.
pub async fn a_history_is_listed_latest_first(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let mut expected = Vec::new();
    for instant in [5, 1_000, 1_700_000_000_000, -3, 999, 0, -1_000_000] {
        expected.push(claimed(fixture, &claim(&run(&schedule, instant), fixture.session(), 1)).await);
    }
    expected.sort_by_key(|run| std::cmp::Reverse(run.id.instant));
    for at_most in [1, 2, 3, 7, 100] {
        let listed = all_runs(fixture, &schedule, at_most).await;
        assert_eq!(listed, expected, "pages of {at_most} must list every run once, latest first");
    }
}

/// Two schedules have two ledgers, also if they share a name in two namespaces.
pub async fn schedules_do_not_meet(fixture: &Fixture) {
    let another = fixture.another();
    let schedules = [
        fixture.schedule("nightly"),
        fixture.schedule("nightly2"),
        fixture.schedule("night"),
        fixture.schedule("nightly:1000"),
        another.schedule("nightly"),
    ];
    let mut records = Vec::new();
    for schedule in &schedules {
        records.push(claimed(fixture, &claim(&run(schedule, 1000), fixture.session(), 1)).await);
    }
    for (schedule, record) in schedules.iter().zip(records) {
        assert_eq!(all_runs(fixture, schedule, 10).await, [record]);
    }
    // Nor by a place in the ledger of another one. A store may also refuse it.
    let store = fixture.store();
    for schedule in &schedules {
        claimed(fixture, &claim(&run(schedule, 2000), fixture.session(), 1)).await;
        let place = sure(store.history(schedule.clone(), None, 1, LIMIT)).await.next;
        for other in &schedules {
            let history = store.history(other.clone(), place.clone(), 100, LIMIT).await;
            let items = history.map_or_else(|_| Vec::new(), |history| history.items);
            assert!(items.iter().all(|run| run.id.schedule == *other), "{other} after a place of {schedule}");
        }
    }
}

/// A schedule that never ran has neither runs nor a mark.
pub async fn a_schedule_that_never_ran_has_no_history(fixture: &Fixture) {
    let history = sure(fixture.store().history(fixture.schedule("nightly"), None, 10, LIMIT)).await;
    assert!(history.items.is_empty() && history.next.is_none() && history.mark.is_none());
    claimed(fixture, &claim(&run(&fixture.schedule("nightly"), 1), fixture.session(), 1)).await;
    let history = sure(fixture.store().history(fixture.schedule("nightly"), None, 10, LIMIT)).await;
    assert_eq!(history.mark, None, "only a purge raises the mark");
}

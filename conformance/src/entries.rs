//! The entries of a ledger: ticks, orders, and ticks that were not run stand side by side.

use crate::{
    fixture::{Fixture, LIMIT, sure, why},
    purge_runs::{left, purge, purge_down_to},
    runs::{all_runs, claim, claimed, finish, make},
};
use tenure::{
    model::{Entry, Finish, MAX_NUMBER, Outcome, RunId, RunRecord, ScheduleId, Skipped, StoreTime, Term},
    store::{Claim, ClaimAnswer, FinishRun, StoreExt},
};

pub(crate) const ENTRIES: [Entry; 3] = [Entry::Tick, Entry::Order, Entry::Skipped];

/// A claim of an entry; of ticks that were not run, those of the last so many milliseconds.
pub(crate) fn entry(fixture: &Fixture, schedule: &ScheduleId, instant: i64, entry: Entry) -> Claim {
    let run = RunId { entry, ..RunId::tick(schedule.clone(), StoreTime::from_millis(instant)) };
    let from = StoreTime::from_millis(instant - 10);
    let skipped = Skipped { from, count: 11, why: why("$paused \"by admin\"") };
    Claim { skipped: (entry == Entry::Skipped).then_some(skipped), ..claim(&run, fixture.session(), 1) }
}

/// From the same write, with the words of the claim.
pub async fn ticks_that_are_not_run_are_written_finished(fixture: &Fixture) {
    let schedule = fixture.schedule("$nightly.report 👑");
    let sayings = [(11, why("$paused")), (0, why("")), (MAX_NUMBER, why(&"é\0".repeat(341)))];
    for (instant, (count, why)) in [1_700_000_000_000, 0, -1].into_iter().zip(sayings) {
        let from = StoreTime::from_millis(instant - 1_000);
        let skipped = Some(Skipped { from, count, why });
        let claim = Claim { skipped, ..entry(fixture, &schedule, instant, Entry::Skipped) };
        let record = claimed(fixture, &claim).await;
        let at = record.started;
        let expected = with!(
            RunRecord::new(claim.run.clone(), claim.session, claim.holder.clone(), claim.term, at);
            attempt: 1,
            finish: Some(with!(Finish::new(at, Outcome::Skipped); error: None, last: true)),
            skipped: claim.skipped.clone(),
        );
        assert_eq!(record, expected, "the entry must say what the claim said, and that it is over");
        assert!(all_runs(fixture, &schedule, 10).await.contains(&record));
    }
}

/// Sent again it is recognised, and has its end already.
pub async fn ticks_that_are_not_run_are_told_once(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let claim = entry(fixture, &schedule, 1000, Entry::Skipped);
    let first = claimed(fixture, &claim).await;
    assert_eq!(make(fixture, &claim).await, ClaimAnswer::Yours(first.clone()), "sent again");
    let other = Claim { term: Term::new(8), ..entry(fixture, &schedule, 1000, Entry::Skipped) };
    assert_eq!(make(fixture, &other).await, ClaimAnswer::Others(first.clone()), "somebody else's");
    let Claim { run, session, term, attempt, .. } = claim;
    let finish = FinishRun {
        run,
        session,
        term,
        attempt,
        outcome: Outcome::Failed,
        error: Some(why("no")),
        last: true,
    };
    let ended = sure(fixture.store().finish(finish, LIMIT)).await;
    assert_eq!(ended, ClaimAnswer::Yours(first.clone()), "it has ended already");
    assert_eq!(all_runs(fixture, &schedule, 10).await, [first]);
}

/// A tick, an order and ticks that were not run may bear the same instant: each is an entry of its own, ends
/// by itself, and is replaced by itself.
pub async fn entries_of_one_instant_do_not_meet(fixture: &Fixture) {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let schedule = fixture.schedule(&format!("{order:?}"));
        let claims = order.map(|place| entry(fixture, &schedule, 1000, ENTRIES[place]));
        let mut records = Vec::new();
        for claim in &claims {
            records.push(claimed(fixture, claim).await);
        }
        for (claim, record) in claims.iter().zip(&records) {
            assert_eq!(make(fixture, claim).await, ClaimAnswer::Yours(record.clone()));
            assert_eq!(record.finish.is_some(), claim.run.entry == Entry::Skipped);
            assert_eq!(record.skipped, claim.skipped);
        }
        let wanted = claims.iter().find(|claim| claim.run.entry == Entry::Order).expect("one of three");
        let Claim { run, term, .. } = wanted.clone();
        sure(fixture.store().finish(finish(wanted, Outcome::Failed), LIMIT)).await;
        let second = Claim { instead_of: Some((term, 1)), ..claim(&run, fixture.session(), 2) };
        let replaced = claimed(fixture, &second).await;
        records.retain(|record| record.id != run);
        records.push(replaced);
        records.sort_by(|one, other| other.id.cmp(&one.id));
        assert_eq!(all_runs(fixture, &schedule, 10).await, records, "only the order ended and was replaced");
    }
}

/// A replacement keeps nothing of the entry it replaces.
pub async fn an_entry_that_is_replaced_is_replaced_as_a_whole(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let first = entry(fixture, &schedule, 1000, Entry::Tick);
    claimed(fixture, &first).await;
    sure(fixture.store().finish(finish(&first, Outcome::Failed), LIMIT)).await;
    let second = Claim { instead_of: Some((first.term, 1)), ..claim(&first.run, fixture.session(), 2) };
    let record = claimed(fixture, &second).await;
    assert_eq!((record.session, record.attempt, record.finish), (second.session, 2, None));
}

/// At one instant the tick comes before orders, and those before ticks that were not run: so the last is
/// listed first, whatever the size of a page.
pub async fn entries_are_listed_last_first(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    let mut expected = Vec::new();
    for instant in [5, 1_000, -3, 1_700_000_000_000, 0] {
        for of in ENTRIES {
            expected.push(claimed(fixture, &entry(fixture, &schedule, instant, of)).await);
        }
    }
    expected.sort_by(|one, other| other.id.cmp(&one.id));
    let last = [Entry::Skipped, Entry::Order, Entry::Tick];
    assert!(expected[..3].iter().map(|run| run.id.entry).eq(last));
    for at_most in [1, 2, 3, 4, 7, 100] {
        let listed = all_runs(fixture, &schedule, at_most).await;
        assert_eq!(listed, expected, "pages of {at_most} must list every entry once, the last first");
    }
}

/// Also within one instant: the last in their order stay, and the mark stands at the last that went.
pub async fn entries_are_purged_first_to_last(fixture: &Fixture) {
    let schedule = fixture.schedule("nightly");
    for instant in [10, 20] {
        for of in ENTRIES {
            claimed(fixture, &entry(fixture, &schedule, instant, of)).await;
        }
    }
    assert_eq!(purge_down_to(fixture, &schedule, 4, &[20, 20, 20, 10]).await, 10);
    assert_eq!(all_runs(fixture, &schedule, 10).await[3].id.entry, Entry::Skipped);
    assert_eq!(purge_down_to(fixture, &schedule, 1, &[20]).await, 20);
    assert_eq!(all_runs(fixture, &schedule, 10).await[0].id.entry, Entry::Skipped);
    purge(fixture, &schedule, std::time::Duration::ZERO, 1).await;
    assert_eq!(left(fixture, &schedule).await, (vec![20], Some(20)), "nothing more to purge");
}

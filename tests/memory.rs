//! The memory store: the conformance suite, random scripts, and what only a clock that is turned by
//! hand can show.

use crate::reference;

mod conformance {
    use std::sync::Arc;

    use tenure::store::MemoryStore;

    tenure_conformance::conformance_tests!(Arc::new(MemoryStore::default()));
}

mod scripts {
    use std::sync::Arc;

    use tenure::{
        store::{MemoryStore, Store},
        testing::TestClock,
    };

    use super::reference::{
        self,
        mutants::{Mutant, Mutation},
    };

    const STEPS: usize = 10_000;

    async fn turned_by_hand() -> reference::Subject {
        let clock = Arc::new(TestClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
        (store, Some(clock))
    }

    async fn on_the_machines_clock() -> reference::Subject {
        (Arc::new(MemoryStore::default()), None)
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_store_answers_as_the_model_says() {
        for seed in 0..8 {
            reference::check(seed, STEPS, turned_by_hand).await;
        }
    }

    #[tokio::test]
    async fn the_memory_store_answers_as_the_model_says_while_time_goes_on() {
        reference::check(100, STEPS, on_the_machines_clock).await;
    }

    /// A model that does not notice these would notice nothing.
    #[tokio::test(start_paused = true)]
    async fn the_model_catches_every_mutant_within_a_script() {
        let script = reference::script(1, STEPS);
        for mutation in Mutation::ALL {
            let clock = Arc::new(TestClock::new());
            let mutant = Mutant::new(MemoryStore::new(clock.clone()), *mutation);
            match reference::run_with(Arc::new(mutant), Some(clock), &script).await {
                Ok(_) => panic!("the model did not notice {mutation:?}"),
                Err(failure) => println!("{mutation:?} was noticed at step {}", failure.at),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "shrunk from")]
    async fn a_script_that_fails_is_shrunk() {
        let subject = async || -> reference::Subject {
            let store = Mutant::new(MemoryStore::default(), Mutation::LaterDeclarationIsKept);
            let store: Arc<dyn Store> = Arc::new(store);
            (store, None)
        };
        reference::check(1, STEPS, subject).await;
    }

    /// A script that only ever meets the same few answers would prove little.
    #[tokio::test(start_paused = true)]
    async fn a_script_meets_every_answer_often() {
        let script = reference::script(1, 2 * STEPS);
        let (store, clock) = turned_by_hand().await;
        let met = reference::run_with(store, clock, &script).await.unwrap();
        for what in [
            "open: Alive",
            "open: Dead",
            "beat: Alive",
            "beat: Dead",
            "beat: Missing",
            "declare: Alive",
            "declare: Dead",
            "declare: Missing",
            "take: Taken",
            "take: Held",
            "take: Closed",
            "grant: Released",
            "grant: HandedOver",
            "grant: Died",
            "grant: Superseded",
            "grant: Forced",
            "set value: Set",
            "set value: NotHeld",
            "revoke: Asked",
            "revoke: Freed",
            "revoke: NotHeld",
            "define: timing",
            "define: policies",
            "define: known",
            "define: late",
            "instruct: paused",
            "instruct: paused again",
            "instruct: resumed",
            "instruct: resumed again",
            "instruct: ordered",
            "instruct: ordered again",
            "instruct: ran",
            "instruct: ran again",
            "claim of: tick",
            "claim of: order",
            "claim of: skipped",
            "claim: Yours",
            "claim: Others",
            "finish: Yours",
            "finish: Others",
            "finish: Absent",
            "purge: lock",
            "purge: freed",
            "purge: session",
            "purge: run",
        ] {
            let often = met.get(what).copied().unwrap_or_default();
            assert!(often >= 10, "{what} was met {often} times only, in {met:#?}");
        }
    }
}

mod turned_by_hand {
    use std::{sync::Arc, time::Duration};

    use futures::StreamExt;
    use tenure::{
        Clock,
        model::{MAX_NUMBER, Retention, Term},
        store::{
            FOR_GOOD, Hint, LockRecord, LockSeen, MemoryStore, News, Purged, ReleaseTo, SessionSeen, Store,
            StoreExt, TERM_KEPT, TakeAnswer, Wait,
        },
        testing::TestClock,
    };
    use tenure_conformance::{Fixture, LIMIT};

    const MS: Duration = Duration::from_millis(1);
    const MINUTE: Duration = Duration::from_secs(60);
    /// A millisecond less than a minute.
    const JUST_BEFORE: Duration = Duration::from_millis(59_999);
    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn turned() -> (Arc<TestClock>, Fixture) {
        let clock = Arc::new(TestClock::new());
        let store = MemoryStore::new(clock.clone());
        (clock, Fixture::new(Arc::new(store)))
    }

    /// A lock that was released and is closed for so long.
    async fn closed_for(fixture: &Fixture, length: Duration) -> LockRecord {
        let lock = fixture.lock("report");
        let session = fixture.session();
        let held = fixture.held(&lock, session, 1).await;
        fixture.release(&lock, session, held.term, ReleaseTo::ClosedFor(length)).await;
        fixture.record(&lock).await
    }

    async fn closed_for_a_minute(fixture: &Fixture) -> LockRecord {
        closed_for(fixture, MINUTE).await
    }

    async fn is_closed(fixture: &Fixture, lock: &LockRecord) -> bool {
        let by = fixture.candidate(fixture.session(), 1);
        match fixture.take(&lock.id, &by).await {
            TakeAnswer::Closed(record) => record == *lock,
            TakeAnswer::Taken(record) => {
                assert!(record.term > lock.term);
                false
            }
            other => panic!("a closed lock is closed or taken, not {other:?}"),
        }
    }

    async fn purge(fixture: &Fixture, retention: Retention) -> Purged {
        fixture
            .store()
            .purge(fixture.namespace().clone(), retention, None, LIMIT)
            .await
            .expect("it never fails")
    }

    fn purged(count: impl FnOnce(&mut Purged)) -> Purged {
        let mut all = Purged::default();
        count(&mut all);
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_lock_opens_when_its_time_is_over_and_not_before() {
        let (clock, fixture) = turned();
        let lock = closed_for_a_minute(&fixture).await;
        clock.step_wall(JUST_BEFORE);
        assert!(is_closed(&fixture, &lock).await);
        clock.step_wall(MS);
        assert!(!is_closed(&fixture, &lock).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closing_is_not_believed_beyond_its_length_when_the_clock_jumps_back() {
        for back in [MS, HOUR, 365 * DAY] {
            let (clock, fixture) = turned();
            let lock = closed_for_a_minute(&fixture).await;
            clock.step_wall_back(back);
            assert!(!is_closed(&fixture, &lock).await, "{back:?} back, another clock wrote it");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_closed_for_good_is_closed_and_kept_whatever_the_clock_says() {
        for (on, back) in [(0, 0), (0, 1), (0, 30), (0, 9000), (30, 0), (9000, 0)] {
            let (clock, fixture) = turned();
            let lock = closed_for(&fixture, FOR_GOOD).await;
            clock.step_wall(on * DAY);
            clock.step_wall_back(back * DAY);
            assert_eq!(purge(&fixture, Retention::default()).await.locks, 0, "{on} days on, {back} back");
            assert!(is_closed(&fixture, &lock).await, "{on} days on, {back} back");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_delay_is_not_believed_beyond_its_length_either() {
        let (clock, fixture) = turned();
        let lock = fixture.lock("report");
        let mut careful = fixture.candidate(fixture.opened().await.id, 1);
        careful.lock_delay = MINUTE;
        fixture.taken(&lock, &careful).await;
        fixture.declare_dead(careful.session).await;
        let by = fixture.candidate(fixture.session(), 1);
        let answer = fixture.take_over(&lock, &by, &[careful.session]).await;
        assert!(matches!(answer, TakeAnswer::Closed(_)), "{answer:?}");
        clock.step_wall_back(HOUR);
        assert!(!is_closed(&fixture, &fixture.record(&lock).await).await);
    }

    /// Released, taken from the dead, purged: whatever the clock does in between.
    #[tokio::test(start_paused = true)]
    async fn terms_rise_while_the_clock_jumps_back() {
        let (clock, fixture) = turned();
        let lock = fixture.lock("report");
        let mut last = Term::new(0);
        let mut rises = async |record: &LockRecord| {
            assert!(record.term > last, "{} after {last}", record.term);
            last = record.term;
        };
        let first = fixture.opened().await.id;
        let record = fixture.held(&lock, first, 1).await;
        rises(&record).await;
        fixture.freed(&record).await;
        clock.step_wall_back(HOUR);
        rises(&fixture.held(&lock, first, 2).await).await;

        fixture.declare_dead(first).await;
        clock.step_wall_back(HOUR);
        let second = fixture.candidate(fixture.session(), 1);
        let answer = fixture.take_over(&lock, &second, &[first]).await;
        let record = answer.taken().expect("its holder is dead");
        rises(record).await;

        fixture.freed(record).await;
        clock.step_wall(8 * DAY);
        assert_eq!(purge(&fixture, Retention::default()).await.locks, 1);
        assert_eq!(fixture.look(&lock).await, LockSeen::Absent);
        clock.step_wall_back(TERM_KEPT);
        rises(&fixture.held(&lock, fixture.session(), 1).await).await;
    }

    #[tokio::test(start_paused = true)]
    async fn locks_are_purged_when_they_have_been_free_for_the_retention_and_not_before() {
        let (clock, fixture) = turned();
        let [free, held] = ["free", "held"].map(|key| fixture.lock(key));
        fixture.held(&held, fixture.session(), 1).await;
        fixture.freed(&fixture.held(&free, fixture.session(), 1).await).await;
        clock.step_wall(7 * DAY);
        assert_eq!(purge(&fixture, Retention::default()).await, Purged::default());
        clock.step_wall(MS);
        assert_eq!(purge(&fixture, Retention::default()).await, purged(|all| all.locks = 1));
        assert_eq!(fixture.look(&free).await, LockSeen::Absent);
        assert!(fixture.look(&held).await.found().is_some(), "held, however long");
    }

    /// A record that went would start again at the clock: below its last term.
    #[tokio::test(start_paused = true)]
    async fn a_lock_stays_while_the_clock_is_behind_its_term() {
        let (clock, fixture) = turned();
        let lock = fixture.lock("report");
        let held = fixture.held(&lock, fixture.session(), 1).await;
        clock.step_wall_back(10 * DAY);
        fixture.freed(&held).await;
        clock.step_wall(10 * DAY + TERM_KEPT);
        assert_eq!(
            purge(&fixture, Retention::default()).await.locks,
            0,
            "free for long, but of a young term"
        );
        clock.step_wall(MS);
        assert_eq!(purge(&fixture, Retention::default()).await.locks, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_kept_closed_is_not_purged_before_it_opens() {
        let (clock, fixture) = turned();
        let lock = fixture.lock("report");
        let record = fixture.held(&lock, fixture.session(), 1).await;
        let holder = record.holding.as_ref().expect("it was just taken").by.session;
        fixture.release(&lock, holder, record.term, ReleaseTo::ClosedFor(9 * DAY)).await;
        clock.step_wall(8 * DAY);
        assert_eq!(purge(&fixture, Retention::default()).await.locks, 0);
        clock.step_wall(DAY + MS);
        assert_eq!(purge(&fixture, Retention::default()).await.locks, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_purged_a_day_after_they_died_and_not_before() {
        let (clock, fixture) = turned();
        let dead = fixture.dead_session().await;
        let alive = fixture.opened().await;
        clock.step_wall(DAY);
        assert_eq!(purge(&fixture, Retention::default()).await, Purged::default());
        clock.step_wall(MS);
        assert_eq!(purge(&fixture, Retention::default()).await.sessions, 1);
        assert_eq!(fixture.seen(dead).await, SessionSeen::Missing);
        assert_eq!(fixture.seen(alive.id).await, SessionSeen::Alive(alive));
    }

    /// A key of one order, which nobody wants again, and the session that died with it.
    #[tokio::test(start_paused = true)]
    async fn a_lock_of_a_dead_session_is_freed_and_purged_in_its_time_and_so_is_the_session() {
        let (clock, fixture) = turned();
        let lock = fixture.lock("order 4711");
        let dead = fixture.opened().await.id;
        let held = fixture.held(&lock, dead, 1).await;
        fixture.declare_dead(dead).await;
        clock.step_wall(7 * DAY);
        assert_eq!(purge(&fixture, Retention::default()).await, Purged::default(), "its time is not over");
        assert_eq!(fixture.record(&lock).await, held);
        clock.step_wall(MS);
        let freed = purged(|all| (all.freed, all.sessions) = (1, 1));
        assert_eq!(purge(&fixture, Retention::default()).await, freed);
        assert_eq!(fixture.record(&lock).await.term, held.term);
        assert_eq!(fixture.seen(dead).await, SessionSeen::Missing);
        clock.step_wall(7 * DAY + MS);
        assert_eq!(purge(&fixture, Retention::default()).await, purged(|all| all.locks = 1));
        assert_eq!(fixture.look(&lock).await, LockSeen::Absent);
    }

    /// Days of keys that are used once: nothing is kept of those before the last retention.
    #[tokio::test(start_paused = true)]
    async fn keys_that_are_used_once_leave_nothing_behind() {
        let (clock, fixture) = turned();
        let hour = Retention { locks: HOUR, sessions: HOUR };
        let mut kept = Vec::new();
        for hours in 0..96 {
            let dead = fixture.opened().await.id;
            for number in 0..20 {
                let lock = fixture.lock(&format!("order {hours} {number}"));
                let wait = Wait { lock: lock.clone(), by: fixture.candidate(dead, 100) };
                fixture.store().wait(vec![wait], LIMIT).await.expect("it never fails");
                let record = fixture.held(&lock, dead, number + 1).await;
                if number % 2 == 0 {
                    fixture.freed(&record).await;
                }
            }
            fixture.declare_dead(dead).await;
            clock.step_wall(HOUR);
            purge(&fixture, hour).await;
            kept.push(format!("{:?}", fixture.store()));
        }
        assert_eq!(kept[95], kept[47], "day 4 is as day 2 was");
        assert_ne!(kept[95], kept[0], "a day of terms is kept");
    }

    /// A clock that stands at the end of time gives the last term there is.
    #[tokio::test(start_paused = true)]
    async fn a_lock_at_the_last_term_is_refused_and_can_be_given_back() {
        let (clock, fixture) = turned();
        clock.step_wall(Duration::from_millis(MAX_NUMBER));
        let lock = fixture.lock("report");
        let (first, second) =
            (fixture.candidate(fixture.session(), 1), fixture.candidate(fixture.session(), 1));
        let held = fixture.taken(&lock, &first).await;
        assert_eq!(held.term, Term::new(MAX_NUMBER));
        assert_eq!(fixture.taken(&lock, &first).await, held);
        let hand_over = ReleaseTo::HandTo(Box::new(second.clone()));
        for dead in [vec![], vec![first.session]] {
            let answer = fixture.take_over(&lock, &second, &dead).await;
            assert!(matches!(answer, TakeAnswer::Refused(_)), "{answer:?}");
        }
        fixture.release(&lock, first.session, held.term, hand_over).await;
        assert_eq!(fixture.record(&lock).await.holding, None);
        let answer = fixture.take(&lock, &second).await;
        assert!(matches!(answer, TakeAnswer::Refused(_)), "{answer:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_follows_paused_time() {
        let (clock, fixture) = turned();
        let start = clock.now();
        let lock = closed_for_a_minute(&fixture).await;
        tokio::time::advance(JUST_BEFORE).await;
        assert!(is_closed(&fixture, &lock).await);
        tokio::time::advance(MS).await;
        assert!(!is_closed(&fixture, &lock).await);
        assert_eq!(clock.now().since(start), MINUTE, "nothing the store does takes time");
    }

    #[tokio::test(start_paused = true)]
    async fn clones_are_one_store_and_stores_are_two() {
        let store = MemoryStore::default();
        let here = Fixture::new(Arc::new(store.clone()));
        let mut hints = store.hints(here.topics("import"));
        let lock = here.task("import", "report");
        let record = here.held(&lock, here.session(), 1).await;
        let seen = store.locks(vec![lock.clone()], LIMIT).await.unwrap();
        assert_eq!(seen, [LockSeen::Found(record)]);
        assert_eq!(hints.next().await, Some(Hint::Resync));
        assert_eq!(hints.next().await, Some(Hint::News(News::Lock(lock.clone()))));
        let elsewhere = MemoryStore::default().locks(vec![lock], LIMIT).await.unwrap();
        assert_eq!(elsewhere, [LockSeen::Absent]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_lags_behind_is_told_to_resync() {
        let (_, fixture) = turned();
        let mut hints = fixture.store().hints(fixture.topics("import"));
        assert_eq!(hints.next().await, Some(Hint::Resync));
        let task = fixture.task("import", "orders");
        let session = fixture.session();
        for ticket in 1..=10_000 {
            fixture.held(&task, session, ticket).await;
        }
        let last = fixture.task("import", "last");
        fixture.held(&last, session, 1).await;
        assert_eq!(hints.next().await, Some(Hint::Resync), "some were lost, and it must be told so");
        let newest = Hint::News(News::Lock(last));
        let mut heard = 0;
        while hints.next().await.expect("the store is there") != newest {
            heard += 1;
        }
        assert!(heard > 1000, "what is still there is heard: {heard}");
    }
}

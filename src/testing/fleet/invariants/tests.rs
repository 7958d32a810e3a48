//! Each checker against a short history that is wrong in its way, and against one that is right.

use std::time::Duration;

use tokio::time::sleep;

use super::{Census, SLACK, Stage};
use crate::{
    clock::Moment,
    model::{SessionId, Term, Wish},
    testing::fleet::{Book, Durations, FIRST_TASK, History, Life, Reference, Sort, Told, What},
};

const SECOND: Duration = Duration::from_secs(1);
const FIRST: Life = Life { member: 0, number: 1 };
const SECOND_ONE: Life = Life { member: 1, number: 1 };
const SESSION: SessionId = SessionId::from_u128(1);
const OTHER: SessionId = SessionId::from_u128(2);
const KEY: usize = 0;
const TERM: Term = Term::new(10);

/// Two instances; what happens to them is told line by line.
struct Story(History);

impl Story {
    fn new() -> Self {
        let (ttl, margin, stop_grace) = (30 * SECOND, SECOND, 5 * SECOND);
        let durations = Durations { ttl, margin, stop_grace, slack: SLACK, preempted: Duration::ZERO };
        Self(History::new(1, Reference::start(), Book::new(vec![durations, durations])))
    }

    fn moment(&self) -> Moment {
        Moment::after_start(self.0.now())
    }

    fn store(&self, what: What) -> &Self {
        self.0.record(what);
        self
    }

    fn of(&self, life: Life, what: What) -> &Self {
        self.0.record_in(life, self.moment(), what);
        self
    }

    fn first(&self, what: What) -> &Self {
        self.of(FIRST, what)
    }

    /// A session is open, and its instance knows.
    fn open(&self, life: Life, session: SessionId) -> &Self {
        self.of(life, What::Opens { session })
            .store(What::Opened { session, ttl: 30 * SECOND })
            .of(life, What::Confirmed { session, sent: self.moment() })
    }

    fn granted(&self, term: Term, session: SessionId, tag: &str) -> &Self {
        self.store(What::Granted { key: KEY, term, session, wish: Wish::new(1), tag: tag.to_owned() })
    }

    /// The first instance runs a job.
    fn runs(&self) -> &Self {
        self.open(FIRST, SESSION)
            .granted(TERM, SESSION, "job")
            .first(What::Noticed { key: KEY, term: TERM, session: SESSION, wish: Wish::new(1) })
            .first(What::Told(Told::Acquired { key: KEY, term: TERM }))
            .first(What::Began { key: KEY, term: TERM, tag: "job".to_owned(), sort: Sort::Job })
            .polled()
    }

    fn polled(&self) -> &Self {
        self.first(What::Polled { key: KEY, term: TERM })
    }

    /// It ends, and its lock is given back.
    fn ends(&self) -> &Self {
        self.first(What::Cancelled { key: KEY, term: TERM })
            .first(What::Ended { key: KEY, term: TERM })
            .first(What::Told(Told::Released { key: KEY, term: TERM }))
            .store(What::GivenBack { key: KEY, term: TERM })
            .store(What::Freed { key: KEY, term: TERM })
            .first(What::Returned { key: KEY, term: TERM })
    }

    fn wrote(&self, over: u64) -> &Self {
        self.first(What::Wrote { key: KEY, term: TERM, over })
    }

    /// Which checker has noticed something.
    fn violates(&self) -> Option<&'static str> {
        self.0.violation().map(|violation| violation.invariant)
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_in_which_all_is_well_violates_nothing() {
    let story = Story::new();
    story.runs().first(What::Read { key: KEY, term: TERM, version: 0 }).wrote(0).polled().wrote(1);
    sleep(10 * SECOND).await;
    story.polled().ends().open(SECOND_ONE, OTHER).granted(Term::new(11), OTHER, "other");
    story.first(What::Closes).store(What::Died { session: SESSION, ground: "closed", by: Some(FIRST) });
    assert_eq!(story.violates(), None);
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_the_lock_went_to_another_is_noticed() {
    let story = Story::new();
    story.runs().open(SECOND_ONE, OTHER).granted(Term::new(11), OTHER, "other").polled();
    assert_eq!(story.violates(), Some("exclusion"));
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_the_lock_was_freed_is_noticed() {
    let story = Story::new();
    story.runs().store(What::Freed { key: KEY, term: TERM }).polled();
    assert_eq!(story.violates(), Some("exclusion"));
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_the_end_is_noticed() {
    let story = Story::new();
    story.runs().first(What::Cancelled { key: KEY, term: TERM });
    sleep(29 * SECOND).await;
    assert_eq!(story.polled().violates(), Some("early cancel"));
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_the_grace_is_noticed() {
    let story = Story::new();
    story.runs().first(What::Cancelled { key: KEY, term: TERM });
    sleep(5 * SECOND).await;
    assert_eq!(story.polled().violates(), None, "it is its grace");
    sleep(SECOND).await;
    assert_eq!(story.polled().violates(), Some("early cancel"));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_does_not_fire_in_time_is_noticed() {
    let story = Story::new();
    story.runs();
    sleep(24 * SECOND).await;
    assert_eq!(story.polled().violates(), None, "it is due now");
    sleep(SECOND).await;
    assert_eq!(story.polled().violates(), Some("early cancel"));
}

#[tokio::test(start_paused = true)]
async fn a_death_that_is_declared_too_early_is_noticed() {
    let story = Story::new();
    story.open(FIRST, SESSION);
    sleep(29 * SECOND).await;
    story.store(What::Died { session: SESSION, ground: "unbeaten", by: Some(SECOND_ONE) });
    assert_eq!(story.violates(), Some("no theft"));
    let story = Story::new();
    story.open(FIRST, SESSION);
    sleep(30 * SECOND).await;
    story.store(What::Died { session: SESSION, ground: "unbeaten", by: Some(SECOND_ONE) });
    assert_eq!(story.violates(), None);
}

#[tokio::test(start_paused = true)]
async fn a_term_that_does_not_rise_is_noticed() {
    let story = Story::new();
    story.runs().ends().granted(TERM, SESSION, "again");
    assert_eq!(story.violates(), Some("terms rise"));
}

#[tokio::test(start_paused = true)]
async fn what_begins_on_a_guess_is_noticed() {
    let began = |tag: &str| What::Began { key: KEY, term: TERM, tag: tag.to_owned(), sort: Sort::Job };
    let story = Story::new();
    story.open(FIRST, SESSION).first(began("job"));
    assert_eq!(story.violates(), Some("unknown starts nothing"), "nothing was granted");
    let story = Story::new();
    story.open(FIRST, SESSION).granted(TERM, SESSION, "job").first(began("job"));
    assert_eq!(story.violates(), Some("unknown starts nothing"), "it was not told");
    let story = Story::new();
    let noticed = What::Noticed { key: KEY, term: TERM, session: SESSION, wish: Wish::new(1) };
    story.open(FIRST, SESSION).granted(TERM, SESSION, "other").first(noticed).first(began("job"));
    assert_eq!(story.violates(), Some("unknown starts nothing"), "it was granted to another wish");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_closed_under_a_job_is_noticed() {
    let story = Story::new();
    story.runs().store(What::Died { session: SESSION, ground: "closed", by: Some(FIRST) });
    assert_eq!(story.violates(), Some("closing"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_update_is_noticed() {
    let story = Story::new();
    assert_eq!(story.runs().wrote(0).wrote(0).violates(), Some("fence"));
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_goes_back_to_a_former_term_is_noticed() {
    let story = Story::new();
    let (later, other) = (Term::new(11), SECOND_ONE);
    story.runs().wrote(0).open(other, OTHER).granted(later, OTHER, "other");
    story.of(other, What::Read { key: KEY, term: later, version: 1 }).wrote(1);
    assert_eq!(story.violates(), Some("fence"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_twice_or_without_a_beginning_is_noticed() {
    let released = || What::Told(Told::Released { key: KEY, term: TERM });
    let story = Story::new();
    assert_eq!(story.runs().first(released()).first(released()).violates(), Some("event order"));
    assert_eq!(Story::new().first(released()).violates(), Some("event order"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_end_nobody_was_told_of_is_noticed() {
    let story = Story::new();
    story.runs().first(What::Closed { overran: 0 });
    story.0.judge(&Stage::Closed(Census::default()));
    assert_eq!(story.violates(), Some("event order"));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_given_back_although_the_program_was_told_is_noticed() {
    let story = Story::new();
    story.runs().first(What::Ended { key: KEY, term: TERM }).first(What::Returned { key: KEY, term: TERM });
    assert_eq!(story.violates(), Some("released means released"));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_nobody_holds_although_all_want_it_is_noticed() {
    let held = || vec![(KEY, TERM, SESSION)];
    let judged = |census: Census| {
        let story = Story::new();
        story.runs().0.judge(&Stage::Settled(Census { wanted: vec![KEY], ..census }));
        story.violates()
    };
    let well = Census { held: held(), alive: vec![SESSION], ..Census::default() };
    assert_eq!(judged(well), None);
    assert_eq!(judged(Census::default()), Some("liveness"), "nobody holds it");
    let by_the_dead = Census { held: held(), ..Census::default() };
    assert_eq!(judged(by_the_dead), Some("liveness"), "its holder is dead");
    let story = Story::new();
    let idle = Census { wanted: vec![KEY], held: held(), alive: vec![SESSION], ..Census::default() };
    story.runs().first(What::Ended { key: KEY, term: TERM }).0.judge(&Stage::Settled(idle));
    assert_eq!(story.violates(), Some("liveness"), "nothing runs");
}

/// A session is open, and these tasks run in its instance.
fn shares(story: &Story, life: Life, session: SessionId, tasks: std::ops::Range<usize>) {
    for task in tasks {
        let (key, term, wish, tag) = (FIRST_TASK + task, TERM, Wish::new(1), String::new());
        story.store(What::Granted { key, term, session, wish, tag: tag.clone() });
        story.of(life, What::Noticed { key, term, session, wish });
        story.of(life, What::Began { key, term, tag, sort: Sort::Job });
    }
}

#[tokio::test(start_paused = true)]
async fn more_tasks_than_the_cap_are_noticed_but_not_right_after_it_was_lowered() {
    for (cap, lowered_to, after, noticed) in [
        (3, None, Duration::ZERO, false),
        (2, None, Duration::ZERO, true),
        (3, Some(2), SECOND / 2, false),
        (3, Some(2), SECOND * 2, true),
    ] {
        let story = Story::new();
        story.open(FIRST, SESSION).first(What::Capped { cap });
        shares(&story, FIRST, SESSION, 0..2);
        if let Some(cap) = lowered_to {
            story.first(What::Capped { cap });
        }
        sleep(after).await;
        shares(&story, FIRST, SESSION, 2..3);
        let expected = noticed.then_some("spreading");
        assert_eq!(story.violates(), expected, "{cap} {lowered_to:?} {after:?}");
        // What has begun may begin again.
        let story = Story::new();
        story.open(FIRST, SESSION).first(What::Capped { cap: 1 });
        shares(&story, FIRST, SESSION, 0..1);
        story.first(What::Ended { key: FIRST_TASK, term: TERM });
        story.first(What::Began { key: FIRST_TASK, term: TERM, tag: String::new(), sort: Sort::Job });
        assert_eq!(story.violates(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_that_are_shared_out_unevenly_are_noticed() {
    for (here, there, noticed) in [(2, 2, false), (3, 2, false), (3, 1, true), (4, 0, true)] {
        let story = Story::new();
        story.open(FIRST, SESSION).open(SECOND_ONE, OTHER);
        let held: Vec<_> = (0..here + there)
            .map(|task| (FIRST_TASK + task, TERM, if task < here { SESSION } else { OTHER }))
            .collect();
        shares(&story, FIRST, SESSION, 0..here);
        shares(&story, SECOND_ONE, OTHER, here..here + there);
        let wanted = held.iter().map(|(key, ..)| *key).collect();
        story.0.judge(&Stage::Settled(Census {
            wanted,
            held,
            alive: vec![SESSION, OTHER],
            ..Census::default()
        }));
        assert_eq!(story.violates(), noticed.then_some("spreading"), "{here} and {there}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_moves_while_nothing_changes_is_noticed() {
    for (rest, noticed) in [(SECOND * 60, false), (SECOND * 80, true)] {
        let story = Story::new();
        story.store(What::Calm);
        sleep(rest).await;
        story.open(FIRST, SESSION);
        shares(&story, FIRST, SESSION, 0..1);
        assert_eq!(story.violates(), noticed.then_some("spreading"), "after {rest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_an_instance_that_was_closed_is_noticed() {
    let judged = |census: Census| {
        let story = Story::new();
        story.runs().ends().store(What::Calm).first(What::Closes);
        story.first(What::Told(Told::SessionLost { session: SESSION, why: "closed" }));
        story.first(What::Closed { overran: 0 });
        let lives = if census.lives.is_empty() { vec![(FIRST, Vec::new())] } else { census.lives.clone() };
        story.0.judge(&Stage::Closed(Census { lives, ..census }));
        story.violates()
    };
    assert_eq!(judged(Census::default()), None);
    let leaks = [
        Census { lives: vec![(FIRST, vec!["a task".to_owned()])], ..Census::default() },
        Census { alive: vec![SESSION], ..Census::default() },
        Census { held: vec![(KEY, TERM, SESSION)], alive: vec![SESSION], ..Census::default() },
        Census { waiters: vec![(KEY, SESSION, Wish::new(2))], ..Census::default() },
    ];
    for census in leaks {
        assert_eq!(judged(census.clone()), Some("no leak"), "{census:?}");
    }
}

#[test]
fn the_page_names_every_invariant() {
    let page = include_str!("../../../../docs/proof.md");
    for invariant in super::all() {
        assert!(page.contains(&format!("| {} |", invariant.name())), "{}", invariant.name());
    }
}

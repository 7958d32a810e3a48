//! Each checker against a short history that is wrong in its way, and against one that is right.

use std::time::Duration;

use tokio::time::sleep;

use super::{Census, SLACK, Stage, StoreLedger};
use crate::{
    Durations, EventKind, FIRST_SCHEDULE, FIRST_TASK, Habits, History, Life, Reference, Registry, Reported,
    TickId, WorkKind,
};
use tenure::{
    clock::Moment,
    model::{Entry as Of, SessionId, StoreTime, Term},
    store::Ticket,
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
        let durations = Durations { ttl, margin, stop_grace, slack: SLACK };
        let registry = Registry::new(vec![durations, durations])
            .with_schedules(vec![Habits::often(2 * SECOND), Habits::seldom(10 * SECOND)]);
        Self(History::new(1, Reference::start(), registry))
    }

    fn moment(&self) -> Moment {
        Moment::after_start(self.0.now())
    }

    fn store(&self, what: EventKind) -> &Self {
        self.0.record(what);
        self
    }

    fn of(&self, life: Life, what: EventKind) -> &Self {
        self.0.record_in(life, self.moment(), what);
        self
    }

    fn first(&self, what: EventKind) -> &Self {
        self.of(FIRST, what)
    }

    /// A session is open, and its instance knows.
    fn open(&self, life: Life, session: SessionId) -> &Self {
        self.of(life, EventKind::Opens { session })
            .store(EventKind::Opened { session, ttl: 30 * SECOND })
            .of(life, EventKind::Confirmed { session, sent: self.moment() })
    }

    fn granted(&self, term: Term, session: SessionId, tag: &str) -> &Self {
        self.store(EventKind::Granted {
            key: KEY,
            term,
            session,
            ticket: Ticket::new(1),
            tag: tag.to_owned(),
        })
    }

    /// The first instance runs a job.
    fn runs(&self) -> &Self {
        self.open(FIRST, SESSION)
            .granted(TERM, SESSION, "job")
            .first(EventKind::Noticed { key: KEY, term: TERM, session: SESSION, ticket: Ticket::new(1) })
            .first(EventKind::Reported(Reported::Acquired { key: KEY, term: TERM }))
            .first(EventKind::Began { key: KEY, term: TERM, tag: "job".to_owned(), sort: WorkKind::Job })
            .polled()
    }

    fn polled(&self) -> &Self {
        self.first(EventKind::Polled { key: KEY, term: TERM })
    }

    /// Ends the job, and gives its lock back.
    fn ends(&self) -> &Self {
        self.first(EventKind::Cancelled { key: KEY, term: TERM })
            .first(EventKind::Ended { key: KEY, term: TERM })
            .first(EventKind::Reported(Reported::Released { key: KEY, term: TERM }))
            .store(EventKind::GivenBack { key: KEY, term: TERM })
            .store(EventKind::Freed { key: KEY, term: TERM })
            .first(EventKind::Returned { key: KEY, term: TERM })
    }

    fn wrote(&self, over: u64) -> &Self {
        self.first(EventKind::Wrote { key: KEY, term: TERM, over })
    }

    /// Name of the checker that has noticed something.
    fn violates(&self) -> Option<&'static str> {
        self.0.violation().map(|violation| violation.invariant)
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_in_which_all_is_well_violates_nothing() {
    let story = Story::new();
    story.runs().first(EventKind::Read { key: KEY, term: TERM, version: 0 }).wrote(0).polled().wrote(1);
    sleep(10 * SECOND).await;
    story.polled().ends().open(SECOND_ONE, OTHER).granted(Term::new(11), OTHER, "other");
    story.first(EventKind::Closes).store(EventKind::Died {
        session: SESSION,
        ground: "closed",
        by: Some(FIRST),
    });
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
    story.runs().store(EventKind::Freed { key: KEY, term: TERM }).polled();
    assert_eq!(story.violates(), Some("exclusion"));
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_the_end_is_noticed() {
    let story = Story::new();
    story.runs().first(EventKind::Cancelled { key: KEY, term: TERM });
    sleep(29 * SECOND).await;
    assert_eq!(story.polled().violates(), Some("early cancel"));
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_the_grace_is_noticed() {
    let story = Story::new();
    story.runs().first(EventKind::Cancelled { key: KEY, term: TERM });
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
    story.store(EventKind::Died { session: SESSION, ground: "unbeaten", by: Some(SECOND_ONE) });
    assert_eq!(story.violates(), Some("no theft"));
    let story = Story::new();
    story.open(FIRST, SESSION);
    sleep(30 * SECOND).await;
    story.store(EventKind::Died { session: SESSION, ground: "unbeaten", by: Some(SECOND_ONE) });
    assert_eq!(story.violates(), None);
}

#[tokio::test(start_paused = true)]
async fn a_term_that_does_not_rise_is_noticed() {
    let story = Story::new();
    story.runs().ends().granted(TERM, SESSION, "again");
    assert_eq!(story.violates(), Some("terms rise"));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_begins_before_it_is_told_of_its_grant_is_noticed() {
    let began =
        |tag: &str| EventKind::Began { key: KEY, term: TERM, tag: tag.to_owned(), sort: WorkKind::Job };
    let story = Story::new();
    story.open(FIRST, SESSION).first(began("job"));
    assert_eq!(story.violates(), Some("unknown starts nothing"), "nothing was granted");
    let story = Story::new();
    story.open(FIRST, SESSION).granted(TERM, SESSION, "job").first(began("job"));
    assert_eq!(story.violates(), Some("unknown starts nothing"), "it was not told");
    let story = Story::new();
    let noticed = EventKind::Noticed { key: KEY, term: TERM, session: SESSION, ticket: Ticket::new(1) };
    story.open(FIRST, SESSION).granted(TERM, SESSION, "other").first(noticed).first(began("job"));
    assert_eq!(story.violates(), Some("unknown starts nothing"), "it was granted to another ticket");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_closed_under_a_job_is_noticed() {
    let story = Story::new();
    story.runs().store(EventKind::Died { session: SESSION, ground: "closed", by: Some(FIRST) });
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
    story.of(other, EventKind::Read { key: KEY, term: later, version: 1 }).wrote(1);
    assert_eq!(story.violates(), Some("fence"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_twice_or_without_a_beginning_is_noticed() {
    let released = || EventKind::Reported(Reported::Released { key: KEY, term: TERM });
    let story = Story::new();
    assert_eq!(story.runs().first(released()).first(released()).violates(), Some("event order"));
    assert_eq!(Story::new().first(released()).violates(), Some("event order"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_under_its_job_and_is_told_as_released_is_noticed() {
    let told = async |draining: Duration| {
        let story = Story::new();
        story.runs();
        // Its session's end is 5 s away.
        sleep(24 * SECOND).await;
        story.first(EventKind::Cancelled { key: KEY, term: TERM });
        sleep(draining).await;
        story.first(EventKind::Ended { key: KEY, term: TERM });
        story.first(EventKind::Reported(Reported::Released { key: KEY, term: TERM })).violates()
    };
    assert_eq!(told(4 * SECOND).await, None);
    assert_eq!(told(6 * SECOND).await, Some("event order"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_end_nobody_was_told_of_is_noticed() {
    let story = Story::new();
    story.runs().first(EventKind::Closed { overran: 0 });
    story.0.judge(&Stage::Closed(Census::default()));
    assert_eq!(story.violates(), Some("event order"));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_given_back_although_the_program_was_told_is_noticed() {
    let story = Story::new();
    story
        .runs()
        .first(EventKind::Ended { key: KEY, term: TERM })
        .first(EventKind::Returned { key: KEY, term: TERM });
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
    story.runs().first(EventKind::Ended { key: KEY, term: TERM }).0.judge(&Stage::Settled(idle));
    assert_eq!(story.violates(), Some("liveness"), "nothing runs");
}

/// A session is open, and these tasks run in its instance.
fn shares(story: &Story, life: Life, session: SessionId, tasks: std::ops::Range<usize>) {
    for task in tasks {
        let (key, term, ticket, tag) = (FIRST_TASK + task, TERM, Ticket::new(1), String::new());
        story.store(EventKind::Granted { key, term, session, ticket, tag: tag.clone() });
        story.of(life, EventKind::Noticed { key, term, session, ticket });
        story.of(life, EventKind::Began { key, term, tag, sort: WorkKind::Job });
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
        story.open(FIRST, SESSION).first(EventKind::Capped { cap });
        shares(&story, FIRST, SESSION, 0..2);
        if let Some(cap) = lowered_to {
            story.first(EventKind::Capped { cap });
        }
        sleep(after).await;
        shares(&story, FIRST, SESSION, 2..3);
        let expected = noticed.then_some("spreading");
        assert_eq!(story.violates(), expected, "{cap} {lowered_to:?} {after:?}");
        // A task that has begun may begin again.
        let story = Story::new();
        story.open(FIRST, SESSION).first(EventKind::Capped { cap: 1 });
        shares(&story, FIRST, SESSION, 0..1);
        story.first(EventKind::Ended { key: FIRST_TASK, term: TERM });
        story.first(EventKind::Began {
            key: FIRST_TASK,
            term: TERM,
            tag: String::new(),
            sort: WorkKind::Job,
        });
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
        story.store(EventKind::Calm);
        sleep(rest).await;
        story.open(FIRST, SESSION);
        shares(&story, FIRST, SESSION, 0..1);
        assert_eq!(story.violates(), noticed.then_some("spreading"), "after {rest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_a_closed_instance_are_noticed() {
    let judged = |census: Census| {
        let story = Story::new();
        story.runs().ends().store(EventKind::Calm).first(EventKind::Closes);
        story.first(EventKind::Reported(Reported::SessionLost { session: SESSION, why: "closed" }));
        story.first(EventKind::Closed { overran: 0 });
        let lives = if census.lives.is_empty() { vec![(FIRST, Vec::new())] } else { census.lives.clone() };
        story.0.judge(&Stage::Closed(Census { lives, ..census }));
        story.violates()
    };
    assert_eq!(judged(Census::default()), None);
    let leaks = [
        Census { lives: vec![(FIRST, vec!["a task".to_owned()])], ..Census::default() },
        Census { alive: vec![SESSION], ..Census::default() },
        Census { held: vec![(KEY, TERM, SESSION)], alive: vec![SESSION], ..Census::default() },
        Census { waiters: vec![(KEY, SESSION, Ticket::new(2))], ..Census::default() },
    ];
    for census in leaks {
        assert_eq!(judged(census.clone()), Some("no leak"), "{census:?}");
    }
}

// ----- ticks

mod given_back;

/// Tick that many seconds after the store's clock began.
fn tick(schedule: usize, second: i64) -> TickId {
    TickId { schedule, instant: StoreTime::from_millis(1_000_000 + second * 1000), entry: Of::Tick }
}

impl Story {
    /// The first instance has both schedules, as of now.
    fn schedules(&self) -> &Self {
        self.store(EventKind::StoreClock { shows: tick(0, 0).instant }).open(FIRST, SESSION);
        for schedule in 0..2 {
            self.owns(schedule, FIRST, SESSION, TERM);
            self.store(EventKind::Scheduled { schedule, since: tick(0, 0).instant });
        }
        self
    }

    fn owns(&self, schedule: usize, life: Life, session: SessionId, term: Term) -> &Self {
        let (key, ticket) = (FIRST_SCHEDULE + schedule, Ticket::new(1));
        self.store(EventKind::Granted { key, term, session, ticket, tag: String::new() });
        self.of(life, EventKind::Noticed { key, term, session, ticket })
    }

    fn claimed(&self, tick: TickId, attempt: u32) -> &Self {
        self.store(EventKind::Claimed { tick, attempt, term: TERM, session: SESSION, from: None })
    }

    fn skipped(&self, from: TickId, to: TickId) -> &Self {
        let (tick, from) = (TickId { entry: Of::Skipped, ..to }, Some(from.instant));
        self.store(EventKind::Claimed { tick, attempt: 1, term: TERM, session: SESSION, from })
    }

    fn began(&self, tick: TickId, attempt: u32) -> &Self {
        self.late(tick, attempt, Duration::ZERO)
    }

    fn late(&self, tick: TickId, attempt: u32, lateness: Duration) -> &Self {
        self.first(EventKind::TickBegan { tick, attempt, term: TERM, lateness })
    }

    fn ended(&self, tick: TickId, attempt: u32, outcome: &'static str) -> &Self {
        self.first(EventKind::TickEnded { tick, attempt, how: outcome });
        self.store(EventKind::Finished { tick, attempt, outcome })
    }

    /// All of an attempt.
    fn ran(&self, tick: TickId, attempt: u32, outcome: &'static str) -> &Self {
        self.claimed(tick, attempt).began(tick, attempt).ended(tick, attempt, outcome)
    }
}

#[tokio::test(start_paused = true)]
async fn ticks_that_are_run_once_tried_again_and_not_run_violate_nothing() {
    let story = Story::new();
    story.schedules();
    sleep(20 * SECOND).await;
    story.ran(tick(0, 2), 1, "cancelled").ran(tick(0, 2), 2, "failed").ran(tick(0, 2), 3, "succeeded");
    story.ran(tick(1, 10), 1, "failed").ran(tick(1, 10), 2, "succeeded");
    story.skipped(tick(0, 4), tick(0, 18)).ran(tick(0, 20), 1, "succeeded");
    let order = TickId { entry: Of::Order, ..tick(1, 11) };
    story.ran(order, 1, "succeeded");
    assert_eq!(story.violates(), None);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_claim_is_not_on_record_is_noticed() {
    let story = Story::new();
    story.schedules();
    sleep(5 * SECOND).await;
    assert_eq!(story.claimed(tick(0, 2), 1).began(tick(0, 4), 1).violates(), Some("ticks"));
    let story = Story::new();
    story.schedules();
    let other = EventKind::Claimed { tick: tick(0, 2), attempt: 1, term: TERM, session: OTHER, from: None };
    assert_eq!(story.store(other).violates(), Some("ticks"), "a claim of somebody who does not have it");
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_is_begun_twice_is_noticed() {
    for (first, again, noticed) in [
        // The same attempt, and an earlier one.
        ((1, "failed"), 1, true),
        ((2, "failed"), 1, true),
        ((1, "succeeded"), 2, true),
        ((1, "cancelled"), 2, false),
        ((5, "cancelled"), 6, true),
    ] {
        let story = Story::new();
        story.schedules();
        sleep(5 * SECOND).await;
        let (attempt, outcome) = first;
        story.ran(tick(0, 2), attempt, outcome).ran(tick(0, 2), again, "succeeded");
        assert_eq!(story.violates(), noticed.then_some("ticks"), "{attempt} {outcome}, {again}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_after_a_purge_may_stand_there_but_begins_nothing() {
    let story = Story::new();
    story.schedules();
    sleep(5 * SECOND).await;
    story.ran(tick(0, 2), 1, "succeeded").ran(tick(0, 4), 1, "succeeded");
    story.store(EventKind::Purged { schedule: 0, mark: tick(0, 2).instant }).claimed(tick(0, 2), 1);
    assert_eq!(story.violates(), None);
    assert_eq!(story.began(tick(0, 2), 1).violates(), Some("ticks"));
}

#[tokio::test(start_paused = true)]
async fn runs_that_overlap_in_one_lease_are_noticed() {
    let story = Story::new();
    story.schedules();
    sleep(5 * SECOND).await;
    story.claimed(tick(0, 2), 1).began(tick(0, 2), 1).claimed(tick(0, 4), 1);
    assert_eq!(story.violates(), None);
    assert_eq!(story.began(tick(0, 4), 1).violates(), Some("ticks"));
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_begins_before_its_time_is_noticed() {
    for (ahead, second, noticed) in
        [(0, 2, false), (0, 18, false), (0, 20, true), (60, 84, false), (60, 86, true)]
    {
        let story = Story::new();
        story.schedules();
        if ahead > 0 {
            story.store(EventKind::StoreClock { shows: tick(0, ahead).instant });
            story.store(EventKind::StoreClock { shows: tick(0, 0).instant });
        }
        story.skipped(tick(0, 2), tick(0, second - 2)).ran(tick(0, second), 1, "succeeded");
        assert_eq!(story.violates(), noticed.then_some("ticks"), "{ahead} {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gap_in_the_ledger_is_noticed() {
    let story = Story::new();
    story.schedules().ran(tick(0, 2), 1, "succeeded").claimed(tick(0, 6), 1);
    assert_eq!(story.violates(), Some("ticks"));
    let story = Story::new();
    story.schedules().claimed(tick(0, 4), 1);
    assert_eq!(story.violates(), Some("ticks"), "the first is missing");
}

#[tokio::test(start_paused = true)]
async fn more_ticks_that_are_made_up_for_than_the_cap_are_noticed() {
    for (paused, most) in [(false, 5), (true, 10)] {
        let story = Story::new();
        story.schedules();
        if paused {
            story.store(EventKind::Paused { schedule: 0 });
        }
        sleep(100 * SECOND).await;
        let later = Term::new(12);
        story.owns(0, FIRST, SESSION, later).skipped(tick(0, 2), tick(0, 40));
        for (number, second) in (42..).step_by(2).take(12).enumerate() {
            let late = Duration::from_secs(u64::try_from(100 - second).unwrap());
            let (tick, attempt) = (tick(0, second), 1);
            story.store(EventKind::Claimed { tick, attempt, term: later, session: SESSION, from: None });
            story.first(EventKind::TickBegan { tick, attempt, term: later, lateness: late });
            story.ended(tick, 1, "succeeded");
            assert_eq!(story.violates(), (number >= most).then_some("ticks"), "{number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_does_not_run_in_quiet_is_noticed() {
    let order = |schedule| TickId { schedule, entry: Of::Order, ..tick(0, 7) };
    let judged = |ticks: bool, orders: bool, census: fn(Census) -> Census| async move {
        let story = Story::new();
        story.schedules().ran(tick(0, 2), 1, "succeeded").ran(tick(1, 2), 1, "succeeded");
        sleep(SECOND).await;
        story.store(EventKind::Calm);
        sleep(12 * SECOND).await;
        for schedule in 0..2 {
            story.store(EventKind::Ordered { tick: order(schedule) });
            if ticks {
                story.skipped(tick(schedule, 4), tick(schedule, 8)).ran(tick(schedule, 10), 1, "succeeded");
            }
            if orders {
                story.ran(order(schedule), 1, "succeeded");
            }
        }
        let shows = Some(tick(0, 12).instant);
        story.0.judge(&Stage::Settled(census(Census { store_shows: shows, ..Census::default() })));
        story.violates()
    };
    assert_eq!(judged(true, true, |census| census).await, None);
    assert_eq!(judged(false, true, |census| census).await, Some("ticks"), "no tick");
    assert_eq!(judged(true, false, |census| census).await, Some("ticks"), "it was wanted");
    let late = |census| Census { store_shows: Some(tick(0, 60).instant), ..census };
    assert_eq!(judged(true, true, late).await, Some("ticks"), "the last is long ago");
    let empty = |census| Census { ledgers: [(0, StoreLedger::default())].into(), ..census };
    assert_eq!(judged(true, true, empty).await, Some("ticks"), "what ran is not in the ledger");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_ledger_is_ahead_of_a_clock_that_was_set_again_and_again_may_be_silent() {
    // Each time sooner than all go by it: so they go by the first one for the whole time.
    let judged = |quiet: Duration| async move {
        let story = Story::new();
        story.schedules();
        for shows in [-1900, -1400, 600] {
            sleep(500 * SECOND).await;
            story.store(EventKind::StoreClock { shows: tick(0, shows).instant });
        }
        sleep(quiet).await;
        story.store(EventKind::Calm);
        let shows = 600 + i64::try_from(quiet.as_secs()).unwrap();
        let order = |schedule| TickId { entry: Of::Order, ..tick(schedule, shows) };
        for schedule in 0..2 {
            story.store(EventKind::Ordered { tick: order(schedule) }).ran(order(schedule), 1, "succeeded");
        }
        sleep(60 * SECOND).await;
        let shows = Some(tick(0, shows + 60).instant);
        story.0.judge(&Stage::Settled(Census { store_shows: shows, ..Census::default() }));
        story.violates()
    };
    assert_eq!(judged(700 * SECOND).await, None);
    assert_eq!(judged(2000 * SECOND).await, Some("ticks"), "the clock is beyond all that anybody went by");
}

#[test]
fn the_page_names_every_invariant() {
    let page = include_str!("../../../docs/proof.md");
    for invariant in super::all() {
        assert!(page.contains(&format!("| {} |", invariant.name())), "{}", invariant.name());
    }
}

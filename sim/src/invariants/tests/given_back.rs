//! Attempts that were claimed and not begun, and those that are begun again.

use super::*;

/// The schedule that is run at most once; claimed by its first owner.
fn claimed() -> Story {
    let story = Story::new();
    story.schedules().claimed(tick(1, 10), 1);
    story
}

fn not_begun() -> EventKind {
    EventKind::Finished { tick: tick(1, 10), attempt: 1, outcome: "not begun" }
}

/// The next owner claims the same attempt.
fn again(story: &Story) {
    let later = Term::new(12);
    story.owns(1, FIRST, SESSION, later);
    story.store(EventKind::Claimed {
        tick: tick(1, 10),
        attempt: 1,
        term: later,
        session: SESSION,
        from: None,
    });
    let lateness = Duration::ZERO;
    story.first(EventKind::TickBegan { tick: tick(1, 10), attempt: 1, term: later, lateness });
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_not_begun_may_be_claimed_again_under_its_number() {
    let story = claimed();
    sleep(15 * SECOND).await;
    again(story.store(not_begun()));
    assert_eq!(story.violates(), None);
    let story = claimed();
    sleep(15 * SECOND).await;
    again(&story);
    assert_eq!(story.violates(), Some("ticks"), "nobody has given it back");
}

/// An order has the store's time, which may have been set back since the purge.
#[tokio::test(start_paused = true)]
async fn an_attempt_from_before_the_mark_that_was_not_begun_may_be_claimed_again() {
    let story = claimed();
    sleep(15 * SECOND).await;
    story.store(not_begun()).store(EventKind::Purged { schedule: 1, mark: tick(1, 12).instant });
    again(&story);
    assert_eq!(story.violates(), None);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_begun_and_is_given_back_is_noticed() {
    let story = claimed();
    sleep(15 * SECOND).await;
    story.began(tick(1, 10), 1).store(not_begun());
    assert_eq!(story.violates(), Some("ticks"));
    let story = claimed();
    sleep(15 * SECOND).await;
    story.store(not_begun()).began(tick(1, 10), 1);
    assert_eq!(story.violates(), Some("ticks"), "or begun after it was");
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_is_run_at_most_once_and_begun_again_is_noticed() {
    for (outcome, noticed) in
        [("cancelled", true), ("abandoned", true), ("failed", false), ("timed out", false)]
    {
        let story = Story::new();
        story.schedules();
        sleep(15 * SECOND).await;
        story.ran(tick(1, 10), 1, outcome).claimed(tick(1, 10), 2);
        assert_eq!(story.violates(), noticed.then_some("ticks"), "{outcome}");
    }
    let story = Story::new();
    story.schedules();
    sleep(15 * SECOND).await;
    story.claimed(tick(1, 10), 1).claimed(tick(1, 10), 2);
    assert_eq!(story.violates(), Some("ticks"), "whose runner died");
}

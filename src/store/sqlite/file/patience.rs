//! The patience of a connection while another process has the file locked: the pauses between two looks.
//!
//! SQLite has no queue of its writers, so each that waits looks again and again. Where hundreds wait, looks each
//! millisecond leave no processor time for the one that writes; and SQLite's own pauses soon get longer than the gaps
//! that a process leaves which writes again and again.

use std::{thread, time::Duration};

use rusqlite::Connection;

use crate::clock::{Clock, Moment, SystemClock};

/// The longest wait within one statement: then a thread looks whether a caller still wants its answer.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

struct Patience {
    /// The first look of this wait, and the last. A statement that is tried again at once after it had given up goes on with
    /// the wait.
    since: Moment,
    last: Moment,
    gave_up: bool,
    /// The first look for this statement.
    begun: Moment,
}

/// Has a connection wait for other processes so.
pub(super) fn set(connection: &mut Connection) -> rusqlite::Result<()> {
    let clock = SystemClock::new();
    let never = Moment::after_start(Duration::ZERO);
    let mut patience = Patience { since: never, last: never, gave_up: false, begun: never };
    connection.busy_handler(Some(move |looks| {
        let pause = patience.pause(looks, clock.now());
        // Half of it to one and a half, so that those who wait do not look at the same moments.
        let random = getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX));
        thread::sleep(pause.mul_f64(0.5 + random));
        patience.last = clock.now();
        patience.gave_up = patience.last.since(patience.begun) >= LONGEST_WAIT;
        !patience.gave_up
    }))
}

impl Patience {
    /// The pause after so many looks for this statement: a part of the wait, so one that is short is not much longer than it
    /// has to be.
    fn pause(&mut self, looks: i32, now: Moment) -> Duration {
        if looks == 0 {
            self.begun = now;
            if !self.gave_up || now.since(self.last) > LONGEST_PAUSE {
                self.since = now;
            }
        }
        (now.since(self.since) / 32).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Moment {
        Moment::after_start(Duration::from_millis(millis))
    }

    #[test]
    fn pauses_grow_with_the_wait_also_over_statements_that_are_tried_again_at_once() {
        let mut patience = Patience { since: at(0), last: at(0), gave_up: false, begun: at(0) };
        let mut pauses = |gave_up, looks, now, millis| {
            patience.gave_up = gave_up;
            assert_eq!(patience.pause(looks, at(now)), Duration::from_millis(millis), "at {now}");
            patience.last = at(now + millis);
        };
        pauses(false, 0, 1000, 1);
        pauses(false, 5, 1064, 2);
        pauses(false, 9, 1320, 10);
        pauses(true, 0, 1335, 10);
        pauses(false, 0, 1350, 1);
        pauses(true, 0, 2000, 1);
    }
}

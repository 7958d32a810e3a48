//! Session machine: whether an instance may still act, by its session's beats, end and loss.
//!
//! ```text
//!  beat sent   again  again  again  again            expiring   end   ttl over
//!   |-----------|------|------|------|-----------------|-----------|-----|
//!                                            end - stop_grace   sent + ttl - margin
//! ```

use std::time::Duration;

use super::flaw::{Flaw, Flaws};
use crate::{
    backoff::{Backoff, fraction},
    clock::Moment,
    model::Loss,
    store::{Beat, Nonce, Request, SessionSeen},
};

/// No attempt at an operation lasts longer: two fit into every lease, however the store hangs (R8).
pub(crate) const LONGEST_ATTEMPT: Duration = Duration::from_millis(2500);
/// An attempt that has less than this is not worth its trip.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(20);
/// An attempt that is forgotten and met again is taken for a twin's: the session gets another id.
const MOST_ATTEMPTS: usize = 64;

/// The durations a session lives by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) ttl: Duration,
    pub(crate) interval: Duration,
    pub(crate) stop_grace: Duration,
    pub(crate) margin: Duration,
}

impl Times {
    /// Returns how long after its sending a confirmed beat keeps the session valid here (R2).
    pub(crate) const fn validity(&self) -> Duration {
        self.ttl.saturating_sub(self.margin)
    }
}

/// Event for the machine.
#[derive(Clone, Debug)]
pub(crate) enum SessionEvent {
    /// A deadline passed, or something woke the keeper.
    Wake,
    /// The next beat is wanted now.
    Hurry,
    /// The attempt of this nonce was answered.
    Answered(Nonce, Box<SessionSeen>),
    /// The attempt of this nonce failed, or ran out of time. It may have been applied.
    Failed(Nonce),
    /// The program is to lose its session on purpose.
    Abandon(Loss),
}

/// Action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send an opening that bears this nonce.
    Open { nonce: Nonce, limit: Duration },
    /// Send a beat of this number that bears this nonce, naming the requests it heard.
    Beat { number: Beat, nonce: Nonce, limit: Duration },
    /// The session is valid until then. A confirmed beat took so long. Jobs may begin under it if it is
    /// sound; if not, the end is as near as it was, and the session stays expiring.
    Extend { end: Moment, took: Duration, sound: bool },
    /// Operators ask for this.
    Requests(Vec<Request>),
    /// The end is near and no beat is answered: cancel every job.
    Expiring(Loss),
    /// The session is over, here and for ever.
    End(Loss),
    /// The id is used by another instance, or was declared dead before it opened: open another.
    Rename,
    /// The opening was answered so late that nothing is left of it: open another.
    TooLate { took: Duration },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SessionState {
    /// No opening was answered. Nothing runs under this session. Left by an answer that bears the nonce
    /// of one of our attempts.
    Opening,
    /// Jobs may run until `end`. Left when `end` passes, or an answer says that the session is no more.
    Valid {
        end: Moment,
        /// The jobs have been notified that `end` is near, or there were none yet.
        expiring: bool,
    },
    /// No job runs under it any more. Never left.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BeatAttempt {
    nonce: Nonce,
    number: Beat,
    sent: Moment,
}

/// Machine of one session, from the first attempt to open it to its end.
#[derive(Clone, Debug)]
pub(crate) struct SessionMachine {
    times: Times,
    flaws: Flaws,
    state: SessionState,
    /// Attempts whose effect may still be met in the record, oldest first.
    attempts: Vec<BeatAttempt>,
    /// Attempt that is waited for.
    under_way: Option<Nonce>,
    number: u64,
    /// Beats are due at `phase + n * interval`.
    phase: Moment,
    next: Moment,
    backoff: Backoff,
    /// Sending time of the last answer that counted: the store has been silent since.
    heard: Moment,
    hurry: bool,
    /// Moment of the last step.
    looked: Moment,
    /// The longest time for which it did not get to take a step that was due, and when that was over.
    stalled: Option<(Moment, Duration)>,
}

impl SessionMachine {
    pub(crate) fn new(times: Times, flaws: Flaws, now: Moment) -> Self {
        let backoff =
            Backoff::new(Duration::from_millis(100), (times.interval / 2).max(Duration::from_millis(100)));
        Self {
            times,
            flaws,
            state: SessionState::Opening,
            attempts: Vec::new(),
            under_way: None,
            number: 0,
            phase: now,
            next: now,
            backoff,
            heard: now,
            hurry: false,
            looked: now,
            stalled: None,
        }
    }

    /// Latest moment of the next step for which there is work.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let send = self.under_way.is_none().then_some(self.next);
        match self.state {
            SessionState::Opening => send,
            SessionState::Valid { end, expiring } => {
                let local = if expiring { end } else { end - self.times.stop_grace };
                Some(send.map_or(local, |send| send.min(local)))
            }
            SessionState::Over => None,
        }
    }

    /// Latest moment of the next step, with or without work: boot time goes on while the machine sleeps, timers
    /// do not. A step that comes later shows that the process did not run in between.
    pub(crate) fn look_by(&self) -> Moment {
        let look = self.looked + self.times.interval;
        self.deadline().map_or(look, |deadline| look.min(deadline))
    }

    /// The marks of the attempts whose effect may be met in the record.
    pub(crate) fn nonces(&self) -> Vec<Nonce> {
        self.attempts.iter().map(|attempt| attempt.nonce).collect()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state == SessionState::Over
    }

    /// Takes a step. `fresh` was never used for another attempt, `roll` is any random number.
    pub(crate) fn step(&mut self, now: Moment, event: SessionEvent, fresh: Nonce, roll: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_over() {
            return actions;
        }
        self.look(now);
        // First of all: what has run out has run out, whatever the event brings (R2, R10).
        if let SessionState::Valid { end, .. } = self.state
            && now >= end
        {
            let loss = self.expired(now);
            self.finish(loss, &mut actions);
            return actions;
        }
        match event {
            SessionEvent::Wake => {}
            SessionEvent::Hurry => self.hurry = true,
            SessionEvent::Failed(nonce) => self.failed(now, nonce, roll),
            SessionEvent::Answered(nonce, sighting) => {
                self.answered(now, nonce, *sighting, roll, &mut actions);
            }
            SessionEvent::Abandon(loss) => self.finish(loss, &mut actions),
        }
        self.announce_expiry(now, &mut actions);
        self.send(now, fresh, &mut actions);
        actions
    }

    fn look(&mut self, now: Moment) {
        let late = now.since(self.look_by());
        if self.stalled.is_none_or(|(_, longest)| late >= longest) {
            self.stalled = Some((now, late));
        }
        self.looked = now;
    }

    fn expired(&self, now: Moment) -> Loss {
        let not_running_for = self.stalled.map_or(Duration::ZERO, |(_, longest)| longest);
        Loss::Expired { unreachable_for: now.since(self.heard), not_running_for }
    }

    fn finish(&mut self, loss: Loss, actions: &mut Vec<Action>) {
        self.state = SessionState::Over;
        actions.push(Action::End(loss));
    }

    fn failed(&mut self, now: Moment, nonce: Nonce, roll: u64) {
        if self.under_way == Some(nonce) {
            self.under_way = None;
            // A store that hangs has used up its limit already and is asked again at once; one that
            // refuses is given a moment.
            let sent = self.attempts.last().map_or(now, |attempt| attempt.sent);
            self.next = now.max(sent + self.backoff.next(roll));
        }
    }

    fn answered(
        &mut self,
        now: Moment,
        nonce: Nonce,
        sighting: SessionSeen,
        roll: u64,
        actions: &mut Vec<Action>,
    ) {
        let asked = self.attempts.iter().find(|attempt| attempt.nonce == nonce).copied();
        let opening = self.state == SessionState::Opening;
        match sighting {
            SessionSeen::Alive(record) => {
                let ours = self.attempts.iter().find(|attempt| attempt.nonce == record.nonce).copied();
                if let Some(attempt) = ours {
                    if self.under_way.is_some_and(|waited| waited == nonce || waited == attempt.nonce) {
                        self.under_way = None;
                    }
                    self.confirmed(now, attempt, roll, actions);
                    if !record.requests.is_empty() {
                        actions.push(Action::Requests(record.requests));
                    }
                } else if opening {
                    self.state = SessionState::Over;
                    actions.push(Action::Rename);
                } else if asked.is_none_or(|asked| record.beat >= asked.number) {
                    // Two clones of one machine beat for one session. Neither may go on.
                    self.finish(
                        Loss::Vanished { found: "another instance beats for this session".into() },
                        actions,
                    );
                } else {
                    self.failed(now, nonce, roll);
                }
            }
            SessionSeen::Dead(_) if opening => {
                self.state = SessionState::Over;
                actions.push(Action::Rename);
            }
            SessionSeen::Dead(record) => {
                let death = record.death.expect("a dead session has a death");
                self.finish(Loss::DeclaredDead { by: death.by, why: death.why }, actions);
            }
            // While opening: the record was deleted again.
            SessionSeen::Missing | SessionSeen::Refused(_) if opening => self.failed(now, nonce, roll),
            SessionSeen::Missing => {
                self.finish(Loss::Vanished { found: "the session's record is gone".into() }, actions);
            }
            SessionSeen::Refused(refusal) => {
                self.finish(Loss::Vanished { found: refusal.to_string() }, actions);
            }
        }
    }

    fn confirmed(&mut self, now: Moment, attempt: BeatAttempt, roll: u64, actions: &mut Vec<Action>) {
        let from = if self.flaws.has(Flaw::EndFromAnswer) { now } else { attempt.sent };
        let mut validity = self.times.validity();
        if self.flaws.has(Flaw::StretchedTtl) && attempt.number.get() % 2 == 1 {
            validity *= 2;
        }
        let confirmed = from + validity;
        if now >= confirmed {
            // It took so long that nothing is left of it (R10). An opening cannot be made again.
            if self.state == SessionState::Opening {
                self.state = SessionState::Over;
                actions.push(Action::TooLate { took: now.since(attempt.sent) });
            }
            return;
        }
        let (end, expiring) = match self.state {
            SessionState::Opening => {
                self.phase = attempt.sent;
                // Confirmed so late that a job would be cancelled at once, it is saved like any session
                // that is expiring: by the next beat.
                (confirmed, true)
            }
            SessionState::Valid { end, expiring } => (end.max(confirmed), expiring),
            SessionState::Over => return,
        };
        // An answer that leaves the end as near as it was leaves the session expiring.
        let expiring = expiring && now >= end - self.times.stop_grace;
        self.state = SessionState::Valid { end, expiring };
        self.attempts.retain(|other| other.number >= attempt.number);
        self.heard = attempt.sent;
        self.stalled = self.stalled.filter(|(over, _)| *over > attempt.sent);
        self.backoff.reset();
        actions.push(Action::Extend { end, took: now.since(attempt.sent), sound: !expiring });
        self.next = self.due_after(attempt.sent, now, roll);
    }

    /// The first beat that is due after half an interval: never later than its phase, a little earlier by
    /// chance.
    fn due_after(&self, sent: Moment, now: Moment, roll: u64) -> Moment {
        let interval = self.times.interval;
        let gone = (sent + interval / 2).since(self.phase).as_nanos() / interval.as_nanos().max(1);
        let turns = u32::try_from(gone).unwrap_or(u32::MAX - 1) + 1;
        let due = self.phase + interval.saturating_mul(turns);
        now.max(due - fraction(interval / 50, roll))
    }

    fn announce_expiry(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let loss = self.expired(now);
        if let SessionState::Valid { end, expiring } = &mut self.state
            && !*expiring
            && now >= *end - self.times.stop_grace
        {
            *expiring = true;
            if !self.flaws.has(Flaw::NoEarlyCancel) {
                actions.push(Action::Expiring(loss));
            }
        }
    }

    fn send(&mut self, now: Moment, nonce: Nonce, actions: &mut Vec<Action>) {
        let due = now >= self.next || self.hurry && self.state != SessionState::Opening;
        if self.is_over() || self.under_way.is_some() || !due {
            return;
        }
        self.hurry = false;
        let limit = match self.state {
            // Less than half of what is left, so that another one fits (R8).
            SessionState::Valid { end, .. } => {
                (end.since(now) * 9 / 20).clamp(SHORTEST_ATTEMPT, LONGEST_ATTEMPT)
            }
            _ => (self.times.validity() * 9 / 20).min(LONGEST_ATTEMPT),
        };
        let nonce = if self.flaws.has(Flaw::SameNonce) { Nonce::new(1) } else { nonce };
        let number = Beat::new(self.number);
        if self.attempts.len() == MOST_ATTEMPTS {
            self.attempts.remove(0);
        }
        self.attempts.push(BeatAttempt { nonce, number, sent: now });
        self.under_way = Some(nonce);
        if self.state == SessionState::Opening {
            // Every opening is beat 0: whichever of them was first is the one on record.
            actions.push(Action::Open { nonce, limit });
        } else {
            self.number += 1;
            let number = Beat::new(self.number);
            self.attempts.last_mut().expect("it was just added").number = number;
            actions.push(Action::Beat { number, nonce, limit });
        }
    }
}

#[cfg(test)]
mod tests;

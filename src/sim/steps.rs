//! Steps of a session's machine by themselves, for tests that count what they cost.

use std::time::Duration;

use crate::{
    clock::Moment,
    logic::{
        flaw::Flaws,
        session::{Action, SessionEvent, SessionMachine, Times},
    },
    model::{Holder, Namespace, SessionId, StoreTime},
    store::{About, Nonce, SessionRecord, SessionSeen},
};

const INTERVAL: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(30);

/// A session that is open, and whose beats are answered at once.
#[derive(Debug)]
pub struct BeatingSession {
    machine: SessionMachine,
    now: Moment,
    nonce: u64,
    record: SessionRecord,
}

impl Default for BeatingSession {
    fn default() -> Self {
        let (namespace, holder) = (Namespace::new("steps"), Holder::new("pod-1"));
        let about = About::new(namespace.expect("within the limits"), holder.expect("within the limits"));
        let (id, at) = (SessionId::from_u128(1), StoreTime::from_millis(0));
        let record = SessionRecord::opened(id, about, Nonce::new(0), TTL, at);
        let (margin, stop_grace) = (Duration::from_secs(1), INTERVAL);
        let times = Times { ttl: TTL, interval: INTERVAL, stop_grace, margin };
        let now = Moment::after_start(INTERVAL);
        let machine = SessionMachine::new(times, Flaws::default(), now);
        let mut session = Self { machine, now, nonce: 0, record };
        assert!(session.wake(Duration::ZERO), "a new session is opened at once");
        session.answer(session.found());
        session
    }
}

impl BeatingSession {
    /// Takes the step of a wake-up so much later. Returns whether it sends something.
    pub fn wake(&mut self, later: Duration) -> bool {
        self.now = self.now + later;
        self.nonce += 1;
        let actions = self.machine.step(self.now, SessionEvent::Wake, Nonce::new(self.nonce), 0);
        actions.iter().any(|action| matches!(action, Action::Open { .. } | Action::Beat { .. }))
    }

    /// Returns the answer to what the last step sent.
    #[must_use]
    pub fn found(&self) -> Answer {
        let nonce = Nonce::new(self.nonce);
        let record = SessionRecord { nonce, ..self.record.clone() };
        Answer(SessionEvent::Answered(nonce, Box::new(SessionSeen::Alive(record))))
    }

    /// Takes the step of an answer that arrives.
    pub fn answer(&mut self, answer: Answer) {
        self.nonce += 1;
        self.machine.step(self.now, answer.0, Nonce::new(self.nonce), 0);
    }

    /// Returns the time between two beats.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        INTERVAL
    }
}

/// Answer to an opening or a beat.
#[derive(Debug)]
pub struct Answer(SessionEvent);

//! Random numbers of the engine.

use crate::{
    model::{MAX_NUMBER, SessionId},
    store::Nonce,
};

/// Random numbers: the system's, or a test's.
///
/// Every number is drawn from the system anew: a machine that was cloned would otherwise draw the same
/// nonces as its clone, and take the clone's beats for its own.
#[derive(Debug)]
pub(crate) enum Entropy {
    System,
    #[cfg(feature = "testing")]
    Seeded(std::sync::Mutex<crate::dice::Dice>),
}

impl Entropy {
    #[cfg(feature = "testing")]
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self::Seeded(std::sync::Mutex::new(crate::dice::Dice::new(seed)))
    }

    pub(crate) fn roll(&self) -> u64 {
        match self {
            Self::System => getrandom::u64().expect("the system has random numbers"),
            #[cfg(feature = "testing")]
            Self::Seeded(dice) => crate::sync::locked(dice).roll(),
        }
    }

    /// Draws the id of a session of this process.
    pub(crate) fn session(&self, process: u64) -> SessionId {
        SessionId::from_u128(u128::from(process) << 64 | u128::from(self.roll()))
    }

    pub(crate) fn nonce(&self) -> Nonce {
        Nonce::new(self.roll() & MAX_NUMBER)
    }

    /// Draws the first ticket number of a session: a random one with more than enough room above.
    pub(crate) fn first_ticket(&self) -> u64 {
        self.roll() & (MAX_NUMBER >> 1)
    }
}

//! Stages of the run.

pub(crate) mod many;
pub(crate) mod one;
pub(crate) mod owner;
pub(crate) mod rest;
pub(crate) mod turns;

use std::time::Duration;

/// Default ttl of tenure, for all stages but those that wait for its end.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// Size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) rounds: usize,
    pub(crate) pairs: usize,
    pub(crate) paced: usize,
    pub(crate) tries: usize,
    pub(crate) hands: u64,
    pub(crate) window: Duration,
    pub(crate) calm: Duration,
    /// Sizes on which there are waiters, and for how long.
    pub(crate) turns_nodes: &'static [usize],
    pub(crate) turns: Duration,
    /// Sizes on which owners are lost, how often, and the ttl.
    pub(crate) owner_nodes: &'static [usize],
    pub(crate) owners: u32,
    pub(crate) owner_ttl: Duration,
    pub(crate) rest_nodes: &'static [usize],
    /// Instances, and keys of each.
    pub(crate) rest: &'static [(usize, usize)],
    pub(crate) rest_ttl: Duration,
    pub(crate) rest_window: Duration,
}

impl Size {
    pub(crate) fn whole(rounds: usize) -> Self {
        Self {
            rounds,
            pairs: 300,
            paced: 50,
            tries: 200,
            hands: 20,
            window: Duration::from_secs(2),
            calm: Duration::from_secs(2),
            turns_nodes: &[1, 3],
            turns: Duration::from_secs(5),
            owner_nodes: &[1, 3],
            owners: 5,
            owner_ttl: Duration::from_secs(3),
            rest_nodes: &[1, 3],
            rest: &[(1, 1), (1, 100), (1, 10_000), (100, 1), (100, 100)],
            rest_ttl: TTL,
            rest_window: Duration::from_secs(10),
        }
    }

    pub(crate) fn quick() -> Self {
        Self {
            rounds: 1,
            pairs: 50,
            paced: 10,
            tries: 30,
            hands: 3,
            window: Duration::from_millis(300),
            calm: Duration::from_millis(200),
            turns_nodes: &[1],
            turns: Duration::from_millis(700),
            owner_nodes: &[1],
            owners: 1,
            owner_ttl: Duration::from_secs(3),
            rest_nodes: &[1],
            rest: &[(1, 1), (1, 100)],
            rest_ttl: Duration::from_secs(3),
            rest_window: Duration::from_secs(1),
        }
    }
}

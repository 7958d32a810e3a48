//! Faults of the set and of the fleet in one round, drawn by the round's seed.

use std::{fmt, time::Duration};

use tenure_sim::Dice;

use super::{net::Cut, set::MEMBERS};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Kill -9 of the primary.
    KillPrimary,
    /// The primary is asked to stand down.
    StepDown,
    /// SIGSTOP of the primary, until there is another one.
    FreezePrimary,
    /// The primary is cut off from the other members. The fleet still reaches it.
    CutFromMembers(Cut),
    /// The primary is cut off from the fleet. The other members still reach it.
    CutFromFleet,
    /// The primary is cut off from all others.
    CutFromAll,
    /// A member that is not the primary is cut off from the primary.
    CutFollower,
    /// A site of the fleet is cut off from all members.
    CutSite { site: usize, cut: Cut },
    /// SIGSTOP of the process that holds most, until others hold it.
    FreezeHolder,
    /// SIGSTOP of the process that holds most, for less than a ttl.
    FreezeHolderShortly(Duration),
    /// Kill -9 of the process that holds most.
    KillHolder,
    /// The process that holds most is closed.
    CloseHolder,
    /// The wall clock of a member is put elsewhere.
    StepClock { member: usize, millis: i64 },
    /// A collection is dropped.
    Drop(&'static str),
    /// All members are killed, and started again.
    RestartAll,
    /// The next commands fail on the primary.
    Fail { how: Failure, times: u32 },
}

/// Kinds of failure of commands on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection is closed before anything is applied.
    Closed,
    /// The server says that it is shutting down, and has applied nothing.
    Refused,
    /// Applied, and the server does not know whether a majority has it.
    Unsure,
    /// Takes longer than the lease lasts.
    Late,
}

/// Class in which a round is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Count {
    Rounds,
    Failovers,
    Kills,
    StepDowns,
    Partitions,
    Freezes,
    ClockSteps,
    Drops,
    Restarts,
    FailedCommands,
    Closes,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rounds => "rounds",
            Self::Failovers => "failovers",
            Self::Kills => "kills",
            Self::StepDowns => "step-downs",
            Self::Partitions => "partitions",
            Self::Freezes => "freezes",
            Self::ClockSteps => "clock steps",
            Self::Drops => "dropped collections",
            Self::Restarts => "full restarts",
            Self::FailedCommands => "failed commands",
            Self::Closes => "closes",
        })
    }
}

impl Fault {
    /// Class in which it is counted. A failover is counted when it was one.
    pub(crate) const fn count(self) -> Count {
        match self {
            Self::KillPrimary | Self::KillHolder => Count::Kills,
            Self::StepDown => Count::StepDowns,
            Self::FreezePrimary | Self::FreezeHolder | Self::FreezeHolderShortly(_) => Count::Freezes,
            Self::CutFromMembers(_)
            | Self::CutFromFleet
            | Self::CutFromAll
            | Self::CutFollower
            | Self::CutSite { .. } => Count::Partitions,
            Self::CloseHolder => Count::Closes,
            Self::StepClock { .. } => Count::ClockSteps,
            Self::Drop(_) => Count::Drops,
            Self::RestartAll => Count::Restarts,
            Self::Fail { .. } => Count::FailedCommands,
        }
    }

    /// Returns whether it is done to the fleet and not to the set: two such can happen at once.
    pub(crate) const fn is_of_the_fleet(self) -> bool {
        matches!(
            self,
            Self::FreezeHolder | Self::FreezeHolderShortly(_) | Self::KillHolder | Self::CloseHolder
        )
    }

    /// Any fault. More than half of them make another member the primary.
    pub(crate) fn any(dice: &mut Dice) -> Self {
        const WEIGHTS: [u64; 16] = [10, 34, 14, 14, 3, 9, 4, 6, 6, 4, 5, 2, 10, 4, 2, 6];
        let mut left = dice.below(WEIGHTS.iter().sum());
        let chosen = WEIGHTS.iter().position(|weight| {
            let here = left < *weight;
            left = left.wrapping_sub(*weight);
            here
        });
        match chosen.unwrap_or(0) {
            0 => Self::KillPrimary,
            1 => Self::StepDown,
            2 => Self::FreezePrimary,
            3 => Self::CutFromMembers(any_cut(dice)),
            4 => Self::CutFromFleet,
            5 => Self::CutFromAll,
            6 => Self::CutFollower,
            7 => Self::CutSite { site: dice.place(super::SITES), cut: any_cut(dice) },
            8 => Self::FreezeHolder,
            9 => Self::FreezeHolderShortly(
                dice.between(Duration::from_millis(200), Duration::from_millis(2500)),
            ),
            10 => Self::KillHolder,
            11 => Self::CloseHolder,
            12 => Self::StepClock { member: dice.place(MEMBERS), millis: any_step(dice) },
            13 => Self::Drop(["sessions", "locks", "waiters", "fences"][dice.place(4)]),
            14 => Self::RestartAll,
            _ => Self::Fail { how: any_failure(dice), times: 1 + u32::try_from(dice.below(4)).unwrap_or(0) },
        }
    }

    /// Something that may happen to the fleet besides.
    pub(crate) fn any_of_the_fleet(dice: &mut Dice) -> Self {
        match dice.below(3) {
            0 => Self::KillHolder,
            1 => Self::CloseHolder,
            _ => Self::FreezeHolderShortly(
                dice.between(Duration::from_millis(200), Duration::from_millis(2500)),
            ),
        }
    }
}

fn any_cut(dice: &mut Dice) -> Cut {
    [Cut::Both, Cut::From, Cut::To][dice.place(3)]
}

fn any_failure(dice: &mut Dice) -> Failure {
    [Failure::Closed, Failure::Refused, Failure::Unsure, Failure::Late][dice.place(4)]
}

/// Offset of a clock, in milliseconds from the true time.
fn any_step(dice: &mut Dice) -> i64 {
    const MINUTE: i64 = 60_000;
    [MINUTE, -60 * MINUTE, 60 * MINUTE, -MINUTE, 0][dice.place(5)]
}

#[test]
fn every_fault_is_drawn_and_half_of_them_move_the_primary() {
    let mut dice = Dice::new(1);
    let drawn: Vec<_> = (0..2_000).map(|_| Fault::any(&mut dice)).collect();
    let counts = |count| drawn.iter().filter(|fault| fault.count() == count).count();
    for count in [
        Count::Kills,
        Count::StepDowns,
        Count::Partitions,
        Count::Freezes,
        Count::ClockSteps,
        Count::Drops,
        Count::Restarts,
        Count::FailedCommands,
        Count::Closes,
    ] {
        assert!(counts(count) >= 15, "{count}: {}", counts(count));
    }
    let moves = |fault: &&Fault| {
        matches!(
            fault,
            Fault::KillPrimary
                | Fault::StepDown
                | Fault::FreezePrimary
                | Fault::CutFromMembers(_)
                | Fault::CutFromAll
        )
    };
    assert!(drawn.iter().filter(moves).count() >= 1_000);
}

//! Wrong variants of the engine, for the tests that prove the checkers notice.

/// A rule that the engine can be made to break, to see whether a fleet's checkers notice.
///
/// Not for programs: each of these lets two leases of one key overlap, or loses one, or runs a tick that is
/// not to be run, or loses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(not(tenure_sim), expect(unreachable_pub, reason = "the simulator is given it by `sim`"))]
pub enum Flaw {
    /// R2: the end counts from the answer of a beat, not from its sending.
    EndFromAnswer,
    /// R2: every second beat counts for twice the ttl.
    StretchedTtl,
    /// R3: the observer counts its own ttl, not the session's.
    OwnTtl,
    /// R3: the observer counts from the sending of its first read, not from the answer.
    CountFromSending,
    /// R3: any sighting counts, also of another beat.
    AnyBeat,
    /// R3: a declaration does not name the beat it saw.
    UnnamedBeat,
    /// R3: every beat bears the same nonce.
    SameNonce,
    /// R3: the instance closes its session while a job still runs.
    CloseUnderJob,
    /// R7: a lock counts as taken if it names the session, whatever the ticket.
    AnyTicket,
    /// R8: an unknown outcome is taken as "not applied".
    UnknownIsNo,
    /// R9: a lock is released when its job is cancelled, not when it has stopped.
    ReleaseBeforeDrain,
    /// R9: no job is cancelled before the end.
    NoEarlyCancel,
    /// R9: the check before each poll is left out.
    NoCheckInPoll,
    /// R9: the lease is valid at its end, and `stop_grace` beyond.
    LateEnd,
    /// R10: an answer that comes after the local end is taken for a lock.
    LateAnswer,
    /// R11: the answer of a hand-over makes the next waiter of this instance holder.
    ReleaseMakesHolder,
    /// R9: the lease is valid at the very moment of its end.
    EndIncluded,
    /// R3: a session is watched by the sessions that a hash chooses, whether they live or not.
    ChosenWatchers,
    /// The audit gives back what an undecided operation may have taken.
    HastyAudit,
    /// A tick is run although its claim says that it is another's.
    RunUnclaimed,
    /// A tick is run, and then claimed.
    ClaimAfterRun,
    /// An owner goes on from now, not from what its schedule's ledger says.
    ForgetLedger,
    /// A run that is to happen at most once is begun again when its runner died.
    SettleTwice,
}

/// The flaw an engine has, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flaws(Option<Flaw>);

impl Flaws {
    #[cfg_attr(not(tenure_sim), expect(dead_code, reason = "only the simulator builds a flawed engine"))]
    pub(crate) const fn one(flaw: Flaw) -> Self {
        Self(Some(flaw))
    }

    /// Returns whether the engine has this flaw. Never, in a program.
    pub(crate) fn has(self, flaw: Flaw) -> bool {
        cfg!(tenure_sim) && self.0 == Some(flaw)
    }
}

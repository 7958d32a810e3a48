//! Designs that break one rule each. Every one of them is refuted in `refuted.rs`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// R1: a lock is free when the store's clock says that its holder's beat is older than its ttl.
    StoreClock,
    /// R2: the end counts from the answer of a beat, not from its sending.
    EndFromAnswer,
    /// R2: every second beat brings a longer ttl.
    StretchedTtl,
    /// R2: nothing is taken off for clocks that run at different rates.
    NoMargin,
    /// R3: a beat that is sent again looks like the one before.
    SameNonce,
    /// R3: a declaration does not name the beat that was seen.
    UnnamedBeat,
    /// R3: an observer that has counted a ttl takes the session for dead, without a write that says so.
    UndeclaredDeath,
    /// R3: another beat does not start a new count.
    AnyBeat,
    /// R3: the count starts when the first look is sent, not when it is answered.
    CountFromSending,
    /// R3: a missing session is declared dead without having been watched.
    HastyTombstone,
    /// R3: an instance closes its session while a job runs.
    CloseUnderJob,
    /// R5: a grant does not raise the term.
    TermsKept,
    /// R6: a release names no term.
    ReleaseAnyTerm,
    /// R7: a record is ours because the session is ours.
    AnyTicket,
    /// R7: a record is ours if the session is ours and its term is newer than the last one that ended.
    NewerTerm,
    /// R7: a take of a smaller ticket, which came late, starts a new term.
    SmallerTicket,
    /// R8: a take without an answer was none: its instance does not look, and uses its number again.
    UnknownIsNo,
    /// R9: a lock is released when its job is told to stop, not when it has stopped.
    ReleaseBeforeDrain,
    /// R9: the clock is not looked at before each poll.
    NoCheckInPoll,
    /// R9: a poll may begin at the very moment of the end.
    EndIncluded,
    /// R10: an answer that comes after the end makes a holder.
    LateAnswer,
    /// R11: deaths are declared and read at whichever primary is asked, without a majority.
    DeathReadLocally,
    /// R11: a beat that the primary has moves the end.
    PrimaryBeat,
    /// R11: a take that the primary has makes a holder.
    PrimaryTake,
    /// R11: the answer of a hand-over makes the next waiter of this instance holder.
    ReleaseMakesHolder,
    /// A lock that is granted to a ticket that was given up is kept.
    GivenUpIsKept,
    /// The audit gives back what an undecided operation may have taken.
    HastyAudit,
}

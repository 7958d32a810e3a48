//! The contract between the engine and whatever keeps its records.
//!
//! [`Store`] is the contract. [`MemoryStore`] is its readable definition, `SqliteStore` (feature `sqlite`) serves the
//! processes of one machine, `MongoStore` (feature `mongodb`) the fleet. The package `tenure-conformance`
//! has a test for every property that is promised here, for the author of a store. The contract is open to
//! implementers, without a promise of semver before 1.0: see [`Store`].
//!
//! # Rules of safety
//!
//! The documentation of this crate names the rules by their numbers. A store keeps R4 to R8 and R11 to
//! R13 as far as they concern records; the engine keeps the rest.
//!
//! | Rule | |
//! |---|---|
//! | **R1** | No clock is compared with another clock. Leases are counted in boot time. The store's time is for people to read. What is closed for a time is closed for no longer than that, by any clock; what is closed for good has no time. |
//! | **R2** | A lease ends, for its holder, `ttl - margin` after its last confirmed beat was *sent*. The ttl is fixed for life. |
//! | **R3** | A session dies once, and only after it was seen not to beat for its own ttl, by a write that names the beat that was seen; or by proof: what it kept as long as it or a job of its lived, its [presence](Presence), is gone. |
//! | **R4** | A lock is free when nobody holds it or its session is dead. Taking it is one conditional write. |
//! | **R5** | Terms never restart: `term = max(old term + 1, store time in ms)`. |
//! | **R6** | A release names key, session and term, and does nothing for anybody else. |
//! | **R7** | A lock is taken up only for a ticket that is pending here now. |
//! | **R8** | Unknown is not no. Every attempt has its own limit in time. |
//! | **R9** | Cancel, drain, stop, and only then release. |
//! | **R10** | An acquisition is checked again locally: an answer that comes after the local end is no lock. |
//! | **R11** | What decides is written to a majority and read from one, whatever the connection string says. |
//! | **R12** | Hints decide nothing. |
//! | **R13** | Losing a race, a failing job, a damaged document: none of them ends the engine. |
//! | **R14** | What tells that a lease ends waits for nobody: not for the log, not for the recorder of metrics, not for the store. |
//! | **R15** | What was given up goes back, whoever drives the program's runtime. |

mod answer;
mod bell;
mod contract;
mod hints;
mod memory;
mod methods;
#[cfg(feature = "mongodb")]
pub mod mongo;
mod ops;
mod presence;
mod records;
#[cfg(feature = "mongodb")]
mod rings;
mod rules;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod steps;

pub(crate) use answer::refused;
pub use answer::{
    Capabilities, ClaimAnswer, Cursor, Held, Hint, LockSeen, Page, Purged, Queue, Reach, Refusal,
    ReleaseAnswer, RevokeAnswer, RunPage, ScheduleSeen, SessionSeen, SetAnswer, TakeAnswer,
};
pub(crate) use bell::Bell;
pub use bell::{News, Topic, Topics};
pub use contract::{Answer, Store};
pub(crate) use hints::hint_stream;
#[cfg(feature = "testing")]
pub use memory::Kept;
pub use memory::MemoryStore;
pub use ops::{
    BeatWrite, Claim, Declaration, Define, Evidence, FinishRun, Instruction, MAX_ORDERS, MAX_PAUSES_BEFORE,
    MAX_REQUESTS, Open, Release, ReleaseTo, Revocation, SetValue, TERM_KEPT, Take, Wait,
};
pub use presence::Presence;
pub use records::{
    About, Beat, Beats, Buckets, Candidate, ClockAhead, Closed, Death, Definition, Drained, Ended, FOR_GOOD,
    Holding, LockRecord, Nonce, PAST_HOLDERS, Past, Pause, PauseBefore, Request, RunNow, ScheduleRecord,
    SessionRecord, Share, TaskNote, Ticket, Waiter,
};
pub(crate) use records::{DeathRow, FailureRow, is_revoked, name_in_note, revoked};

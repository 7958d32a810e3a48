//! The contract between the engine and whatever keeps its records.
//!
//! [`Store`] is the contract. [`MemoryStore`] is its readable definition, `SqliteStore` (feature `sqlite`) serves the
//! processes of one machine, `MongoStore` (feature `mongodb`) the fleet. The package `tenure-conformance`
//! has a test for every property that is promised here, for the author of a store. The contract is open to
//! implementers, without a promise of semver before 1.0: see [`Store`].
//!
#![doc = include_str!("../../docs/rules.md")]

mod answer;
mod bell;
mod contract;
mod hints;
mod memory;
#[cfg(feature = "mongodb")]
pub mod mongo;
mod operations;
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
pub use operations::{Op, Operation, Reply, StoreExt};
pub use ops::{
    BeatWrite, Claim, Declaration, Define, Evidence, FinishRun, Instruction, MAX_ORDERS, MAX_PAUSES_BEFORE,
    MAX_REQUESTS, MOST_TOLD, Open, Release, ReleaseTo, Revocation, SetValue, TERM_KEPT, Take, Wait,
};
pub use presence::Presence;
pub use records::{
    About, Beat, Beats, Buckets, Candidate, ClockAhead, Closed, Death, DeathRow, Definition, Drained, Ended,
    FOR_GOOD, FailureRow, Holding, LockRecord, Nonce, Note, PAST_HOLDERS, Past, Pause, PauseBefore, Request,
    RunNow, ScheduleRecord, SessionRecord, Share, Ticket, Waiter,
};

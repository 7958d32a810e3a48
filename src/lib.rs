//! Leader election and task scheduling for services that run several copies and have a MongoDB.
//!
//! When a lease is in doubt, the job under it stops *before* anybody else may start it.
//!
//! This version has the ground everything else stands on: the [contract](store::Store) between an
//! instance and what keeps its records, a store in [memory](store::MemoryStore) and one in
#![cfg_attr(
    feature = "mongodb",
    doc = "[MongoDB](store::mongo::MongoStore), and a [fence](store::mongo::Fence) for"
)]
#![cfg_attr(not(feature = "mongodb"), doc = "MongoDB (feature `mongodb`), with a fence for")]
//! transactions. The engine that runs jobs, the spread and the schedules come with later versions;
//! `CHANGELOG.md` says what is there.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | namespace | who shares keys with whom; (namespace, kind, key) is unique, kinds are lock, task of a spread, schedule |
//! | instance | one running engine, under a human `holder` name ("pod-7"); two processes may carry the same name |
//! | session | the instance's one lease on life in the store; a unique id per start; alive, then dead for ever |
//! | beat | the write that keeps a session alive |
//! | key, lock | what is held; a lock is held by a session, never by a name |
//! | wish | one request for a key; a lock that is granted names the wish it was granted to |
//! | term | the fencing number of a lock: strictly larger with every change of holder |
//! | lease | what a job gets: key, term, since when, how long it is valid by *this* machine's clock |
//! | waiter | one who stands in line for a lock |
//! | spread, task, share | N keyed tasks over the instances that joined; a share is what one instance runs |
//! | schedule, tick, run | a cron-style job; a nominal instant of it; one execution of a tick |
//! | hint | a push notification; only ever shortens a wait, never decides anything |
//!
//! # Twenty lines
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use tenure::{
//!     model::{Candidate, Kind, LockId, SessionId, Wish},
//!     store::{MemoryStore, Store, Take, TakeAnswer},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
//! let lock = LockId { namespace: "shop".parse()?, kind: Kind::Lock, key: "nightly report".parse()? };
//! let pod = |number: u128| Candidate {
//!     session: SessionId::from_u128(number),
//!     wish: Wish::new(1),
//!     ttl: Duration::from_secs(30),
//!     holder: format!("pod-{number}").parse().unwrap(),
//!     who: None,
//!     why: None,
//!     value: None,
//!     lock_delay: Duration::ZERO,
//! };
//! let second = Duration::from_secs(1);
//! let first = store.take(vec![Take { lock: lock.clone(), by: pod(7) }], vec![], second).await?;
//! let loser = store.take(vec![Take { lock, by: pod(8) }], vec![], second).await?;
//! assert!(matches!(&first[..], [TakeAnswer::Taken(_)]));
//! assert!(matches!(&loser[..], [TakeAnswer::Held(record)] if record.term == first[0].taken().unwrap().term));
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | module | what is in it |
//! |---|---|
//! | [`model`] | sessions, locks, waiters, terms, runs: plain data |
//! | [`store`] | the contract, and the stores that keep it |
//! | [`clock`] | the clock leases are counted by |
#![cfg_attr(
    feature = "testing",
    doc = "| [`testing`] | the conformance suite for stores, stores that fail on purpose, a clock to turn |"
)]
//!
//! Beside them stands [`ElectConfig`]: the durations an instance runs by.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `mongodb` | yes | the store for the fleet, with the driver and its documents (`bson`) |
//! | `testing` | no | the conformance suite, stores that fail on purpose, a clock to turn by hand |

pub mod clock;
mod config;
mod core;
pub mod elect;
mod error;
pub mod model;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use clock::{Clock, SystemClock};
pub use config::{ConfigError, ElectConfig, Takeover};
pub use elect::{Elect, Error, Event, Guard, Lease, Loss};
pub use error::{Applied, StoreError};

/// The README's code is tested like that of the documentation.
#[cfg(all(doctest, feature = "mongodb"))]
#[doc = include_str!("../README.md")]
mod readme {}

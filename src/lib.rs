//! Leader election, locks and schedules for services that run as several instances and have a MongoDB.
//!
//! One instance runs the job. When its lease is about to expire, the job stops *before* any other instance
//! may start it: for each key, the intervals [granted, start of the job's last poll] of two leases never overlap,
//! as long as two clocks differ in speed by at most 1 %, wherever they point.
//!
//! Not promised: that what a job sent elsewhere arrives before its lease ends. Such writes carry the lease's
//! [term](Lease::term), and their receiver refuses an older one.
//!
//! Start with [`Elect`], one for each instance of the program.
//!
//! # Twenty lines
//!
//! ```
//! use tenure::{Elect, ElectConfig, elect::{Busy, JobEnd, Locked}, store::MemoryStore};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Two instances of a program, for once within one process.
//!     let store = MemoryStore::default();
//!     let first = Elect::start(store.clone(), ElectConfig::new("shop", "pod-1")?).await?;
//!     let second = Elect::start(store, ElectConfig::new("shop", "pod-2")?).await?;
//!
//!     let locked = first.lock("nightly report", async |lease| {
//!         // What is written elsewhere carries `lease.term()`.
//!         lease.cancelled().await; // a real job works until it is done, or until it is told to stop
//!         Ok::<_, String>("three pages")
//!     });
//!     let Locked::Running(job) = locked.await? else { return Err("somebody holds the key".into()) };
//!
//!     let other = second.lock("nightly report", async |_| Ok::<_, String>("twice")).await?;
//!     assert!(matches!(other, Locked::Busy(Busy::Held(held)) if held.holder.as_str() == "pod-1"));
//!
//!     first.close().await; // tells its jobs to stop, waits for them, and leaves their keys free
//!     assert_eq!(job.join().await, JobEnd::Finished("three pages"));
//!     Ok(())
//! }
//! ```
//!
//! With `MongoStore::connect(uri, MongoOptions::new())` in place of the memory store
#![cfg_attr(
    feature = "mongodb",
    doc = "([`store::mongo`]), a whole fleet shares the keys, and a [fence](store::mongo::Fence) guards its"
)]
#![cfg_attr(
    not(feature = "mongodb"),
    doc = "(feature `mongodb`), a whole fleet shares the keys, and a fence guards its"
)]
//! transactions.
//!
//! | to | there is |
//! |---|---|
//! | run a job if the key is free | [`Elect::lock`] |
//! | wait for the key and run the job here | [`Elect::with_lock`] |
//! | hold the key by a value, or several | [`Elect::acquire`], [`Elect::acquire_all`] |
//! | lead for as long as the program lives | [`Elect::campaign`] |
//! | name the part of the program that asks, and its reason | [`Elect::key`] |
//! | run N tasks, spread over the fleet | [`Elect::spread`] |
//! | run a job at certain times, once per fleet | [`Elect::schedule`], [`Elect::schedules`] |
//! | see the holder of each key | [`Elect::locked_keys`], [`Elect::watch`], [`Elect::events`], [`Elect::health`] |
//! | end | [`Elect::close`] |
//!
//! The words are those of the glossary (`docs/glossary.md`).
//!
//! # Modules
//!
//! | module | what is in it |
//! |---|---|
//! | [`elect`] | the engine: instances, jobs, guards, campaigns, events, health |
//! | [`spread`] | N keyed tasks over the instances that take part |
//! | [`schedule`] | cron-style jobs, every tick once per fleet |
//! | [`model`] | names, ids, instants, losses, runs: plain data |
//! | [`store`] | the contract, and the stores that keep it; implementers of [`Store`](store::Store) get no promise of semver before 1.0 |
//! | [`clock`] | the clock leases are counted by |
#![cfg_attr(
    feature = "testing",
    doc = "| [`testing`] | stores that fail on purpose, a clock to turn by hand |"
)]
//!
//! [`ElectConfig`] has the durations an instance runs by.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `mongodb` | no | the store for the fleet, with the driver and its documents (`bson`) |
//! | `sqlite` | no | the store for the processes of one machine, a file, with SQLite built in |
//! | `mongodb-logs` | no | the log events of the driver itself, an unstable feature of it |
//! | `metrics` | no | counters, gauges and histograms of the engine, by the `metrics` facade |
//! | `testing` | no | stores that fail on purpose, a clock to turn by hand |

// Support that unit tests share with other packages names the crate; without features there is none.
#[cfg(test)]
#[allow(unused_extern_crates)]
extern crate self as tenure;

mod backoff;
pub mod clock;
mod config;
#[cfg(any(test, feature = "testing", tenure_sim))]
#[cfg_attr(not(tenure_sim), allow(dead_code, unreachable_pub, reason = "the simulator uses the rest of it"))]
mod dice;
pub mod elect;
mod error;
mod logic;
pub mod model;
pub mod schedule;
#[cfg(tenure_sim)]
#[doc(hidden)]
pub mod sim;
pub mod spread;
pub mod store;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
#[cfg(not(feature = "testing"))]
mod words;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod words;

pub use clock::{Clock, SystemClock};
pub use config::{ConfigError, ElectConfig};
pub use elect::{Elect, Error, Event, Guard, Lease};
pub use error::{Applied, StoreError};
pub use model::Loss;
pub use spread::Task;

/// The README's code is tested like that of the documentation.
#[cfg(all(doctest, feature = "mongodb", feature = "sqlite"))]
#[doc = include_str!("../README.md")]
mod readme {}

/// And so is that of the other documents.
#[cfg(all(doctest, feature = "mongodb"))]
#[doc = include_str!("../docs/operations.md")]
mod operations {}

#[cfg(all(doctest, feature = "mongodb"))]
#[doc = include_str!("../docs/locks.md")]
mod locks {}

#[cfg(all(doctest, feature = "mongodb", feature = "sqlite"))]
#[doc = include_str!("../docs/stores.md")]
mod stores {}

#[cfg(doctest)]
#[doc = include_str!("../docs/spread.md")]
mod spreads {}

#[cfg(doctest)]
#[doc = include_str!("../docs/schedule.md")]
mod schedules {}

//! The SQLite store on real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

#[path = "../reference/mod.rs"]
mod reference;

mod conformance;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod copies;
mod crowded;
mod damaged;
mod files;
mod folder;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod host;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod leftovers;
mod limits;
mod restored;
#[path = "../support/rounds.rs"]
mod rounds;
mod scripts;
mod takeover;
#[cfg(target_os = "linux")]
mod threads;
mod turns;
#[path = "../support/wait.rs"]
mod wait;

//! The command on files: listings, orders, checks, the screen, the page, help and manual.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]
#![allow(clippy::disallowed_methods, reason = "processes run by the clock of the machine")]

mod act;
mod check;
mod check_config;
mod cli;
mod looking;
mod manual;
mod pty;
mod see;
mod status;
#[cfg(feature = "top")]
mod top;
#[cfg(feature = "ui")]
mod ui;
mod verdict;
#[path = "../../tests/support/wait.rs"]
mod wait;
mod watch;
mod wrong_inputs;

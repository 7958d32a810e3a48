//! The command as the parent of what it runs: signals, ends, terminals, descriptors. In a process of their own, since a
//! child inherits what others have open, and a count of processes wants no others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]
#![allow(clippy::disallowed_methods, reason = "processes run by the clock of the machine")]

mod cli;
mod exec;
mod exec_rounds;
mod exec_terminal;
mod group;
mod limits;
mod log;
mod looking;
mod no_inotify;
mod pty;
mod replaced;
#[path = "../../tests/support/rounds.rs"]
mod rounds;
mod serve;
#[path = "../../tests/support/wait.rs"]
mod wait;

//! The moment before CMD: the guardian's child asks the kernel to end with the guardian, and becomes CMD.

use std::{ffi::OsString, io, os::unix::process::CommandExt, process::Command};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::{
    exit::{FAILED, NOT_FOUND, NOT_STARTED},
    say,
};

/// The first argument of this program as the process that becomes CMD.
pub(super) const WORD: &str = "start-child";

/// Becomes CMD. Returns only if that fails.
pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    let guardian: Option<i32> = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let (Some(guardian), Some(program)) = (guardian, arguments.next()) else {
        say::say_now(format_args!("{WORD} is for tenure itself: use tenure exec"));
        return FAILED;
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        say::say_now(format_args!("the child cannot be tied to its guardian: {error}"));
        return FAILED;
    }
    // It may have ended just before.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(guardian) {
        return FAILED;
    }
    let error = Command::new(&program).args(arguments).exec();
    say::say_now(format_args!("{} cannot be started: {error}", program.to_string_lossy()));
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_STARTED }
}

//! A fleet of processes on this machine, of which one is killed, one is frozen, and one is closed, in half a minute.
//! At the end: every promise, and whether it was kept. The exit code is 1 if one was broken.
//!
//! ```sh
//! cargo demo
//! cargo demo --plain --time 1m   # lines instead of a picture, as where the output is no terminal
//! ```

#![allow(dead_code, reason = "the rounds of real faults use the rest")]
#![allow(clippy::unwrap_used, reason = "as in those")]

#[path = "../tests/real/audit.rs"]
mod audit;
#[path = "../tests/real/court.rs"]
mod court;
#[path = "../tests/real/demo.rs"]
mod demo;
#[path = "../../tests/support/flaw.rs"]
mod flaw;
#[path = "../tests/real/fleet.rs"]
mod fleet;
#[path = "../tests/real/holder.rs"]
mod holder;
#[path = "../tests/real/ills.rs"]
mod ills;
#[path = "../tests/real/ledger.rs"]
mod ledger;
#[path = "../tests/real/lines.rs"]
mod lines;
#[path = "../tests/real/record.rs"]
mod record;
#[path = "../tests/real/resource.rs"]
mod resource;
#[path = "../tests/real/ticks.rs"]
mod ticks;

#[path = "../../tests/support/wait.rs"]
mod wait;

mod support {
    pub(crate) use super::wait;
}

use std::{
    io::{IsTerminal, stdout},
    process::ExitCode,
    time::Duration,
};

use demo::{Screen, Show};

/// With less there is no time between the steps.
const SHORTEST: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if holder::holds() {
        return ExitCode::SUCCESS;
    }
    let (mut time, mut is_plain) = (Duration::from_secs(25), !stdout().is_terminal());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut given = || humantime::parse_duration(&arguments.next()?).ok();
        time = match argument.as_str() {
            "--plain" => {
                is_plain = true;
                continue;
            }
            "--time" => given().unwrap_or_default(),
            _ => Duration::ZERO,
        };
        if time < SHORTEST {
            eprintln!("cargo demo [--time TIME] [--plain], and TIME is 10s or more");
            return ExitCode::from(64);
        }
    }
    let screen =
        if is_plain { Screen::Lines(Box::new(|line| println!("{line}"))) } else { Screen::Picture(0) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::select! {
            is_kept = Show::play(time, screen) => if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE },
            _ = tokio::signal::ctrl_c() => ExitCode::from(130),
        }
    })
}

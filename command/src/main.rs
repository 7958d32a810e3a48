//! `tenure`: only one copy runs this, for any program.

#![allow(clippy::disallowed_methods, reason = "a command runs by the clock of its machine")]
// They panic where standard error or output cannot be written, and wait for a reader: see `say` and `out`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod advice;
mod child;
mod common;
mod exit;
mod file;
mod job;
mod logs;
mod metrics;
mod notify;
mod out;
mod place;
mod say;
mod serve;
mod settings;
mod signals;
mod tail;
mod times;
mod under;

mod act;
mod check;
mod check_config;
mod cron;
mod doctor;
#[cfg(test)]
mod documents;
mod exec;
mod key_lock;
mod manual;
mod schema;
mod see;
mod spread;
mod status;
#[cfg(feature = "ui")]
mod ui;

use std::{
    panic::AssertUnwindSafe,
    process::ExitCode,
    sync::{Arc, Mutex},
};

use clap::{Parser, Subcommand};
use rustix::io::Errno;
use signal_hook::consts::SIGXFSZ;

use crate::{
    common::Common,
    exit::{FAILED, Failure, USAGE},
};

/// Only one copy runs this: locks, cron lines and spread tasks for any program
#[derive(Debug, Parser)]
#[command(name = "tenure", version, propagate_version = true, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

const AFTER_HELP: &str = "\
Exit codes: the code of the child, or 128 + its signal; 64 usage, 69 store away, 75 held by another,
78 configuration, 80 lease lost, 125 tenure failed, 126 not executable, 127 not found.";

#[derive(Debug, Subcommand)]
enum Command {
    Exec(exec::Exec),
    Cron(cron::Cron),
    Spread(spread::Spread),
    #[command(flatten)]
    See(see::See),
    #[command(flatten)]
    Act(act::Act),
    RaiseTerms(act::raise_terms::RaiseTerms),
    /// Show what needs attention, the worst first, and the command that mends or explains it
    Status(status::Status),
    /// Check health for monitors and probes; prints one line, sets the exit code
    Check(check::Check),
    /// Check the settings without touching the store
    CheckConfig(check_config::CheckConfig),
    Doctor(doctor::Doctor),
    #[cfg(feature = "ui")]
    Ui(ui::Ui),
    Schema(schema::Schema),
    #[command(flatten)]
    Manual(manual::Manual),
}

/// Threads of the runtime, of the words and of the signals.
const THREADS: usize = 4;

fn main() -> ExitCode {
    // Before anything else is read, or any thread started.
    if let Some(code) = child::run_if_asked() {
        return ExitCode::from(code);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors.
            let words: Vec<_> = std::env::args_os().collect();
            // A monitor knows no other codes than its own.
            let is_check = words.get(1).is_some_and(|word| word == "check");
            let refused = if is_check { check::State::Unknown.code() } else { USAGE };
            let code = if error.use_stderr() { refused } else { 0 };
            let _ = advice::advised(error, &words).print();
            return ExitCode::from(code);
        }
    };
    // A panic has told its reason: where no thread can be started, for one.
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| run(cli)));
    let code = ended.unwrap_or(Ok(FAILED)).unwrap_or_else(|failure| {
        say::say(&failure);
        failure.code
    });
    say::flush();
    ExitCode::from(code)
}

/// Checks that as many threads can be started as are needed at once: without them the runtime panics, or waits for ever.
fn check_threads() -> std::io::Result<()> {
    let gate = Mutex::new(());
    let closed = gate.lock();
    std::thread::scope(|scope| {
        let wait = || drop(gate.lock());
        let started =
            (0..THREADS).try_for_each(|_| std::thread::Builder::new().spawn_scoped(scope, wait).map(drop));
        drop(closed);
        started
    })
}

/// Names the limit by which the system refuses something, if one does.
fn limit(error: &std::io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => " (the limit is ulimit -u)",
        Some(Errno::MFILE) => " (the limit is ulimit -n)",
        _ => "",
    }
}

fn run(cli: Cli) -> Result<u8, Failure> {
    let Cli { command, common } = cli;
    let no_thread = |error: std::io::Error| {
        Failure::new(FAILED, format!("{error}, so no thread can be started{}", limit(&error)))
    };
    check_threads().map_err(no_thread)?;
    // A file that may not grow is an error of its write, as a full disk is. What is started gets the default again.
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(|error| Failure::failed(format!("signals cannot be received: {error}")))?;
    // Two threads: one for beats' answers while the other prints.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(spread::THREADS)
        .thread_keep_alive(spread::IDLE)
        .enable_all()
        .build()
        .map_err(no_thread)?;
    let ended = runtime.block_on(async {
        match command {
            Command::Exec(exec) => exec::run(&common, exec).await,
            Command::Cron(cron) => cron::run(&common, cron).await,
            Command::Spread(spread) => spread::run(&common, spread).await,
            Command::See(see) => see::run(&common, see).await,
            Command::Act(act) => act::run(&common, act).await,
            Command::RaiseTerms(raise) => act::raise_terms::run(&common, &raise).await,
            Command::Status(status) => status::run(&common, status).await,
            Command::Check(check) => check::run(&common, check).await,
            Command::CheckConfig(check) => check_config::run(&common, check),
            Command::Doctor(doctor) => doctor::run(&common, doctor).await,
            #[cfg(feature = "ui")]
            Command::Ui(ui) => ui::run(&common, ui).await,
            Command::Schema(schema) => schema::run(&common, &schema),
            Command::Manual(manual) => manual::run(manual),
        }
    });
    // Work that is still under way, such as a blocked read, must not keep the program.
    runtime.shutdown_background();
    ended
}

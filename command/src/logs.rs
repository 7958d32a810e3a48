//! The engine's own log, on standard error.

use std::io;

use tracing_subscriber::filter::LevelFilter;

use crate::common::{Common, Level};

/// Starts to log what was asked for, or else from that level up.
pub(crate) fn start(common: &Common, otherwise: Level) {
    start_at(common.log.unwrap_or(otherwise));
}

/// Starts to log from that level up.
pub(crate) fn start_at(level: Level) {
    let most = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(most)
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        // A log without a reader must not end the work: its errors would be printed there, and panic.
        .log_internal_errors(false)
        .init();
}

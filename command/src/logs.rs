//! The engine's own log, on standard error.

use tracing_subscriber::filter::LevelFilter;

use crate::{
    common::{Common, Level},
    say::Log,
};

/// Starts to log what was asked for, or else from that level up.
pub(crate) fn start(common: &Common, otherwise: Level) {
    let most = match common.log.unwrap_or(otherwise) {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(most)
        .with_writer(|| Log)
        .with_ansi(false)
        .with_target(false)
        // The subscriber would print them by itself, and panic where nobody reads.
        .log_internal_errors(false)
        .init();
}

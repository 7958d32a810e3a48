//! The words room: what tenure tells the program's log and its recorder of metrics passes through here.
//!
//! Both are code of others, which may block for ever or panic at each call, and no lease may wait for them (R14). So
//! a line is pushed, of values of our own, and a number is added to a sum of ours; one thread tells the lines to the
//! log, another brings the sums to the recorder. Pushing calls nothing but the allocator, so that it may be done under
//! the mutex of the state that a line tells of: what comes first stands first. `tracing` and `metrics` are named in
//! this room only. It knows the model's names, and nothing else of tenure.

mod fields;
pub(crate) mod line;
#[cfg_attr(not(feature = "metrics"), path = "no_numbers.rs")]
pub(crate) mod numbers;
mod outbox;
mod pace;
mod span;

pub(crate) use line::{debug, error, info, warn};
pub(crate) use outbox::{Under, told};
pub(crate) use pace::Voice;
pub(crate) use span::JobSpan;

/// Returns what is wrong with the program's log or its recorder, and which of them it is.
pub(crate) fn voice() -> Option<(&'static str, Voice)> {
    let log = outbox::voice().map(|voice| ("log", voice));
    log.or_else(|| numbers::voice().map(|voice| ("recorder of metrics", voice)))
}

/// Waits until the log and the recorder have all of it, for programs that read their own.
#[cfg(any(test, feature = "testing"))]
pub fn flush() {
    outbox::flush();
    numbers::flush();
}

/// Kind of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Unit of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Seconds,
    Count,
}

/// Parts of the macros.
pub(crate) mod parts {
    pub(crate) use tracing::{Level, event, field::display};

    pub(crate) use super::{
        fields::owned,
        outbox::{is_heard, push},
    };
}

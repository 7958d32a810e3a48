//! Properties of any bytes: functions that panic where one does not hold, shared by `cargo test` and the targets
//! in `fuzz/`. Each returns whether the bytes came far enough to show anything.

mod config;
mod documents;
mod expressions;
mod names;
mod source;

pub(crate) use config::config;
pub(crate) use documents::documents;
pub(crate) use expressions::expressions;
pub(crate) use names::names;

//! What holds for any bytes: functions that panic where it does not, shared by `cargo test` and the targets
//! in `fuzz/`. Each says whether the bytes came far enough to tell anything.

mod config;
mod documents;
mod expressions;
mod names;
mod source;

pub(crate) use config::config;
pub(crate) use documents::documents;
pub(crate) use expressions::expressions;
pub(crate) use names::names;

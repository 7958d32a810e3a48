//! For tests: stores that fail on purpose, and a clock to turn by hand. Not semver-stable: a minor version may change it.
//!
//! | part | for |
//! |---|---|
//! | [`TestClock`] | tests of a program: time that stands still until it is told to go on |
//! | [`Faulty`], [`Slow`], [`Counting`] | stores that lose answers, take their time, or keep count |
//! | [`Intercept`] | any other kind of trouble: one hook around every call |
//!
#![doc = include_str!("../../docs/testing.md")]

mod clock;
mod intercept;

#[doc(hidden)]
pub use crate::config::read_variables;
pub use clock::TestClock;
pub use intercept::{
    Call, Counting, Counts, Course, Fault, Faulty, Intercept, Intercepted, Operation, Rates, Slow,
};

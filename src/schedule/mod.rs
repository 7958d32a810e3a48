//! When a schedule is due.
//!
//! [`Timing`] says what an expression makes of a time zone, before anything runs by it.

mod timing;

pub use crate::core::calendar::{CalendarError, Dst};
pub use timing::Timing;

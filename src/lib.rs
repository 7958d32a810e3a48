//! Leader election and task scheduling on MongoDB.
pub mod clock;
mod error;
pub mod model;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use clock::{Clock, SystemClock};
pub use error::{Applied, StoreError};

//! Durations as JSON: whole milliseconds, as in the records of the library.

use std::time::Duration;

use serde::Serializer;
use tenure::model::MAX_NUMBER;

pub(crate) fn ms<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_millis()).map_or(MAX_NUMBER, |millis| millis.min(MAX_NUMBER)))
}

#[expect(clippy::ref_option, reason = "serde passes references")]
pub(crate) fn ms_if_any<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => ms(time, to),
        None => to.serialize_none(),
    }
}

//! Times as people read them, and as they write them.

use std::time::{Duration, SystemTime};

use jiff::{Timestamp, tz::TimeZone};
use tenure::model::StoreTime;
pub(crate) use tenure_look::{ago, length};

use crate::exit::Failure;

/// Now, by this machine's clock: records bear the store's, which may differ a little.
pub(crate) fn now() -> StoreTime {
    StoreTime::from(SystemTime::now())
}

/// An instant in the reader's zone, which is named.
pub(crate) fn local(time: StoreTime) -> String {
    zoned(time, zone())
}

/// The reader's zone. Unit tests have the same one on every machine.
fn zone() -> TimeZone {
    if cfg!(test) { TimeZone::UTC } else { TimeZone::system() }
}

pub(crate) fn zoned(time: StoreTime, zone: TimeZone) -> String {
    Timestamp::from_millisecond(time.as_millis()).map_or_else(
        |_| time.to_string(),
        |instant| instant.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
    )
}

/// The time of day in the reader's zone, which is not named.
#[cfg(feature = "top")]
pub(crate) fn clock(time: StoreTime) -> String {
    Timestamp::from_millisecond(time.as_millis()).map_or_else(
        |_| time.to_string(),
        |instant| instant.to_zoned(zone()).strftime("%H:%M:%S").to_string(),
    )
}

/// A duration of an option; `0` needs no unit.
pub(crate) fn duration(option: &str, text: &str) -> Result<Duration, Failure> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text.trim()).map_err(|error| {
        Failure::usage(format!(
            "{option} is {text:?}, which is no length of time such as 30s or 1h 30m: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_bears_its_zone() {
        let time = StoreTime::from_millis(1_600_000_000_000);
        assert_eq!(zoned(time, TimeZone::UTC), "2020-09-13 12:26:40 UTC");
    }

    #[test]
    fn a_text_that_is_no_duration_is_refused_with_its_option() {
        let error = duration("--wait", "soon").unwrap_err();
        assert!(error.message.starts_with("--wait is \"soon\""), "{error}");
        assert_eq!(error.code, crate::exit::USAGE);
        assert_eq!(duration("--wait", "0").unwrap(), Duration::ZERO);
        assert_eq!(duration("--wait", "1m 30s").unwrap(), Duration::from_secs(90));
    }
}

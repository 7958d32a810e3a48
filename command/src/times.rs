//! Times as people read them, and as they write them.

use std::time::{Duration, SystemTime};

use jiff::{Timestamp, tz::TimeZone};
use tenure::model::StoreTime;

use crate::exit::Failure;

/// Now, by this machine's clock: records bear the store's, which may differ a little.
pub(crate) fn now() -> StoreTime {
    StoreTime::from(SystemTime::now())
}

/// `4 min ago`, or `in 4 min`.
pub(crate) fn ago(then: StoreTime, now: StoreTime) -> String {
    if then > now {
        format!("in {}", length(then.since(now)))
    } else {
        format!("{} ago", length(now.since(then)))
    }
}

/// A length of time by its largest unit: `4 min`.
pub(crate) fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// An instant in the zone of whoever reads it, which is named.
pub(crate) fn local(time: StoreTime) -> String {
    zoned(time, TimeZone::system())
}

pub(crate) fn zoned(time: StoreTime, zone: TimeZone) -> String {
    Timestamp::from_millisecond(time.as_millis()).map_or_else(
        |_| time.to_string(),
        |instant| instant.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
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
    fn a_length_is_told_by_one_unit() {
        for (ms, told) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (119_000, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
            (172_800_000, "2 d"),
        ] {
            assert_eq!(length(Duration::from_millis(ms)), told);
        }
    }

    #[test]
    fn an_instant_bears_its_zone() {
        let time = StoreTime::from_millis(1_600_000_000_000);
        assert_eq!(zoned(time, TimeZone::UTC), "2020-09-13 12:26:40 UTC");
    }

    #[test]
    fn what_is_no_duration_is_named() {
        let error = duration("--wait", "soon").unwrap_err();
        assert!(error.message.starts_with("--wait is \"soon\""), "{error}");
        assert_eq!(error.code, crate::exit::USAGE);
        assert_eq!(duration("--wait", "0").unwrap(), Duration::ZERO);
        assert_eq!(duration("--wait", "1m 30s").unwrap(), Duration::from_secs(90));
    }
}

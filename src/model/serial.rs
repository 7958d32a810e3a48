//! Serialization of durations, instants and bytes. The convention is on the page of
//! [`elect`](crate::elect#as-json).

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Kind, MAX_NUMBER, SessionId, StoreTime, Value};

/// Whole milliseconds.
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

/// A limit on the number of tasks; nothing if there is none.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(crate) fn cap<S: Serializer>(cap: &u32, to: S) -> Result<S::Ok, S::Error> {
    Some(*cap).filter(|cap| *cap < u32::MAX).serialize(to)
}

/// A digest as text: not every tool reads numbers of 64 bits exactly.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(crate) fn digest<S: Serializer>(digest: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{digest:016x}"))
}

/// Bytes as hexadecimal digits.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Text, or `{"hex": "00ff"}` if it is not UTF-8.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.as_bytes()) {
            return to.serialize_str(text);
        }
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry("hex", &Hex(self.as_bytes()))?;
        map.end()
    }
}

macro_rules! as_displayed {
    ($($type:ty)+) => {
        $(
            /// As it is displayed.
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    to.collect_str(self)
                }
            }
        )+
    };
}

as_displayed! { Kind SessionId StoreTime }

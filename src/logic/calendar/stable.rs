//! Numbers that depend on a schedule's name only: the same in every process, version and machine, because
//! the instants of a fleet hang on them. They must never change.

use crate::model::ScheduleName;

/// A number of 32 bits for some bytes.
pub(super) fn fold(bytes: impl Iterator<Item = u8>) -> u64 {
    mix(fnv(bytes)) >> 32
}

/// A number below `most` (which is not 0) by the name and by what it is for.
pub(super) fn below(name: &ScheduleName, purpose: &str, most: u64) -> u64 {
    // The zero keeps the end of a name apart from the beginning of a purpose.
    mix(fnv(name.as_str().bytes().chain([0]).chain(purpose.bytes()))) % most
}

/// FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Its low bits know little of the high ones, and `%` looks at them first.
const fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

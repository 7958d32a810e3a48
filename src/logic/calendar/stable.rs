//! Numbers that depend on a schedule's name only: the same in every process, version and machine, because
//! the instants of a fleet hang on them. They must never change.

use crate::model::{Digest, ScheduleName};

/// A number of 32 bits for some bytes.
pub(super) fn fold(bytes: impl Iterator<Item = u8>) -> u64 {
    let mut digest = Digest::default();
    bytes.for_each(|byte| digest.write(&[byte]));
    digest.half_mixed() >> 32
}

/// A number below `most` (which is not 0) by the name and by what it is for.
pub(super) fn below(name: &ScheduleName, purpose: &str, most: u64) -> u64 {
    let mut digest = Digest::default();
    digest.write(name.as_str().as_bytes());
    // The zero keeps the end of a name apart from the beginning of a purpose.
    digest.write(&[0]);
    digest.write(purpose.as_bytes());
    digest.half_mixed() % most
}

//! The digest of a task set.

use crate::model::Key;

/// The digest of a task set: the same for the same keys, on every machine and in every version (64-bit
/// FNV-1a).
pub(crate) fn digest<'a>(keys: impl Iterator<Item = &'a Key>) -> u64 {
    let mut digest = Digest::default();
    for key in keys {
        digest.write(key.as_str().as_bytes());
        // The zero byte is in no key.
        digest.write(&[0]);
    }
    digest.0
}

/// A digest that is being made.
#[derive(Debug)]
pub(crate) struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) const fn get(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_same_in_every_version() {
        let of =
            |keys: &[&str]| digest(keys.iter().map(|key| key.parse().unwrap()).collect::<Vec<Key>>().iter());
        assert_eq!(of(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(of(&["a"]), 0x089b_e207_b544_f1e4);
        assert_eq!(of(&["a", "b"]), 0xab40_d782_0d40_8076);
        assert_ne!(of(&["ab"]), of(&["a", "b"]));
    }
}

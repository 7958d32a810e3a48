//! The digest that names are compared and ordered by: the same on every machine and in every version.

/// A 64-bit FNV-1a digest that is being made.
#[derive(Debug)]
pub(crate) struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Digest {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) const fn get(&self) -> u64 {
        self.0
    }

    /// The digest with its high bits in the low ones too: FNV-1a leaves those apart, and `%` looks at the low ones
    /// first. The instants of schedules depend on these numbers, so they must never change.
    pub(crate) const fn half_mixed(&self) -> u64 {
        let hash = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^ (hash >> 33)
    }

    /// The digest with every bit in every other: names that differ in their last letter are far apart.
    pub(crate) const fn mixed(&self) -> u64 {
        let hash = self.half_mixed().wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}

//! Anything, made of bytes: the same bytes, the same thing; no more bytes, only zeros.

/// Numbers at which something changes.
const EDGES: [u64; 12] =
    [0, 1, 2, 9, 10, 100, 511, (1 << 31) - 1, 1 << 32, (1 << 53) - 1, 1 << 53, i64::MAX as u64 + 1];

pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::from(self.byte()) % most
    }

    pub(crate) fn one_in(&mut self, many: u8) -> bool {
        self.byte() % many == 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Small, at an edge, or any.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() {
            0..128 => u64::from(self.byte()),
            128..192 => self.pick(&EDGES),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    pub(crate) fn text(&mut self, longest: usize) -> String {
        let (taken, rest) = self.0.split_at(self.below(longest + 1).min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(taken).into_owned()
    }
}

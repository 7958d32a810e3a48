//! The parts that benches share: figures, clocks and rounds, servers with plain clients for the floors, instances on
//! them.

#![allow(dead_code, reason = "each bench uses its part")]

#[cfg(feature = "mongodb")]
pub(crate) mod events;
pub(crate) mod figures;
pub(crate) mod instances;
pub(crate) mod many;
pub(crate) mod measure;
pub(crate) mod relay;
#[cfg(feature = "mongodb")]
#[path = "../../tests/support/mod.rs"]
pub(crate) mod support;
#[cfg(feature = "mongodb")]
pub(crate) mod world;

/// The parts of a bench that its caller wants: those with one of the words in their name, or all.
pub(crate) struct Wanted(Vec<String>);

impl Wanted {
    pub(crate) fn of_arguments() -> Self {
        // cargo passes `--bench`.
        Self(std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect())
    }

    pub(crate) fn has(&self, part: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|word| part.contains(word.as_str()))
    }

    pub(crate) fn has_any(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.has(part))
    }
}

#![cfg(feature = "testing")]
//! The memory store: the conformance suite, and what only a clock turned by hand can show.

mod conformance {
    use std::sync::Arc;

    use tenure::store::MemoryStore;

    tenure::conformance_tests!(Arc::new(MemoryStore::default()));
}

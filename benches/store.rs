//! Figures of the MongoDB store.

fn main() {}

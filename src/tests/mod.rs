//! Tests of the whole library from inside, and what unit tests share.

pub(crate) mod seeded;
mod serialized;

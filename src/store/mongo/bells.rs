//! Bells: small capped collections, which those whom it concerns tail, and in which whoever has changed something
//! writes who is to look where.
//!
//! Nobody but they is woken by a change, and who listens to nothing costs nothing. Bells decide nothing (R12): they
//! may be lost, and none is waited for.

mod board;
mod buckets;
mod encoding;
mod ring;
pub(super) mod tail;

pub(super) use board::{Board, Failure, Notice, Silent};
pub(super) use buckets::{Bucket, Buckets};
pub(super) use ring::Ringer;

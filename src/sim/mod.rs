//! Access of the simulator to the engine, only in builds of this repository (`--cfg tenure_sim`).

pub mod scale;
pub mod steps;

pub use crate::{dice::Dice, elect::Tasks, logic::flaw::Flaw};

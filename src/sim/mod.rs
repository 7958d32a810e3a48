//! Access of the simulator to the engine, only in builds of this repository (`--cfg tenure_sim`).

pub mod scale;

pub use crate::{
    elect::{Tasks, splitmix},
    logic::flaw::Flaw,
};

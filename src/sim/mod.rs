//! What the simulator needs of the engine, and nobody else: only builds of this repository have it
//! (`--cfg tenure_sim`).

pub mod scale;

pub use crate::{
    elect::{Tasks, splitmix},
    logic::flaw::Flaw,
};

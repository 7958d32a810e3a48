//! A trace in words.

use std::fmt::Write as _;

use stateright::Path;

use crate::model::{action::Action, world::World};

pub(crate) fn told(path: Path<World, Action>) -> String {
    let mut text = String::new();
    for (step, action) in (1..).zip(path.into_actions()) {
        let _ = writeln!(text, "  {step:>2}. {action}");
    }
    text
}

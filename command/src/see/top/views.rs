//! The views: of each its name, its columns, and a row for whatever it shows. Pure.

mod changes;
mod instances;
mod locks;
mod schedules;
mod spreads;

use clap::ValueEnum;
use tenure::{model::Kind, store::LockRecord};
use tenure_look::Picture;

use super::list::List;

pub(super) use self::changes::subject;

/// A view of `tenure top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    Instances,
    Spreads,
    Locks,
    Schedules,
    Changes,
}

impl View {
    pub(super) const ALL: [Self; 5] =
        [Self::Instances, Self::Spreads, Self::Locks, Self::Schedules, Self::Changes];

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Instances => "Instances",
            Self::Spreads => "Spreads",
            Self::Locks => "Locks",
            Self::Schedules => "Schedules",
            Self::Changes => "Changes",
        }
    }

    /// Returns the message for an empty view.
    pub(super) const fn nothing(self) -> &'static str {
        match self {
            Self::Instances => "No instance is in this namespace.",
            Self::Spreads => "No spread is in this namespace.",
            Self::Locks => "No key was ever held in this namespace.",
            Self::Schedules => "No schedule is in this namespace.",
            Self::Changes => "Nothing has changed within the last hour.",
        }
    }

    /// Returns whether everything in the view was read at least once.
    pub(super) fn is_whole(self, picture: &Picture) -> bool {
        let read = picture.read();
        let spreads = picture.spread_names().iter().all(|name| read.spreads.contains(name));
        match self {
            Self::Instances | Self::Spreads | Self::Locks => read.sessions && read.locks && spreads,
            Self::Schedules => read.schedules,
            // It is what the records remember, and they do not remember everything.
            Self::Changes => true,
        }
    }

    pub(super) fn list(self, picture: &Picture) -> List {
        match self {
            Self::Instances => instances::list(picture),
            Self::Spreads => spreads::list(picture),
            Self::Locks => locks::list(picture),
            Self::Schedules => schedules::list(picture),
            Self::Changes => changes::list(picture),
        }
    }
}

/// All keys that are known: plain locks, tasks, schedules.
pub(super) fn keys(picture: &Picture) -> Vec<LockRecord> {
    let schedules = Kind::Schedule.spread();
    let spreads = picture.spread_names().into_iter().filter(|name| Some(name) != schedules.as_ref());
    let tasks = spreads.map(|name| Kind::of_tasks(&name));
    let kinds = [Kind::Lock].into_iter().chain(tasks).chain([Kind::Schedule]);
    kinds.flat_map(|kind| picture.locks_of(&kind)).collect()
}

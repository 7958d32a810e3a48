use std::fmt;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident, $sort:ident, $doing:literal;)+) => {
        /// A method of [`Store`](crate::store::Store) that goes to the records.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $($(#[$doc])* $name,)+
        }

        impl Operation {
            /// All of them, in the order of the contract.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns whether it may change a record.
            #[must_use]
            pub const fn is_write(self) -> bool {
                match self {
                    $(Self::$name => operations!($sort),)+
                }
            }

            /// Words for an error: "memory could not ... ".
            #[must_use]
            pub const fn doing(self) -> &'static str {
                match self {
                    $(Self::$name => $doing,)+
                }
            }
        }
    };
    (write) => { true };
    (read) => { false };
}

operations! {
    /// [`Store::open`](crate::store::Store::open).
    Open, write, "open a session";
    /// [`Store::beat`](crate::store::Store::beat).
    Beat, write, "renew a session";
    /// [`Store::observe`](crate::store::Store::observe).
    Observe, read, "observe sessions";
    /// [`Store::declare`](crate::store::Store::declare).
    Declare, write, "declare a session dead";
    /// [`Store::sessions`](crate::store::Store::sessions).
    Sessions, read, "list sessions";
    /// [`Store::take`](crate::store::Store::take).
    Take, write, "take locks";
    /// [`Store::release`](crate::store::Store::release).
    Release, write, "release locks";
    /// [`Store::wait`](crate::store::Store::wait).
    Wait, write, "join a queue";
    /// [`Store::stop_waiting`](crate::store::Store::stop_waiting).
    StopWaiting, write, "leave a queue";
    /// [`Store::waiters`](crate::store::Store::waiters).
    Waiters, read, "read a queue";
    /// [`Store::places`](crate::store::Store::places).
    Places, read, "find places in a queue";
    /// [`Store::set_value`](crate::store::Store::set_value).
    SetValue, write, "set a value";
    /// [`Store::locks`](crate::store::Store::locks).
    Locks, read, "read locks";
    /// [`Store::list_locks`](crate::store::Store::list_locks).
    ListLocks, read, "list locks";
    /// [`Store::held_by`](crate::store::Store::held_by).
    HeldBy, read, "list what a session holds";
    /// [`Store::latest_grants`](crate::store::Store::latest_grants).
    LatestGrants, read, "list the latest grants";
    /// [`Store::revoke`](crate::store::Store::revoke).
    Revoke, write, "revoke a lock";
    /// [`Store::define`](crate::store::Store::define).
    Define, write, "define a schedule";
    /// [`Store::instruct`](crate::store::Store::instruct).
    Instruct, write, "update a schedule";
    /// [`Store::schedules`](crate::store::Store::schedules).
    Schedules, read, "read schedules";
    /// [`Store::list_schedules`](crate::store::Store::list_schedules).
    ListSchedules, read, "list schedules";
    /// [`Store::delete_schedule`](crate::store::Store::delete_schedule).
    DeleteSchedule, write, "delete a schedule";
    /// [`Store::claim`](crate::store::Store::claim).
    Claim, write, "claim a tick";
    /// [`Store::finish`](crate::store::Store::finish).
    Finish, write, "finish a run";
    /// [`Store::history`](crate::store::Store::history).
    History, read, "read the history of a schedule";
    /// [`Store::last_runs`](crate::store::Store::last_runs).
    LastRuns, read, "read the last runs of schedules";
    /// [`Store::purge_runs`](crate::store::Store::purge_runs).
    PurgeRuns, write, "purge runs";
    /// [`Store::purge`](crate::store::Store::purge).
    Purge, write, "purge records";
}

impl Operation {
    /// Returns the operation's place in [`ALL`](Self::ALL).
    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.doing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_place_among_all() {
        for (place, operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation.index(), place);
        }
        assert_eq!(Operation::ALL.iter().filter(|operation| operation.is_write()).count(), 16);
    }
}

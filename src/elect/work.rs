//! Kinds of work that an engine repeats, and what people are told of each.

use serde::Serialize;

/// Takes an entry for each: its word in logs and metrics, its subject, the consequence of its failing, and the rights that it
/// needs.
macro_rules! works {
    ($($(#[$doc:meta])+ $kind:ident $name:literal: $subject:literal, $consequence:literal, needs $rights:literal on $on:literal;)+) => {
        /// Work that an engine repeats, each kind of which may fail by itself: for lack of a right, or of disk space.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[non_exhaustive]
        #[serde(rename_all = "snake_case")]
        pub enum Work {
            $($(#[$doc])+ $kind,)+
        }

        impl Work {
            /// All kinds of work.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns one word for it, as logs and metrics name it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// Returns a description of the work, for people.
            #[must_use]
            pub const fn subject(self) -> &'static str {
                match self { $(Self::$kind => $subject,)+ }
            }

            /// Returns the consequence of its failing, for people.
            #[must_use]
            pub const fn consequence(self) -> &'static str {
                match self { $(Self::$kind => $consequence,)+ }
            }

            /// Returns the collection it needs rights on, and the rights.
            const fn rights(self) -> (&'static str, &'static str) {
                match self { $(Self::$kind => ($on, $rights),)+ }
            }
        }
    };
}

works! {
    /// Opening the session, and sending heartbeats.
    Beats "beats": "sending heartbeats",
        "when the session expires, every job here is stopped and others take over",
        needs "find, insert, update" on "sessions";
    /// Taking locks.
    Takes "takes": "acquiring locks",
        "nothing is acquired or taken over here",
        needs "find, insert, update" on "locks";
    /// Releasing locks, and handing them over.
    Releases "releases": "releasing locks",
        "released locks stay held until their session ends",
        needs "find, update" on "locks";
    /// Reading locks that are waited for.
    Reads "reads": "reading locks",
        "waiters here do not see that a lock is free",
        needs "find" on "locks";
    /// Reading a record that something here waits for: it is damaged, or of a layout that is not known here.
    Records "records": "reading records that are in use",
        "what waits for them here goes on waiting until they can be read",
        needs "find" on "locks";
    /// Joining the queue of a lock.
    Joining "joining": "joining the queue",
        "released locks are not handed over to waiters here, who take them at the next poll",
        needs "find, insert, update" on "waiters";
    /// Leaving a queue.
    Leaving "leaving": "leaving the queue",
        "entries of those who stopped waiting stay in the queue until the purge",
        needs "find, remove" on "waiters";
    /// Reading the queue of a lock.
    Queues "queues": "reading the queue",
        "locks released here are not handed over, waiters take them at the next poll",
        needs "find" on "waiters";
    /// Watching the sessions of others.
    Watching "watching": "watching other sessions",
        "dead sessions are not detected, and their locks are not taken over here",
        needs "find" on "sessions";
    /// Declaring sessions dead.
    Declaring "declaring": "declaring sessions dead",
        "locks of dead sessions are not taken over here",
        needs "find, insert, update" on "sessions";
    /// Comparing the locks that the store records for this instance with what runs here.
    Audit "audit": "the audit",
        "a lock that the store records for this instance and nobody here uses is not detected",
        needs "find" on "locks";
    /// Removing obsolete records.
    Purge "purge": "the purge",
        "obsolete records stay, and the collections grow",
        needs "find, remove" on "sessions, locks, waiters and fences";
    /// Receiving hints of changes as they happen.
    Hints "hints": "receiving hints",
        "waiters poll every poll_interval",
        needs "find, insert, convertToCapped" on "the bells";
    /// Sending hints of what is done here.
    Ringing "ringing": "sending hints",
        "others see what is released here at their next poll, up to poll_interval later",
        needs "find, insert, convertToCapped" on "the bells";
    /// Reading a spread.
    Spreads "spreads": "reading a spread",
        "tasks stay where they are, including those of members that are gone",
        needs "find" on "locks";
    /// Reading schedules.
    Schedules "schedules": "reading schedules",
        "a pause or a requested run is not noticed",
        needs "find" on "runs";
    /// Storing the timing of a schedule.
    Defining "defining": "storing a schedule's timing",
        "the schedule does not run",
        needs "find, insert, update" on "runs";
    /// Claiming ticks, and recording the outcomes of runs.
    Ledger "ledger": "writing the ledger",
        "the schedule does not run, or the outcome of a run is not recorded",
        needs "find, insert, update" on "runs";
    /// Purging entries older than a schedule's history.
    History "history": "purging the ledger",
        "the ledger grows",
        needs "find, update, remove" on "runs";
    /// Asking the program for the tasks of a spread.
    Tasks "tasks": "calling a spread's task source",
        "the spread keeps its current tasks",
        needs "reading" on "what the program reads them from";
    /// Keeping the session: the keeper's thread runs nothing.
    Keeping "keeping": "the keeper's thread",
        "no heartbeat is sent: the session expires, jobs are told to stop, and nothing is acquired or released here",
        needs "reading" on "what the program reads them from";
    /// Running the program's jobs and callbacks: its runtime runs no task.
    Jobs "jobs": "running jobs and callbacks",
        "they stand still here, and their keys stay held",
        needs "reading" on "what the program reads them from";
    /// Telling the program's log, and its recorder of metrics.
    Telling "telling": "telling the program's log",
        "lines wait for the log, and the oldest are dropped; leases are kept",
        needs "reading" on "what the program reads them from";
    /// Requests of the program itself: errors are returned to it, and not reported otherwise.
    Requested "requested": "the program's own requests",
        "the error is returned to the program",
        needs "find" on "the database";
}

impl Work {
    /// Returns advice for an error with this text.
    pub(super) fn advice(self, error: &str) -> Option<String> {
        let says = |words: &[&str]| words.iter().any(|word| error.contains(word));
        // First: the name of a lock is in the text, and may say anything.
        if self == Self::Records && says(&["the record has layout version "]) {
            Some("run a version of tenure here that knows the layout".to_owned())
        } else if self == Self::Records {
            Some("repair the record, or remove it once nothing uses it".to_owned())
        } else if says(&["not authorized", "Unauthorized"]) {
            let (collection, rights) = self.rights();
            let refused = refused_on(error).unwrap_or_else(|| collection.to_owned());
            Some(format!("grant {rights} on {refused}"))
        } else if says(&["Authentication", "authenticated", "authentication failed", "SCRAM failure"]) {
            Some("check whether the password or the certificate has changed or expired".to_owned())
        } else if says(&["certificate"]) {
            Some("check whether a certificate has expired or been replaced".to_owned())
        } else if says(&["DocumentValidationFailure", "failed validation", "(121)", "code 121"]) {
            Some("a validator on the collection rejects the record: remove the validator".to_owned())
        } else if says(&["OutOfDiskSpace", "available disk space", "No space left"]) {
            Some("free disk space on the server".to_owned())
        } else {
            None
        }
    }

    /// Returns whether its first failure is worth reporting: it is done seldom, or has lasted by then.
    pub(super) const fn is_reported_at_once(self) -> bool {
        matches!(self, Self::History | Self::Jobs | Self::Keeping)
    }
}

/// Returns the collection that a MongoDB server has refused, with its database and its prefix: `not authorized on shop to
/// execute command { insert: "t_waiters"`.
fn refused_on(error: &str) -> Option<String> {
    let (database, command) =
        error.split_once("not authorized on ")?.1.split_once(" to execute command { ")?;
    let collection = command.split_once(": \"")?.1.split_once('"')?.0;
    Some(format!("{database}.{collection}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_goes_by_the_error_and_names_what_to_grant() {
        let error = "not authorized on shop to execute command { insert: \"t_waiters\" }";
        assert_eq!(Work::Joining.advice(error).unwrap(), "grant find, insert, update on shop.t_waiters");
        assert_eq!(Work::Joining.advice("Unauthorized").unwrap(), "grant find, insert, update on waiters");
        let error = "Kind: SCRAM failure: Authentication failed., labels: {}";
        assert!(Work::Beats.advice(error).unwrap().contains("password"));
        assert!(Work::Beats.advice("no answer within 1s").is_none());
        let newer = "lock \"certificate\" of shop: the record has layout version 3, which this version of tenure does not know";
        assert_eq!(
            Work::Records.advice(newer).unwrap(),
            "run a version of tenure here that knows the layout"
        );
    }

    #[test]
    fn every_work_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Work::ALL.iter().map(|work| work.name()).collect();
        assert_eq!(names.len(), Work::ALL.len());
    }
}

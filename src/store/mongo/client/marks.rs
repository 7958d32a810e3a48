//! Beats by which the deployment of a store is told from every other.
//!
//! A copy of a deployment has all that the deployment had when the copy was made. It lacks the beats since then. Beats
//! of a session are numbered, so the last one that was seen tells the two apart.

use std::{collections::BTreeMap, sync::Mutex};

use bson::doc;
use mongodb::Database;

use super::{command::find, connect::FIRST_ANSWER, error::CommandResult};
use crate::{
    model::{Holder, Namespace, SessionId},
    store::{
        Beat, Death, SessionRecord, SessionSeen,
        mongo::documents::{
            fields::long,
            queries::{self, Find},
        },
    },
    sync::locked,
};

/// The latest session of each instance of this process, and its last beat that was seen. The handles of a store share
/// it.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<BTreeMap<(Namespace, Holder), (SessionId, Beat)>>);

impl Marks {
    /// The store has answered to an opening or a beat.
    pub(crate) fn seen(&self, seen: &SessionSeen) {
        let SessionSeen::Alive(record) = seen else { return };
        let mut sessions = locked(&self.0);
        let known = sessions.entry(owner(record)).or_insert((record.id, record.beat));
        if known.0 != record.id || known.1 < record.beat {
            *known = (record.id, record.beat);
        }
    }

    /// The store has answered to a declaration. Forgets a session that its own instance has closed: nothing is held
    /// under it.
    pub(crate) fn declared(&self, seen: &SessionSeen) {
        let SessionSeen::Dead(record) = seen else { return };
        if record.death.as_ref().is_some_and(Death::is_own) {
            let mut sessions = locked(&self.0);
            if sessions.get(&owner(record)).is_some_and(|(session, _)| *session == record.id) {
                sessions.remove(&owner(record));
            }
        }
    }

    /// Reads these sessions, as a majority has them. Answers with one that is unknown there, or lacks a beat.
    pub(crate) async fn unknown_in(
        &self,
        database: &Database,
        collection: &str,
    ) -> CommandResult<Option<SessionId>> {
        let seen: Vec<_> = locked(&self.0).values().copied().collect();
        for (session, beat) in seen {
            let filter = doc! { "_id": session.to_string(), "beat": { "$gte": long(beat.get()) } };
            let wanted = Find { filter, ..Find::default() };
            if find(database, queries::find(collection, wanted, FIRST_ANSWER)).await?.is_empty() {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }
}

fn owner(record: &SessionRecord) -> (Namespace, Holder) {
    (record.about.namespace.clone(), record.about.holder.clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        model::StoreTime,
        store::{About, Nonce},
    };

    const FIRST: SessionId = SessionId::from_u128(1);
    const NEXT: SessionId = SessionId::from_u128(2);

    fn record(session: SessionId, holder: &str, beat: u64) -> SessionRecord {
        let about = About::new("test".parse().unwrap(), holder.parse().unwrap());
        let at = StoreTime::from_millis(0);
        let opened = SessionRecord::opened(session, about, Nonce::new(1), Duration::ZERO, at);
        SessionRecord { beat: Beat::new(beat), ..opened }
    }

    fn dead(session: SessionId, holder: &str, why: crate::model::Why) -> SessionSeen {
        let death = Death { at: StoreTime::from_millis(9), by: holder.parse().unwrap(), why };
        SessionSeen::Dead(SessionRecord { death: Some(death), ..record(session, holder, 1) })
    }

    fn required(marks: &Marks) -> Vec<(SessionId, u64)> {
        locked(&marks.0).values().map(|(session, beat)| (*session, beat.get())).collect()
    }

    #[test]
    fn a_deployment_has_the_last_beat_that_was_seen_or_a_later_one() {
        let marks = Marks::default();
        for beat in [0, 3, 2] {
            marks.seen(&SessionSeen::Alive(record(FIRST, "pod-1", beat)));
        }
        assert_eq!(required(&marks), [(FIRST, 3)], "the answer to an earlier beat may come late");
    }

    #[test]
    fn a_session_that_was_lost_is_required_until_its_instance_has_another() {
        let marks = Marks::default();
        marks.seen(&SessionSeen::Alive(record(FIRST, "pod-1", 5)));
        marks.seen(&SessionSeen::Missing);
        assert_eq!(required(&marks), [(FIRST, 5)]);
        marks.seen(&SessionSeen::Alive(record(NEXT, "pod-1", 0)));
        assert_eq!(required(&marks), [(NEXT, 0)]);
    }

    #[test]
    fn sessions_of_several_instances_are_required_and_one_that_was_closed_is_not() {
        let marks = Marks::default();
        for (session, holder) in [(FIRST, "pod-1"), (NEXT, "pod-2")] {
            marks.seen(&SessionSeen::Alive(record(session, holder, 1)));
        }
        marks.declared(&dead(FIRST, "pod-1", crate::model::Why::shortened("no beat")));
        assert_eq!(required(&marks), [(FIRST, 1), (NEXT, 1)], "somebody else declared it dead");
        marks.declared(&dead(FIRST, "pod-1", Death::own()));
        assert_eq!(required(&marks), [(NEXT, 1)]);
    }
}

//! Sessions of this process, and the beats by which their deployment is told from every other.
//!
//! A copy of a deployment has all that the deployment had when the copy was made. It lacks the beats since then, so
//! the last one that was confirmed tells the two apart.

use std::{collections::BTreeMap, sync::Mutex};

use bson::doc;
use mongodb::Database;

use super::{command::find, connect::FIRST_ANSWER, error::CommandResult};
use crate::{
    model::{Holder, Namespace, SessionId},
    store::{
        About, Nonce, SessionSeen,
        mongo::documents::queries::{self, Find},
    },
    sync::locked,
};

/// The latest session of each instance. The handles of a store share it.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<BTreeMap<SessionId, Marked>>);

#[derive(Debug)]
struct Marked {
    owner: (Namespace, Holder),
    /// The store has answered for it.
    confirmed: bool,
    /// Of the last beat that was confirmed, and of all that were sent after it.
    nonces: Vec<Nonce>,
}

impl Marks {
    /// An opening is sent.
    pub(crate) fn opens(&self, session: SessionId, about: &About, nonce: Nonce) {
        let owner = (about.namespace.clone(), about.holder.clone());
        let mut sessions = locked(&self.0);
        // An opening before it that was never answered may be anywhere, and nothing was begun under it.
        sessions.retain(|id, other| *id == session || other.confirmed || other.owner != owner);
        let opening = || Marked { owner, confirmed: false, nonces: Vec::new() };
        sessions.entry(session).or_insert_with(opening).nonces.push(nonce);
    }

    /// A beat is sent.
    pub(crate) fn beats(&self, session: SessionId, nonce: Nonce) {
        if let Some(marked) = locked(&self.0).get_mut(&session) {
            marked.nonces.push(nonce);
        }
    }

    /// The store has answered to an opening or a beat.
    pub(crate) fn seen(&self, session: SessionId, seen: &SessionSeen) {
        let SessionSeen::Alive(record) = seen else { return };
        let mut sessions = locked(&self.0);
        let Some(marked) = sessions.get_mut(&session) else { return };
        let Some(place) = marked.nonces.iter().position(|nonce| *nonce == record.nonce) else { return };
        marked.nonces.drain(..place);
        if !std::mem::replace(&mut marked.confirmed, true) {
            let owner = marked.owner.clone();
            sessions.retain(|id, other| *id == session || other.owner != owner);
        }
    }

    /// Forgets a session that its own instance has closed, by the beat of this nonce: nothing is held under it.
    pub(crate) fn closed(&self, session: SessionId, nonce: Nonce) {
        let mut sessions = locked(&self.0);
        if sessions.get(&session).is_some_and(|marked| marked.nonces.contains(&nonce)) {
            sessions.remove(&session);
        }
    }

    /// Reads, as a majority has them, the sessions that were confirmed. Answers with one that is unknown there.
    pub(crate) async fn unknown_in(
        &self,
        database: &Database,
        collection: &str,
    ) -> CommandResult<Option<SessionId>> {
        let confirmed: Vec<_> =
            locked(&self.0).iter().filter(|(_, marked)| marked.confirmed).map(|(id, _)| *id).collect();
        for session in confirmed {
            let wanted = Find { filter: doc! { "_id": session.to_string() }, ..Find::default() };
            let found = find(database, queries::find(collection, wanted, FIRST_ANSWER)).await?;
            let borne = found.first().and_then(|record| record.get_i64("nonce").ok());
            let borne = borne.and_then(|nonce| u64::try_from(nonce).ok()).map(Nonce::new);
            // Looked up after the read: a beat may have been sent and confirmed meanwhile.
            let sessions = locked(&self.0);
            let Some(marked) = sessions.get(&session) else { continue };
            if !borne.is_some_and(|nonce| marked.nonces.contains(&nonce)) {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{model::StoreTime, store::SessionRecord};

    const FIRST: SessionId = SessionId::from_u128(1);
    const NEXT: SessionId = SessionId::from_u128(2);

    fn about(holder: &str) -> About {
        About::new("test".parse().unwrap(), holder.parse().unwrap())
    }

    fn alive(session: SessionId, nonce: u64) -> SessionSeen {
        let at = StoreTime::from_millis(0);
        let record = SessionRecord::opened(session, about("any"), Nonce::new(nonce), Duration::ZERO, at);
        SessionSeen::Alive(record)
    }

    /// The beats of which a deployment must have one, for each session.
    fn required(marks: &Marks) -> Vec<(SessionId, Vec<u64>)> {
        let sessions = locked(&marks.0);
        let confirmed = sessions.iter().filter(|(_, marked)| marked.confirmed);
        confirmed.map(|(id, marked)| (*id, marked.nonces.iter().map(|nonce| nonce.get()).collect())).collect()
    }

    #[test]
    fn a_deployment_has_the_last_beat_that_was_confirmed_or_a_later_one() {
        let marks = Marks::default();
        marks.opens(FIRST, &about("pod-1"), Nonce::new(1));
        assert_eq!(required(&marks), [], "nobody knows whether it was opened");
        marks.seen(FIRST, &alive(FIRST, 1));
        for nonce in 2..=4 {
            marks.beats(FIRST, Nonce::new(nonce));
        }
        assert_eq!(required(&marks), [(FIRST, vec![1, 2, 3, 4])]);
        marks.seen(FIRST, &alive(FIRST, 3));
        assert_eq!(required(&marks), [(FIRST, vec![3, 4])]);
        marks.seen(FIRST, &alive(FIRST, 9));
        assert_eq!(required(&marks), [(FIRST, vec![3, 4])], "the beat of a twin is no news");
    }

    #[test]
    fn a_session_that_was_lost_is_required_until_its_instance_has_another() {
        let marks = Marks::default();
        marks.opens(FIRST, &about("pod-1"), Nonce::new(1));
        marks.seen(FIRST, &alive(FIRST, 1));
        marks.seen(FIRST, &SessionSeen::Missing);
        marks.opens(NEXT, &about("pod-1"), Nonce::new(2));
        assert_eq!(required(&marks), [(FIRST, vec![1])]);
        marks.seen(NEXT, &alive(NEXT, 2));
        assert_eq!(required(&marks), [(NEXT, vec![2])]);
    }

    #[test]
    fn sessions_of_several_instances_are_required_and_one_that_was_closed_is_not() {
        let marks = Marks::default();
        for (session, holder, nonce) in [(FIRST, "pod-1", 1), (NEXT, "pod-2", 2)] {
            marks.opens(session, &about(holder), Nonce::new(nonce));
            marks.seen(session, &alive(session, nonce));
        }
        assert_eq!(required(&marks), [(FIRST, vec![1]), (NEXT, vec![2])]);
        marks.closed(FIRST, Nonce::new(9));
        assert_eq!(required(&marks).len(), 2, "somebody else declared it dead");
        marks.closed(FIRST, Nonce::new(1));
        assert_eq!(required(&marks), [(NEXT, vec![2])]);
    }
}

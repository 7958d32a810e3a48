//! Detection of another instance with the same holder name: the two exclude each other all the same, but a
//! reader of a log or a status cannot tell them apart.

use std::{collections::BTreeMap, sync::Weak, time::Duration};

use super::{Engine, Work};
use crate::{
    clock::Moment,
    model::{Holder, SessionId},
    store::{Beat, SessionRecord, SessionSeen, StoreExt},
    words,
};

/// Number of sessions that are searched. In a larger fleet the one that is found warns.
const PAGE: usize = 1000;

/// Returns the other live sessions of that name with their last beats, and how long it takes to know whether
/// they still beat.
fn of_the_same_name(
    sessions: &[SessionRecord],
    holder: &Holder,
    own: SessionId,
) -> (BTreeMap<SessionId, Beat>, Duration) {
    let same =
        |session: &&SessionRecord| session.is_alive() && session.id != own && session.about.holder == *holder;
    let same: Vec<_> = sessions.iter().filter(same).collect();
    let longest = same.iter().map(|session| session.ttl).max().unwrap_or_default();
    (same.iter().map(|session| (session.id, session.beat)).collect(), longest)
}

/// Returns the session if it has sent a heartbeat since. One from before a restart has not: it stays in the
/// list until its ttl is over.
fn beats(sighting: &SessionSeen, before: Beat) -> Option<&SessionRecord> {
    match sighting {
        SessionSeen::Alive(record) if record.beat > before => Some(record),
        _ => None,
    }
}

/// Checks once, when there is a session, and warns if another live session has this name.
pub(crate) async fn look(engine: Weak<Engine>) {
    let Some(closing) = engine.upgrade().map(|engine| engine.closing.clone()) else { return };
    tokio::select! {
        biased;
        () = closing.cancelled() => {}
        () = warn(engine) => {}
    }
}

async fn warn(engine: Weak<Engine>) {
    let Some((own, mut others, until)) = list(&engine).await else { return };
    while !others.is_empty() {
        let Some(interval) = engine.upgrade().map(|engine| engine.config.refresh_interval()) else { return };
        tokio::time::sleep(interval).await;
        let Some(engine) = engine.upgrade() else { return };
        let ids: Vec<SessionId> = others.keys().copied().collect();
        let limit = engine.limit();
        let Ok(seen) = engine.call(Work::Watching, limit, engine.store().observe(ids.clone(), limit)).await
        else {
            continue;
        };
        for (id, sighting) in ids.iter().zip(&seen) {
            if let Some(other) = beats(sighting, others[id]) {
                let (holder, namespace) = (engine.config.holder(), engine.config.namespace());
                words::warn!(%holder, %namespace, session = %own, other = %other.id, host = other.about.host, pid = other.about.pid, "another live instance has the same holder name: give each instance its own, such as its pod's name");
                return;
            }
            if !matches!(sighting, SessionSeen::Alive(_)) {
                others.remove(id);
            }
        }
        if engine.clock.now() >= until {
            return;
        }
    }
}

/// Returns this session, the others of this name, and when it is known whether they still beat.
async fn list(engine: &Weak<Engine>) -> Option<(SessionId, BTreeMap<SessionId, Beat>, Moment)> {
    let engine = engine.upgrade()?;
    let own = engine.valid_session().await.ok()?.id;
    let (namespace, limit) = (engine.config.namespace().clone(), engine.limit());
    // Not worth a second try: a later namesake finds this one at its own start.
    let page = engine.store().sessions(namespace, None, PAGE, limit);
    let page = engine.call(Work::Watching, limit, page).await.ok()?;
    let (others, longest) = of_the_same_name(&page.items, engine.config.holder(), own);
    Some((own, others, engine.clock.now() + longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::StoreTime,
        store::{About, Death, Nonce},
    };

    fn session(number: u128, holder: &str, beat: u64) -> SessionRecord {
        let about = About::new("shop".parse().unwrap(), holder.parse().unwrap());
        let about = About { host: "node-1".to_owned(), ..about };
        let (at, ttl) = (StoreTime::from_millis(0), Duration::from_secs(30));
        let opened = SessionRecord::opened(SessionId::from_u128(number), about, Nonce::new(1), ttl, at);
        SessionRecord { beat: Beat::new(beat), ..opened }
    }

    #[test]
    fn namesakes_are_the_living_sessions_of_the_name_besides_this_one() {
        let death = Death { at: StoreTime::from_millis(0), by: "pod-2".parse().unwrap(), why: Death::own() };
        let dead = SessionRecord { death: Some(death), ..session(3, "pod-1", 9) };
        let all = [session(1, "pod-1", 5), session(2, "pod-1", 7), dead, session(4, "pod-2", 7)];
        let (others, longest) = of_the_same_name(&all, &"pod-1".parse().unwrap(), SessionId::from_u128(1));
        assert_eq!(others, BTreeMap::from([(SessionId::from_u128(2), Beat::new(7))]));
        assert_eq!(longest, Duration::from_secs(30));
    }

    #[test]
    fn the_one_before_a_restart_does_not_beat() {
        let seen = |beat| SessionSeen::Alive(session(2, "pod-1", beat));
        assert_eq!(beats(&seen(7), Beat::new(7)), None);
        assert!(beats(&seen(8), Beat::new(7)).is_some());
        assert_eq!(beats(&SessionSeen::Dead(session(2, "pod-1", 8)), Beat::new(7)), None);
        assert_eq!(beats(&SessionSeen::Missing, Beat::new(7)), None);
    }
}

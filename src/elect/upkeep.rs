//! Background work beside the jobs: hints, the purge, signs of life. The audit has a file of its own.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures::StreamExt;

use super::{Engine, Work, audit, namesakes};
use crate::{
    backoff::fraction,
    error::chain,
    model::{LockId, SpreadName, schedules},
    store::{Hint, News, Purged, Reach, SessionRecord, StoreExt},
    words,
};

/// Number of sessions that are listed at a time.
const PAGE: usize = 1000;
/// Interval at which each instance purges, jittered.
const PURGE_EVERY: Duration = Duration::from_secs(60 * 60);
/// Interval after a failed purge, jittered: short, so that a lasting failure is noticed.
const PURGE_AGAIN: Duration = Duration::from_secs(60);

/// Begins all of it, on the engine's runtime.
pub(crate) fn begin(engine: &Arc<Engine>) {
    let work = &engine.work;
    let capabilities = engine.store().capabilities();
    if capabilities.hints.is_some() {
        work.spawn_again(with(engine, hear_hints));
    }
    work.spawn_again(with(engine, audit::audit));
    work.spawn_again(with(engine, purge));
    // Several instances in one process have their names on purpose.
    if capabilities.reach != Reach::Process {
        work.spawn_again(with(engine, namesakes::look));
    }
}

/// Work of an engine that it is not kept by.
fn with<F>(
    engine: &Arc<Engine>,
    work: impl Fn(Weak<Engine>) -> F + Send + 'static,
) -> impl Fn() -> F + Send + 'static {
    let engine = Arc::downgrade(engine);
    move || work(engine.clone())
}

/// Passes the store's hints on to the engine's parts. Ends with the engine.
async fn hear_hints(engine: Weak<Engine>) {
    let Some(strong) = engine.upgrade() else { return };
    let (mut hints, closing) = (strong.store().hints(strong.listening.topics()), strong.closing.clone());
    drop(strong);
    loop {
        let hint = tokio::select! {
            biased;
            () = closing.cancelled() => return,
            hint = hints.next() => hint,
        };
        let (Some(hint), Some(engine)) = (hint, engine.upgrade()) else { return };
        pass_on(&engine, hint);
    }
}

fn pass_on(engine: &Arc<Engine>, hint: Hint) {
    match hint {
        Hint::Failing { error, lasting } => {
            engine.record_trouble(Work::Hints, engine.clock.now(), lasting, error);
        }
        Hint::Resync => {
            engine.record_recovery(Work::Hints);
            engine.resync_keys();
            engine.leaders.resync();
            engine.spreads.resync();
            engine.schedule_inbox.resync();
        }
        Hint::News(news) => hear(engine, news),
        Hint::Unsent { error, lasting } => {
            engine.record_trouble(Work::Ringing, engine.clock.now(), lasting, error);
        }
        Hint::SentAgain => engine.record_success(Work::Ringing),
    }
}

fn hear(engine: &Arc<Engine>, news: News) {
    match news {
        News::Lock(lock) => {
            engine.lock_hint(&lock);
            engine.leaders.hint(&lock);
            if let Some(spread) = spread_of(engine, &lock) {
                engine.spreads.task(&spread, &lock.key);
            }
        }
        News::Handed(lock) => {
            engine.handed_hint(&lock);
            engine.leaders.hint(&lock);
        }
        News::Revoked(lock) => {
            engine.revoked_hint(&lock);
            hear(engine, News::Lock(lock));
        }
        News::Queue(lock) => {
            engine.queue_hint(&lock);
            if let Some(spread) = spread_of(engine, &lock) {
                engine.spreads.queue(&spread, &lock.key);
            }
        }
        News::Member(session) => {
            engine.spreads.session(session);
            engine.watcher.on_hint(engine, session);
        }
        News::Asked(session) => {
            // The next heartbeat brings the request, and is sent now.
            if engine.session.borrow().as_ref().is_some_and(|own| own.id == session) {
                engine.hurry();
            }
        }
        News::Schedule(schedule) => {
            // Without schedules here no reader takes the names out: they would pile up.
            if schedule.namespace == *engine.config.namespace() && engine.spreads.has_joined(&schedules()) {
                engine.schedule_inbox.schedule(schedule.name);
            }
        }
    }
}

/// Returns the spread of a lock that is a task in this namespace.
fn spread_of(engine: &Engine, lock: &LockId) -> Option<SpreadName> {
    lock.kind.spread().filter(|_| lock.namespace == *engine.config.namespace())
}

/// Time until the next purge. The first one may come at once: programs that end soon, such as jobs of cron, purge
/// as often among them as one that runs on.
fn purge_after(every: Duration, is_first: bool, roll: u64) -> Duration {
    if is_first { fraction(every * 3 / 2, roll) } else { every / 2 + fraction(every, roll) }
}

/// Purges obsolete records. Ends with the engine.
async fn purge(engine: Weak<Engine>) {
    let mut every = PURGE_EVERY;
    let mut is_first = true;
    loop {
        let Some((wait, closing)) = engine.upgrade().map(|engine| {
            let wait = purge_after(every, is_first, engine.entropy.roll());
            (wait, engine.closing.clone())
        }) else {
            return;
        };
        is_first = false;
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let Some(engine) = engine.upgrade() else { return };
        look_after_the_silent(&engine).await;
        let mut after = None;
        loop {
            let (namespace, retention) = (engine.config.namespace().clone(), engine.config.retention());
            let limit = engine.limit();
            let purging = engine.store().purge(namespace, retention, after, limit);
            match engine.call(Work::Purge, limit, purging).await {
                Ok(purged) => {
                    let Purged { locks, freed, sessions, waiters, next } = purged;
                    words::debug!(locks, freed, sessions, waiters, "purged");
                    every = PURGE_EVERY;
                    after = next;
                }
                Err(error) => {
                    words::debug!(error = chain(&error), "could not purge");
                    every = PURGE_AGAIN;
                    break;
                }
            }
            if after.is_none() || engine.closing.is_cancelled() {
                break;
            }
        }
    }
}

/// Watches silent sessions that no lock names: no other instance would declare them dead.
async fn look_after_the_silent(engine: &Arc<Engine>) {
    let mut after = None;
    loop {
        let (namespace, limit) = (engine.config.namespace().clone(), engine.limit());
        let page = engine.store().sessions(namespace, after, PAGE, limit);
        let page = match engine.call(Work::Watching, limit, page).await {
            Ok(page) => page,
            Err(error) => {
                words::debug!(error = chain(&error), "could not list the sessions");
                return;
            }
        };
        // A guess, to look at few: what is found is watched for its whole ttl like any other (R3).
        let now = engine.store_now();
        let silent = |session: &SessionRecord| {
            session.is_alive() && now.is_some_and(|now| now.since(session.beat_at) > session.ttl * 2)
        };
        let silent: Vec<_> =
            page.items.iter().filter(|session| silent(session)).map(|session| session.id).collect();
        engine.watcher.meet(engine, silent).await;
        after = page.next;
        if after.is_none() || engine.closing.is_cancelled() {
            return;
        }
    }
}

/// Closes the engine if the program's runtime ends under it: no release can be sent any more, so the
/// session ends instead.
pub(crate) async fn stand_sentinel(engine: Weak<Engine>) {
    struct Sentinel(Weak<Engine>);

    impl Drop for Sentinel {
        fn drop(&mut self) {
            if let Some(engine) = self.0.upgrade()
                && !engine.closing.is_cancelled()
            {
                let (holder, namespace) = (engine.config.holder(), engine.config.namespace());
                words::warn!(%holder, %namespace, "the runtime shut down before the engine was closed");
                engine.end();
            }
        }
    }

    let Some(closing) = engine.upgrade().map(|engine| engine.closing.clone()) else { return };
    let _sentinel = Sentinel(engine);
    closing.cancelled().await;
}

/// Shows the engine that the program's runtime runs tasks. Ends with the engine.
pub(crate) async fn show_alive(engine: Weak<Engine>, pace: Duration) {
    show(engine, |engine| {
        engine.show_alive();
        engine.look_at_keeper();
        pace
    })
    .await;
}

/// Shows that the keeper's thread runs tasks. Ends with the engine.
pub(crate) async fn show_keeper(engine: Weak<Engine>) {
    show(engine, |engine| {
        engine.show_keeper();
        engine.keeper_patience() / 4
    })
    .await;
}

/// Has the engine shown something again and again, after the pause that is answered.
async fn show(engine: Weak<Engine>, step: impl Fn(&Engine) -> Duration) {
    loop {
        let Some((pause, closing)) = engine.upgrade().map(|engine| (step(&engine), engine.closing.clone()))
        else {
            return;
        };
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_end_soon_purge_now_and_then() {
        assert_eq!(purge_after(PURGE_EVERY, true, 0), Duration::ZERO);
        assert!(purge_after(PURGE_EVERY, true, u64::MAX) >= PURGE_EVERY);
        assert_eq!(purge_after(PURGE_EVERY, false, 0), PURGE_EVERY / 2);
    }
}

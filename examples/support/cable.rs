//! A store behind a cable that can be pulled out.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use tenure::{
    Applied, StoreError,
    model::{
        Kind, LockId, LockRecord, Namespace, ScheduleId, ScheduleRecord, SessionId, SessionRecord, Ticket,
    },
    store::{
        Answer, BeatWrite, Capabilities, Claim, ClaimAnswer, Cursor, Declaration, Define, FinishRun, Held,
        Hint, Instruction, Line, LockSeen, Open, Page, Purged, Release, ReleaseAnswer, Retention, Revocation,
        RevokeAnswer, RunPage, ScheduleSeen, SessionSeen, SetAnswer, SetValue, Store, Take, TakeAnswer, Wait,
    },
};
use tokio_util::sync::CancellationToken;

/// Passes every call on, until the cable is pulled out: from then on nothing arrives, in either direction,
/// and nobody is told why.
#[derive(Debug)]
pub(crate) struct Cabled {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) pulled: CancellationToken,
}

impl Cabled {
    async fn pass<T>(&self, limit: Duration, answer: Answer<'_, T>) -> Result<T, StoreError> {
        tokio::select! {
            biased;
            () = self.pulled.cancelled() => {
                tokio::time::sleep(limit).await;
                Err(StoreError::new("the cable", "carry a call", Applied::Unknown, true, "no answer"))
            }
            answer = answer => answer,
        }
    }
}

macro_rules! calls {
    ($($method:ident($($argument:ident: $type:ty),+) -> $answer:ty;)+) => {
        impl Store for Cabled {
            fn capabilities(&self) -> Capabilities {
                self.store.capabilities()
            }

            $(fn $method(&self, $($argument: $type,)+ limit: Duration) -> Answer<'_, $answer> {
                self.pass(limit, self.store.$method($($argument,)+ limit)).boxed()
            })+

            fn hints(&self) -> BoxStream<'static, Hint> {
                self.store.hints().take_until(self.pulled.clone().cancelled_owned()).boxed()
            }

            fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
                // The memory store needs no connections.
                async { Ok(None) }.boxed()
            }
        }
    };
}

calls! {
    open(open: Open) -> SessionSeen;
    beat(beat: BeatWrite) -> SessionSeen;
    observe(sessions: Vec<SessionId>) -> Vec<SessionSeen>;
    declare(declaration: Declaration) -> SessionSeen;
    sessions(namespace: Namespace, after: Option<Cursor>, at_most: usize) -> Page<SessionRecord>;
    take(takes: Vec<Take>, dead: Vec<SessionId>) -> Vec<TakeAnswer>;
    release(releases: Vec<Release>) -> Vec<ReleaseAnswer>;
    wait(waits: Vec<Wait>) -> ();
    stop_waiting(waits: Vec<(LockId, SessionId, Ticket)>) -> ();
    waiters(lock: LockId, at_most: usize) -> Line;
    places(places: Vec<(LockId, SessionId, Ticket)>) -> Vec<bool>;
    set_value(set: SetValue) -> SetAnswer;
    locks(locks: Vec<LockId>) -> Vec<LockSeen>;
    list_locks(
        namespace: Namespace, kind: Option<Kind>, after: Option<Cursor>, at_most: usize
    ) -> Page<LockRecord>;
    held_by(session: SessionId, after: Option<Cursor>, at_most: usize) -> Page<Held>;
    revoke(revocation: Revocation) -> RevokeAnswer;
    define(define: Define) -> ScheduleSeen;
    instruct(schedule: ScheduleId, instruction: Instruction) -> ScheduleSeen;
    schedules(schedules: Vec<ScheduleId>) -> Vec<ScheduleSeen>;
    list_schedules(namespace: Namespace, after: Option<Cursor>, at_most: usize) -> Page<ScheduleRecord>;
    delete_schedule(schedule: ScheduleId) -> bool;
    claim(claim: Claim) -> ClaimAnswer;
    finish(finish: FinishRun) -> ClaimAnswer;
    history(schedule: ScheduleId, after: Option<Cursor>, at_most: usize) -> RunPage;
    purge_runs(schedule: ScheduleId, older_than: Duration, keep: usize) -> RunPage;
    purge(namespace: Namespace, retention: Retention, after: Option<Cursor>) -> Purged;
}

//! Claims whose job was not polled yet. Whatever ends one before that gives it back, so that a tick that was not
//! begun is not lost.
//!
//! ```text
//!   claim ──▶ on record ──▶ first poll of the job     from here on the run may have done something
//!     │           │
//!     └───────────┴── lease over, too late ──▶ finish: not begun     its next owner claims it again
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::retry::pauses;
use crate::{
    StoreError,
    elect::{Engine, Work},
    error::Applied,
    logic::session::LONGEST_ATTEMPT,
    model::{Outcome, Why},
    store::{Claim, ClaimAnswer, FinishRun, StoreExt},
    words,
};

/// Time for which giving it back is tried: by then the next owner of the schedule has settled it.
const TRIED: Duration = Duration::from_secs(5 * 60);
/// Time after which a claim that was sent has arrived, or never will.
const ARRIVED: Duration = LONGEST_ATTEMPT.saturating_mul(2);

/// Claim of one attempt, until its job is polled. Dropped before that, it is given back in the background: a
/// write that names its term and attempt, so that it changes nothing of another claim, however late it comes.
#[derive(Debug)]
pub(super) struct Unbegun {
    engine: Arc<Engine>,
    claim: Claim,
    /// The claim may be on record, and its job was not polled.
    is_open: AtomicBool,
}

impl Unbegun {
    pub(super) fn new(engine: &Arc<Engine>, claim: Claim) -> Self {
        Self { engine: engine.clone(), claim, is_open: AtomicBool::new(false) }
    }

    /// Sends the claim.
    pub(super) async fn send(&self) -> Result<ClaimAnswer, StoreError> {
        let (limit, store) = (self.engine.limit(), self.engine.store());
        let was_open = self.is_open.swap(true, Ordering::AcqRel);
        let answer = self.engine.call(Work::Ledger, limit, store.claim(self.claim.clone(), limit)).await;
        let is_open = match &answer {
            Ok(ClaimAnswer::Yours(run)) => run.finish.is_none(),
            Ok(_) => false,
            Err(error) => was_open || error.applied() == Applied::Unknown,
        };
        self.is_open.store(is_open, Ordering::Release);
        answer
    }

    /// Notes that its job is polled from now on: there is nothing to give back.
    pub(super) fn set_begun(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// Gives the claim back. Unanswered by the end of the grace, or still on its way, it is given back in the
    /// background.
    pub(super) async fn give_back(&self) {
        let mut pauses = pauses();
        while self.is_open.load(Ordering::Acquire) {
            match finish(&self.engine, &self.claim).await {
                Ok(answer) if is_on_its_way(&self.claim, &answer) => return,
                Ok(_) => self.is_open.store(false, Ordering::Release),
                Err(_) => tokio::time::sleep(pauses.next(self.engine.entropy.roll())).await,
            }
        }
    }

    /// Gives the claim back, also if it is still on its way: nothing that was sent for it arrives afterwards.
    pub(super) async fn give_back_for_sure(&self) -> ClaimAnswer {
        let may_arrive = self.is_open.load(Ordering::Acquire);
        let answer = finish_for_sure(&self.engine, &self.claim, may_arrive).await;
        self.is_open.store(false, Ordering::Release);
        answer
    }
}

impl Drop for Unbegun {
    fn drop(&mut self) {
        if *self.is_open.get_mut() {
            let (engine, claim) = (self.engine.clone(), self.claim.clone());
            self.engine.runtime.spawn(async move {
                // An error says that it was tried for long enough.
                let _ = tokio::time::timeout(TRIED, finish_for_sure(&engine, &claim, true)).await;
            });
        }
    }
}

/// Returns whether the claim has not arrived: there is no entry, or that of the attempt it follows.
fn is_on_its_way(claim: &Claim, answer: &ClaimAnswer) -> bool {
    match answer {
        ClaimAnswer::Absent => true,
        ClaimAnswer::Others(run) => claim.instead_of == Some((run.term, run.attempt)),
        ClaimAnswer::Yours(_) | ClaimAnswer::Refused(_) => false,
    }
}

/// Writes that it was not begun, until that is answered; and again until what `may_arrive` has arrived, or never will.
async fn finish_for_sure(engine: &Engine, claim: &Claim, may_arrive: bool) -> ClaimAnswer {
    let mut pauses = pauses();
    let now = engine.clock.now();
    let mut arrived_by = if may_arrive { now + ARRIVED } else { now };
    loop {
        let sent = engine.clock.now();
        match finish(engine, claim).await {
            Ok(answer) if sent >= arrived_by || !is_on_its_way(claim, &answer) => return answer,
            Ok(_) => {}
            Err(_) => arrived_by = engine.clock.now() + ARRIVED,
        }
        tokio::time::sleep(pauses.next(engine.entropy.roll())).await;
    }
}

/// Writes that it was not begun, if it is on record and has no end.
async fn finish(engine: &Engine, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
    let Claim { run, session, term, attempt, .. } = claim.clone();
    let error = Some(Why::shortened("returned before its job started"));
    let finish = FinishRun { run, session, term, attempt, outcome: Outcome::NotBegun, error, last: false };
    let limit = engine.limit();
    let answer = engine.call(Work::Ledger, limit, engine.store().finish(finish, limit)).await;
    if let Ok(ClaimAnswer::Yours(run)) = &answer
        && run.was_not_begun()
    {
        let id = &claim.run.schedule;
        words::info!(schedule = id.name.as_str(), namespace = %id.namespace, instant = %run.id.instant, "returned a claimed tick before its run began");
    }
    answer
}

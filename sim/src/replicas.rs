//! A replica set in a few lines: what the primary has, what a majority has, and a way between the two.
//!
//! Every write is applied at the primary and put into its log; the majority applies the log in order, a
//! little later. What must be kept by a majority is answered only then, and reads see what a majority
//! has. A change of primary throws away the end of the log; the former primary may go on serving clients that do not
//! know yet: it acknowledges what it need not have kept, and reads as of before.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::Notify;

use super::{
    Dice, History, Life,
    stores::{Deviation, Ledger, TermsKept},
};
use tenure::{
    Applied, StoreError,
    clock::{Clock, Moment},
    model::StoreTime,
    store::{
        Answer, Capabilities, Hint, MemoryStore, Op, Operation, Reply, Request, Revocation, Store, StoreExt,
        Topics,
    },
    testing::TestClock,
};

const AT_ONCE: Duration = Duration::from_secs(1);
/// The longest time for which a read waits for what a bell told of.
const AFTER_A_BELL: Duration = Duration::from_millis(1250);
/// The longest way of an entry of the log to a majority if nothing is wrong.
const LONGEST_LAG: Duration = Duration::from_millis(20);

/// Replay of one write where the majority is.
type Step = Box<dyn FnOnce(&Ledger, &MemoryStore) + Send>;

/// Members that a write must have reached before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Majority,
    /// The primary alone; a change of primary may undo it.
    Primary,
}

/// The members of a set that a fleet shares. Clones are the same set.
#[derive(Clone)]
pub(super) struct Replicas(Arc<Shared>);

struct Shared {
    /// The clock of whichever member is primary.
    clock: Arc<TestClock>,
    /// Data of a majority, which notes how they change.
    majority: MemoryStore,
    ledger: Arc<Ledger>,
    /// Time of the entry that the majority applies now.
    then: Arc<Replayed>,
    deviation: Option<Deviation>,
    set: Mutex<Set>,
    changed: Notify,
}

struct Set {
    primary: Member,
    /// Writes that the primary has and a majority has not yet.
    log: VecDeque<(StoreTime, Step)>,
    /// Number of entries that a majority has.
    kept: u64,
    /// Number of changes of primary.
    election: u64,
    /// No write reaches a majority.
    stalled: bool,
    /// The primary before, as long as it does not know.
    former: Option<Former>,
    dice: Dice,
}

/// Data of one member, and the contract over it.
#[derive(Clone)]
struct Member {
    memory: MemoryStore,
    store: Arc<dyn Store>,
}

struct Former {
    primary: Member,
    /// Data that it knows a majority to have.
    seen: Arc<dyn Store>,
}

/// A clock that shows when an entry of the log was written.
#[derive(Debug, Default)]
struct Replayed(Mutex<Option<StoreTime>>);

impl Replayed {
    fn set(&self, to: StoreTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
    }
}

impl Clock for Replayed {
    fn now(&self) -> Moment {
        Moment::after_start(Duration::ZERO)
    }

    fn wall(&self) -> StoreTime {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(StoreTime::from_millis(0))
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicas").field("election", &self.set().election).finish_non_exhaustive()
    }
}

impl Replicas {
    pub(super) fn new(
        clock: Arc<TestClock>,
        history: History,
        deviation: Option<Deviation>,
        dice: Dice,
    ) -> Self {
        let then = Arc::new(Replayed::default());
        let majority = MemoryStore::new(then.clone());
        let ledger = Arc::new(Ledger::new(over(&majority, deviation), history));
        let set = Set {
            primary: Member::new(majority.copied(clock.clone()), deviation),
            log: VecDeque::new(),
            kept: 0,
            election: 0,
            stalled: false,
            former: None,
            dice,
        };
        let shared =
            Shared { clock, majority, ledger, then, deviation, set: Mutex::new(set), changed: Notify::new() };
        Self(Arc::new(shared))
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        self.0.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Data of a majority.
    pub(super) fn majority(&self) -> &MemoryStore {
        self.up_to_now();
        &self.0.majority
    }

    /// Reads from the majority happen at this time, not at that of its last entry.
    fn up_to_now(&self) {
        self.0.then.set(self.0.clock.wall());
    }

    /// Data of the primary.
    pub(super) fn primary(&self) -> MemoryStore {
        self.set().primary.memory.clone()
    }

    /// The way of one instance to the set.
    pub(super) fn way(&self, life: Life) -> Way {
        Way { replicas: self.clone(), life, former: Arc::default(), heard: Arc::default() }
    }

    /// Keeps all writes from now on from a majority, or lets all reach it again.
    pub(super) fn stall(&self, stalled: bool) {
        let mut set = self.set();
        set.stalled = stalled;
        if !stalled {
            let all = set.written();
            self.keep(&mut set, all);
        }
    }

    /// Another member becomes primary. It has what a majority has, and by chance a part of the rest. Says
    /// how many writes were undone.
    pub(super) fn change_primary(&self, two: bool) -> usize {
        let mut set = self.set();
        let beyond = set.log.len() as u64;
        let known = set.kept + set.dice.below(beyond + 1);
        // The new primary brings to a majority what it has.
        self.keep(&mut set, known);
        let undone = set.log.len();
        set.log.clear();
        let primary = Member::new(self.0.majority.copied(self.0.clock.clone()), self.0.deviation);
        let before = std::mem::replace(&mut set.primary, primary);
        let seen = over(&self.0.majority.copied(self.0.clock.clone()), self.0.deviation);
        set.former = two.then_some(Former { primary: before, seen });
        set.election += 1;
        drop(set);
        self.0.changed.notify_waiters();
        undone
    }

    /// The former primary has learned that it is none.
    pub(super) fn one_primary(&self) {
        self.set().former = None;
        self.0.changed.notify_waiters();
    }

    /// Changes records by hand, at the primary.
    pub(super) fn by_hand(
        &self,
        change: impl Fn(&MemoryStore) + Send + 'static,
        tell: impl FnOnce(&Ledger) + Send + 'static,
    ) {
        let mut set = self.set();
        change(&set.primary.memory);
        let step: Step = Box::new(move |ledger, majority| {
            change(majority);
            tell(ledger);
        });
        self.write_down(&mut set, step);
    }

    /// An operator asks for something, at the primary.
    pub(super) fn revoke_by_hand(&self, revocation: Revocation) {
        let change = move |memory: &MemoryStore| {
            let _answered = now(memory.revoke(revocation.clone(), AT_ONCE));
        };
        self.by_hand(change, |_| {});
    }

    /// An operator takes a lock away, at the primary.
    pub(super) fn force_by_hand(&self, request: Request, key: usize) {
        let change = move |memory: &MemoryStore| {
            let _answered = now(memory.revoke(Revocation::Force(request.clone()), AT_ONCE));
        };
        self.by_hand(change, move |ledger| ledger.forced(key));
    }

    fn write_down(&self, set: &mut Set, step: Step) -> u64 {
        set.log.push_back((self.0.clock.wall(), step));
        let number = set.written();
        if set.stalled {
            return number;
        }
        if set.dice.below(8) > 0 {
            self.keep(set, number);
            return number;
        }
        let (lag, election, replicas) = (set.dice.up_to(LONGEST_LAG), set.election, self.clone());
        tokio::spawn(async move {
            tokio::time::sleep(lag).await;
            let mut set = replicas.set();
            if set.election == election && !set.stalled {
                replicas.keep(&mut set, number);
            }
        });
        number
    }

    /// The majority applies the log up to that entry.
    fn keep(&self, set: &mut Set, up_to: u64) {
        while set.kept < up_to
            && let Some((then, step)) = set.log.pop_front()
        {
            self.0.then.set(then);
            step(&self.0.ledger, &self.0.majority);
            set.kept += 1;
        }
        self.0.changed.notify_waiters();
    }

    fn failed(applied: Applied, cause: &'static str) -> StoreError {
        StoreError::new("simulated", "reaching a majority", applied, true, cause)
    }

    /// Waits until a majority has what was written under that number.
    async fn until_kept(&self, number: u64, election: u64) -> Result<(), StoreError> {
        loop {
            let changed = self.0.changed.notified();
            {
                let set = self.set();
                if set.election != election {
                    return Err(Self::failed(Applied::Unknown, "the primary stepped down"));
                }
                if set.kept >= number {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    /// As long as the former primary of that election takes itself for one.
    async fn until_known(&self, election: u64) {
        loop {
            let changed = self.0.changed.notified();
            {
                let set = self.set();
                if set.former.is_none() || set.election != election {
                    return;
                }
            }
            changed.await;
        }
    }
}

impl Set {
    /// The election of which neither that instance nor its primary knows.
    fn unknown_to(&self, former: &Mutex<Option<u64>>) -> Option<u64> {
        let former = *former.lock().unwrap_or_else(PoisonError::into_inner);
        former.filter(|election| self.former.is_some() && *election == self.election)
    }

    /// Number of entries that the primary has.
    fn written(&self) -> u64 {
        self.kept + self.log.len() as u64
    }
}

impl Member {
    fn new(memory: MemoryStore, deviation: Option<Deviation>) -> Self {
        let store = over(&memory, deviation);
        Self { memory, store }
    }
}

fn over(memory: &MemoryStore, deviation: Option<Deviation>) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    match deviation {
        Some(Deviation::TermsKept) => Arc::new(TermsKept::new(store)),
        _ => store,
    }
}

/// Answer of a store in memory, which comes at once.
fn now<T>(answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let never = || Err(Replicas::failed(Applied::No, "the memory did not answer at once"));
    answer.now_or_never().unwrap_or_else(never)
}

/// The way of one instance to the set: to its primary, or to the one before.
pub(super) struct Way {
    replicas: Replicas,
    life: Life,
    /// Of which election it does not know.
    former: Arc<Mutex<Option<u64>>>,
    /// Entry that the next read waits for: a bell told of it.
    heard: Arc<Mutex<Option<u64>>>,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Way {
    /// Keeps the last change of primary from it, as long as the former primary does not know of it either.
    pub(super) fn lag_behind(&self) {
        let election = self.replicas.set().election;
        *self.former.lock().unwrap_or_else(PoisonError::into_inner) = Some(election);
    }

    /// The election of which neither it nor its primary knows.
    fn unknown_election(&self, set: &Set) -> Option<u64> {
        set.unknown_to(&self.former)
    }

    /// Waits until a majority has what a bell told of, for a moment: it may be undone.
    async fn until_as_heard(&self) {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(number) = heard {
            let election = self.replicas.set().election;
            let _ = tokio::time::timeout(AFTER_A_BELL, self.replicas.until_kept(number, election)).await;
        }
    }

    async fn read(&self, op: Op, limit: Duration) -> Result<Reply, StoreError> {
        self.until_as_heard().await;
        let set = self.replicas.set();
        if let (Some(_), Some(former)) = (self.unknown_election(&set), &set.former) {
            return now(former.seen.call(op, limit));
        }
        self.replicas.up_to_now();
        now(self.replicas.0.ledger.call(op, limit))
    }

    /// Applies a write at the primary, and again at the majority.
    async fn write(&self, kept: Kept, op: Op, limit: Duration) -> Result<Reply, StoreError> {
        let (answer, number, election) = {
            let mut set = self.replicas.set();
            if let (Some(election), Some(former)) = (self.unknown_election(&set), &set.former) {
                (self.apply(&*former.primary.store, &op, limit), None, election)
            } else {
                let answer = self.apply(&*set.primary.store, &op, limit);
                let by = Some(self.life);
                let again = move |ledger: &Ledger, _: &_| {
                    let _applied = now(ledger.call_by(by, op, AT_ONCE));
                };
                let number = self.replicas.write_down(&mut set, Box::new(again));
                (answer, Some(number), set.election)
            }
        };
        match (kept, number) {
            (Kept::Primary, _) => {}
            (Kept::Majority, Some(number)) => self.replicas.until_kept(number, election).await?,
            (Kept::Majority, None) => {
                self.replicas.until_known(election).await;
                return Err(Replicas::failed(Applied::Unknown, "it was no primary any more"));
            }
        }
        answer
    }

    /// Applies a write at one primary.
    fn apply(&self, primary: &dyn Store, op: &Op, limit: Duration) -> Result<Reply, StoreError> {
        let answer = now(primary.call(op.clone(), limit));
        match op {
            Op::Release(releases) => self.replicas.0.ledger.given_back(releases),
            Op::StopWaiting(waits) => self.replicas.0.ledger.left(waits),
            _ => {}
        }
        answer
    }
}

/// A tail of the bells of one primary after the other.
struct Tail {
    replicas: Replicas,
    topics: Topics,
    former: Arc<Mutex<Option<u64>>>,
    heard: Arc<Mutex<Option<u64>>>,
    /// Election whose primary is tailed, and its bells.
    open: Option<(u64, BoxStream<'static, Hint>)>,
}

impl Tail {
    async fn next(&mut self) -> Hint {
        loop {
            let replicas = self.replicas.clone();
            let mut changed = std::pin::pin!(replicas.0.changed.notified());
            let open = {
                let set = replicas.set();
                if set.unknown_to(&self.former).is_none()
                    && self.open.as_ref().is_none_or(|(election, _)| *election != set.election)
                {
                    self.open = Some((set.election, set.primary.memory.hints(self.topics.clone())));
                }
                self.open.as_mut()
            };
            let Some((_, bells)) = open else {
                changed.await;
                continue;
            };
            tokio::select! {
                biased;
                hint = bells.next() => match hint {
                    Some(hint) => {
                        if matches!(hint, Hint::News(_)) {
                            let written = replicas.set().written();
                            *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
                        }
                        return hint;
                    }
                    // Its primary is gone: until another is known there are none.
                    None => changed.await,
                },
                () = &mut changed => {}
            }
        }
    }
}

impl Store for Way {
    fn capabilities(&self) -> Capabilities {
        self.replicas.0.majority.capabilities()
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        match op.operation() {
            Operation::Release | Operation::Wait | Operation::StopWaiting => {
                self.write(Kept::Primary, op, limit).boxed()
            }
            operation if operation.is_write() => self.write(Kept::Majority, op, limit).boxed(),
            _ => self.read(op, limit).boxed(),
        }
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        async { Ok(None) }.boxed()
    }

    /// Bells of the primary, before a majority has what they tell of. They are deaf to an election until this
    /// instance knows of it.
    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        let tail = Tail {
            replicas: self.replicas.clone(),
            topics,
            former: self.former.clone(),
            heard: self.heard.clone(),
            open: None,
        };
        stream::unfold(tail, |mut tail| async move { Some((tail.next().await, tail)) }).boxed()
    }
}

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};

use super::{Call, Course, Fault, Intercept, Operation};
use crate::{dice::Dice, store::Hint, sync::locked};

/// A store that fails: as a script says, by chance, or both.
///
/// The script comes first, then the courses [for all](Self::always), then chance.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tenure::{
///     Applied, StoreError,
///     model::SessionId,
///     store::{MemoryStore, SessionSeen, StoreExt},
///     testing::{Fault, Faulty, Intercept, Operation},
/// };
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), StoreError> {
/// let store = Faulty::default().around(Arc::new(MemoryStore::default()));
/// store.intercept().next(Operation::Observe, Fault::AnswerLost);
///
/// let nobody = vec![SessionId::from_u128(7)];
/// let limit = Duration::from_secs(1);
/// let lost = store.observe(nobody.clone(), limit).await;
/// assert_eq!(lost.unwrap_err().applied(), Applied::Unknown);
/// assert_eq!(store.observe(nobody, limit).await?, [SessionSeen::Missing]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Faulty {
    script: Mutex<Script>,
    chance: Option<Chance>,
}

#[derive(Debug, Default)]
struct Script {
    next: BTreeMap<Operation, VecDeque<Course>>,
    always: BTreeMap<Operation, Course>,
}

impl Faulty {
    /// A store that fails by chance. With the same seed, the n-th call of an operation meets the
    /// same fate in every run, whatever other operations do in between; so does the n-th hint of
    /// the m-th listener.
    ///
    /// ```
    /// use tenure::testing::{Faulty, Rates};
    ///
    /// let seed = 42; // from the test's arguments, and printed when it fails
    /// let faulty = Faulty::seeded(seed, Rates::of_each(10));
    /// ```
    #[must_use]
    pub fn seeded(seed: u64, rates: Rates) -> Self {
        Self { script: Mutex::default(), chance: Some(Chance::new(seed, rates)) }
    }

    /// The next call of that operation takes this course, after those that were put there before.
    pub fn next(&self, operation: Operation, course: impl Into<Course>) {
        self.script().next.entry(operation).or_default().push_back(course.into());
    }

    /// From now on every call of these operations takes this course, until [`heal`](Self::heal).
    /// With [`Operation::ALL`] and [`Fault::Swallowed`] the store is out of reach.
    pub fn always(&self, operations: &[Operation], course: impl Into<Course>) {
        let course = course.into();
        self.script().always.extend(operations.iter().map(|operation| (*operation, course)));
    }

    /// Forgets what was said to happen next and always. Chance goes on.
    pub fn heal(&self) {
        *self.script() = Script::default();
    }

    /// Number of courses put there by [`next`](Self::next) that are yet to come.
    #[must_use]
    pub fn to_come(&self) -> usize {
        self.script().next.values().map(VecDeque::len).sum()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        locked(&self.script)
    }
}

impl Intercept for Faulty {
    fn decide(&self, call: &Call) -> Course {
        // Drawn also when the script overrides it, so that a script does not shift what comes later.
        let by_chance = self.chance.as_ref().map(|chance| chance.course(call.operation));
        let mut script = self.script();
        let scripted = script.next.get_mut(&call.operation).and_then(VecDeque::pop_front);
        let always = script.always.get(&call.operation).copied();
        scripted.or(always).or(by_chance).unwrap_or(Course::PLAIN)
    }

    fn hints(&self, hints: BoxStream<'static, Hint>) -> BoxStream<'static, Hint> {
        match &self.chance {
            Some(chance) => chance.hints(hints),
            None => hints,
        }
    }
}

/// Frequency of each fault, in calls (or hints) out of a thousand. Zero unless set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// [`Fault::Refused`].
    pub refused: u16,
    /// [`Fault::RequestLost`].
    pub request_lost: u16,
    /// [`Fault::AnswerLost`].
    pub answer_lost: u16,
    /// [`Fault::Swallowed`].
    pub swallowed: u16,
    /// [`Fault::Hang`].
    pub hang: u16,
    /// [`Fault::Twice`].
    pub twice: u16,
    /// [`Fault::Echo`], after up to [`longest`](Self::longest).
    pub echo: u16,
    /// Calls that wait before they are applied, with or without a fault.
    pub late: u16,
    /// Answers that wait before they arrive, with or without a fault.
    pub answer_late: u16,
    /// The longest of the waits; each is drawn between nothing and this.
    pub longest: Duration,
    /// Hints that are lost. The first one of a listener never is.
    pub hint_lost: u16,
    /// Hints that come twice.
    pub hint_doubled: u16,
    /// Hints that wait before they come, with all that come after them.
    pub hint_late: u16,
}

impl Rates {
    /// Each thing as often as the others, and waits of up to three seconds.
    #[must_use]
    pub const fn of_each(rate: u16) -> Self {
        Self {
            refused: rate,
            request_lost: rate,
            answer_lost: rate,
            swallowed: rate,
            hang: rate,
            twice: rate,
            echo: rate,
            late: rate,
            answer_late: rate,
            longest: Duration::from_secs(3),
            hint_lost: rate,
            hint_doubled: rate,
            hint_late: rate,
        }
    }
}

#[derive(Debug)]
struct Chance {
    seed: u64,
    rates: Rates,
    calls: [AtomicU64; Operation::ALL.len()],
    listeners: AtomicU64,
}

impl Chance {
    fn new(seed: u64, rates: Rates) -> Self {
        Self { seed, rates, calls: Default::default(), listeners: AtomicU64::new(0) }
    }

    fn course(&self, operation: Operation) -> Course {
        let turn = self.calls[operation.index()].fetch_add(1, Ordering::Relaxed);
        let mut dice = dice([self.seed, operation.index() as u64, turn]);
        let rates = &self.rates;
        let echo = Fault::Echo(dice.up_to(rates.longest));
        let fault = one_of(
            &mut dice,
            [
                (rates.refused, Fault::Refused),
                (rates.request_lost, Fault::RequestLost),
                (rates.answer_lost, Fault::AnswerLost),
                (rates.swallowed, Fault::Swallowed),
                (rates.hang, Fault::Hang),
                (rates.twice, Fault::Twice),
                (rates.echo, echo),
            ],
        );
        let before = rare_wait(&mut dice, rates.late, rates.longest);
        let after = rare_wait(&mut dice, rates.answer_late, rates.longest);
        Course { before, fault, after }
    }

    fn hints(&self, hints: BoxStream<'static, Hint>) -> BoxStream<'static, Hint> {
        let listener = self.listeners.fetch_add(1, Ordering::Relaxed);
        let (seed, rates) = (self.seed, self.rates);
        let faulty = hints.enumerate().then(move |(turn, hint)| async move {
            let mut dice = dice([seed, u64::MAX - listener, turn as u64]);
            super::wait(rare_wait(&mut dice, rates.hint_late, rates.longest)).await;
            let times = match one_of(&mut dice, [(rates.hint_lost, 0), (rates.hint_doubled, 2)]) {
                Some(0) if turn == 0 => 1,
                times => times.unwrap_or(1),
            };
            stream::iter(vec![hint; times])
        });
        faulty.flatten().boxed()
    }
}

/// Returns dice that fall the same way for the same numbers.
fn dice(numbers: [u64; 3]) -> Dice {
    let mix = |state: u64, number: u64| Dice::new(state ^ number).roll();
    Dice::new(numbers.into_iter().fold(0, mix))
}

/// Returns one of these, each so often in a thousand, or none.
fn one_of<T, const N: usize>(dice: &mut Dice, of: [(u16, T); N]) -> Option<T> {
    let mut rest = dice.below(1000);
    for (rate, one) in of {
        match rest.checked_sub(rate.into()) {
            None => return Some(one),
            Some(less) => rest = less,
        }
    }
    None
}

/// Returns a time to wait, so often in a thousand.
fn rare_wait(dice: &mut Dice, rate: u16, longest: Duration) -> Duration {
    let time = dice.up_to(longest);
    one_of(dice, [(rate, time)]).unwrap_or_default()
}

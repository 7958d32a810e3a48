//! Steps of a script, and how scripts are drawn.
//!
//! A step names nothing concrete: sessions, keys and terms are said by their place ("the holder",
//! "the term before"), so that a script means the same in every store and can be cut short.

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tenure::model::Entry;

pub(crate) const SESSIONS: usize = 4;
pub(crate) const KEYS: usize = 5;
pub(crate) const SCHEDULES: usize = 2;

/// A session: the one of that slot, or the one that had the slot before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) slot: usize,
    pub(crate) before: bool,
}

/// Session in whose name an operation of the holder is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    Holder,
    Other(Who),
}

/// A term of a lock, counted back from its last one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WhichTerm {
    Last,
    Earlier(usize),
    NeverGiven,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: usize,
    pub(crate) who: Who,
    pub(crate) ticket: u64,
    pub(crate) says: u8,
    pub(crate) delay: Span,
}

/// A time that is over at once, perhaps, or never.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Span {
    None,
    Moment,
    Long,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Onward {
    Free,
    FreeUnlessWanted,
    ClosedFor(Span),
    HandTo { who: Who, ticket: u64, says: u8 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Giving {
    pub(crate) key: usize,
    pub(crate) caller: Caller,
    pub(crate) term: WhichTerm,
    pub(crate) onward: Onward,
    pub(crate) note: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum OnGround {
    Watched,
    OtherNonce,
    Missing,
    Operator,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Hears {
    Nothing,
    First,
    All,
    WrongTerm,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Instead {
    Nobody,
    TheOneOnRecord,
    Another,
}

/// Changes to a schedule's record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Saying {
    Pause(u8),
    Resume,
    Run { at: i64, says: u8 },
    Ran { at: i64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    Tick,
    HourAhead,
    HourBack,
    WeekAhead,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The slot gets a session that was never opened.
    Restart(usize),
    /// The slot gets a key nobody ever took.
    Move(usize),
    Open {
        who: Who,
        same_nonce: bool,
        shares: u8,
    },
    Beat {
        who: Who,
        ahead: i64,
        same_nonce: bool,
        shares: Option<u8>,
        hears: Hears,
    },
    Declare {
        who: Who,
        ground: OnGround,
        says: u8,
    },
    Take {
        wanted: Vec<Wanted>,
        name_the_dead: bool,
    },
    Release(Vec<Giving>),
    Wait(Vec<Wanted>),
    StopWaiting(Vec<Wanted>),
    SetValue {
        key: usize,
        caller: Caller,
        term: WhichTerm,
        says: Option<u8>,
    },
    Ask {
        key: usize,
        caller: Caller,
        term: WhichTerm,
        says: u8,
    },
    Drain {
        who: Who,
        says: Option<u8>,
    },
    Force {
        key: usize,
        term: WhichTerm,
        says: u8,
    },
    Reopen {
        key: usize,
        term: WhichTerm,
        says: u8,
    },
    Define {
        schedule: usize,
        term: u64,
        timing: u8,
        policies: u8,
    },
    Instruct {
        schedule: usize,
        saying: Saying,
    },
    Claim {
        schedule: usize,
        instant: i64,
        entry: Entry,
        /// Says that it was not run, if it is such an entry.
        says: u8,
        who: Who,
        term: u64,
        attempt: u32,
        instead: Instead,
    },
    Finish {
        schedule: usize,
        instant: i64,
        entry: Entry,
        right: bool,
        outcome: u8,
        who: Who,
        attempt: u32,
        last: bool,
    },
    PurgeRuns {
        schedule: usize,
        old_only: bool,
        keep: usize,
    },
    Purge {
        old_only: bool,
    },
    /// An operation of the last ones comes again, just as it was.
    Again(usize),
    Waiters {
        key: usize,
        at_most: usize,
    },
    History {
        schedule: usize,
        at_most: usize,
    },
    Schedules,
    ListLocks {
        kind_of: Option<usize>,
        at_most: usize,
    },
    HeldBy {
        who: Who,
        at_most: usize,
    },
    Sessions {
        at_most: usize,
    },
    /// The store's clock is turned, where the test can turn it; elsewhere nothing happens.
    Clock(Turn),
}

fn who() -> impl Strategy<Value = Who> {
    (0..SESSIONS, prop::bool::weighted(0.15)).prop_map(|(slot, before)| Who { slot, before })
}

fn caller() -> impl Strategy<Value = Caller> {
    prop_oneof![5 => Just(Caller::Holder), 1 => who().prop_map(Caller::Other)]
}

fn term() -> impl Strategy<Value = WhichTerm> {
    prop_oneof![
        6 => Just(WhichTerm::Last),
        1 => (1..4_usize).prop_map(WhichTerm::Earlier),
        1 => Just(WhichTerm::NeverGiven),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![12 => Just(Span::None), 1 => Just(Span::Moment), 1 => Just(Span::Long)]
}

prop_compose! {
    fn wanted()(key in 0..KEYS, who in who(), ticket in 1..=6_u64, says in any::<u8>(), delay in span())
        -> Wanted { Wanted { key, who, ticket, says, delay } }
}

fn many<T: std::fmt::Debug>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(one, 1..4)
}

fn onward() -> impl Strategy<Value = Onward> {
    prop_oneof![
        4 => Just(Onward::Free),
        4 => Just(Onward::FreeUnlessWanted),
        1 => prop_oneof![3 => Just(Span::Moment), 1 => Just(Span::Long)].prop_map(Onward::ClosedFor),
        6 => (who(), 1..=6_u64, any::<u8>())
            .prop_map(|(who, ticket, says)| Onward::HandTo { who, ticket, says }),
    ]
}

prop_compose! {
    fn giving()(
        key in 0..KEYS, caller in caller(), term in term(), onward in onward(), note in any::<bool>()
    ) -> Giving { Giving { key, caller, term, onward, note } }
}

fn ground() -> impl Strategy<Value = OnGround> {
    prop::sample::select(vec![
        OnGround::Watched,
        OnGround::Watched,
        OnGround::OtherNonce,
        OnGround::OtherNonce,
        OnGround::Missing,
        OnGround::Missing,
        OnGround::Operator,
    ])
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        6 => Just(Turn::Tick),
        3 => Just(Turn::HourAhead),
        3 => Just(Turn::HourBack),
        1 => Just(Turn::WeekAhead),
    ]
}

fn hears() -> impl Strategy<Value = Hears> {
    prop::sample::select(vec![Hears::Nothing, Hears::Nothing, Hears::First, Hears::All, Hears::WrongTerm])
}

fn session_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..SESSIONS).prop_map(Step::Restart),
        14 => (who(), prop::bool::weighted(0.2), 0..4_u8).prop_map(
            |(who, same_nonce, shares)| Step::Open { who, same_nonce, shares }
        ),
        16 => (who(), -2..=3_i64, prop::bool::weighted(0.2), prop::option::of(0..4_u8), hears()).prop_map(
            |(who, ahead, same_nonce, shares, hears)| {
                Step::Beat { who, ahead, same_nonce, shares, hears }
            }
        ),
        5 => (who(), ground(), any::<u8>())
            .prop_map(|(who, ground, says)| Step::Declare { who, ground, says }),
        3 => (who(), prop::option::of(any::<u8>())).prop_map(|(who, says)| Step::Drain { who, says }),
        1 => (1..4_usize).prop_map(|at_most| Step::Sessions { at_most }),
    ]
}

fn lock_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..KEYS).prop_map(Step::Move),
        24 => (many(wanted()), any::<bool>())
            .prop_map(|(wanted, name_the_dead)| Step::Take { wanted, name_the_dead }),
        16 => many(giving()).prop_map(Step::Release),
        4 => (0..KEYS, caller(), term(), prop::option::of(any::<u8>()))
            .prop_map(|(key, caller, term, says)| Step::SetValue { key, caller, term, says }),
        4 => (0..KEYS, caller(), term(), any::<u8>())
            .prop_map(|(key, caller, term, says)| Step::Ask { key, caller, term, says }),
        2 => (0..KEYS, term(), any::<u8>()).prop_map(|(key, term, says)| Step::Force { key, term, says }),
        2 => (0..KEYS, term(), any::<u8>()).prop_map(|(key, term, says)| Step::Reopen { key, term, says }),
        1 => (prop::option::of(0..KEYS), 1..4_usize)
            .prop_map(|(kind_of, at_most)| Step::ListLocks { kind_of, at_most }),
        2 => (who(), 1..4_usize).prop_map(|(who, at_most)| Step::HeldBy { who, at_most }),
    ]
}

fn queue_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => many(wanted()).prop_map(Step::Wait),
        3 => many(wanted()).prop_map(Step::StopWaiting),
        2 => (0..KEYS, 1..5_usize).prop_map(|(key, at_most)| Step::Waiters { key, at_most }),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![4 => Just(Entry::Tick), 2 => Just(Entry::Order), 2 => Just(Entry::Skipped)]
}

fn saying() -> impl Strategy<Value = Saying> {
    prop_oneof![
        2 => any::<u8>().prop_map(Saying::Pause),
        2 => Just(Saying::Resume),
        3 => (-2..6_i64, any::<u8>()).prop_map(|(at, says)| Saying::Run { at, says }),
        2 => (-2..6_i64).prop_map(|at| Saying::Ran { at }),
    ]
}

fn schedule_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..SCHEDULES, 1..5_u64, 0..3_u8, 0..3_u8).prop_map(
            |(schedule, term, timing, policies)| Step::Define { schedule, term, timing, policies }
        ),
        8 => (0..SCHEDULES, saying()).prop_map(|(schedule, saying)| Step::Instruct { schedule, saying }),
        1 => Just(Step::Schedules),
    ]
}

fn run_step() -> impl Strategy<Value = Step> {
    let instead = prop::sample::select(vec![Instead::Nobody, Instead::TheOneOnRecord, Instead::Another]);
    prop_oneof![
        8 => (0..SCHEDULES, -2..5_i64, entry(), any::<u8>(), who(), 1..3_u64, 1..3_u32, instead).prop_map(
            |(schedule, instant, entry, says, who, term, attempt, instead)| {
                Step::Claim { schedule, instant, entry, says, who, term, attempt, instead }
            }
        ),
        6 => (0..SCHEDULES, -2..5_i64, entry(), prop::bool::weighted(0.7), 0..7_u8, who(), 1..3_u32, any::<bool>())
            .prop_map(|(schedule, instant, entry, right, outcome, who, attempt, last)| {
                Step::Finish { schedule, instant, entry, right, outcome, who, attempt, last }
            }),
        1 => (0..SCHEDULES, any::<bool>(), 0..4_usize)
            .prop_map(|(schedule, old_only, keep)| Step::PurgeRuns { schedule, old_only, keep }),
        1 => (0..SCHEDULES, 1..4_usize)
            .prop_map(|(schedule, at_most)| Step::History { schedule, at_most }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => lock_step(),
        24 => session_step(),
        12 => queue_step(),
        12 => run_step(),
        8 => schedule_step(),
        10 => (0..20_usize).prop_map(Step::Again),
        1 => any::<bool>().prop_map(|old_only| Step::Purge { old_only }),
        3 => turn().prop_map(Step::Clock),
    ]
}

/// The script of that seed.
pub(crate) fn script(seed: u64, steps: usize) -> Vec<Step> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let step = step();
    (0..steps).map(|_| step.new_tree(&mut runner).expect("no step is filtered out").current()).collect()
}

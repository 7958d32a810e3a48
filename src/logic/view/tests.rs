//! The view against news that come late, twice and in any order; and fleets of them that act on it.

mod fleets;
mod planning;

use super::*;
use crate::{
    logic::plan::PLAN_VERSION,
    model::{Kind, LockId},
    store::{About, Candidate, Holding, Nonce, Ticket},
};

const SECOND: Duration = Duration::from_secs(1);
const DIGEST: u64 = 7;

fn at(millis: u64) -> Moment {
    Moment::after_start(Duration::from_millis(millis))
}

fn id(number: u128) -> SessionId {
    SessionId::from_u128(number)
}

fn key(number: usize) -> Key {
    format!("task-{number:03}").parse().unwrap()
}

fn spread() -> SpreadName {
    "s".parse().unwrap()
}

fn share() -> Share {
    Share { digest: DIGEST, ..Share::new(spread()) }
}

/// Of one that knows the tasks of these numbers.
fn share_of(tasks: std::ops::Range<usize>) -> Share {
    let mut share = Share::new(spread());
    let keys: BTreeSet<Key> = tasks.map(key).collect();
    digest::publish(&mut share, keys.iter(), StoreTime::from_millis(0));
    share
}

fn me(number: u128) -> OwnMember {
    OwnMember {
        session: id(number),
        holder: holder(number),
        started: StoreTime::from_millis(0),
        share: share(),
    }
}

fn holder(number: u128) -> Holder {
    format!("pod-{number}").parse().unwrap()
}

fn record(number: u128, beat: u64, shares: Vec<Share>) -> SessionRecord {
    let about = About { plan_version: PLAN_VERSION, ..About::new("n".parse().unwrap(), holder(number)) };
    let at = StoreTime::from_millis(0);
    let opened = SessionRecord::opened(id(number), about, Nonce::new(beat), 30 * SECOND, at);
    SessionRecord { beat: Beat::new(beat), shares, ..opened }
}

fn alive(number: u128, beat: u64) -> SessionSeen {
    SessionSeen::Alive(record(number, beat, vec![share()]))
}

fn dead(number: u128, why: crate::model::Why, reserved: Duration, died: i64) -> SessionSeen {
    let death = Death { at: StoreTime::from_millis(died), by: holder(number), why };
    let shares = vec![Share { reserved, ..share() }];
    SessionSeen::Dead(SessionRecord { death: Some(death), ..record(number, 9, shares) })
}

/// A task's lock as it is read: held by that session under that term, or free.
fn lock_of(task: &Key, holder: Option<(SessionId, u64)>) -> LockSeen {
    let Some((session, term)) = holder else { return LockSeen::Absent };
    let by = Candidate::new(session, Ticket::new(1), 30 * SECOND, holder_of(session));
    let lock = LockId { namespace: "n".parse().unwrap(), kind: Kind::of_tasks(&spread()), key: task.clone() };
    let holding = Some(Holding::new(by, StoreTime::from_millis(0)));
    LockSeen::Found(LockRecord { holding, ..LockRecord::new(lock, Term::new(term)) })
}

fn holder_of(session: SessionId) -> Holder {
    holder(session.as_u128())
}

impl SpreadView {
    /// Learns the holder of a task from a read just now.
    fn learns(&mut self, task: &Key, holder: Option<(u128, u64)>, now: Moment) -> bool {
        let holder = holder.map(|(session, term)| (id(session), term));
        self.read(task, &lock_of(task, holder), now, now, None)
    }
}

fn view(tasks: usize) -> SpreadView {
    let mut view = SpreadView::new(spread());
    view.set(&(0..tasks).map(key).collect());
    view
}

#[test]
fn a_read_of_a_task_from_before_its_change_is_ignored() {
    let mut one = view(1);
    let absent = LockSeen::Absent;
    assert!(one.read(&key(0), &absent, at(1), at(2), None), "what is unknown is news");
    assert!(one.granted(&key(0), id(1), Term::new(5), at(10)));
    assert!(!one.read(&key(0), &absent, at(9), at(11), None), "it was sent for before");
    assert!(matches!(one.task(&key(0)), Some(TaskPlace::Held { .. })));
    assert!(!one.granted(&key(0), id(2), Term::new(4), at(12)), "an older term");
    assert!(one.freed(&key(0), at(13)));
    // Once more, and nothing new; but what was read in between is older than this.
    assert!(!one.freed(&key(0), at(20)));
    assert!(!one.read(&key(0), &absent, at(15), at(21), None));
    assert_eq!(one.task(&key(0)), Some(&TaskPlace::Free { since: at(13) }));
    // A doubt is not settled by what was read before it.
    one.forget_place(&key(0), at(30));
    assert!(!one.read(&key(0), &absent, at(29), at(31), None));
    assert_eq!(one.unknown(at(31)), [key(0)]);
    assert!(one.read(&key(0), &absent, at(31), at(32), None));
}

#[test]
fn an_older_beat_and_a_life_after_death_are_not_believed() {
    let mut one = view(0);
    let now = at(0);
    assert!(one.saw(id(1), &alive(1, 5), now, None));
    let drains = Share { draining: true, ..share() };
    assert!(!one.saw(id(1), &SessionSeen::Alive(record(1, 4, vec![drains.clone()])), now, None));
    assert!(one.saw(id(1), &SessionSeen::Alive(record(1, 6, vec![drains])), now, None));
    assert!(one.saw(id(1), &dead(1, Death::own(), Duration::ZERO, 0), now, None));
    assert!(!one.saw(id(1), &alive(1, 7), now, None));
    assert_eq!(one.members().count(), 0);
}

#[test]
fn only_one_that_closed_itself_reserves_and_never_for_longer_than_it_said() {
    let why = crate::model::Why::shortened("it did not beat for its whole ttl");
    let left = |why, store_now: Option<i64>| {
        let mut one = view(1);
        one.saw(id(1), &dead(1, why, 60 * SECOND, 1_000_000), at(0), store_now.map(StoreTime::from_millis));
        match one.session(id(1)) {
            Some(PeerSeen::Reserved { until, .. }) => until.since(at(0)).as_secs(),
            _ => 0,
        }
    };
    assert_eq!(left(Death::own(), None), 60);
    assert_eq!(left(Death::own(), Some(1_020_000)), 40);
    assert_eq!(left(Death::own(), Some(0)), 60, "a clock that stands before the death");
    assert_eq!(left(Death::own(), Some(9_000_000)), 0);
    assert_eq!(left(why, Some(1_000_000)), 0, "a crash on the way down");
}

#[test]
fn the_ring_begins_after_oneself_and_has_all_who_may_hold_a_task() {
    let mut one = view(0);
    for number in [1, 3, 5, 7] {
        one.saw(id(number), &alive(number, 1), at(0), None);
    }
    // It takes no part (any more), and is alive.
    one.saw(id(6), &SessionSeen::Alive(record(6, 1, Vec::new())), at(0), None);
    one.saw(id(7), &dead(7, Death::own(), Duration::ZERO, 0), at(1), None);
    assert_eq!(one.after(id(5)), [id(6), id(1), id(3)]);
    assert_eq!(one.after(id(2)), [id(3), id(5), id(6), id(1)]);
}

#[test]
fn a_member_that_pauses_or_restarts_is_left_out_with_its_tasks() {
    for share in [Share { paused: true, ..share() }, Share { reserved: SECOND, ..share() }] {
        let mut one = view(4);
        one.saw(id(2), &SessionSeen::Alive(record(2, 1, vec![share])), at(0), None);
        for task in 0..3 {
            one.learns(&key(task), Some((2, 5)), at(0));
        }
        one.learns(&key(3), None, at(0));
        let resolved = one.resolve(&me(1), &BTreeMap::new(), BOUNDS, at(10_000));
        assert_eq!(resolved.orders, [SpreadAction::Take { key: key(3), dead: None }]);
        assert_eq!(resolved.targets, BTreeMap::from([(id(1), 1)]));
    }
}

const BOUNDS: Bounds = Bounds { gives: 64, waits: 1000 };

//! Fleets of views that act on what they hear, late and in any order.

use std::ops::Range;

use super::*;
use crate::dice::Dice;

/// News on its way to one member.
#[derive(Clone)]
enum News {
    Task(Key, LockSeen),
    Session(SessionId, SessionSeen),
}

struct FleetMember {
    me: OwnMember,
    view: SpreadView,
    mine: BTreeMap<Key, OwnTask>,
    news: Vec<News>,
}

/// Locks as they are in truth, and members that hear of them late and in any order of tasks, each acting for
/// itself.
struct Fleet {
    dice: Dice,
    now: u64,
    truth: BTreeMap<Key, (Option<SessionId>, u64)>,
    members: BTreeMap<SessionId, FleetMember>,
    dead: BTreeSet<SessionId>,
    next: u128,
    moves: usize,
    /// The tasks that each version knows, by their numbers. Each that joins is of the next version.
    versions: Vec<Range<usize>>,
}

impl Fleet {
    fn new(seed: u64, tasks: usize) -> Self {
        Self::of(seed, std::iter::once(0..tasks).collect())
    }

    fn of(seed: u64, versions: Vec<Range<usize>>) -> Self {
        let tasks = versions.iter().map(|tasks| tasks.end).max().unwrap();
        let truth = (0..tasks).map(|task| (key(task), (None, 1))).collect();
        let (members, dead) = (BTreeMap::new(), BTreeSet::new());
        Self { dice: Dice::new(seed), now: 10_000, truth, members, dead, next: 1, moves: 0, versions }
    }

    fn tasks_of(&self, number: u128) -> Range<usize> {
        self.versions[usize::try_from(number).unwrap() % self.versions.len()].clone()
    }

    fn alive(&self, number: u128) -> SessionSeen {
        SessionSeen::Alive(record(number, 1, vec![share_of(self.tasks_of(number))]))
    }

    fn join(&mut self) -> SessionId {
        let number = self.next;
        self.next += 1;
        let mut view = view(0);
        view.set(&self.tasks_of(number).map(key).collect());
        for (key, (holder, term)) in &self.truth {
            let (seen, then) = (lock_of(key, holder.map(|holder| (holder, *term))), at(self.now - 5000));
            view.read(key, &seen, then, then, None);
        }
        for (session, one) in &self.members {
            view.saw(*session, &self.alive(one.me.session.as_u128()), at(self.now), None);
        }
        for session in &self.dead {
            let died = dead(session.as_u128(), Death::own(), Duration::ZERO, 0);
            view.saw(*session, &died, at(self.now), None);
        }
        self.tell(&News::Session(id(number), self.alive(number)));
        let me = OwnMember { share: share_of(self.tasks_of(number)), ..me(number) };
        let one = FleetMember { me, view, mine: BTreeMap::new(), news: Vec::new() };
        self.members.insert(id(number), one);
        id(number)
    }

    /// Gone, whatever it was about to do.
    fn crash(&mut self, session: SessionId) {
        self.members.remove(&session);
        self.dead.insert(session);
        let died = dead(session.as_u128(), crate::model::Why::shortened("silent"), Duration::ZERO, 0);
        self.tell(&News::Session(session, died));
    }

    fn tell(&mut self, news: &News) {
        for one in self.members.values_mut() {
            one.news.push(news.clone());
        }
    }

    fn set(&mut self, key: &Key, holder: Option<SessionId>) {
        let place = self.truth.get_mut(key).unwrap();
        place.0 = holder;
        place.1 += u64::from(holder.is_some());
        self.moves += usize::from(holder.is_some());
        let seen = lock_of(key, holder.map(|holder| (holder, place.1)));
        self.tell(&News::Task(key.clone(), seen));
    }

    /// Gives a member some of its news, in the order in which they came.
    fn hear(&mut self, session: SessionId, most: usize) {
        let now = at(self.now);
        let Some(one) = self.members.get_mut(&session) else { return };
        for news in one.news.drain(..most.min(one.news.len())) {
            match news {
                News::Task(key, seen) => {
                    one.view.read(&key, &seen, now, now, None);
                }
                News::Session(session, sighting) => {
                    one.view.saw(session, &sighting, now, None);
                }
            }
        }
    }

    /// Plans for a member, and does its part: some of it at once, as the store allows.
    fn act(&mut self, session: SessionId) -> usize {
        let Some(one) = self.members.get(&session) else { return 0 };
        let resolved = one.view.resolve(&one.me, &one.mine, BOUNDS, at(self.now));
        let orders = resolved.orders.len();
        for order in resolved.orders {
            match order {
                SpreadAction::Take { key, .. } => {
                    let holder = self.truth[&key].0;
                    if holder.is_none_or(|holder| self.dead.contains(&holder)) {
                        self.set(&key, Some(session));
                        self.hold(session, &key, Some(OwnTask::Has));
                    }
                }
                SpreadAction::Wait { key } => self.hold(session, &key, Some(OwnTask::Waits)),
                SpreadAction::Withdraw { key } => self.hold(session, &key, None),
                SpreadAction::Give { key, to, must } => {
                    assert_eq!(self.truth[&key].0, Some(session), "only one's own is given away");
                    let successor = to.filter(|to| {
                        self.members
                            .get(to)
                            .is_some_and(|successor| successor.mine.get(&key) == Some(&OwnTask::Waits))
                    });
                    if let Some(successor) = successor {
                        self.hold(session, &key, None);
                        self.set(&key, Some(successor));
                        self.hold(successor, &key, Some(OwnTask::Has));
                    } else if must {
                        self.hold(session, &key, None);
                        self.set(&key, None);
                    }
                }
            }
        }
        orders
    }

    fn hold(&mut self, session: SessionId, key: &Key, what: Option<OwnTask>) {
        let Some(one) = self.members.get_mut(&session) else { return };
        match what {
            Some(what) => one.mine.insert(key.clone(), what),
            None => one.mine.remove(key),
        };
    }

    fn some(&mut self) -> Option<SessionId> {
        let place = self.dice.place(self.members.len());
        self.members.keys().nth(place).copied()
    }

    /// Every member hears everything and acts, until none has anything to do. In vain: so many rounds.
    fn settle(&mut self) {
        let mut at_rest = 0;
        for round in 0..60 {
            self.now += 3000;
            let mut orders = 0;
            for session in self.members.keys().copied().collect::<Vec<_>>() {
                self.hear(session, usize::MAX);
                orders += self.act(session);
            }
            // A task that came just now may have to stay for a moment.
            at_rest = if orders == 0 { at_rest + 1 } else { 0 };
            if at_rest == 2 {
                return;
            }
            assert!(round < 59, "it does not come to rest");
        }
    }

    fn counts(&self) -> BTreeMap<SessionId, usize> {
        let mut counts: BTreeMap<_, _> = self.members.keys().map(|session| (*session, 0)).collect();
        for (holder, _) in self.truth.values() {
            // A task may be known to no member.
            let Some(holder) = holder else { continue };
            *counts.get_mut(holder).expect("who lives") += 1;
        }
        counts
    }
}

#[test]
fn fleets_come_to_rest_with_all_tasks_shared_out_evenly_however_late_news_is_heard() {
    for seed in 0..300 {
        let mut fleet = Fleet::new(seed, 5 + usize::try_from(seed % 30).unwrap());
        fleet.join();
        for _ in 0..200 {
            fleet.now += fleet.dice.below(700);
            match fleet.dice.place(40) {
                0 => {
                    fleet.join();
                }
                1 if fleet.members.len() > 1 => {
                    let gone = fleet.some().unwrap();
                    fleet.crash(gone);
                }
                turn => {
                    let session = fleet.some().unwrap();
                    if turn % 2 == 0 {
                        let most = fleet.dice.place(5);
                        fleet.hear(session, most);
                    } else {
                        fleet.act(session);
                    }
                }
            }
        }
        fleet.settle();
        let counts = fleet.counts();
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(most - least <= 1, "seed {seed}: {counts:?}");
        assert_eq!(counts.values().sum::<usize>(), fleet.truth.len(), "each has an owner");
        // And at rest nothing moves.
        let moves = fleet.moves;
        fleet.settle();
        assert_eq!(fleet.moves, moves, "seed {seed}");
    }
}

#[test]
fn a_join_and_a_crash_move_as_few_as_can_be() {
    for (tasks, members) in [(100, 10), (47, 5), (3, 4), (30, 3)] {
        let mut fleet = Fleet::new(1, tasks);
        for _ in 0..members {
            fleet.join();
        }
        fleet.settle();
        let before = fleet.moves;
        let came = fleet.join();
        fleet.settle();
        assert_eq!(fleet.moves - before, tasks / (members + 1), "{tasks} tasks, {members} and one members");
        let (before, orphans) = (fleet.moves, fleet.counts()[&came]);
        fleet.crash(came);
        fleet.settle();
        assert_eq!(fleet.moves - before, orphans);
    }
}

/// Asserts that no holder of a task has over two more than a member that is known to know it.
fn assert_even(fleet: &Fleet, seed: u64) {
    let counts = fleet.counts();
    for (task, (holder, _)) in &fleet.truth {
        let Some(holder) = holder else { continue };
        let part = digest::part(task);
        let share = |session: SessionId| share_of(fleet.tasks_of(session.as_u128()));
        let knows = |other: &SessionId| {
            fleet.members[other].view.knows(task) && digest::agree(&share(*holder), &share(*other), part)
        };
        for other in fleet.members.keys().filter(|other| knows(other)) {
            assert!(counts[holder] <= counts[other] + 2, "seed {seed}: {counts:?}, {task} of {holder}");
        }
    }
}

#[test]
fn versions_with_other_tasks_come_to_rest_with_all_shared_out_as_evenly_as_they_know_them() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let tasks = 5 + dice.place(40);
        let mut version = || dice.place(4)..tasks + dice.place(4);
        let mut versions = vec![version(), version()];
        if seed % 3 == 0 {
            versions.push(version());
        }
        let mut fleet = Fleet::of(seed, versions.clone());
        for _ in 0..6 {
            fleet.join();
        }
        for _ in 0..200 {
            fleet.now += fleet.dice.below(700);
            let session = fleet.some().unwrap();
            match fleet.dice.place(40) {
                0 => _ = fleet.join(),
                // FleetMember of each version lives on.
                1 if session > id(3) => fleet.crash(session),
                turn if turn % 2 == 0 => {
                    let most = fleet.dice.place(5);
                    fleet.hear(session, most);
                }
                _ => _ = fleet.act(session),
            }
        }
        fleet.settle();
        for (task, (holder, _)) in &fleet.truth {
            let is_known = fleet.members.values().any(|one| one.view.knows(task));
            assert_eq!(holder.is_some(), is_known, "seed {seed}: {task}");
        }
        assert_even(&fleet, seed);
        let moves = fleet.moves;
        fleet.settle();
        assert_eq!(fleet.moves, moves, "seed {seed}: at rest nothing moves");
    }
}

//! Collected events of tasks: many are logged as one line with a count, not as one line per task.
//!
//! Events are collected for some seconds; each task's own is logged at debug as it happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use super::Engine;
use crate::{
    clock::Moment,
    model::{Key, LockId, SpreadName},
    sync::locked,
    words,
};

/// Number of tasks that a line names.
const NAMED: usize = 3;
/// Time for which a task has to lack room before it is logged: the next member that joins may have some.
const NO_ROOM_FOR: Duration = Duration::from_secs(10);
/// Shortest interval between two such lines, for a number that keeps changing.
const NO_ROOM_AGAIN: Duration = Duration::from_secs(60);

/// Kind of event of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Note {
    Acquired,
    TookOver,
    Released,
    Lost,
    Failed,
    Resting,
}

/// Events of one kind, of tasks of one spread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    names: BTreeSet<String>,
    /// Some of the former holders, reasons or errors.
    details: BTreeSet<String>,
}

impl Tally {
    fn add(&mut self, key: &Key, detail: Option<String>) {
        self.count += 1;
        put(&mut self.names, key.as_str());
        if let Some(detail) = detail {
            put(&mut self.details, &detail);
        }
    }

    pub(crate) fn names(&self) -> String {
        listed(&self.names)
    }

    pub(crate) fn details(&self) -> String {
        listed(&self.details)
    }
}

/// Adds a text. One more is kept than is named, to show that there are more.
fn put(texts: &mut BTreeSet<String>, text: &str) {
    if texts.len() <= NAMED && !texts.contains(text) {
        texts.insert(text.to_owned());
    }
}

fn listed(texts: &BTreeSet<String>) -> String {
    let mut list = texts.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if texts.len() > NAMED {
        list += ", ...";
    }
    list
}

/// Tasks of a spread that no instance has room for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NoRoom {
    waiting: Option<Waiting>,
    /// Number that was logged, and when.
    logged: Option<(usize, Moment)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    since: Moment,
    count: usize,
    names: BTreeSet<String>,
}

/// Line to be logged about room.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    None { count: usize, names: String },
    Enough,
}

impl NoRoom {
    fn say(&mut self, now: Moment) -> Option<Room> {
        match (&self.waiting, self.logged) {
            (None, None) => None,
            (None, Some(_)) => {
                self.logged = None;
                Some(Room::Enough)
            }
            (Some(waiting), logged) => {
                let is_due = match logged {
                    None => now.since(waiting.since) >= NO_ROOM_FOR,
                    Some((count, at)) => count != waiting.count && now.since(at) >= NO_ROOM_AGAIN,
                };
                is_due.then(|| {
                    self.logged = Some((waiting.count, now));
                    Room::None { count: waiting.count, names: listed(&waiting.names) }
                })
            }
        }
    }
}

/// Events of tasks since the last line.
#[derive(Debug, Default)]
pub(crate) struct EventDigest {
    registry: Mutex<TallyRegistry>,
}

type Notes = BTreeMap<(SpreadName, Note), Tally>;

#[derive(Debug, Default)]
struct TallyRegistry {
    tallies: Notes,
    rooms: BTreeMap<SpreadName, NoRoom>,
}

impl EventDigest {
    fn registry(&self) -> MutexGuard<'_, TallyRegistry> {
        locked(&self.registry)
    }

    /// Adds an event of a lock. Returns whether it is a task, and will be logged with others.
    pub(crate) fn note(&self, lock: &LockId, note: Note, detail: Option<String>) -> bool {
        let Some(spread) = lock.kind.spread() else { return false };
        self.registry().tallies.entry((spread, note)).or_default().add(&lock.key, detail);
        true
    }

    /// Sets the tasks that no instance has room for, and since when the first of them waits; called on
    /// the instance that logs it.
    pub(crate) fn no_room<'a>(
        &self,
        spread: &SpreadName,
        since: Option<Moment>,
        keys: impl Iterator<Item = &'a Key>,
    ) {
        let waiting = since.map(|since| {
            let mut names = BTreeSet::new();
            let count = keys.inspect(|key| put(&mut names, key.as_str())).count();
            Waiting { since, count, names }
        });
        let mut registry = self.registry();
        match waiting {
            Some(_) => registry.rooms.entry(spread.clone()).or_default().waiting = waiting,
            None => {
                if let Some(room) = registry.rooms.get_mut(spread) {
                    room.waiting = None;
                }
            }
        }
    }

    fn take(&self, now: Moment) -> (Notes, Vec<(SpreadName, Room)>) {
        let mut registry = self.registry();
        let tallies = mem::take(&mut registry.tallies);
        let rooms: Vec<_> = registry
            .rooms
            .iter_mut()
            .filter_map(|(spread, room)| room.say(now).map(|room| (spread.clone(), room)))
            .collect();
        registry.rooms.retain(|_, room| *room != NoRoom::default());
        (tallies, rooms)
    }
}

impl Engine {
    /// Logs the collected events.
    pub(crate) fn log_tallies(&self) {
        let (tallies, rooms) = self.tallies.take(self.clock.now());
        let (namespace, holder) = (self.config.namespace(), self.config.holder());
        for ((spread, note), tally) in tallies {
            let (spread, count, tasks, details) =
                (spread.as_str(), tally.count, tally.names(), tally.details());
            match note {
                Note::Acquired => {
                    words::info!(spread, %namespace, %holder, count, tasks, "acquired tasks");
                }
                Note::TookOver => {
                    words::info!(spread, %namespace, %holder, from = details, count, tasks, "took over tasks from dead sessions");
                }
                Note::Released => {
                    words::info!(spread, %namespace, %holder, count, tasks, "released tasks");
                }
                Note::Lost => {
                    words::warn!(spread, %namespace, %holder, count, tasks, loss = details, "lost tasks");
                }
                Note::Failed => {
                    words::warn!(spread, %namespace, %holder, count, tasks, error = details, "tasks failed");
                }
                Note::Resting => {
                    words::warn!(
                        spread, %namespace, %holder, count, tasks, error = details,
                        "tasks failed too often: resting, retrying later"
                    );
                }
            }
        }
        for (spread, room) in rooms {
            let spread = spread.as_str();
            match room {
                Room::None { count, names } => {
                    words::warn!(spread, %namespace, count, tasks = names, "no instance has room for these tasks");
                }
                Room::Enough => {
                    words::info!(spread, %namespace, "there is room for all tasks again");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    fn key(number: usize) -> Key {
        Key::new(format!("task-{number:04}")).unwrap()
    }

    fn spread() -> SpreadName {
        SpreadName::new("topics").unwrap()
    }

    fn task(number: usize) -> LockId {
        LockId { namespace: "n".parse().unwrap(), kind: Kind::Task(spread()), key: key(number) }
    }

    #[test]
    fn a_thousand_tasks_are_one_line_with_three_names() {
        let tallies = EventDigest::default();
        for number in 0..1000 {
            assert!(tallies.note(&task(number), Note::Acquired, None));
        }
        let (logged, _) = tallies.take(at(0));
        assert_eq!(logged.len(), 1);
        let tally = &logged[&(spread(), Note::Acquired)];
        assert_eq!((tally.count, tally.names()), (1000, "task-0000, task-0001, task-0002, ...".to_owned()));
        assert!(tallies.take(at(0)).0.is_empty(), "it is logged once");
    }

    #[test]
    fn a_lock_that_is_no_task_is_logged_by_itself() {
        let lock = LockId { kind: Kind::Lock, ..task(1) };
        assert!(!EventDigest::default().note(&lock, Note::Acquired, None));
    }

    #[test]
    fn want_of_room_is_logged_when_it_has_lasted_and_when_it_is_over() {
        let tallies = EventDigest::default();
        let say = |since: Option<u64>, count: usize, now: u64| {
            let keys: Vec<_> = (0..count).map(key).collect();
            tallies.no_room(&spread(), since.map(at), keys.iter());
            tallies.take(at(now)).1.pop().map(|(_, room)| room)
        };
        assert_eq!(say(Some(0), 35, 1), None, "the others are only starting");
        assert_eq!(say(None, 0, 2), None);
        let names = "task-0000, task-0001, task-0002, ...".to_owned();
        assert_eq!(say(Some(3), 35, 13), Some(Room::None { count: 35, names: names.clone() }));
        assert_eq!(say(Some(3), 35, 200), None, "it is logged once");
        assert_eq!(say(Some(3), 36, 201), Some(Room::None { count: 36, names }));
        assert_eq!(say(Some(3), 35, 202), None, "a number that goes to and fro fills no log");
        assert_eq!(say(None, 0, 203), Some(Room::Enough));
        assert_eq!(say(None, 0, 204), None);
        assert!(tallies.registry().rooms.is_empty());
    }
}

//! Bells as text, for a table that an operator reads.
//!
//! The parts are parted by tabs, which no name contains: `handed<TAB>shop<TAB>lock<TAB>report`.

use crate::{
    model::{Kind, LockId, ScheduleId, SessionId},
    store::{Bell, News, Topic},
};

const TAB: char = '\t';
/// Before the name of the spread, in the kind of a task.
const TASK: &str = "task:";

pub(super) fn topic(topic: &Topic) -> String {
    match topic {
        Topic::Session(session) => format!("session{TAB}{session}"),
        Topic::Spread(namespace, spread) => format!("spread{TAB}{namespace}{TAB}{spread}"),
    }
}

pub(super) fn news(news: &News) -> String {
    match news {
        News::Lock(lock) => of_lock("lock", lock),
        News::Handed(lock) => of_lock("handed", lock),
        News::Revoked(lock) => of_lock("revoked", lock),
        News::Queue(lock) => of_lock("line", lock),
        News::Member(session) => format!("member{TAB}{session}"),
        News::Asked(session) => format!("asked{TAB}{session}"),
        News::Schedule(schedule) => format!("schedule{TAB}{}{TAB}{}", schedule.namespace, schedule.name),
    }
}

fn of_lock(word: &str, lock: &LockId) -> String {
    let LockId { namespace, kind, key } = lock;
    format!("{word}{TAB}{namespace}{TAB}{kind}{TAB}{key}")
}

/// Returns the bell that was written so; nothing if it was not written by this version.
pub(super) fn bell(topic: &str, news: &str) -> Option<Bell> {
    Some(Bell { to: read_topic(topic)?, news: read_news(news)? })
}

fn read_topic(text: &str) -> Option<Topic> {
    match *text.split(TAB).collect::<Vec<_>>() {
        ["session", session] => Some(Topic::Session(session.parse().ok()?)),
        ["spread", namespace, spread] => Some(Topic::Spread(namespace.parse().ok()?, spread.parse().ok()?)),
        _ => None,
    }
}

fn read_news(text: &str) -> Option<News> {
    let session = |text: &str| text.parse::<SessionId>().ok();
    match *text.split(TAB).collect::<Vec<_>>() {
        [word, namespace, kind, key] => {
            let kind = match kind {
                "lock" => Kind::Lock,
                "schedule" => Kind::Schedule,
                task => Kind::Task(task.strip_prefix(TASK)?.parse().ok()?),
            };
            let lock = LockId { namespace: namespace.parse().ok()?, kind, key: key.parse().ok()? };
            match word {
                "lock" => Some(News::Lock(lock)),
                "handed" => Some(News::Handed(lock)),
                "revoked" => Some(News::Revoked(lock)),
                "line" => Some(News::Queue(lock)),
                _ => None,
            }
        }
        ["member", id] => Some(News::Member(session(id)?)),
        ["asked", id] => Some(News::Asked(session(id)?)),
        ["schedule", namespace, name] => {
            Some(News::Schedule(ScheduleId { namespace: namespace.parse().ok()?, name: name.parse().ok()? }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TO: &str = "spread\tshop\timport";

    fn lock(namespace: &str, kind: Kind, key: &str) -> LockId {
        LockId { namespace: namespace.parse().unwrap(), kind, key: key.parse().unwrap() }
    }

    fn read(written: &Bell) -> Option<Bell> {
        bell(&topic(&written.to), &news(&written.news))
    }

    #[test]
    fn an_operator_can_read_it() {
        let id = SessionId::from_u128(7);
        let task = lock("shop", Kind::Task("import".parse().unwrap()), "a b");
        assert_eq!(news(&News::Handed(task)), "handed\tshop\ttask:import\ta b");
        assert_eq!(news(&News::Member(id)), "member\t00000000000000000000000000000007");
        assert_eq!(topic(&Topic::Session(id)), "session\t00000000000000000000000000000007");
    }

    #[test]
    fn bell_texts_that_this_version_never_writes_are_not_read() {
        for text in [
            "",
            "lock",
            "lock\tshop\tlock",
            "moved\tshop\tlock\tk",
            "lock\tshop\tbolt\tk",
            "lock\tshop\tlock\tk\t",
        ] {
            assert_eq!(bell(TO, text), None, "{text:?}");
        }
        let fine = "member\t00000000000000000000000000000007";
        assert!(bell(TO, fine).is_some());
        for text in ["", "all", "session\t7", "spread\tshop"] {
            assert_eq!(bell(text, fine), None, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(crate::tests::seeded::config())]

        #[test]
        fn a_bell_is_read_as_it_was_written(
            names in proptest::collection::vec(r#"[a-c:\\" $é👑]{0,6}[a-c:\\"$é👑]"#, 3),
            id: u128,
            number in 0..21_usize,
        ) {
            let session = SessionId::from_u128(id);
            let spread = names[1].parse().unwrap();
            let kind = match number / 7 {
                0 => Kind::Lock,
                1 => Kind::Schedule,
                _ => Kind::Task(names[2].parse().unwrap()),
            };
            let lock = lock(&names[0], kind, &names[1]);
            let news = match number % 7 {
                0 => News::Lock(lock),
                1 => News::Handed(lock),
                2 => News::Revoked(lock),
                3 => News::Queue(lock),
                4 => News::Member(session),
                5 => News::Asked(session),
                _ => {
                    let name = names[1].parse().unwrap();
                    News::Schedule(ScheduleId { namespace: lock.namespace, name })
                }
            };
            let to = match number / 7 {
                0 | 1 => Topic::Session(session),
                _ => Topic::Spread(names[0].parse().unwrap(), spread),
            };
            let bell = Bell { to, news };
            prop_assert_eq!(read(&bell), Some(bell));
        }
    }
}

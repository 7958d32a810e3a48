//! Bells as rows: who is to look where. They are written with the change they tell of, and decide nothing (R12).

use rusqlite::params;
use serde_json::{Value, json};

use super::{
    fields::kind,
    rows::{Outcome, SqlRows},
};
use crate::{
    model::{Key, LockId, Namespace, ScheduleId, ScheduleName, SpreadName, StoreTime},
    store::{Bell, News, Topic},
};

/// So many of the latest are kept: whoever has not read them by then looks at everything.
const KEPT: i64 = 4096;
/// They are pruned each time so many have come.
const PRUNED: i64 = 256;

/// Writes the bells of a change.
pub(super) fn write(sql: &SqlRows<'_>, bells: &[Bell], now: StoreTime) -> Outcome<()> {
    for bell in bells {
        let topic = bell.to.as_ref().map(topic);
        let insert = "INSERT INTO rings (topic, news, at) VALUES (?1, ?2, ?3)";
        sql.connection.prepare_cached(insert)?.execute(params![topic, news(&bell.news), now.as_millis()])?;
        let id = sql.connection.last_insert_rowid();
        if id % PRUNED == 0 {
            // The latest one stays, so that none has its number again.
            sql.connection.prepare_cached("DELETE FROM rings WHERE id <= ?1")?.execute([id - KEPT])?;
        }
    }
    Ok(())
}

/// Who is told, as rows have it. Two that are equal are so letter by letter.
pub(super) fn topic(topic: &Topic) -> String {
    let topic = match topic {
        Topic::Session(session) => json!({ "session": session.to_string() }),
        Topic::Spread(namespace, spread) => json!({ "ns": namespace.as_str(), "spread": spread.as_str() }),
    };
    topic.to_string()
}

fn news(news: &News) -> String {
    let news = match news {
        News::Lock(lock) => json!({ "lock": lock_id(lock) }),
        News::Handed(lock) => json!({ "handed": lock_id(lock) }),
        News::Revoked(lock) => json!({ "revoked": lock_id(lock) }),
        News::Line(lock) => json!({ "line": lock_id(lock) }),
        News::Member(session) => json!({ "member": session.to_string() }),
        News::Asked(session) => json!({ "asked": session.to_string() }),
        News::Schedule(schedule) => {
            json!({ "schedule": { "ns": schedule.namespace.as_str(), "schedule": schedule.name.as_str() } })
        }
    };
    news.to_string()
}

fn lock_id(lock: &LockId) -> Value {
    json!({ "ns": lock.namespace.as_str(), "kind": lock.kind.to_string(), "key": lock.key.as_str() })
}

/// Reads the columns `topic` and `news` of a row. What cannot be read is no bell: hints may be lost.
#[allow(dead_code, reason = "hints are read elsewhere")]
pub(super) fn read(topic: Option<&str>, news: &str) -> Option<Bell> {
    let to = match topic {
        None => None,
        Some(topic) => Some(read_topic(&serde_json::from_str(topic).ok()?)?),
    };
    Some(Bell { to, news: read_news(&serde_json::from_str(news).ok()?)? })
}

fn read_topic(topic: &Value) -> Option<Topic> {
    if let Some(session) = topic.get("session") {
        return Some(Topic::Session(session.as_str()?.parse().ok()?));
    }
    let spread = SpreadName::new(topic.get("spread")?.as_str()?).ok()?;
    Some(Topic::Spread(Namespace::new(topic.get("ns")?.as_str()?).ok()?, spread))
}

fn read_news(news: &Value) -> Option<News> {
    let (what, of) = news.as_object()?.iter().next()?;
    Some(match what.as_str() {
        "lock" => News::Lock(read_lock(of)?),
        "handed" => News::Handed(read_lock(of)?),
        "revoked" => News::Revoked(read_lock(of)?),
        "line" => News::Line(read_lock(of)?),
        "member" => News::Member(of.as_str()?.parse().ok()?),
        "asked" => News::Asked(of.as_str()?.parse().ok()?),
        "schedule" => {
            let namespace = Namespace::new(of.get("ns")?.as_str()?).ok()?;
            let name = ScheduleName::new(of.get("schedule")?.as_str()?).ok()?;
            News::Schedule(ScheduleId { namespace, name })
        }
        _ => return None,
    })
}

fn read_lock(lock: &Value) -> Option<LockId> {
    Some(LockId {
        namespace: Namespace::new(lock.get("ns")?.as_str()?).ok()?,
        kind: kind(lock.get("kind")?.as_str()?).ok()?,
        key: Key::new(lock.get("key")?.as_str()?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::{
        model::{Kind, SessionId},
        store::sqlite::tables,
    };

    fn lock(key: &str) -> LockId {
        let kind = Kind::Task("import".parse().unwrap());
        LockId { namespace: "shop".parse().unwrap(), kind, key: Key::new(key).unwrap() }
    }

    #[test]
    fn whatever_is_written_is_read() {
        let session = SessionId::from_u128(9);
        let schedule = ScheduleId { namespace: "shop".parse().unwrap(), name: "nightly".parse().unwrap() };
        let topics = [
            None,
            Some(Topic::Session(session)),
            Some(Topic::Spread("$shop".parse().unwrap(), "import \"👑\"".parse().unwrap())),
        ];
        for to in topics {
            for said in [
                News::Lock(lock("a")),
                News::Handed(lock("$a")),
                News::Revoked(lock("\"b")),
                News::Line(lock("c.d")),
                News::Member(session),
                News::Asked(session),
                News::Schedule(schedule.clone()),
            ] {
                let (to, said) = (to.clone(), said);
                let written = (to.as_ref().map(topic), news(&said));
                assert_eq!(read(written.0.as_deref(), &written.1), Some(Bell { to, news: said }));
            }
        }
        for damaged in ["", "5", "{}", r#"{"later": 5}"#, r#"{"lock": {"ns": 5}}"#, r#"{"member": "nobody"}"#]
        {
            assert_eq!(read(None, damaged), None, "{damaged}");
            assert_eq!(read(Some(damaged), &news(&News::Member(session))), None, "{damaged}");
        }
    }

    #[test]
    fn the_latest_are_kept_and_their_numbers_rise() {
        let connection = Connection::open_in_memory().unwrap();
        tables::create(&connection).unwrap();
        let rows = SqlRows { connection: &connection };
        let bells = vec![Bell { to: None, news: News::Line(lock("a")) }; 10_000];
        write(&rows, &bells, StoreTime::from_millis(5)).unwrap();
        let (count, last): (i64, i64) = connection
            .query_row("SELECT count(*), max(id) FROM rings", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(last, 10_000);
        assert!((KEPT..=KEPT + PRUNED).contains(&count), "{count}");
    }
}

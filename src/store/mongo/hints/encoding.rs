//! Bells as documents: written and read. Nothing here talks to a server.
//!
//! ```text
//! { _id, to: { session } or { ns, spread }, at, news: [{ lock | handed | revoked | line | member | asked | schedule: .. }] }
//! ```
//!
//! Anything that another version says beside that is passed over.

use bson::{Bson, Document, Timestamp, doc, oid::ObjectId};

use crate::{
    model::{Namespace, ScheduleId, SpreadName},
    store::{
        News, Topic,
        mongo::documents::fields::{Fields, Read, lock_id},
    },
};

/// The most news in one document: of the longest names, it takes a quarter of its collection.
const MOST: usize = 64;

/// Encodes a topic, as bells name it. Two that are equal are so byte by byte: the server compares them.
pub(crate) fn topic(topic: &Topic) -> Document {
    match topic {
        Topic::Session(session) => doc! { "session": session.to_string() },
        Topic::Spread(namespace, spread) => doc! { "ns": namespace.as_str(), "spread": spread.as_str() },
    }
}

fn news(news: &News) -> Document {
    match news {
        News::Lock(lock) => doc! { "lock": lock_id(lock) },
        News::Handed(lock) => doc! { "handed": lock_id(lock) },
        News::Revoked(lock) => doc! { "revoked": lock_id(lock) },
        News::Queue(lock) => doc! { "line": lock_id(lock) },
        News::Member(session) => doc! { "member": session.to_string() },
        News::Asked(session) => doc! { "asked": session.to_string() },
        News::Schedule(schedule) => doc! { "schedule": schedule_id(schedule) },
    }
}

fn schedule_id(schedule: &ScheduleId) -> Document {
    doc! { "ns": schedule.namespace.as_str(), "schedule": schedule.name.as_str() }
}

/// The documents that tell the listeners to a topic these news of writes up to that time.
pub(crate) fn written(to: &Topic, all: &[News], at: Option<Timestamp>) -> Vec<Document> {
    all.chunks(MOST).map(|part| document(to, part, at)).collect()
}

fn document(to: &Topic, part: &[News], at: Option<Timestamp>) -> Document {
    let at = at.map_or(Bson::Null, Bson::Timestamp);
    let news: Vec<_> = part.iter().map(news).collect();
    doc! { "_id": ObjectId::new(), "to": topic(to), "at": at, "news": news }
}

/// A bell that was heard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeardBell {
    pub(crate) to: Topic,
    /// The time of the latest write it tells of.
    pub(crate) at: Option<Timestamp>,
    pub(crate) news: Vec<News>,
}

/// Reads a bell. What cannot be read is none: hints may be lost.
pub(crate) fn read(document: &Document) -> Option<HeardBell> {
    let fields = Fields(document);
    let to = read_topic(&fields.inner("to").ok()?).ok()?;
    let news = document.get_array("news").ok()?;
    let news = news.iter().filter_map(|one| read_news(one.as_document()?)).collect();
    Some(HeardBell { to, at: document.get_timestamp("at").ok(), news })
}

fn read_topic(fields: &Fields<'_>) -> Read<Topic> {
    if fields.0.contains_key("session") {
        return fields.session("session").map(Topic::Session);
    }
    Ok(Topic::Spread(fields.name("ns", Namespace::new)?, fields.name("spread", SpreadName::new)?))
}

fn read_news(document: &Document) -> Option<News> {
    let (what, _) = document.iter().next()?;
    let fields = Fields(document);
    let news = match what.as_str() {
        "lock" => fields.lock_id(what).map(News::Lock),
        "handed" => fields.lock_id(what).map(News::Handed),
        "revoked" => fields.lock_id(what).map(News::Revoked),
        "line" => fields.lock_id(what).map(News::Queue),
        "member" => fields.session(what).map(News::Member),
        "asked" => fields.session(what).map(News::Asked),
        "schedule" => fields.inner(what).and_then(|id| id.schedule()).map(News::Schedule),
        _ => return None,
    };
    news.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Key, Kind, LockId, SessionId};

    fn lock(key: &str) -> LockId {
        LockId {
            namespace: "shop".parse().unwrap(),
            kind: Kind::Task("import".parse().unwrap()),
            key: Key::new(key).unwrap(),
        }
    }

    fn topics() -> [Topic; 2] {
        let session = Topic::Session(SessionId::from_u128(7));
        [session, Topic::Spread("$shop".parse().unwrap(), "import 👑".parse().unwrap())]
    }

    fn all() -> Vec<News> {
        let session = SessionId::from_u128(9);
        let schedule = ScheduleId { namespace: "shop".parse().unwrap(), name: "nightly".parse().unwrap() };
        vec![
            News::Lock(lock("a")),
            News::Handed(lock("$a")),
            News::Revoked(lock("$b")),
            News::Queue(lock("c.d")),
            News::Member(session),
            News::Asked(session),
            News::Schedule(schedule),
        ]
    }

    #[test]
    fn a_bell_is_read_as_it_was_written() {
        for to in topics() {
            for at in [None, Some(Timestamp { time: 5, increment: 6 })] {
                let documents = written(&to, &all(), at);
                assert_eq!(documents.len(), 1);
                assert_eq!(read(&documents[0]), Some(HeardBell { to: to.clone(), at, news: all() }));
            }
        }
        assert_eq!(written(&topics()[0], &[], None), []);
    }

    #[test]
    fn much_news_is_spread_over_several_documents() {
        let much: Vec<_> = (0..1000).map(|key| News::Lock(lock(&format!("{key:0>200}")))).collect();
        let [to, _] = topics();
        let documents = written(&to, &much, None);
        assert!(documents.len() > 10, "{}", documents.len());
        let mut told = Vec::new();
        for document in &documents {
            told.extend(read(document).unwrap().news);
        }
        assert_eq!(told, much);
    }

    #[test]
    fn bells_and_news_that_cannot_be_read_are_passed_over() {
        let [to, _] = topics();
        let mut document = written(&to, &all(), None).remove(0);
        document.insert("loud", true);
        let news = document.get_array_mut("news").unwrap();
        news.insert(0, doc! { "later": 5 }.into());
        news.insert(0, "what".into());
        news.push(doc! { "lock": { "ns": 5 } }.into());
        news.push(doc! {}.into());
        assert_eq!(read(&document), Some(HeardBell { to, at: None, news: all() }));
        for damaged in [
            doc! {},
            doc! { "_id": 5, "seed": true },
            doc! { "to": 5, "news": [] },
            doc! { "to": { "session": "nobody" }, "news": [] },
            doc! { "to": { "ns": "shop" }, "news": [] },
            doc! { "to": topic(&topics()[1]), "news": 5 },
        ] {
            assert_eq!(read(&damaged), None, "{damaged}");
        }
    }
}

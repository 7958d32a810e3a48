//! Changes that the store has applied and a majority keeps, in the order in which they were committed, read from
//! a change stream that goes on behind whatever befalls the set.

use std::{collections::BTreeMap, time::Duration};

use mongodb::{
    Client,
    bson::{Bson, Document},
    change_stream::event::{ChangeStreamEvent, OperationType, ResumeToken},
};
use tenure::{
    Clock, SystemClock,
    clock::Moment,
    model::{SessionId, Term},
    store::Ticket,
};
use tenure_sim::{EventKind, number_of};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::resource;

/// Collection of markers: a change committed before a marker is read before it.
pub(crate) const MARKS: &str = "marks";

/// The stream says something at least so often, if only that nothing has happened.
const ANSWER: Duration = Duration::from_secs(5);

/// Something that the store has applied, in the order of the commits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Applied {
    /// For the history.
    Seen(EventKind),
    /// A session ended, by its own doing or by that of another.
    Died { session: SessionId, by_itself: bool, ground: &'static str },
    /// A marker.
    Mark(i64),
}

/// Documents as they are known, to tell the effect of a change of some fields.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    locks: BTreeMap<usize, Document>,
    sessions: BTreeMap<SessionId, Document>,
    resources: BTreeMap<usize, Document>,
}

impl Documents {
    /// Effect of one change.
    pub(crate) fn change(&mut self, event: &ChangeStreamEvent<Document>) -> Vec<Applied> {
        let collection = event.ns.as_ref().and_then(|ns| ns.coll.as_deref()).unwrap_or_default();
        match (collection, &event.operation_type) {
            (_, OperationType::Drop) => self.dropped(collection),
            ("locks", _) => self.lock(event).into_iter().collect(),
            ("sessions", _) => self.session(event).into_iter().collect(),
            (resource::COLLECTION, _) => self.resource(event).into_iter().collect(),
            (MARKS, OperationType::Insert) => {
                let number = id(event).and_then(Bson::as_i64);
                number.map(Applied::Mark).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn dropped(&mut self, collection: &str) -> Vec<Applied> {
        let seen = Applied::Seen;
        match collection {
            "locks" => std::mem::take(&mut self.locks)
                .into_keys()
                .map(|key| seen(EventKind::LockDeleted { key }))
                .collect(),
            "sessions" => std::mem::take(&mut self.sessions)
                .into_keys()
                .map(|session| seen(EventKind::SessionDeleted { session }))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn lock(&mut self, event: &ChangeStreamEvent<Document>) -> Option<Applied> {
        let key = number_of(id(event)?.as_document()?.get_str("key").ok()?)?;
        if event.operation_type == OperationType::Delete {
            self.locks.remove(&key)?;
            return Some(Applied::Seen(EventKind::LockDeleted { key }));
        }
        let before = self.locks.get(&key).map(holding);
        let document = self.locks.entry(key).or_default();
        overlay(document, event);
        let now = holding(document);
        if before.as_ref() == Some(&now) {
            return None;
        }
        let (term, holder) = now;
        Some(Applied::Seen(match holder {
            Some((session, ticket)) => {
                let tag = document.get_str("who").unwrap_or_default().to_owned();
                EventKind::Granted { key, term, session, ticket, tag }
            }
            None => EventKind::Freed { key, term },
        }))
    }

    fn session(&mut self, event: &ChangeStreamEvent<Document>) -> Option<Applied> {
        let session = id(event)?.as_str()?.parse().ok()?;
        if event.operation_type == OperationType::Delete {
            self.sessions.remove(&session)?;
            return Some(Applied::Seen(EventKind::SessionDeleted { session }));
        }
        let was_dead = self.sessions.get(&session).is_some_and(|before| before.get_document("death").is_ok());
        let document = self.sessions.entry(session).or_default();
        overlay(document, event);
        let death = document.get_document("death").ok().filter(|_| !was_dead)?;
        let by_itself = death.get_str("why").is_ok_and(|why| why.starts_with("closed"));
        let ground = if by_itself { "closed" } else { "by another" };
        Some(Applied::Died { session, by_itself, ground })
    }

    fn resource(&mut self, event: &ChangeStreamEvent<Document>) -> Option<Applied> {
        let key = usize::try_from(id(event)?.as_i64()?).ok()?;
        let document = self.resources.entry(key).or_default();
        overlay(document, event);
        let version = u64::try_from(document.get_i64("version").ok()?).ok()?;
        let term = Term::try_new(u64::try_from(document.get_i64("term").ok()?).ok()?)?;
        let over = version.checked_sub(1)?;
        Some(Applied::Seen(EventKind::Wrote { key, term, over }))
    }
}

fn id(event: &ChangeStreamEvent<Document>) -> Option<&Bson> {
    event.document_key.as_ref()?.get("_id")
}

/// Applies the change to the document. Only whole fields matter here, so those of inner documents and arrays may
/// be left behind.
fn overlay(document: &mut Document, event: &ChangeStreamEvent<Document>) {
    if let Some(full) = &event.full_document {
        *document = full.clone();
    }
    if let Some(change) = &event.update_description {
        document.extend(change.updated_fields.clone());
        for field in &change.removed_fields {
            document.remove(field);
        }
    }
}

fn holding(lock: &Document) -> (Term, Option<(SessionId, Ticket)>) {
    let number = |field| lock.get_i64(field).ok().and_then(|found| u64::try_from(found).ok());
    let term = number("term").and_then(Term::try_new).unwrap_or(Term::new(0));
    let session = lock.get_str("session").ok().and_then(|session| session.parse().ok());
    let ticket = number("ticket").and_then(Ticket::try_new);
    (term, session.zip(ticket))
}

/// Reads all that is committed in a database from now on, and sends it with the moment it was read.
/// Returns when it has begun.
pub(crate) async fn follow(
    client: &Client,
    database: &str,
    to: mpsc::UnboundedSender<(Moment, Applied)>,
) -> tokio::task::JoinHandle<()> {
    let database = client.database(database);
    let watch = move |after: Option<ResumeToken>| {
        let database = database.clone();
        async move { database.watch().resume_after(after).max_await_time(Duration::from_millis(200)).await }
    };
    let mut stream = watch(None).await.expect("the server is up");
    tokio::spawn(async move {
        let mut documents = Documents::default();
        loop {
            // An answer may never come: what a proxy swallowed is gone for good.
            match timeout(ANSWER, stream.next_if_any()).await {
                Ok(Ok(Some(event))) => {
                    let now = SystemClock::new().now();
                    for applied in documents.change(&event) {
                        if to.send((now, applied)).is_err() {
                            return;
                        }
                    }
                }
                Ok(Ok(None)) => {}
                // Whatever is done to the set: it goes on where it was.
                Ok(Err(_)) | Err(_) => {
                    let token = stream.resume_token();
                    stream = loop {
                        if let Ok(Ok(again)) = timeout(ANSWER, watch(token.clone())).await {
                            break again;
                        }
                        if to.is_closed() {
                            return;
                        }
                        sleep(Duration::from_millis(100)).await;
                    };
                }
            }
        }
    })
}

//! A write and its change event: the least that a hand-over can take.

use std::time::Instant;

use futures::StreamExt;
use mongodb::{
    Collection,
    bson::{Document, doc},
    options::WriteConcern,
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    measure::{micros, now},
    world::{World, insert},
};

/// A write and its change event, by clients of their own.
pub(crate) struct WriteAndEvent {
    collection: Collection<Document>,
    id: String,
    concern: WriteConcern,
    heard: mpsc::UnboundedReceiver<Instant>,
    /// Ends with this.
    _listener: JoinSet<()>,
}

impl WriteAndEvent {
    pub(crate) async fn open(world: &World, concern: WriteConcern) -> Self {
        let collection = World::collection(&world.plain, "events");
        let id = format!("event {}", world.draw());
        insert(&collection, [id.clone()]).await;
        let listener = World::collection(&world.no_retry, "events");
        let mut events = listener.watch().await.expect("a replica set has change streams");
        let (tell, heard) = mpsc::unbounded_channel();
        let mut listener = JoinSet::new();
        listener.spawn(async move {
            while let Some(event) = events.next().await {
                event.expect("the stream goes on");
                if tell.send(now()).is_err() {
                    return;
                }
            }
        });
        Self { collection, id, concern, heard, _listener: listener }
    }

    /// From the sending of the write to the arrival of its event, or of its answer if that is later.
    pub(crate) async fn once(&mut self) -> f64 {
        let started = now();
        let change = doc! { "$inc": { "n": 1_i64 }, "$set": { "by": "pod-1" } };
        let write = self.collection.find_one_and_update(doc! { "_id": &self.id }, change);
        let written = write.write_concern(self.concern.clone()).await;
        written.expect("the server answers").expect("the document is there");
        let answered = started.elapsed();
        let heard = self.heard.recv().await.expect("the stream goes on").duration_since(started);
        micros(answered.max(heard))
    }
}

//! The stream of hints that a store makes of a broadcast.

use std::{collections::BTreeSet, pin::Pin};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::broadcast;

use super::{Bell, Hint, Topic, Topics};

/// An item that a broadcast carries to its listeners.
pub(crate) trait Told: Clone + Send + 'static {
    /// The hint for listeners to these topics, if it concerns them.
    fn hint(self, topics: &BTreeSet<Topic>) -> Option<Hint>;
}

impl Told for Bell {
    fn hint(self, topics: &BTreeSet<Topic>) -> Option<Hint> {
        self.concerns(topics).then_some(Hint::News(self.news))
    }
}

/// Returns what a listener to these topics gets of a broadcast: [`Hint::Resync`] first, and again whenever it
/// lagged behind.
pub(crate) fn hint_stream<T: Told>(told: broadcast::Receiver<T>, topics: Topics) -> BoxStream<'static, Hint> {
    let first = stream::iter([Hint::Resync]);
    let rest = stream::unfold((told, topics), |(mut told, topics)| async {
        loop {
            let hint = match told.recv().await {
                Ok(told) => match told.hint(&topics.borrow()) {
                    Some(hint) => hint,
                    None => continue,
                },
                Err(broadcast::error::RecvError::Lagged(_)) => Hint::Resync,
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            return Some((hint, (told, topics)));
        }
    });
    first.chain(rest).boxed()
}

/// Returns a resync for every topic that is added, for a store that hears of it from then on.
pub(crate) fn resyncs(topics: Topics) -> Pin<Box<dyn Stream<Item = Hint> + Send>> {
    let known = topics.borrow().clone();
    let added = stream::unfold((topics, known), |(mut topics, known)| async move {
        let mut known: BTreeSet<Topic> = known;
        loop {
            if topics.changed().await.is_err() {
                return None;
            }
            let now = topics.borrow_and_update().clone();
            let has_more = !now.is_subset(&known);
            known = now;
            if has_more {
                return Some((Hint::Resync, (topics, known)));
            }
        }
    });
    added.boxed()
}

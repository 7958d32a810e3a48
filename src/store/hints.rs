//! The stream of hints that a store makes of a broadcast.

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::broadcast;

use super::Hint;

/// Returns what a listener of a broadcast gets: [`Hint::Resync`] first, and again whenever it lagged behind.
pub(crate) fn hint_stream(hints: broadcast::Receiver<Hint>) -> BoxStream<'static, Hint> {
    let first = stream::iter([Hint::Resync]);
    let rest = stream::unfold(hints, |mut hints| async {
        match hints.recv().await {
            Ok(hint) => Some((hint, hints)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some((Hint::Resync, hints)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    });
    first.chain(rest).boxed()
}

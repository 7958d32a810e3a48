//! Group commit in its smallest form: what comes while a batch is under way goes with the next.

use std::{future::Future, sync::Arc};

use tokio::sync::{mpsc, oneshot};

/// Sends one at a time, which go in batches.
pub(crate) struct Group<A, B> {
    queue: mpsc::UnboundedSender<(A, oneshot::Sender<B>)>,
}

impl<A: Send + 'static, B: Send + 'static> Group<A, B> {
    /// `perform` answers a batch in order. Its task ends with the group.
    pub(crate) fn new<F: Future<Output = Vec<B>> + Send>(
        perform: impl Fn(Vec<A>) -> F + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (queue, mut waiting) = mpsc::unbounded_channel::<(A, oneshot::Sender<B>)>();
        tokio::spawn(async move {
            let mut together = Vec::new();
            while waiting.recv_many(&mut together, 1000).await > 0 {
                let (asked, answers): (Vec<_>, Vec<_>) = together.drain(..).unzip();
                for (answer, whose) in perform(asked).await.into_iter().zip(answers) {
                    let _ = whose.send(answer);
                }
            }
        });
        Arc::new(Self { queue })
    }

    pub(crate) async fn send(&self, one: A) -> B {
        let (answer, answered) = oneshot::channel();
        assert!(self.queue.send((one, answer)).is_ok(), "the batcher runs for as long as the group");
        answered.await.expect("every batch is answered")
    }
}

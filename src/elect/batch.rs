//! Group commit: operations that come while others are under way leave together, as one.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::future::BoxFuture;
use tokio::sync::{Semaphore, oneshot};

use super::Engine;
use crate::StoreError;
use crate::sync::locked;

/// Largest batch: what a store takes in one command.
const LARGEST: usize = 1000;

type SendAll<I, A> = fn(Arc<Engine>, Vec<I>) -> BoxFuture<'static, Result<Vec<A>, StoreError>>;
type Reply<A> = oneshot::Sender<Result<A, Arc<StoreError>>>;
type Hearing<A> = oneshot::Receiver<Result<A, Arc<StoreError>>>;

/// Sends items of one sort to the store, many at once where there are many. There is no timer: an
/// item that comes alone leaves at once, by itself; items that come while it is under way are the
/// next batch.
pub(crate) struct Batch<I, A> {
    send: SendAll<I, A>,
    gathering: Mutex<Gathering<I, A>>,
    /// Permits for items that go alone: the store is there for others, too.
    alone: Semaphore,
}

/// The most that go alone at once.
const ALONE: usize = 16;

struct Gathering<I, A> {
    under_way: bool,
    items: Vec<(I, Reply<A>)>,
}

impl<I, A> std::fmt::Debug for Batch<I, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl<I: Send + 'static, A: Send + 'static> Batch<I, A> {
    pub(crate) fn new(send: SendAll<I, A>) -> Self {
        let gathering = Mutex::new(Gathering { under_way: false, items: Vec::new() });
        Self { send, gathering, alone: Semaphore::new(ALONE) }
    }

    fn gathering(&self) -> MutexGuard<'_, Gathering<I, A>> {
        locked(&self.gathering)
    }

    /// Sends this item, by itself or with others.
    pub(crate) async fn submit(
        &self,
        engine: &Arc<Engine>,
        of: fn(&Engine) -> &Self,
        item: I,
    ) -> Result<A, Arc<StoreError>> {
        let mut replies = self.gather(engine, of, [item]);
        heard(replies.pop().expect("one for each item")).await
    }

    /// Sends this item beside all others, which would wait for it.
    pub(crate) async fn send_alone(&self, engine: &Arc<Engine>, item: I) -> Result<A, Arc<StoreError>> {
        // An error would say that it is closed, which it never is.
        let _permit = self.alone.acquire().await;
        let answers = (self.send)(engine.clone(), vec![item]).await.map_err(Arc::new)?;
        answers.into_iter().next().ok_or_else(|| Arc::new(super::error::shut_down()))
    }

    /// Sends these together, and with others.
    pub(crate) async fn submit_all(
        &self,
        engine: &Arc<Engine>,
        of: fn(&Engine) -> &Self,
        items: Vec<I>,
    ) -> Result<Vec<A>, Arc<StoreError>> {
        futures::future::try_join_all(self.gather(engine, of, items).into_iter().map(heard)).await
    }

    fn gather(
        &self,
        engine: &Arc<Engine>,
        of: fn(&Engine) -> &Self,
        items: impl IntoIterator<Item = I>,
    ) -> Vec<Hearing<A>> {
        let mut hearings = Vec::new();
        let lead = {
            let mut gathering = self.gathering();
            for item in items {
                let (sender, reply) = oneshot::channel();
                gathering.items.push((item, sender));
                hearings.push(reply);
            }
            !mem::replace(&mut gathering.under_way, true)
        };
        if lead {
            // On a task of its own: the first caller may be dropped, and the others wait for it.
            let engine = engine.clone();
            let runtime = engine.work.clone();
            runtime.spawn_again(move || {
                let engine = engine.clone();
                async move { while of(&engine).send_gathered(&engine).await {} }
            });
        }
        hearings
    }

    /// Sends one batch of the collected items. Returns whether there may be more.
    async fn send_gathered(&self, engine: &Arc<Engine>) -> bool {
        let (items, senders): (Vec<_>, Vec<_>) = {
            let mut gathering = self.gathering();
            if gathering.items.is_empty() {
                gathering.under_way = false;
                return false;
            }
            let many = gathering.items.len().min(LARGEST);
            gathering.items.drain(..many).unzip()
        };
        match (self.send)(engine.clone(), items).await {
            Ok(answers) => {
                for (sender, answer) in senders.into_iter().zip(answers) {
                    // An error only says that its caller does not wait any more.
                    let _ = sender.send(Ok(answer));
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for sender in senders {
                    let _ = sender.send(Err(error.clone()));
                }
            }
        }
        true
    }
}

async fn heard<A>(reply: Hearing<A>) -> Result<A, Arc<StoreError>> {
    reply.await.unwrap_or_else(|_| Err(Arc::new(super::error::shut_down())))
}

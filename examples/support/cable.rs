//! A store behind a cable that can be pulled out.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use tenure::{
    Applied, StoreError,
    model::SessionId,
    store::{Answer, Capabilities, Hint, Op, Presence, Reply, Store, Topics},
};
use tokio_util::sync::CancellationToken;

/// Passes every call on, until the cable is pulled out: from then on nothing arrives, in either direction,
/// and nobody is told why.
#[derive(Debug)]
pub(crate) struct Cabled {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) pulled: CancellationToken,
}

impl Store for Cabled {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        async move {
            tokio::select! {
                biased;
                () = self.pulled.cancelled() => {
                    tokio::time::sleep(limit).await;
                    Err(StoreError::new("the cable", "carry a call", Applied::Unknown, true, "no answer"))
                }
                answer = self.store.call(op, limit) => answer,
            }
        }
        .boxed()
    }

    fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
        self.store.presence(session)
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics).take_until(self.pulled.clone().cancelled_owned()).boxed()
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        // The memory store needs no connections.
        async { Ok(None) }.boxed()
    }
}

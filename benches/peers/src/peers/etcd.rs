//! etcd's own `Lock` and `Unlock`, under one lease of the instance.

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, LockOptions, PutOptions, Txn, TxnOp};
use futures::future::BoxFuture;
use tokio::{task::JoinHandle, time::sleep};

use super::{Held, Instance};

pub(crate) struct Etcd {
    client: Client,
    lease: i64,
    keeper: JoinHandle<()>,
}

impl Etcd {
    pub(crate) async fn start(uri: &str, ttl: Duration) -> Self {
        let hosts: Vec<&str> = uri.split(',').collect();
        let client = Client::connect(hosts, None).await.expect("etcd is up");
        let seconds = i64::try_from(ttl.as_secs()).expect("a ttl of seconds");
        let granted = client.lease_client().grant(seconds, None).await.expect("etcd answers");
        let (lease, pause) = (granted.id(), ttl / 3);
        let mut leases = client.lease_client();
        let keeper = tokio::spawn(async move {
            let (mut keeper, mut answers) = leases.keep_alive(lease).await.expect("etcd answers");
            loop {
                sleep(pause).await;
                if keeper.keep_alive().await.is_err() || answers.message().await.is_err() {
                    return;
                }
            }
        });
        Self { client, lease, keeper }
    }
}

impl Instance for Etcd {
    /// By a transaction: etcd has no call that tries. The key is another one than that of `Lock`.
    fn try_take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Held>> {
        Box::pin(async move {
            let free = Compare::create_revision(key, CompareOp::Equal, 0);
            let put = TxnOp::put(key, "", Some(PutOptions::new().with_lease(self.lease)));
            let txn = Txn::new().when([free]).and_then([put]);
            let done = self.client.kv_client().txn(txn).await.expect("etcd answers");
            done.succeeded().then(|| Held::Token(key.to_owned(), String::new()))
        })
    }

    fn take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Held> {
        Box::pin(async move {
            let options = LockOptions::new().with_lease(self.lease);
            let locked = self.client.lock_client().lock(key, Some(options)).await.expect("etcd answers");
            Held::Locked(locked.key().to_owned())
        })
    }

    fn give(&self, held: Held) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match held {
                Held::Locked(key) => {
                    self.client.lock_client().unlock(key).await.expect("etcd answers");
                }
                Held::Token(key, _) => {
                    self.client.kv_client().delete(key, None).await.expect("etcd answers");
                }
                Held::Guard(_) | Held::MongoLock(_) => {}
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.keeper.abort();
            // With its keys. An error means that the lease has ended.
            let _ = self.client.lease_client().revoke(self.lease).await;
        })
    }
}

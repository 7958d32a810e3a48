//! Servers of the run: each peer has its own, on one node or on three.

mod etcd;
mod mongo;
mod redis;

use mongodb::bson::Timestamp;

use crate::peers::Peer;

use self::{etcd::Etcd, mongo::Mongo, redis::Redis};

/// Work that a server did since it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) commands: f64,
    pub(crate) writes: f64,
    /// Time of a look at MongoDB, from which the next one counts writes.
    mark: Option<Timestamp>,
}

/// Servers of one size. Redis has no majority, so it is there beside single nodes only.
pub(crate) struct Place {
    pub(crate) nodes: usize,
    mongo: Mongo,
    etcd: Etcd,
    redis: Option<Redis>,
}

impl Place {
    pub(crate) async fn start(nodes: usize) -> Self {
        let redis = if nodes == 1 { Some(Redis::start().await) } else { None };
        let (mongo, etcd) = (Mongo::start(nodes).await, Etcd::start(nodes).await);
        Self { nodes, mongo, etcd, redis }
    }

    pub(crate) fn peers(&self) -> Vec<Peer> {
        let has = |peer: &Peer| *peer != Peer::Redis || self.redis.is_some();
        Peer::ALL.into_iter().filter(has).collect()
    }

    fn redis(&self) -> &Redis {
        self.redis.as_ref().expect("it is asked only where it is")
    }

    pub(crate) fn uri(&self, peer: Peer) -> &str {
        match peer {
            Peer::Etcd => &self.etcd.uri,
            Peer::Redis => &self.redis().uri,
            _ => &self.mongo.uri,
        }
    }

    pub(crate) fn pids(&self, peer: Peer) -> Vec<u32> {
        match peer {
            Peer::Etcd => self.etcd.pids(),
            Peer::Redis => self.redis().pids(),
            _ => self.mongo.pids.clone(),
        }
    }

    /// Port that a client of this peer writes to, and the URI for a client that reaches it through another port.
    pub(crate) async fn by_way_of(&self, peer: Peer, port: u16) -> (u16, String) {
        match peer {
            Peer::Etcd => (self.etcd.port(), format!("http://127.0.0.1:{port}")),
            Peer::Redis => (self.redis().port, format!("redis://127.0.0.1:{port}/")),
            _ => (
                self.mongo.primary().await,
                format!("mongodb://127.0.0.1:{port}/peers?directConnection=true"),
            ),
        }
    }

    pub(crate) async fn work(&self, peer: Peer) -> Work {
        match peer {
            Peer::Etcd => self.etcd.work().await,
            Peer::Redis => self.redis().work().await,
            _ => self.mongo.work(None).await,
        }
    }

    /// Work since an earlier look.
    pub(crate) async fn work_since(&self, peer: Peer, earlier: &Work) -> Work {
        let later = match earlier.mark {
            Some(mark) => self.mongo.work(Some(mark)).await,
            None => self.work(peer).await,
        };
        Work {
            commands: later.commands - earlier.commands,
            writes: later.writes - earlier.writes,
            mark: None,
        }
    }

    /// Versions of its servers.
    pub(crate) async fn versions(&self) -> Vec<String> {
        let mut versions = vec![format!("MongoDB {}", self.mongo.version), self.etcd.version().await];
        if let Some(redis) = &self.redis {
            versions.push(redis.version().await);
        }
        versions
    }
}

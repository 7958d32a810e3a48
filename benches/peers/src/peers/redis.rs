//! `SET NX PX`, and scripts that compare before they delete or renew.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use redis::{Client, Script, aio::MultiplexedConnection};

use super::{Held, Instance};

const DELETE: &str = "\
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const RENEW: &str = "\
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";

pub(crate) struct Redis {
    connection: MultiplexedConnection,
    delete: Script,
    renew: Script,
    millis: u64,
    name: String,
    drawn: AtomicU64,
}

impl Redis {
    pub(crate) async fn start(uri: &str, ttl: Duration, name: &str) -> Self {
        let client = Client::open(uri).expect("the URI is valid");
        let connection = client.get_multiplexed_async_connection().await.expect("Redis is up");
        let millis = u64::try_from(ttl.as_millis()).expect("a ttl of seconds");
        let (delete, renew) = (Script::new(DELETE), Script::new(RENEW));
        Self { connection, delete, renew, millis, name: name.to_owned(), drawn: AtomicU64::new(0) }
    }
}

impl Instance for Redis {
    fn try_take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Held>> {
        Box::pin(async move {
            let token = format!("{} {}", self.name, self.drawn.fetch_add(1, Ordering::Relaxed));
            let mut set = redis::cmd("SET");
            set.arg(key).arg(&token).arg("NX").arg("PX").arg(self.millis);
            let set: Option<String> =
                set.query_async(&mut self.connection.clone()).await.expect("Redis answers");
            set.map(|_| Held::Token(key.to_owned(), token))
        })
    }

    fn give(&self, held: Held) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Held::Token(key, token) = held {
                let (mut connection, mut script) = (self.connection.clone(), self.delete.prepare_invoke());
                let _: i64 =
                    script.key(key).arg(token).invoke_async(&mut connection).await.expect("Redis answers");
            }
        })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Held::Token(key, token) = held {
                let (mut connection, mut script) = (self.connection.clone(), self.renew.prepare_invoke());
                let script = script.key(key).arg(token).arg(self.millis);
                let _ = script.invoke_async::<i64>(&mut connection).await;
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

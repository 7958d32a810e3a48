//! A Redis of Debian that writes nothing to its disk.

use std::{process::Stdio, time::Duration};

use tokio::time::sleep;

use super::Work;
use crate::processes::{Bound, bound, folder, free_port};

pub(crate) struct Redis {
    pub(crate) uri: String,
    pub(crate) port: u16,
    node: Bound,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        let port = free_port();
        let mut command = bound("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir", &folder("redis")]);
        command.args(["--save", "", "--appendonly", "no", "--logfile", "redis.log"]);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let node = Bound(quiet.spawn().expect("scripts/peers looks for redis-server"));
        let redis = Self { uri: format!("redis://127.0.0.1:{port}/"), port, node };
        for _ in 0..100 {
            if redis.info("server").await.is_some() {
                return redis;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("Redis does not answer within five seconds");
    }

    async fn info(&self, section: &str) -> Option<String> {
        let client = redis::Client::open(self.uri.as_str()).ok()?;
        let mut connection = client.get_multiplexed_async_connection().await.ok()?;
        redis::cmd("INFO").arg(section).query_async(&mut connection).await.ok()
    }

    async fn field(&self, section: &str, name: &str) -> String {
        let info = self.info(section).await.expect("Redis answers");
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_default().trim().to_owned()
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        vec![self.node.pid()]
    }

    pub(crate) async fn version(&self) -> String {
        format!("Redis {}", self.field("server", "redis_version").await)
    }

    /// Commands that clients sent, and those that wrote; those within a script count as writes alone.
    pub(crate) async fn work(&self) -> Work {
        let stats = self.info("commandstats").await.expect("Redis answers");
        let calls = |names: &[&str]| -> f64 {
            let of = |line: &str| {
                let (name, counts) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
                names.contains(&name).then(|| counts.split(',').next()?.parse::<f64>().ok())?
            };
            stats.lines().filter_map(of).sum()
        };
        Work { commands: calls(&["evalsha", "set"]), writes: calls(&["pexpire", "set", "del"]), mark: None }
    }
}

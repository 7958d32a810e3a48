//! An etcd of Debian, with its defaults.

use std::{process::Stdio, time::Duration};

use etcd_client::Client;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use super::Work;
use crate::processes::{Bound, bound, folder, free_port};

pub(crate) struct Etcd {
    pub(crate) uri: String,
    ports: Vec<u16>,
    nodes: Vec<Bound>,
}

impl Etcd {
    pub(crate) async fn start(nodes: usize) -> Self {
        let ports: Vec<(u16, u16)> = (0..nodes).map(|_| (free_port(), free_port())).collect();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let members: Vec<String> =
            ports.iter().enumerate().map(|(node, (_, peer))| format!("n{node}={}", url(*peer))).collect();
        let start = |(node, (client, peer)): (usize, &(u16, u16))| {
            let mut command = bound("etcd");
            command.args(["--name", &format!("n{node}"), "--log-level", "error", "--logger", "zap"]);
            command.args(["--data-dir", &folder(&format!("etcd-{nodes}-{node}"))]);
            command.args(["--listen-client-urls", &url(*client), "--advertise-client-urls", &url(*client)]);
            command.args(["--listen-peer-urls", &url(*peer), "--initial-advertise-peer-urls", &url(*peer)]);
            command.args(["--initial-cluster", &members.join(",")]);
            let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Bound(quiet.spawn().expect("scripts/peers looks for etcd"))
        };
        let nodes = ports.iter().enumerate().map(start).collect();
        let ports: Vec<u16> = ports.iter().map(|(client, _)| *client).collect();
        let uri = ports.iter().map(|port| url(*port)).collect::<Vec<_>>().join(",");
        let etcd = Self { uri, ports, nodes };
        etcd.until_it_writes().await;
        etcd
    }

    async fn until_it_writes(&self) {
        for _ in 0..600 {
            if let Ok(mut client) = self.client().await
                && client.put("ready", "", None).await.is_ok()
            {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd takes no writes within a minute");
    }

    async fn client(&self) -> Result<Client, etcd_client::Error> {
        Client::connect(self.uri.split(',').collect::<Vec<_>>(), None).await
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(Bound::pid).collect()
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    pub(crate) async fn version(&self) -> String {
        let mut client = self.client().await.expect("etcd is up");
        format!("etcd {}", client.status().await.expect("etcd answers").version())
    }

    /// Messages that clients sent to all nodes, and proposals that went through the log of the first.
    pub(crate) async fn work(&self) -> Work {
        let (mut commands, mut writes) = (0.0, 0.0);
        for (node, port) in self.ports.iter().enumerate() {
            let metrics = metrics(*port).await;
            let sum = |name: &str| -> f64 {
                let lines = metrics.lines().filter(|line| line.starts_with(name));
                lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
            };
            commands += sum("grpc_server_msg_received_total");
            if node == 0 {
                writes = sum("etcd_server_proposals_applied_total");
            }
        }
        Work { commands, writes, mark: None }
    }
}

async fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("etcd is up");
    let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.expect("etcd listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("metrics are text");
    answer
}

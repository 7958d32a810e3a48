//! A process that holds one key: this very program, started once more.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    peers::{Keeps, Peer},
    processes::{Bound, bound},
};

const WORD: &str = "hold";

/// If the arguments are those of a holder, the process is one until it is told to close.
pub(crate) async fn is_one() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [word, peer, uri, millis, key] = &arguments[..] else { return false };
    if word != WORD {
        return false;
    }
    let peer = Peer::from_name(peer).expect("the run names a peer");
    let ttl = Duration::from_millis(millis.parse().expect("the run gives a number"));
    let instance = peer.start(uri, ttl, &format!("holder of {key}")).await;
    let held = Arc::new(instance.take(key).await);
    let keeper = (peer.keeps() == Keeps::EachKey).then(|| {
        let (instance, held) = (Arc::clone(&instance), Arc::clone(&held));
        tokio::spawn(async move {
            loop {
                sleep(ttl / 3).await;
                instance.renew(&held).await;
            }
        })
    });
    println!("held");
    let said = spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
    let _ = said.expect("reading does not panic");
    if let Some(keeper) = keeper {
        keeper.abort();
        // An error means that it was aborted.
        let _ = keeper.await;
    }
    if let Ok(held) = Arc::try_unwrap(held) {
        instance.give(held).await;
    }
    instance.close().await;
    true
}

/// Such a process, killed when this is dropped.
pub(crate) struct Holder(Bound);

impl Holder {
    pub(crate) fn start(peer: Peer, uri: &str, ttl: Duration, key: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut command = bound(program.to_str().expect("its path is text"));
        command.args([WORD, peer.name(), uri, &ttl.as_millis().to_string(), key]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        Self(Bound(child.expect("this program can be started")))
    }

    /// Waits until it holds its key.
    pub(crate) async fn held(&mut self) {
        let mut out = BufReader::new(self.0.0.stdout.take().expect("it is piped"));
        let said = spawn_blocking(move || {
            let mut line = String::new();
            out.read_line(&mut line).map(|_| line)
        });
        let said = said.await.expect("reading does not panic").expect("it writes text");
        assert_eq!(said.trim(), "held", "what the holder says");
    }

    pub(crate) fn close(&mut self) {
        let stdin = self.0.0.stdin.as_mut().expect("it is piped");
        stdin.write_all(b"close\n").expect("the holder runs");
    }

    pub(crate) fn kill(&mut self) {
        self.0.0.kill().expect("the holder runs");
    }

    pub(crate) fn freeze(&self) {
        let pid = self.0.pid().try_into().ok().and_then(Pid::from_raw).expect("a child has a number");
        kill_process(pid, Signal::STOP).expect("the holder runs");
    }
}

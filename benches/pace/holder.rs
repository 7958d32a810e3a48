//! A process that holds one key until it is killed: this very program, started once more.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Instant,
};

use rustix::process::Signal;
use tenure::store::mongo::MongoOptions;
use tokio::task::spawn_blocking;

use crate::{
    instances::{quick, start},
    measure::now,
    world::connect,
};

const URI: &str = "TENURE_BENCH_HOLDER_URI";
const KEY: &str = "TENURE_BENCH_HOLDER_KEY";

/// If this process was started as a holder, it is one until it is killed.
pub(crate) async fn is_one() -> bool {
    let (Ok(uri), Ok(key)) = (std::env::var(URI), std::env::var(KEY)) else { return false };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("it is a valid signal");
    let store = connect(&uri, MongoOptions::new()).await;
    let elect = start(store, quick(&format!("holder of {key}"))).await;
    let guard = elect.acquire(&key).await.expect("it is not closed");
    println!("held");
    std::future::pending::<()>().await;
    drop(guard);
    true
}

/// Such a process. Killed when this is dropped, and when the thread ends that started it.
#[derive(Debug)]
pub(crate) struct Holder {
    child: Child,
}

impl Holder {
    /// Starts one, and waits until it holds the key.
    pub(crate) async fn start(uri: &str, key: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut child = Command::new(program)
            .env(URI, uri)
            .env(KEY, key)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = spawn_blocking(move || {
            let mut line = String::new();
            out.read_line(&mut line).map(|_| line)
        });
        let said = said.await.expect("reading does not panic").expect("it writes text");
        assert_eq!(said.trim(), "held", "what the holder says");
        Self { child }
    }

    /// Kill -9. Answers when that began.
    pub(crate) fn kill(mut self) -> Instant {
        let before = now();
        self.child.kill().expect("it runs");
        before
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // An error says that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

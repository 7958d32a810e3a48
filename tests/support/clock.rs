//! Steps the wall clock of a mongod, without root and without a package to
//! install: a small shared object, compiled on demand, is preloaded into it.
//!
//! What a step does to a deployment is what it does to MongoDB anywhere:
//! `$$NOW` and `hello.localTime` follow at once, a step forward fires all timers
//! of the node (in a set of three the primary may stand down), and after a step
//! back its timers wait until the clock is where it was. A set of three that
//! steps back by an hour therefore has no heartbeats for an hour. To test
//! members whose clocks differ, kill a node, step its clock, restart it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mongodb::bson::{DateTime, doc};

use super::wire;

const SOURCE: &str = include_str!("clock_shim.c");
const OFFSET_FILE: &str = "clock-offset";
/// Distance that the reported time may lie outside the moments before and after the question: both sides round to
/// a millisecond.
const SLACK_MILLIS: i64 = 5;

/// Arguments for `scripts/mongod serve`, to start nodes with a clock that steps.
pub(crate) fn serve_arguments() -> [String; 4] {
    let shim = shim().unwrap_or_else(|error| panic!("no shared object for a clock that steps: {error}"));
    let variable = format!("TENURE_CLOCK_OFFSET_FILE={{dir}}/{OFFSET_FILE}");
    ["--preload".into(), shim.display().to_string(), "--env".into(), variable]
}

/// The compiled shim. Its name has a hash of the source, so that no stale one is used.
fn shim() -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let shim = folder.join(format!("clock_shim-{:016x}.so", hasher.finish()));
    if !shim.exists() {
        let fresh = folder.join(format!("clock_shim-{}.so", std::process::id()));
        compile(&fresh)?;
        // At once there or not: other test processes may be looking for it.
        std::fs::rename(&fresh, &shim)?;
    }
    Ok(shim)
}

fn compile(target: &Path) -> io::Result<()> {
    let mut compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-x", "c", "-o"])
        .arg(target)
        .args(["-", "-ldl"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = compiler.stdin.take().expect("stdin is piped");
    input.write_all(SOURCE.as_bytes())?;
    drop(input);
    let output = compiler.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("cc: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr))))
}

/// Puts the clock of the node at `port` this far from the true time, and
/// returns when the node shows it. A node that is down shows it once it is back.
pub(crate) async fn step(port: u16, folder: &Path, millis: i64) -> io::Result<()> {
    let fresh = folder.join(format!("{OFFSET_FILE}.new"));
    std::fs::write(&fresh, millis.to_string())?;
    std::fs::rename(&fresh, folder.join(OFFSET_FILE))?;
    loop {
        match shows(port, millis).await {
            Ok(true) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            // A node whose clock steps may close what is open.
            Ok(false) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn shows(port: u16, millis: i64) -> io::Result<bool> {
    let before = DateTime::now().timestamp_millis();
    let hello = wire::ask(port, doc! { "hello": 1 }).await?;
    let after = DateTime::now().timestamp_millis();
    let shown = hello.get_datetime("localTime").map_err(io::Error::other)?.timestamp_millis() - millis;
    Ok((before - SLACK_MILLIS..=after + SLACK_MILLIS).contains(&shown))
}

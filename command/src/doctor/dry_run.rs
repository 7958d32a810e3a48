//! A key is locked, waited for and handed over, as programs do it, and the time of each step is told.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tenure::{Elect, ElectConfig, elect::Work};

use super::findings::Findings;
use crate::{file::try_notice, place::OpenStore, times};

const NAMESPACE: &str = "tenure.doctor";
/// The whole of it takes no longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// A hand-over within this came by a hint.
const SOON: Duration = Duration::from_secs(1);
/// Largest difference of clocks that is not reported.
const OFF: Duration = Duration::from_secs(2);

pub(super) async fn run(place: &OpenStore, config: &ElectConfig, findings: &mut Findings) {
    match tokio::time::timeout(PATIENCE, steps(place, config, findings)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => findings.bad("dry run", error, "check what the error names"),
        Err(_) => findings.bad(
            "dry run",
            format!("it had not finished after {}", humantime::format_duration(PATIENCE)),
            "check the load of the store, and the network to it",
        ),
    }
}

async fn steps(place: &OpenStore, config: &ElectConfig, findings: &mut Findings) -> Result<(), String> {
    // Of this process alone: several may look at once.
    let name = |part: &str| format!("doctor-{}-{part}", std::process::id());
    let start = async |part: &str| {
        let config = ElectConfig::new(NAMESPACE, name(part)).map_err(|error| error.to_string())?;
        let config = config.with_refresh_duration(Duration::from_secs(20));
        let elect = Elect::builder(Arc::clone(&place.store), config).program("tenure doctor").start().await;
        elect.map_err(|error| error.to_string())
    };
    let begin = Instant::now();
    let first = start("one").await?;
    let opened = begin.elapsed();
    let begin = Instant::now();
    let guard = first.acquire(name("key")).await.map_err(|error| error.to_string())?;
    let taken = begin.elapsed();
    let took = format!("a session was opened in {opened:.1?}, a key locked in {taken:.1?}");
    let slow = config.refresh_interval() / 4;
    if opened.max(taken) > slow {
        let advice = format!(
            "that is much of the refresh interval of {}: check the network to the store, or make the interval longer",
            humantime::format_duration(config.refresh_interval())
        );
        findings.warning("speed", took, advice);
    } else {
        findings.ok("speed", took);
    }
    proof(&guard.lease(), place, findings);
    clock(&first, findings);
    hand_over(&first, guard, start("two").await?, &name("key"), findings).await?;
    first.close().await;
    Ok(())
}

fn proof(lease: &tenure::elect::Lease, place: &OpenStore, findings: &mut Findings) {
    let Some(file) = &place.file else { return };
    if lease.presence().is_some() {
        match try_notice(file) {
            Ok(()) => findings.ok("proof", "the end of a process is noticed at once"),
            Err(_) => findings.ok(
                "proof",
                "the end of a process is noticed, but by looks, since the kernel gives no notice of changes",
            ),
        }
    } else {
        findings.warning(
            "proof",
            "the end of a process is not noticed here, so its keys are taken over after its ttl",
            "put the file on a local file system, and give all its users the right to write into its folder",
        );
    }
}

fn clock(elect: &Elect, findings: &mut Findings) {
    let Some((store, off_by)) = elect.health().store_time else {
        findings.untested("clock", "the store's time is not known yet");
        return;
    };
    let here = times::now();
    let apart = if here > store { here.since(store) } else { store.since(here) };
    let says = format!(
        "the clock of this machine and that of the store are {apart:.1?} apart, at most {off_by:.1?} more"
    );
    if apart > OFF + off_by {
        findings.warning(
            "clock",
            says,
            "synchronise the clocks: schedules run by the store's clock, and people read their own",
        );
    } else {
        findings.ok("clock", says);
    }
}

/// Releases the key to a waiter and times the hand-over: without hints, the waiter gets it at its next poll.
async fn hand_over(
    first: &Elect,
    guard: tenure::elect::Guard,
    second: Elect,
    key: &str,
    findings: &mut Findings,
) -> Result<(), String> {
    let waiting = tokio::spawn({
        let (second, key) = (second.clone(), key.to_owned());
        async move { second.acquire(key).await }
    });
    // It waits in the store when the lock is marked as wanted; a moment more for its place in the queue.
    while second.health().waiting == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begin = Instant::now();
    guard.release().await.map_err(|error| error.to_string())?;
    let got = waiting.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let took = begin.elapsed();
    let says = format!("a key was handed over in {took:.1?}");
    let troubles = || first.health().troubles.into_iter().chain(second.health().troubles);
    let silent = troubles().find(|trouble| matches!(trouble.work, Work::Hints | Work::Ringing));
    match (silent, second.health().hints) {
        (Some(trouble), _) => {
            findings.warning("hints", format!("{says}: {trouble}"), trouble.work.consequence());
        }
        (None, Some(way)) if took < SOON => findings.ok("hints", format!("{says}, by {way}")),
        (None, Some(way)) => findings.warning(
            "hints",
            format!("{says}, though there are {way}"),
            "check the load of the store, and the network to it",
        ),
        (None, None) => findings.warning(
            "hints",
            format!(
                "{says}: no change notifications; waiters poll every {}",
                humantime::format_duration(second.config().poll_interval())
            ),
            "see inotify above; on MongoDB connect to the members of a replica set, for a mongos gives no hints",
        ),
    }
    got.release().await.map_err(|error| error.to_string())?;
    second.close().await;
    Ok(())
}

//! A fleet of five instances in one process, and the page that shows it.
//!
//! ```sh
//! cargo run -p tenure-ui --example fleet
//! ```
//!
//! and then the address that it prints, with a token to act behind the `#`. One instance is cut off from the store,
//! one is drained, and one joins every half minute; a task and a schedule fail all the time.
//!
//! `--listen ADDRESS` is another address, `--read-only` offers no actions, and with `--by-hand` nothing happens but what
//! lines of the standard input say: `join NAME`, `crash NAME`, `drain NAME`, `hold NAME KEY`, `pass NAME KEY`. Each is
//! answered with a line when it has happened.

#![allow(clippy::disallowed_methods, reason = "an example runs by the clock of its machine")]

#[path = "../tests/fleet/mod.rs"]
mod fleet;

use std::{sync::Arc, time::Duration};

use fleet::{Failure, Fleet, LEADER, namespace};
use tenure::{
    model::Holder,
    store::{MemoryStore, Store},
};
use tenure_ui::{Access, Ui};
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    net::TcpListener,
};

const PACE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|known| known == word);
    let address = words.iter().position(|word| word == "--listen").and_then(|at| words.get(at + 1));
    let listener = TcpListener::bind(address.map_or("127.0.0.1:7070", String::as_str)).await?;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let mut ui = Ui::new(store.clone(), namespace()).store_name("memory");
    let at = listener.local_addr()?;
    let mut first = format!("http://{at}");
    if !has("--read-only") {
        let (sender, tokens) = std::sync::mpsc::channel();
        ui = ui.access(Access::loopback_to_act(move |token| drop(sender.send(token.to_owned()))));
        ui = ui.actions(Holder::new("you")?);
        first = format!("{first}/#{}", tokens.recv()?);
        std::thread::spawn(move || tokens.iter().for_each(|next| eprintln!("http://{at}/#{next}")));
    }
    let fleet = async {
        let fleet = begin(store).await?;
        println!("{first}");
        if has("--by-hand") { by_hand(fleet).await } else { play(fleet).await }
    };
    tokio::select! {
        served = tenure_ui::serve(listener, ui, std::future::pending()) => Ok(served?),
        played = fleet => played,
        ended = tokio::signal::ctrl_c() => Ok(ended?),
    }
}

/// Five instances with all that there is to see.
async fn begin(store: Arc<dyn Store>) -> Result<Fleet, Failure> {
    let mut fleet = Fleet::new(store, 60);
    for at in 1..=5 {
        fleet.join(&format!("pod-{at}")).await?;
    }
    fleet.hold("pod-1", LEADER, "leads the shop").await?;
    fleet.hold("pod-2", "export of 2026", "the auditors want it").await?;
    fleet.queue("pod-3", LEADER);
    fleet.queue("pod-4", LEADER);
    fleet.settled().await;
    if let Some(one) = fleet.instances.get("pod-1") {
        one.elect.schedules().pause("report", "the numbers are being mended").await?;
    }
    Ok(fleet)
}

/// Makes things happen, over and over.
async fn play(mut fleet: Fleet) -> Result<(), Failure> {
    for next in 6.. {
        tokio::time::sleep(PACE / 10).await;
        fleet.crash(&format!("pod-{}", next - 1)).await;
        tokio::time::sleep(PACE / 3).await;
        if let Some(one) = fleet.instances.get("pod-2") {
            one.spread.drain();
            tokio::time::sleep(PACE / 3).await;
            one.spread.undrain();
        }
        fleet.join(&format!("pod-{next}")).await?;
        tokio::time::sleep(PACE / 3).await;
    }
    Ok(())
}

/// Carries out the commands on standard input.
async fn by_hand(mut fleet: Fleet) -> Result<(), Failure> {
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[..] {
            ["join", name] => {
                fleet.join(name).await?;
                let one = &fleet.instances[name];
                let has_some = |status: &tenure::spread::SpreadStatus| !status.here.is_empty();
                one.spread.until(has_some).await;
            }
            ["crash", name] => fleet.crash(name).await,
            ["drain", name] if fleet.instances.contains_key(name) => {
                let one = &fleet.instances[name];
                one.spread.drain();
                one.spread.until(|status| status.here.is_empty()).await;
            }
            ["hold", name, key] if fleet.instances.contains_key(name) => {
                fleet.hold(name, key, "<script>document.title = 'broken'</script>").await?;
            }
            ["pass", name, key] if fleet.instances.contains_key(name) => {
                fleet.give_back(key);
                while fleet.hold(name, key, "its turn").await.is_err() {
                    tokio::time::sleep(PACE / 300).await;
                }
            }
            _ => return Err(format!("{line:?} is none of: join, crash, drain, hold, pass").into()),
        }
        println!("{line}");
    }
    Ok(())
}

//! Figures of tenure beside those of other locks, on servers of its own. `scripts/peers` builds and runs this.

#[allow(dead_code, reason = "the benches use the rest")]
#[path = "../../common/measure.rs"]
mod measure;

mod behind;
mod figures;
mod holder;
mod machine;
mod page;
mod peers;
mod processes;
mod reasons;
mod relay;
mod servers;
mod stages;

use self::{
    figures::{Figure, Figures, Part},
    machine::{processors, said_since},
    measure::{Machine, turn},
    page::Facts,
    peers::Peer,
    servers::Place,
    stages::{Size, many, one, one::Two, owner, rest, turns},
};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if holder::is_one().await {
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let after = |word: &str| arguments.iter().skip_while(|argument| *argument != word).nth(1);
    let rounds = after("--rounds").and_then(|number| number.parse().ok()).unwrap_or(5);
    let size = if quick { Size::quick() } else { Size::whole(rounds) };
    let machine = Machine::look();
    let (mut figures, mut servers) = (Figures::default(), Vec::new());
    for nodes in [1, 3] {
        let place = Place::start(nodes).await;
        for version in place.versions().await {
            if !servers.contains(&version) {
                servers.push(version);
            }
        }
        run(&place, &size, &mut figures).await;
    }
    figures.print();
    let (seconds, load) = said_since(&machine);
    let page = page::page(&figures, &size, &Facts { machine: processors(), servers, seconds, load });
    println!("\n{page}");
    if let Some(file) = after("--write") {
        std::fs::write(file, page).expect("the page can be written");
    }
}

async fn run(place: &Place, size: &Size, figures: &mut Figures) {
    let said = |stage: &str, machine: &Machine| {
        let (seconds, said) = said_since(machine);
        println!("{} | {stage} | {seconds:.0} s | {said}", place.nodes);
    };
    for round in 0..size.rounds {
        let machine = Machine::look();
        in_one(place, round, size, figures).await;
        said("one client, 64 tasks", &machine);
        let machine = Machine::look();
        let peers = place.peers();
        for index in turn(round, peers.len()) {
            if peers[index] != Peer::Floor && size.turns_nodes.contains(&place.nodes) {
                turns::of_32(place, peers[index], size, figures).await;
            }
        }
        said("32 waiters", &machine);
    }
    if size.owner_nodes.contains(&place.nodes) {
        let machine = Machine::look();
        owner::is_lost(place, size, figures).await;
        said("time to a new owner", &machine);
    }
    if size.rest_nodes.contains(&place.nodes) {
        let machine = Machine::look();
        rest::with_keys(place, size, figures).await;
        said("at rest", &machine);
    }
}

/// The stages of one client and of 64 tasks: peers take turns in each stage.
async fn in_one(place: &Place, round: usize, size: &Size, figures: &mut Figures) {
    let mut contestants = Vec::new();
    for peer in place.peers() {
        contestants.push(Two::start(place, peer).await);
    }
    let order = turn(round, contestants.len());
    for &index in &order {
        one::pairs(place, &contestants[index], size, figures).await;
    }
    for &index in &order {
        one::paced(place, &contestants[index], size, figures).await;
    }
    for &index in &order {
        one::tries(place, &contestants[index], size, figures).await;
    }
    for &index in &order {
        one::hand_over(place, &contestants[index], size, figures).await;
    }
    for &index in &order {
        many::of_64(place, &contestants[index], size, figures).await;
    }
    for two in contestants {
        two.close().await;
    }
    // The floor of stages that it has no part in: a pair, and pairs one after the other.
    let at = (place.nodes, Figure::Pair, Part::Value, (0, 0));
    let pair =
        figures.rounds(at, Peer::Floor).and_then(|rounds| rounds.last().copied()).expect("just measured");
    figures.add((place.nodes, Figure::HandOver, Part::Value, (0, 0)), Peer::Floor, pair);
    figures.add((place.nodes, Figure::Turns, Part::Value, (0, 0)), Peer::Floor, 1e6 / pair);
}

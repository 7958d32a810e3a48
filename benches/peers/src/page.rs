//! The page that a run writes.

use std::fmt::Write as _;

use crate::{
    behind::{self, NOISE},
    figures::{At, Figure, Figures, Part, shown},
    peers::{Keeps, Peer},
    stages::Size,
};

/// Columns of a page.
const WIDTH: usize = 120;

const LOCK: &str = include_str!("../Cargo.lock");

/// Facts of a run that are not figures.
pub(crate) struct Facts {
    pub(crate) machine: String,
    pub(crate) servers: Vec<String>,
    pub(crate) seconds: f64,
    /// Load, and time that was stolen from the machine.
    pub(crate) load: String,
}

/// A text in lines of the width of a page; those after the first begin with `indent`.
pub(crate) fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        }
        if !line.is_empty() && line != indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

fn crate_version(name: &str) -> String {
    let package = LOCK.split("[[package]]").find(|package| package.contains(&format!("name = \"{name}\"\n")));
    let version = package.and_then(|package| package.split("version = \"").nth(1)?.split('"').next());
    format!("{name} {}", version.unwrap_or("?"))
}

/// Columns of a table: a heading, and the cell of a peer.
struct Column<'a> {
    heading: &'a str,
    cell: Box<dyn Fn(Peer) -> Option<String> + 'a>,
}

fn table(text: &mut String, first: &str, nodes: usize, peers: &[Peer], columns: &[Column<'_>]) {
    let headings: Vec<_> = columns.iter().map(|column| column.heading).collect();
    let _ = writeln!(text, "| {first}, {} | {} |", on(nodes), headings.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
    for peer in peers {
        let cells: Vec<_> = columns.iter().map(|column| (column.cell)(*peer)).collect();
        if cells.iter().any(Option::is_some) {
            let cells: Vec<_> = cells.into_iter().map(Option::unwrap_or_default).collect();
            let _ = writeln!(text, "| {} | {} |", peer.name(), cells.join(" | "));
        }
    }
    let _ = writeln!(text);
}

fn on(nodes: usize) -> &'static str {
    if nodes == 1 { "one node" } else { "three nodes" }
}

fn at(nodes: usize, figure: Figure, part: Part) -> At {
    (nodes, figure, part, (0, 0))
}

/// A value in milliseconds, and how many times that of the floor.
fn millis(figures: &Figures, at: At, peer: Peer) -> Option<String> {
    let value = figures.median(at, peer)? / 1e3;
    let value = if value < 9.95 { format!("{value:.2}") } else { shown(value) };
    let times = figures.ratio(at, peer, Peer::Floor).map(|ratio| format!("/{ratio:.2}"));
    Some(value + &times.unwrap_or_default())
}

fn rate(figures: &Figures, at: At, peer: Peer) -> Option<String> {
    let value = shown(figures.median(at, peer)?);
    let times = figures.ratio(at, peer, Peer::Floor).map(|ratio| format!("/{ratio:.2}"));
    Some(value + &times.unwrap_or_default())
}

fn plain(figures: &Figures, at: At, peer: Peer) -> Option<String> {
    figures.median(at, peer).map(shown)
}

/// Processor time of the servers, and of the client.
fn costs(figures: &Figures, nodes: usize, figure: Figure, peer: Peer) -> Option<String> {
    let servers = plain(figures, at(nodes, figure, Part::Servers), peer)?;
    let client = plain(figures, at(nodes, figure, Part::Client), peer)?;
    Some(format!("{servers}+{client}"))
}

/// Median and worst, in seconds.
fn seconds(figures: &Figures, at: At, peer: Peer) -> Option<String> {
    let worst = figures.rounds(at, peer)?.iter().copied().fold(0.0, f64::max);
    Some(format!("{:.2}/{worst:.2}", figures.median(at, peer)?))
}

pub(crate) fn page(figures: &Figures, size: &Size, facts: &Facts) -> String {
    let mut text = preface(size, facts);
    let peers = Peer::ALL;
    for nodes in [1, 3] {
        let time = |heading, figure| Column {
            heading,
            cell: Box::new(move |peer| millis(figures, at(nodes, figure, Part::Value), peer)),
        };
        table(
            &mut text,
            "ms",
            nodes,
            &peers,
            &[
                time("pair p50", Figure::Pair),
                time("pair p99", Figure::Pair99),
                Column {
                    heading: "µs of a pair",
                    cell: Box::new(move |peer| costs(figures, nodes, Figure::Pair, peer)),
                },
                time("paced take p50", Figure::Open),
                time("losing try p50", Figure::Try),
                time("hand-over p50", Figure::HandOver),
            ],
        );
    }
    text += &wrapped(MANY, "");
    text += "\n\n";
    for nodes in [1, 3] {
        let of = |figure| move |peer| rate(figures, at(nodes, figure, Part::Value), peer);
        let spent = |figure| move |peer| costs(figures, nodes, figure, peer);
        let even = move |peer| plain(figures, at(nodes, Figure::LeastToMost, Part::Value), peer);
        table(
            &mut text,
            "a second",
            nodes,
            &peers,
            &[
                Column { heading: "pairs of 64", cell: Box::new(of(Figure::Many)) },
                Column { heading: "µs of a pair", cell: Box::new(spent(Figure::Many)) },
                Column { heading: "turns of 32", cell: Box::new(of(Figure::Turns)) },
                Column { heading: "least/most", cell: Box::new(even) },
                Column { heading: "µs of a turn", cell: Box::new(spent(Figure::Turns)) },
            ],
        );
    }
    owners(&mut text, figures, size);
    at_rest(&mut text, figures, size);
    text += "## Where tenure is behind\n\n";
    text += &wrapped(BEHIND, "");
    text += "\n\n";
    text += &behind::section(figures, size.rest);
    text
}

const PEERS: &str = "\
    `query-insert-delete` and `lockUntil` (as ShedLock does on MongoDB) were written for this run. etcd: `Lock` \
    under one lease an instance; a try is a transaction. Redis: one node, nothing on its disk. All but tenure and \
    etcd wait by a poll every 100 ms. On MongoDB tenure releases with the acknowledgement of the primary, the others \
    with that of the majority.";

const ONE: &str = "\
    A pair is a take and its release; a paced take comes 20 ms after the last pair; a hand-over lasts from the \
    release until the only waiter has the key. µs: processor time of `servers+client`.";

const MANY: &str = "\
    64 tasks of one instance have a key each; 32 instances want one key. Least/most: turns of the waiter with the \
    fewest to those of the one with the most.";

const BEHIND: &str = "\
    All rows: how many times, on one node/on three (– is ahead), by the median of the rounds' ratios, and the \
    reason. With ? it was ahead in some round.";

fn preface(size: &Size, facts: &Facts) -> String {
    let mut text = "# Figures beside other locks\n\n".to_owned();
    let crates =
        ["mongodb", "etcd-client", "redis", "mongo-lock-async", "tokio"].map(crate_version).join(", ");
    let rounds = if size.rounds == 1 { "one round".to_owned() } else { format!("{} rounds", size.rounds) };
    let servers = facts.servers.join(", ");
    let paragraphs = [
        format!(
            "Written by `scripts/peers --write`; `--quick` repeats it in a minute. Peers took turns on servers of \
             their own: {rounds} of {} pairs, {} s for 64 tasks, {} s for 32 waiters, {:.0} s in all. A \
             figure is the median of the rounds; behind the slash is the median of their ratios to the floor: two \
             bare majority `findAndModify` without retries.",
            size.pairs,
            size.window.as_secs_f64(),
            size.turns.as_secs_f64(),
            facts.seconds,
        ),
        format!(
            "{servers}; {crates}. {} for servers, clients and others: {}. Trust ratios before times.",
            facts.machine, facts.load,
        ),
        PEERS.to_owned(),
        "## One client, and many".to_owned(),
        ONE.to_owned(),
    ];
    for paragraph in paragraphs {
        let _ = writeln!(text, "{}\n", wrapped(&paragraph, ""));
    }
    text
}

fn owners(text: &mut String, figures: &Figures, size: &Size) {
    let paragraph = format!(
        "A process holds a key under a ttl of {} s, another waits: seconds until it has the key, median/worst of {}. \
         Cut off: no byte passes.",
        size.owner_ttl.as_secs(),
        size.owners,
    );
    let _ = writeln!(text, "## Time to a new owner\n\n{}\n", wrapped(&paragraph, ""));
    for &nodes in size.owner_nodes {
        let fault = |heading, figure| Column {
            heading,
            cell: Box::new(move |peer| seconds(figures, at(nodes, figure, Part::Value), peer)),
        };
        table(
            text,
            "s",
            nodes,
            &Peer::ALL,
            &[
                fault("closed", Figure::Closed),
                fault("killed", Figure::Killed),
                fault("frozen", Figure::Frozen),
                fault("cut off", Figure::CutOff),
            ],
        );
    }
}

fn at_rest(text: &mut String, figures: &Figures, size: &Size) {
    let paragraph = format!(
        "Keys under a ttl of {} s, and nothing else: writes a second at the primary/processor time of all servers in \
         ms a second, beyond that without instances, in {} s. `100×1`: 100 instances, one key each. Below 1 ms \
         other work hides it.",
        size.rest_ttl.as_secs(),
        size.rest_window.as_secs(),
    );
    let _ = writeln!(text, "## Work of the store at rest\n\n{}\n", wrapped(&paragraph, ""));
    let peers: Vec<Peer> = Peer::ALL.into_iter().filter(|peer| peer.keeps() != Keeps::Never).collect();
    for &nodes in size.rest_nodes {
        let names: Vec<_> = size.rest.iter().map(|(instances, keys)| format!("{instances}×{keys}")).collect();
        let column = |(case, name)| {
            let case: (usize, usize) = case;
            let cell = move |peer| {
                let of = |figure| figures.median((nodes, figure, Part::Value, case), peer);
                let servers = of(Figure::RestServers)?;
                let servers = if servers < NOISE { "<1".to_owned() } else { shown(servers / 1e3) };
                Some(format!("{}/{servers}", shown(of(Figure::RestWrites)?)))
            };
            Column { heading: name, cell: Box::new(cell) }
        };
        let columns: Vec<_> =
            size.rest.iter().copied().zip(names.iter().map(String::as_str)).map(column).collect();
        table(text, "writes/ms", nodes, &peers, &columns);
    }
}

//! Rows in which tenure is behind a peer, and why.

use std::fmt::Write as _;

use crate::{
    figures::{At, Figure, Figures, Part, shown},
    measure::median,
    page::wrapped,
    peers::Peer,
    reasons::why,
};

/// Smallest part that a ratio shows.
const LEAST: f64 = 1.01;
/// Processor time at rest, in microseconds a second, below which other work of the servers hides it.
pub(crate) const NOISE: f64 = 1e3;

/// Reasons in the order of their first use.
#[derive(Default)]
struct Reasons(Vec<&'static str>);

impl Reasons {
    fn letter(&mut self, reason: &'static str) -> char {
        let place = self.0.iter().position(|known| *known == reason).unwrap_or_else(|| {
            self.0.push(reason);
            self.0.len() - 1
        });
        ('a'..='z').nth(place).expect("there are fewer reasons than letters")
    }
}

/// Times that one is behind a peer, and whether it was so in each round.
fn behind(figures: &Figures, at: At, one: Peer, peer: Peer) -> Option<(f64, bool)> {
    let (ours, theirs) = (figures.rounds(at, one)?, figures.rounds(at, peer)?);
    let grows = at.1.grows() && at.2 == Part::Value;
    let least = if at.1 == Figure::RestServers { NOISE } else { 0.0 };
    let times = |ours: f64, theirs: f64| {
        let (ours, theirs) = (ours.max(least), theirs.max(least));
        let ratio = if grows { theirs / ours } else { ours / theirs };
        // Nothing to nothing.
        if ratio.is_nan() { 1.0 } else { ratio }
    };
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| times(*ours, *theirs)).collect();
    let always = ratios.iter().all(|ratio| *ratio >= 1.0);
    let ratio = median(ratios);
    (ratio >= LEAST).then_some((ratio, always))
}

/// Cell of a peer: how far tenure is behind on each number of nodes, and why. Empty where tenure is ahead.
fn cell(figures: &Figures, row: Row, peer: Peer, reasons: &mut Reasons) -> String {
    let (figure, part, case) = row;
    let (mut parts, mut is_behind) = (Vec::new(), false);
    for nodes in [1, 3] {
        let at = (nodes, figure, part, case);
        if figures.rounds(at, peer).is_none() || figures.rounds(at, Peer::Tenure).is_none() {
            continue;
        }
        let Some((ratio, always)) = behind(figures, at, Peer::Tenure, peer) else {
            parts.push("–".to_owned());
            continue;
        };
        let store = behind(figures, at, Peer::Floor, peer).is_some();
        let letter = reasons.letter(why(at, peer, store));
        is_behind = true;
        let mark = if always { "" } else { "?" };
        parts.push(format!("{}{mark}{letter}", factor(ratio)));
    }
    if is_behind { parts.join("/") } else { String::new() }
}

fn name((figure, part, (instances, keys)): Row) -> String {
    // Processor time is that of an operation, not of the rate.
    let work = figure.name().split(',').next().unwrap_or_default();
    match part {
        _ if keys > 0 => format!("{} {instances}×{keys}", figure.name()),
        Part::Value => figure.name().to_owned(),
        Part::Servers => format!("{work}, servers"),
        Part::Client => format!("{work}, client"),
    }
}

/// The table and its reasons.
pub(crate) fn section(figures: &Figures, rest: &[(usize, usize)]) -> String {
    const PEERS: [Peer; 5] = [Peer::MongoLock, Peer::Insert, Peer::ShedLock, Peer::Etcd, Peer::Redis];
    let names: Vec<_> = PEERS.iter().map(|peer| peer.name()).collect();
    let mut text = format!("| behind | {} |\n|---|{}\n", names.join(" | "), "---:|".repeat(PEERS.len()));
    let mut reasons = Reasons::default();
    for row in rows(rest) {
        let cells: Vec<_> = PEERS.iter().map(|peer| cell(figures, row, *peer, &mut reasons)).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            let _ = writeln!(text, "| {} | {} |", name(row), cells.join(" | "));
        }
    }
    text.push('\n');
    for (reason, letter) in reasons.0.iter().zip('a'..='z') {
        let _ = writeln!(text, "{}", wrapped(&format!("- {letter}: {reason}"), "  "));
    }
    text
}

/// A factor with as many digits as it needs to differ from 1.
fn factor(ratio: f64) -> String {
    match ratio {
        _ if !ratio.is_finite() => "∞".to_owned(),
        _ if ratio < 9.95 => format!("{ratio:.2}"),
        _ => shown(ratio),
    }
}

/// A figure or what it cost, at instances and keys.
type Row = (Figure, Part, (usize, usize));

/// All that the page shows, in its order.
fn rows(rest: &[(usize, usize)]) -> Vec<Row> {
    const FIXED: [(Figure, Part); 18] = [
        (Figure::Pair, Part::Value),
        (Figure::Pair99, Part::Value),
        (Figure::Pair, Part::Servers),
        (Figure::Pair, Part::Client),
        (Figure::Open, Part::Value),
        (Figure::Try, Part::Value),
        (Figure::HandOver, Part::Value),
        (Figure::Many, Part::Value),
        (Figure::Many, Part::Servers),
        (Figure::Many, Part::Client),
        (Figure::Turns, Part::Value),
        (Figure::LeastToMost, Part::Value),
        (Figure::Turns, Part::Servers),
        (Figure::Turns, Part::Client),
        (Figure::Closed, Part::Value),
        (Figure::Killed, Part::Value),
        (Figure::Frozen, Part::Value),
        (Figure::CutOff, Part::Value),
    ];
    let at_rest = |case: &(usize, usize)| {
        [Figure::RestWrites, Figure::RestServers].map(|figure| (figure, Part::Value, *case))
    };
    let fixed = FIXED.map(|(figure, part)| (figure, part, (0, 0)));
    fixed.into_iter().chain(rest.iter().flat_map(at_rest)).collect()
}

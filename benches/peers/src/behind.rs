//! Rows in which tenure is behind a peer, and why.

use std::fmt::Write as _;

use crate::{
    figures::{At, Figure, Figures, Part, shown},
    measure::median,
    page::{on, wrapped},
    peers::Peer,
    reasons::why,
};

/// Smallest part that a ratio shows.
const LEAST: f64 = 1.01;

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

/// Times that tenure is behind, and whether it was so in each round.
fn behind(figures: &Figures, at: At, peer: Peer) -> Option<(f64, bool)> {
    let (ours, theirs) = (figures.rounds(at, Peer::Tenure)?, figures.rounds(at, peer)?);
    let times = |ours: f64, theirs: f64| if at.1.grows() { theirs / ours } else { ours / theirs };
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| times(*ours, *theirs)).collect();
    let always = ratios.iter().all(|ratio| *ratio >= 1.0);
    let ratio = median(ratios.into_iter().filter(|ratio| !ratio.is_nan()).collect());
    (ratio >= LEAST).then_some((ratio, always))
}

fn row_name((nodes, figure, part, (instances, keys)): At) -> String {
    let mut name = figure.name().to_owned();
    match part {
        Part::Value => {}
        // Processor time of a figure is of the work, not of the rate.
        Part::Servers => name = format!("{}, servers", name.split(',').next().unwrap_or_default()),
        Part::Client => name = format!("{}, client", name.split(',').next().unwrap_or_default()),
    }
    if keys > 0 {
        let _ = write!(name, ", {instances}×{keys}");
    }
    format!("{name}, {}", on(nodes))
}

/// The section of the page.
pub(crate) fn section(figures: &Figures, shown_rows: &[At]) -> String {
    let mut text = String::new();
    let mut reasons = Reasons::default();
    for &at in shown_rows {
        let mut cells = Vec::new();
        for peer in Peer::ALL.into_iter().filter(|peer| !matches!(peer, Peer::Floor | Peer::Tenure)) {
            let Some((ratio, always)) = behind(figures, at, peer) else { continue };
            let letter = reasons.letter(why(at.1, at.2, peer));
            let mark = if always { "" } else { "?" };
            let ratio = if ratio.is_finite() { factor(ratio) } else { "∞".to_owned() };
            cells.push(format!("{} {ratio}{mark} ({letter})", peer.name()));
        }
        if !cells.is_empty() {
            let row = format!("- {}: {}", row_name(at), cells.join(", "));
            let _ = writeln!(text, "{}", wrapped(&row, "  "));
        }
    }
    let _ = writeln!(text, "\nThe reasons:\n");
    for (reason, letter) in reasons.0.iter().zip('a'..='z') {
        let _ = writeln!(text, "{}", wrapped(&format!("- ({letter}) {reason}"), "  "));
    }
    text
}

/// A factor with as many digits as it needs to differ from 1.
fn factor(ratio: f64) -> String {
    if ratio < 9.95 { format!("{ratio:.2}") } else { shown(ratio) }
}

/// All rows that the page shows, in its order.
pub(crate) fn rows(nodes: &[usize], rest: &[(usize, usize)]) -> Vec<At> {
    const ONE: [(Figure, Part); 15] = [
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
    ];
    const FAULTS: [Figure; 3] = [Figure::Killed, Figure::Frozen, Figure::CutOff];
    let mut all = Vec::new();
    for (figure, part) in ONE.into_iter().chain(FAULTS.map(|fault| (fault, Part::Value))) {
        all.extend(nodes.iter().map(|nodes| (*nodes, figure, part, (0, 0))));
    }
    for case in rest {
        for figure in [Figure::RestWrites, Figure::RestServers] {
            all.extend(nodes.iter().map(|nodes| (*nodes, figure, Part::Value, *case)));
        }
    }
    all
}

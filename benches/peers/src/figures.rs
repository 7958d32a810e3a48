//! Figures of the rounds: by size, name and peer, a value a round.

use std::collections::BTreeMap;

use crate::{
    measure::{median, ratio},
    peers::Peer,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    Pair,
    Pair99,
    Open,
    Try,
    HandOver,
    Many,
    Turns,
    LeastToMost,
    Closed,
    Killed,
    Frozen,
    CutOff,
    RestCommands,
    RestWrites,
    RestServers,
}

impl Figure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair p50",
            Self::Pair99 => "pair p99",
            Self::Open => "paced take p50",
            Self::Try => "losing try p50",
            Self::HandOver => "hand-over p50",
            Self::Many => "64 tasks, pairs/s",
            Self::Turns => "32 waiters, turns/s",
            Self::LeastToMost => "32 waiters, least/most",
            Self::Closed => "closed",
            Self::Killed => "killed",
            Self::Frozen => "frozen",
            Self::CutOff => "cut off",
            Self::RestCommands => "at rest, commands/s",
            Self::RestWrites => "at rest, writes/s",
            Self::RestServers => "at rest, servers",
        }
    }

    /// True if more is better.
    pub(crate) fn grows(self) -> bool {
        matches!(self, Self::Many | Self::Turns | Self::LeastToMost)
    }
}

/// Part of a figure: its value, or the processor time that it cost, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Value,
    Servers,
    Client,
}

/// Place of a value: number of nodes, what is measured, at how many instances and keys (0 where that is fixed), whose.
pub(crate) type At = (usize, Figure, Part, (usize, usize));

#[derive(Default)]
pub(crate) struct Figures(BTreeMap<(At, Peer), Vec<f64>>);

impl Figures {
    pub(crate) fn add(&mut self, at: At, peer: Peer, value: f64) {
        self.0.entry((at, peer)).or_default().push(value);
    }

    /// A figure with what it cost: all three in microseconds an operation.
    pub(crate) fn add_all(
        &mut self,
        nodes: usize,
        figure: Figure,
        peer: Peer,
        [value, servers, client]: [f64; 3],
    ) {
        self.add((nodes, figure, Part::Value, (0, 0)), peer, value);
        self.add((nodes, figure, Part::Servers, (0, 0)), peer, servers);
        self.add((nodes, figure, Part::Client, (0, 0)), peer, client);
    }

    pub(crate) fn rounds(&self, at: At, peer: Peer) -> Option<&[f64]> {
        self.0.get(&(at, peer)).map(Vec::as_slice)
    }

    pub(crate) fn median(&self, at: At, peer: Peer) -> Option<f64> {
        self.rounds(at, peer).map(|rounds| median(rounds.to_vec()))
    }

    /// Median of the rounds' ratios between two peers.
    pub(crate) fn ratio(&self, at: At, peer: Peer, to: Peer) -> Option<f64> {
        let (ours, theirs) = (self.rounds(at, peer)?, self.rounds(at, to)?);
        // A ratio to nothing is left out.
        theirs.iter().all(|value| *value > 0.0).then(|| ratio(ours, theirs))
    }

    /// Each value of the run, for a reader of its output.
    pub(crate) fn print(&self) {
        for (((nodes, figure, part, (instances, keys)), peer), rounds) in &self.0 {
            let part = match part {
                Part::Value => "",
                Part::Servers => ", servers µs",
                Part::Client => ", client µs",
            };
            let size = if *keys > 0 { format!(", {instances} × {keys}") } else { String::new() };
            let middle = median(rounds.clone());
            let rounds: Vec<_> = rounds.iter().map(|value| shown(*value)).collect();
            let (name, peer) = (figure.name(), peer.name());
            println!("{nodes} | {name}{size}{part} | {peer} | {} | {}", shown(middle), rounds.join(" "));
        }
    }
}

/// Three digits.
pub(crate) fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1.0 => format!("{value:.2}"),
        size if size < 9.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

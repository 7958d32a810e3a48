//! Report on all the seeds.

use std::{collections::BTreeMap, fmt, fs, io, path::Path, time::SystemTime};

use tenure_sim::{Paces, Sum, Summary};

use crate::arguments::Arguments;

#[derive(Debug, Default)]
pub(crate) struct Report {
    classes: BTreeMap<Paces, Sum>,
    /// By seed: threads end in any order.
    hashes: BTreeMap<u64, u64>,
    pub(crate) violations: u64,
}

impl Report {
    pub(crate) fn add(&mut self, seed: u64, class: Paces, summary: &Summary) {
        self.hashes.insert(seed, summary.hash);
        *self.classes.entry(class).or_default() += Sum::from(summary);
    }

    /// Events that did not happen once in a class of seeds.
    pub(crate) fn quiet_classes(&self) -> Vec<(&'static str, &'static str)> {
        let never = |(class, sum): (&Paces, &Sum)| {
            let counts = [
                ("fault", sum.faults),
                ("acquisition", sum.grants),
                ("hand-over", sum.hand_overs),
                ("takeover", sum.takeovers),
                ("loss", sum.losses),
            ];
            let name = class.name();
            counts.into_iter().filter(|(_, count)| *count == 0).map(move |(what, _)| (name, what))
        };
        self.classes.iter().flat_map(never).collect()
    }

    /// Puts a line under the table of simulated runs, with what the run came to.
    pub(crate) fn append_to(&self, log: &Path, run: &Arguments) -> Result<(), String> {
        #[expect(clippy::disallowed_methods, reason = "the day it was run, for people")]
        let today = date(SystemTime::now());
        let told = |refused: io::Error| refused.to_string();
        let page = fs::read_to_string(log).map_err(told)?;
        let all = self.all();
        let Sum { operations, faults, grants, hand_overs, takeovers, losses, .. } = all;
        let (hours, hash) = (all.hours(), self.hash());
        let row = format!(
            "| {today} | {run} | {hours:.0} | {operations} | {faults} | {grants} | {hand_overs} | {takeovers} | \
             {losses} | {hash:016x} | {} |",
            self.violations
        );
        let page = with_row(&page, &row).ok_or_else(|| format!("there is no table with `{TABLE}`"))?;
        fs::write(log, page).map_err(told)
    }

    fn all(&self) -> Sum {
        let mut all = Sum::default();
        for sum in self.classes.values() {
            all += *sum;
        }
        all
    }

    /// The same for the same seeds.
    fn hash(&self) -> u64 {
        let mix = |sum: u64, (seed, hash): (&u64, &u64)| {
            (sum.rotate_left(5) ^ seed).wrapping_mul(0x0100_0000_01b3) ^ hash
        };
        self.hashes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (class, sum) in &self.classes {
            writeln!(f, "{:<8} {sum}", class.name())?;
        }
        writeln!(f, "{:<8} {}", "all", self.all())?;
        write!(f, "{} violations, hash {:016x}", self.violations, self.hash())
    }
}

/// Beginning of the table of simulated runs.
const TABLE: &str = "| date | seeds |";

/// The page with one more row in that table.
fn with_row(page: &str, row: &str) -> Option<String> {
    let head = page.lines().position(|line| line.starts_with(TABLE))?;
    let rows = page.lines().skip(head).take_while(|line| line.starts_with('|')).count();
    let (before, after): (Vec<_>, Vec<_>) =
        page.lines().enumerate().partition(|(number, _)| *number < head + rows);
    let lines = before.iter().map(|(_, line)| *line).chain([row]).chain(after.iter().map(|(_, line)| *line));
    Some(lines.flat_map(|line| [line, "\n"]).collect())
}

/// The day in UTC, as in `2026-01-31`.
fn date(time: SystemTime) -> String {
    let shown = humantime::format_rfc3339_seconds(time).to_string();
    shown.split('T').next().unwrap_or_default().to_owned()
}

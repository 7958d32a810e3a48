//! The table of costs, and how what was measured is held against it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
    fs,
    path::PathBuf,
};

use super::meter::Cost;

const FILE: &str = "tests/mongodb/costs.txt";
/// As of expect-test: rewrites what differs.
const UPDATE: &str = "UPDATE_EXPECT";

/// Permitted values of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    Exactly(i64),
    AtMost(i64),
}

impl Allowed {
    fn allows(self, value: i64) -> bool {
        match self {
            Self::Exactly(allowed) => value == allowed,
            Self::AtMost(allowed) => value <= allowed,
        }
    }

    /// The same sort of limit for another value.
    fn made_for(self, value: i64, varies: bool) -> Self {
        match self {
            Self::Exactly(_) => Self::Exactly(value),
            Self::AtMost(_) => Self::at_most(value, varies),
        }
    }

    /// With an eighth to spare, or a half where time has a part in all of it.
    fn at_most(value: i64, varies: bool) -> Self {
        let spare = value + if varies { value / 2 + 1 } else { value / 8 };
        Self::AtMost(if spare < 50 { spare + 1 } else { (spare + 49) / 50 * 50 })
    }

    /// Of a figure that nobody has written down yet.
    fn first(figure: &str, value: i64, varies: bool) -> Self {
        // Numbers are of four or eight bytes, and names have lengths of their own; batches of a listener are
        // as large as it is slow.
        if varies || matches!(figure, "sent" | "received" | "getMore") {
            Self::at_most(value, varies)
        } else {
            Self::Exactly(value)
        }
    }

    /// Returns whether a bound is more than twice what it bounds.
    fn is_loose(self, value: i64) -> bool {
        matches!(self, Self::AtMost(most) if most > value * 2 + 2)
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(value) => write!(f, "={value}"),
            Self::AtMost(value) => write!(f, "<={value}"),
        }
    }
}

/// Figures that are allowed, in the order in which they are written.
type Row = Vec<(String, Allowed)>;

fn parse(figures: &str) -> Row {
    let one = |word: &str| {
        let place = word.find(['<', '=']).unwrap_or_else(|| panic!("{word} in {FILE} is no figure"));
        let (figure, limit) = word.split_at(place);
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{word} in {FILE} has no number"));
        let allowed = match limit.strip_prefix("<=") {
            Some(most) => Allowed::AtMost(number(most)),
            None => Allowed::Exactly(number(&limit[1..])),
        };
        (figure.to_owned(), allowed)
    };
    figures.split_whitespace().map(one).collect()
}

/// The file, line by line, and what was found wrong in it.
#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
    lines: Vec<String>,
    /// Operations whose cost is as written down.
    right: BTreeSet<String>,
    /// Operations whose cost is not, each with its message.
    wrong: BTreeMap<String, String>,
}

impl Table {
    pub(crate) fn read() -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(FILE);
        let lines = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        Self { path, lines, right: BTreeSet::new(), wrong: BTreeMap::new() }
    }

    /// Compares the cost of an operation with its line. Once it is right, it stays so: what it costs on a machine that
    /// is too busy to wait for is no news.
    pub(crate) fn check(&mut self, operation: &str, cost: &Cost) {
        if self.right.contains(operation) {
            return;
        }
        let start = format!("{operation}: ");
        let place = self.lines.iter().position(|line| line.starts_with(&start));
        let row = place.map_or_else(Row::new, |place| parse(&self.lines[place][start.len()..]));
        let is_bound = |(_, allowed): &(String, Allowed)| matches!(allowed, Allowed::AtMost(_));
        let varies = !row.is_empty() && row.iter().all(is_bound);
        let (mut better, mut differs) = (Row::new(), String::new());
        for (figure, allowed) in row.iter().cloned() {
            let value = cost.get(&figure).copied().unwrap_or(0);
            if !allowed.allows(value) {
                let _ = write!(differs, " {figure} is {value}, not {allowed};");
            }
            let stays = allowed.allows(value) && (varies || !allowed.is_loose(value));
            if stays {
                better.push((figure, allowed));
            } else if value != 0 {
                better.push((figure, allowed.made_for(value, varies)));
            }
        }
        for (figure, value) in cost {
            if !row.iter().any(|(known, _)| known == figure) {
                let _ = write!(differs, " {figure} is {value}, and is not there;");
                better.push((figure.clone(), Allowed::first(figure, *value, varies)));
            }
        }
        let figures: Vec<_> = better.iter().map(|(figure, allowed)| format!("{figure}{allowed}")).collect();
        let line = format!("{start}{}", figures.join(" "));
        if differs.is_empty() {
            self.wrong.remove(operation);
            self.right.insert(operation.to_owned());
        } else {
            let at = place.map_or_else(|| "a new line".to_owned(), |place| format!("line {}", place + 1));
            let said = format!("{FILE}, {at}:{differs} for what was measured it would be\n{line}\n");
            self.wrong.insert(operation.to_owned(), said);
        }
        if !is_update() {
            return;
        }
        match place {
            Some(place) => self.lines[place] = line,
            None => self.lines.push(line),
        }
    }

    /// Returns whether nothing measured is wrong, or all of it is written down anew.
    pub(crate) fn is_right(&self) -> bool {
        self.wrong.is_empty() || is_update()
    }

    /// # Panics
    /// If anything is wrong.
    pub(crate) fn finish(self) {
        if is_update() {
            fs::write(&self.path, self.lines.join("\n") + "\n").unwrap();
            return;
        }
        let mut wrong: Vec<_> = self.wrong.values().cloned().collect();
        for (number, line) in self.lines.iter().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            if let Some((operation, _)) = line.split_once(": ")
                && !self.right.contains(operation)
                && !self.wrong.contains_key(operation)
            {
                wrong.push(format!("{FILE}, line {}: nothing measures {operation:?}\n", number + 1));
            }
        }
        assert!(wrong.is_empty(), "{}{UPDATE}=1 writes these lines", wrong.concat());
    }
}

fn is_update() -> bool {
    std::env::var_os(UPDATE).is_some()
}

//! Rows in columns, of whatever view: what is in them, and which columns there is room for. Pure.

use tenure::model::{LockId, ScheduleId, SessionId, SpreadName};

use super::text::{bar, clean, fit};
use crate::out::width;

/// Columns between two columns.
const GAP: usize = 2;
/// The least columns of a bar, and the most.
const BAR: (usize, usize) = (6, 12);

/// The subject of a row: it stays selected wherever it moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Instance(SessionId),
    Spread(SpreadName),
    Key(LockId),
    Schedule(ScheduleId),
    /// The words of a change: it has no other name.
    Change(String),
}

/// The assessment of a row or a cell. The text expresses it, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Note,
    Bad,
    Quiet,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// The least and the most columns of the terminal that it takes.
    least: usize,
    most: usize,
    is_number: bool,
    /// The largest goes first where there is no room for all; one of 0 stays.
    goes: u8,
}

impl Column {
    pub(super) const fn new(name: &'static str, least: usize, most: usize, goes: u8) -> Self {
        Self { name, least, most, is_number: false, goes }
    }

    pub(super) const fn number(name: &'static str, goes: u8) -> Self {
        Self { name, least: name.len(), most: 16, is_number: true, goes }
    }
}

/// The content of one column in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    /// The part of a whole, as a bar before the text.
    bar: Option<u64>,
    pub(super) tone: Tone,
}

impl Cell {
    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self { text: clean(text.as_ref()), bar: None, tone: Tone::Plain }
    }

    /// The same with a bar before it.
    pub(super) fn bar(self, permille: u64) -> Self {
        Self { bar: Some(permille), ..self }
    }

    pub(super) fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// As it stands in a column that is so wide, and whose texts behind bars are.
    fn render(&self, wide: usize, texts: usize, is_number: bool) -> String {
        match self.bar {
            None => fit(&self.text, wide, is_number),
            Some(permille) => {
                let room = wide.saturating_sub(texts + 1);
                fit(&format!("{} {}", bar(permille, room), self.text), wide, false)
            }
        }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) subject: Subject,
    pub(super) cells: Vec<Cell>,
}

/// Columns and rows.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
    /// Rows before those were left out that the filter does not match.
    pub(super) of: usize,
}

impl List {
    pub(super) fn new(columns: &'static [Column], rows: Vec<Row>) -> Self {
        Self { columns, of: rows.len(), rows }
    }

    /// Leaves out the rows in none of whose columns is the text, large letters or small ones.
    pub(super) fn filter(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = text.to_lowercase();
        self.rows.retain(|row| row.cells.iter().any(|cell| cell.text.to_lowercase().contains(&text)));
    }

    /// The columns that there is room for, each with its width.
    pub(super) fn layout(&self, room: usize) -> Layout {
        let texts: Vec<_> = (0..self.columns.len()).map(|at| self.texts(at)).collect();
        let wants: Vec<_> = (0..self.columns.len()).map(|at| self.wanted(at, texts[at])).collect();
        // A column whose texts are short needs no more.
        let least = |at: usize| self.columns[at].least.min(wants[at]);
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        while kept.len() > 1 && kept.iter().map(|at| least(*at) + GAP).sum::<usize>() > room + GAP {
            let goes = kept.iter().copied().max_by_key(|at| (self.columns[*at].goes, *at));
            kept.retain(|at| Some(*at) != goes);
        }
        let mut wide: Vec<_> = kept.iter().map(|at| (*at, least(*at))).collect();
        let mut left = (room + GAP).saturating_sub(wide.iter().map(|(_, wide)| wide + GAP).sum());
        // The column that stays longest gets first what it wants.
        let mut in_turn: Vec<usize> = (0..wide.len()).collect();
        in_turn.sort_by_key(|at| self.columns[wide[*at].0].goes);
        for at in in_turn {
            let (column, has) = &mut wide[at];
            let more = wants[*column].saturating_sub(*has).min(left);
            *has += more;
            left -= more;
        }
        Layout { columns: wide.into_iter().map(|(at, wide)| Placed { at, wide, texts: texts[at] }).collect() }
    }

    /// The longest text behind a bar.
    fn texts(&self, at: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.cells.get(at)).filter(|cell| cell.bar.is_some());
        cells.map(|cell| width(&cell.text)).max().unwrap_or(0)
    }

    /// Returns the width that a column would take if there were room for everything.
    fn wanted(&self, at: usize, texts: usize) -> usize {
        let column = &self.columns[at];
        let heading = width(column.name);
        let cells = self.rows.iter().filter_map(|row| row.cells.get(at));
        let widest = cells.map(|cell| if cell.bar.is_some() { BAR.1 + 1 + texts } else { width(&cell.text) });
        widest.max().unwrap_or(0).min(column.most).max(heading)
    }
}

/// Places of the columns.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    columns: Vec<Placed>,
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    at: usize,
    wide: usize,
    texts: usize,
}

impl Layout {
    /// The headings.
    pub(super) fn headings(&self, list: &List) -> String {
        let one = |placed: &Placed| {
            let column = &list.columns[placed.at];
            fit(column.name, placed.wide, column.is_number)
        };
        self.columns.iter().map(one).collect::<Vec<_>>().join(&" ".repeat(GAP))
    }

    /// The cells of a row, each with its tone.
    pub(super) fn cells(&self, list: &List, row: &Row) -> Vec<(String, Tone)> {
        let one = |placed: &Placed| {
            let Some(cell) = row.cells.get(placed.at) else { return (" ".repeat(placed.wide), Tone::Plain) };
            let is_number = list.columns[placed.at].is_number;
            (cell.render(placed.wide, placed.texts, is_number), cell.tone)
        };
        let last = self.columns.len().saturating_sub(1);
        let gapped = self.columns.iter().enumerate().map(|(at, placed)| {
            let (mut text, tone) = one(placed);
            if at < last {
                text.push_str(&" ".repeat(GAP));
            }
            (text, tone)
        });
        gapped.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::new("NAME", 6, 20, 0),
        Column::new("BEAT", 8, 40, 1),
        Column::number("TASKS", 2),
        Column::new("WHY", 10, 60, 3),
    ];

    fn row(name: &str, permille: u64, tasks: usize, why: &str) -> Row {
        let cells = vec![
            Cell::text(name),
            Cell::text("4 s").bar(permille),
            Cell::text(tasks.to_string()),
            Cell::text(why),
        ];
        Row { subject: Subject::Change(name.to_owned()), cells }
    }

    fn list() -> List {
        let why = "because of the disk, which is full, and of nobody who looks at it";
        List::new(COLUMNS, vec![row("pod-b", 100, 9, ""), row("pod-a", 900, 10, why)])
    }

    fn lines(list: &List, room: usize) -> Vec<String> {
        let layout = list.layout(room);
        let cells = |row: &Row| layout.cells(list, row).into_iter().map(|(text, _)| text).collect::<String>();
        let headings = layout.headings(list);
        [headings].into_iter().chain(list.rows.iter().map(cells)).collect()
    }

    #[test]
    fn columns_go_where_there_is_no_room_and_grow_where_there_is() {
        let list = list();
        let at = |room: usize| {
            lines(&list, room).iter().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
        };
        expect_test::expect![[r"
            NAME   BEAT              TASKS  WHY
            pod-b  #----------- 4 s      9
            pod-a  ###########- 4 s     10  because of the disk, which is full, and of nobody who looks…
        "]]
        .assert_eq(&(at(100).replace("looks at it", "looks") + "\n"));
        expect_test::expect![[r"
            NAME   BEAT              TASKS  WHY
            pod-b  #----------- 4 s      9
            pod-a  ###########- 4 s     10  because o…
        "]]
        .assert_eq(&(at(42) + "\n"));
        for room in 6..120 {
            for line in lines(&list, room) {
                assert!(width(&line) <= room, "{line:?} in {room}");
            }
        }
    }

    #[test]
    fn rows_are_filtered_by_any_text() {
        let names = |list: &List| list.rows.iter().map(|row| row.cells[0].text.clone()).collect::<Vec<_>>();
        let mut filtered = list();
        filtered.filter("DISK");
        assert_eq!((names(&filtered), filtered.of), (vec!["pod-a".to_owned()], 2));
    }
}

//! All that is known of a row, in lines as wide as the screen. Pure.

mod change;
mod instance;
mod key;
mod schedule;
mod spread;

use jiff::tz::TimeZone;
use tenure::model::StoreTime;
use tenure_look::{Picture, ago};

use super::{
    list::{Subject, Tone},
    machine::Answer,
    text::{clean, wrap},
};
use crate::times;

/// Columns of a field's name.
const NAME: usize = 12;
/// Things of one kind that are told; of more, their number.
const TOLD: usize = 500;

/// A line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) is_heading: bool,
    pub(super) tone: Tone,
}

/// A text that is being written.
struct Page<'a> {
    lines: Vec<Line>,
    columns: usize,
    picture: &'a Picture,
    zone: &'a TimeZone,
}

/// Returns the details of a subject. `answer` is the data read for it.
pub(super) fn of(
    subject: &Subject,
    picture: &Picture,
    answer: Option<&Answer>,
    zone: &TimeZone,
    columns: usize,
) -> Vec<Line> {
    let mut page = Page { lines: Vec::new(), columns, picture, zone };
    match subject {
        Subject::Instance(session) => instance::tell(&mut page, *session),
        Subject::Spread(name) => spread::tell(&mut page, name),
        Subject::Key(id) => key::tell(&mut page, id, answer),
        Subject::Schedule(id) => schedule::tell(&mut page, id, answer),
        Subject::Change(_) => change::tell(&mut page, subject),
    }
    page.lines
}

impl Page<'_> {
    fn now(&self) -> StoreTime {
        self.picture.now()
    }

    /// An instant as a clock has it, and how long ago that is.
    fn at(&self, time: StoreTime) -> String {
        format!("{}, {}", times::zoned(time, self.zone.clone()), ago(time, self.now()))
    }

    /// A heading, with an empty line before it.
    fn heading(&mut self, text: &str) {
        if !self.lines.is_empty() {
            self.line(String::new(), Tone::Plain);
        }
        self.lines.push(Line { text: clean(text), is_heading: true, tone: Tone::Plain });
    }

    fn line(&mut self, text: String, tone: Tone) {
        self.lines.push(Line { text, is_heading: false, tone });
    }

    /// A text in as many lines as it needs, each behind so many blanks.
    fn text(&mut self, indent: usize, text: impl AsRef<str>, tone: Tone) {
        let blanks = " ".repeat(indent);
        for line in wrap(&clean(text.as_ref()), self.columns.saturating_sub(indent)) {
            self.line(format!("{blanks}{line}"), tone);
        }
    }

    fn field(&mut self, name: &str, value: impl AsRef<str>) {
        self.toned(name, value, Tone::Plain);
    }

    fn toned(&mut self, name: &str, value: impl AsRef<str>, tone: Tone) {
        let lines = wrap(&clean(value.as_ref()), self.columns.saturating_sub(NAME));
        for (at, line) in lines.into_iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            self.line(format!("{name:<NAME$}{line}"), tone);
        }
    }

    /// A field, if there is something to say.
    fn said(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value.map(|value| value.to_string()).filter(|value| !value.is_empty()) {
            self.field(name, value);
        }
    }
}

const HELP: &[(&str, &[&str])] = &[
    (
        "Keys",
        &[
            "Tab, Shift-Tab  the next view, the one before; 1 to 5 name them",
            "Up, Down        the row before, the next one; also k and j",
            "PgUp, PgDn      a screen up, a screen down; Home and End",
            "Enter           all that is known of the row; Esc goes back",
            "/               only rows with this text; Enter ends it, Esc shows all again",
            "s               order by the next column, marked ^, and at last as it was",
            "r               the other way around, marked v",
            "q, Ctrl-C       end",
        ],
    ),
    (
        "What is shown",
        &[
            "Times are as of the last poll, by the store's clock. The data is read in parts: hints decide what is read first, and every part has its turn.",
            "LAST BEAT: the bar is the part of the ttl that has gone by since. When it is full, the instance looks dead. That is a guess, for people: other instances take over after they have watched it for a whole ttl.",
            "SHARES: what an instance has of a spread, against its cap, or else against the instance with the most.",
            "ORPHANS: tasks without a living holder. RESTING: tasks that rest after failures.",
            "WAITING: instances that wait for a lock; NEXT is the first of them.",
            "SORT: failure, loss (a holder died, or a key was taken), takeover (by another, after that), move (in order).",
        ],
    ),
    (
        "LAST RUNS, the last one on the right",
        &[
            "+ succeeded   x failed      T timed out   A abandoned    > is on    ! its runner died",
            "- not run     C cancelled   D displaced   N not begun",
        ],
    ),
];

/// The keys, and what the signs mean.
pub(super) fn help(columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (heading, texts) in HELP {
        if !lines.is_empty() {
            lines.push(Line { text: String::new(), is_heading: false, tone: Tone::Plain });
        }
        lines.push(Line { text: (*heading).to_owned(), is_heading: true, tone: Tone::Plain });
        for text in *texts {
            let wrapped = wrap(text, columns);
            lines.extend(wrapped.into_iter().map(|text| Line { text, is_heading: false, tone: Tone::Plain }));
        }
    }
    lines
}

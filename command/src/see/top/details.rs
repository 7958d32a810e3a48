//! All that is known of a row: what commands print about it, each part under the name of its command. Pure.

use tenure::{
    model::{LockId, ScheduleName, SessionId},
    store::LockRecord,
};
use tenure_look::{Group, Lock, Picture};

use super::{
    list::Subject,
    text::{clean, wrap},
    views::{self, keys},
};
use crate::{
    out,
    see::{instances, ls, named, schedules, spreads, watch},
    times,
};

/// Columns by which what is too long for a line begins further right in the next one.
const INDENT: usize = 4;
/// Tasks of a spread that are told; of more, that there are others.
const TOLD: usize = 500;

/// A line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) is_heading: bool,
}

/// Returns a text in lines of so many columns. The first line of a paragraph is its heading.
pub(super) fn lines(text: &str, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut is_heading = true;
    for line in text.lines().map(clean) {
        let (fits, is_empty) = (out::width(&line) <= columns, line.is_empty());
        let parts = if fits { vec![line] } else { wrap(&line, columns.saturating_sub(INDENT)) };
        for (at, part) in parts.into_iter().enumerate() {
            let indent = if at == 0 { 0 } else { INDENT };
            lines.push(Line { text: format!("{:indent$}{part}", ""), is_heading });
        }
        is_heading = is_empty;
    }
    lines
}

/// A command, and what it prints.
type Part = (String, String);

/// Returns the details of a subject. `read` is the text that was read for it.
pub(super) fn of(subject: &Subject, picture: &Picture, read: &str) -> String {
    let parts = match subject {
        Subject::Instance(session) => instance(*session, picture),
        Subject::Spread(name) => {
            let spread = picture.spread(name, 0, TOLD);
            let gone = || "No instance takes part in it any more, and it has no task.\n".to_owned();
            let mut text = spread.as_ref().map_or_else(gone, |spread| spreads::text(spread, picture.now()));
            if picture.task_count(name) > TOLD {
                text.push_str("There are more.\n");
            }
            vec![(picture.command(&["spreads"], name.as_str()), text)]
        }
        Subject::Key(id) => key(id, picture, read),
        Subject::Schedule(id) => {
            let history = (picture.command(&["history"], id.name.as_str()), read.to_owned());
            vec![(picture.command(&["schedules"], ""), schedule(&id.name, picture)), history]
        }
        Subject::Change(_) => vec![(picture.command(&["watch"], ""), change(subject, picture))],
    };
    let parts: Vec<_> = parts.into_iter().map(|(command, text)| format!("{command}\n{text}")).collect();
    parts.join("\n")
}

fn instance(session: SessionId, picture: &Picture) -> Vec<Part> {
    let (command, now) = (picture.command(&["instances", "--all"], ""), picture.now());
    let Some(one) = picture.instance(session) else {
        return vec![(command, format!("The record of session {session} was removed.\n"))];
    };
    let mut fields = instances::row(&one, true, now);
    fields.push(("SESSION", session.to_string()));
    fields.extend(one.record.requests.iter().map(|request| {
        let (key, by, why) = (&request.lock.key, &request.by, &request.why);
        ("ASKED", format!("to release {key}, term {}, by {by}: {why}", request.term))
    }));
    let lives = std::iter::once(one.record.clone()).collect();
    let is_held =
        |record: &LockRecord| record.holding.as_ref().is_some_and(|held| held.by.session == session);
    let locks = keys(picture).into_iter().filter(is_held).map(|record| Lock::of(record, &lives, now));
    let locks: Vec<_> = locks.collect();
    let mut parts = vec![(command, out::fields(&fields))];
    if !locks.is_empty() {
        let held_by = format!("--held-by={}", one.record.about.holder);
        parts.push((picture.command(&["ls", &held_by], ""), ls::table(&locks, false, now)));
    }
    parts
}

fn key(id: &LockId, picture: &Picture, read: &str) -> Vec<Part> {
    let (key, option) = (id.key.as_str(), named::option(&id.kind));
    let mut parts = vec![(picture.command(&["show", &option], key), read.to_owned())];
    let reasons = picture.lock(id).map(|record| picture.reasons(record)).unwrap_or_default();
    if let Some(spread) = id.kind.spread().filter(|_| !reasons.is_empty()) {
        let explain = format!("--explain={key}");
        parts.push((picture.command(&["spreads", &explain], spread.as_str()), reasons.join("\n") + "\n"));
    }
    parts
}

fn schedule(name: &ScheduleName, picture: &Picture) -> String {
    let Some(one) = picture.schedule(name) else { return "Its record was removed.\n".to_owned() };
    let record = &one.status.record;
    let mut fields = schedules::row(&one, picture.ttl(), picture.now());
    let ticks: Vec<_> = one.next.iter().map(|tick| times::local(*tick)).collect();
    fields.extend(one.in_words.iter().map(|words| ("IN WORDS", words.clone())));
    fields.extend(record.definition.iter().map(|one| ("POLICIES", one.policies.to_string())));
    fields.push(("TICKS", ticks.join(", ")));
    fields.extend(record.orders.iter().map(|order| {
        let at = times::local(order.at);
        ("ORDERED", format!("{at}, by {}: {}", order.by, order.why))
    }));
    out::fields(&fields)
}

fn change(subject: &Subject, picture: &Picture) -> String {
    let groups = Group::all(picture.changes());
    let Some(group) = groups.iter().find(|group| views::subject(group) == *subject) else {
        return "It was more than an hour ago, or its record was removed.\n".to_owned();
    };
    let (word, sentence) = group.describe();
    let mut text = watch::line(group.change.at, word, &sentence) + "\n";
    if group.keys.len() > 1 {
        let keys: Vec<_> = group.keys.iter().map(ToString::to_string).collect();
        text = text + "\nAll of its keys\n" + &keys.join(", ") + "\n";
    }
    text
}

/// The keys, and what the signs mean.
pub(super) const HELP: &str = "\
Keys
Tab, Shift-Tab  the next view, the one before; 1 to 5 name them
Up, Down        the row before, the next one; also k and j
PgUp, PgDn      a screen up, a screen down; Home and End
Enter           all that is known of the row; Esc goes back
/               only rows with this text; Enter ends it, Esc shows all again
q, Ctrl-C       end

What is shown
Times are as of the last poll, by the store's clock. The data is read in parts: hints decide what is read first, \
and every part has its turn.
LAST BEAT: the bar is the part of the ttl that has gone by since. When it is full, the instance looks dead. That is a \
guess, for people: other instances take over after they have watched it for a whole ttl.
SHARES: what an instance has of a spread, against its cap, or else against the instance with the most.
ORPHANS: tasks without a living holder. RESTING: tasks that rest after failures.
WAITING: instances that wait for a lock; NEXT is the first of them.
SORT: failure, loss (a holder died, or a key was taken), takeover (by another, after that), move (in order).

LAST RUNS, the last one on the right
+ succeeded   x failed      T timed out   A abandoned    > is on    ! its runner died
- not run     C cancelled   D displaced   N not begun
";

//! The fleet as a picture of a few lines, and what happened under it.

use std::{fmt::Write, time::Duration};

use super::record::{Record, State};
use crate::out::one_line;

/// Tasks that a bar shows: a third of a hundred, as three instances have.
const BAR: usize = 34;
/// Lines beside those of instances and events.
const FRAME: usize = 6;

/// Data of the picture besides the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) since: Duration,
    pub(crate) time: Duration,
    pub(crate) store: &'a str,
    pub(crate) events: &'a [String],
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) colours: bool,
}

/// Draws it. Every line fits into the width, and all of them into the height.
pub(crate) fn draw(record: &Record, view: &View<'_>) -> Vec<String> {
    let counts = record.counts();
    let mut lines = vec![
        cut(
            &format!(
                "tenure demo  {:4.1} s of {:.0} s  {} tasks  {}",
                view.since.as_secs_f64(),
                view.time.as_secs_f64(),
                record.tasks.len(),
                one_line(view.store)
            ),
            view.width,
        ),
        String::new(),
    ];
    let room = view.height.saturating_sub(FRAME);
    // Instances that are over make room first, the oldest before the others.
    let shown = shown(record, room.saturating_sub(3).max(1));
    for index in &shown {
        lines.push(row(record, *index, counts[*index], view));
    }
    lines.push(cut(&totals(record, &counts), view.width));
    lines.push(cut("  kill -9 any of these pids: the others take over.  Ctrl-C ends it.", view.width));
    lines.push(String::new());
    let events = room.saturating_sub(shown.len()).min(8);
    let latest = &view.events[view.events.len().saturating_sub(events)..];
    lines.extend(latest.iter().map(|event| cut(event, view.width)));
    // As high as it ever becomes, so that it stays where it is.
    lines.resize(FRAME - 1 + shown.len() + events, String::new());
    lines
}

fn shown(record: &Record, most: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..record.instances.len()).collect();
    while shown.len() > most {
        let over = shown.iter().position(|it| record.instances[*it].state.is_over());
        shown.remove(over.unwrap_or(0));
    }
    shown
}

fn row(record: &Record, index: usize, tasks: usize, view: &View<'_>) -> String {
    let instance = &record.instances[index];
    let (word, colour) = look(instance.state);
    let mut bar = "#".repeat(tasks.min(BAR));
    if tasks > BAR {
        bar.replace_range(BAR - 1.., "+");
    }
    let head = format!("  {:<8} {:>7}  ", instance.name, instance.pid);
    let tail =
        format!(" {tasks:>3} {:>4} {}", instance.ticks, if instance.ticks == 1 { "tick" } else { "ticks" });
    let plain = format!("{head}{word:<8} {bar:<BAR$}{tail}");
    if plain.chars().count() > view.width || !view.colours {
        return cut(&plain, view.width);
    }
    format!("{head}\x1b[{colour}m{word:<8} {bar:<BAR$}\x1b[0m{tail}")
}

/// A word for a state, and its colour.
const fn look(state: State) -> (&'static str, &'static str) {
    match state {
        State::Starts => ("starts", "2"),
        State::Runs => ("runs", "32"),
        State::Frozen => ("frozen", "36"),
        State::Drains => ("drains", "33"),
        State::Drained => ("drained", "33"),
        State::Closes => ("closes", "2"),
        State::Left => ("left", "2"),
        State::Killed => ("killed", "31"),
        State::Failed => ("failed", "31"),
    }
}

/// Returns the number of tasks that run, and of ticks that ran.
fn totals(record: &Record, counts: &[usize]) -> String {
    let works = |index: &usize| {
        matches!(record.instances[*index].state, State::Runs | State::Drains | State::Drained)
    };
    let run: usize = (0..counts.len()).filter(works).map(|index| counts[index]).sum();
    let mut text = format!("  {run} of {} tasks run", record.tasks.len());
    let ticks: usize = record.instances.iter().map(|instance| instance.ticks).sum();
    let _ = write!(text, ", {ticks} {} ran", if ticks == 1 { "tick" } else { "ticks" });
    text
}

/// As much of a text as there is room for.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        message::InstanceMessage,
        record::tests::{at, fleet, under},
    };

    fn view(events: &[String], width: usize, height: usize) -> View<'_> {
        View {
            since: Duration::from_millis(4200),
            time: Duration::from_secs(25),
            store: "sqlite:/tmp/tenure-demo-0123456789abcdef/tenure.db",
            events,
            width,
            height,
            colours: false,
        }
    }

    #[test]
    fn the_picture_shows_instances_tasks_and_events() {
        let mut record = fleet(2, 3);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.hear(0, at(20), InstanceMessage::Began(under(1, 1)));
        record.hear(1, at(20), InstanceMessage::Began(under(2, 1)));
        record.hear(1, at(30), InstanceMessage::TickDone { instant: 0, attempt: 1 });
        record.instances[0].state = State::Frozen;
        let events = ["   4.0 s  demo-1 is frozen".to_owned()];
        let lines = draw(&record, &view(&events, 80, 24));
        expect_test::expect![[r"
            tenure demo   4.2 s of 25 s  3 tasks  sqlite:/tmp/tenure-demo-0123456789abcdef/t

              demo-1      1001  frozen   ##                                   2    0 ticks
              demo-2      1002  runs     #                                    1    1 tick
              1 of 3 tasks run, 1 tick ran
              kill -9 any of these pids: the others take over.  Ctrl-C ends it.

               4.0 s  demo-1 is frozen"]]
        .assert_eq(lines.join("\n").trim_end());
    }

    #[test]
    fn the_picture_fits_terminals_of_all_sizes() {
        let mut record = fleet(30, 100);
        for task in 0..100 {
            record.hear(0, at(20), InstanceMessage::Began(under(task, 1)));
        }
        for index in 0..20 {
            record.instances[index].state = State::Killed;
        }
        let events: Vec<String> = (0..50).map(|n| format!("{n} {}", "long ".repeat(40))).collect();
        for (width, height) in [(80, 24), (80, 16), (200, 60), (40, 12), (20, 10)] {
            for colours in [true, false] {
                let lines = draw(&record, &View { colours, ..view(&events, width, height) });
                assert!(lines.len() < height, "{} lines in {height}", lines.len());
                for line in lines {
                    let visible = line.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[0m", "");
                    assert!(visible.chars().count() <= width, "{visible:?} in {width}");
                }
            }
        }
    }
}

//! Summary of promises and observations, for people and for programs.

use std::{fmt::Write, time::Duration};

use serde::Serialize;

use super::{
    judge::{self, Kept, Verdict, seconds},
    record::Record,
};

/// The outcome of a demo.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) held: bool,
    pub(crate) promises: Vec<Verdict>,
    pub(crate) instances: Vec<Shown>,
    pub(crate) store: String,
    pub(crate) namespace: String,
    pub(crate) took_ms: u64,
    /// The longest time for which an instance did not run, or was not answered by the store.
    pub(crate) busy_ms: Option<u64>,
}

/// An instance that took part.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    name: String,
    pid: u32,
    killed: bool,
    starts: usize,
    ticks: usize,
}

impl Summary {
    pub(crate) fn new(
        record: &Record,
        promises: Vec<Verdict>,
        store: String,
        namespace: String,
        took: Duration,
    ) -> Self {
        let starts = |index: usize| record.tasks.iter().flatten().filter(|it| it.instance == index).count();
        let shown = record.instances.iter().enumerate().map(|(index, instance)| Shown {
            name: instance.name.clone(),
            pid: instance.pid,
            killed: instance.death.is_some(),
            starts: starts(index),
            ticks: instance.ticks,
        });
        Self {
            held: promises.iter().all(|promise| promise.kept != Kept::Broken),
            instances: shown.collect(),
            promises,
            store,
            namespace,
            took_ms: ms(took),
            busy_ms: judge::busy(record).map(ms),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = "\nWhat was promised, and what was seen:\n\n".to_owned();
        for Verdict { promise, kept, seen, broken } in &self.promises {
            let word = match kept {
                Kept::Held => "held",
                Kept::Broken => "BROKEN",
                Kept::NotTried => "not tried",
            };
            // Writing to a string cannot fail.
            text.push_str(&wrapped(&format!("  {word:<9} "), promise));
            for line in seen {
                text.push_str(&wrapped(UNDER, line));
            }
            for line in broken.iter().take(MOST) {
                text.push_str(&wrapped(UNDER, &format!("broken: {line}")));
            }
            if broken.len() > MOST {
                text.push_str(&wrapped(UNDER, &format!("broken: and {} more", broken.len() - MOST)));
            }
        }
        if let Some(busy) = self.busy_ms.map(Duration::from_millis) {
            let busy = format!(
                "The machine or its disk was busy: for {} some instance did not run, or had no answer of the store. \
                 The times allow for that.",
                seconds(busy)
            );
            text.push('\n');
            text.push_str(&wrapped("  ", &busy));
        }
        let took = seconds(Duration::from_millis(self.took_ms));
        let _ = match self.promises.iter().filter(|promise| promise.kept == Kept::Broken).count() {
            0 => writeln!(text, "\nEvery promise held. It took {took}."),
            1 => writeln!(text, "\nOne promise was broken. It took {took}."),
            broken => writeln!(text, "\n{broken} promises were broken. It took {took}."),
        };
        text
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Lines about one promise: the first ones say what is wrong.
const MOST: usize = 5;
/// Columns of any terminal.
const WIDTH: usize = 80;
/// Indent of the text about a promise.
const UNDER: &str = "            ";

/// A text behind a beginning, in lines of which the others begin where the first one's text does.
fn wrapped(beginning: &str, text: &str) -> String {
    let (mut lines, mut line) = (String::new(), beginning.to_owned());
    for word in text.split(' ') {
        let is_first = line.trim_end().len() == beginning.trim_end().len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = " ".repeat(beginning.chars().count());
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::record::tests::fleet;

    fn verdict(kept: Kept, broken: &[&str]) -> Verdict {
        Verdict {
            promise: "water is wet".to_owned(),
            kept,
            seen: vec!["it was".to_owned()],
            broken: broken.iter().map(ToString::to_string).collect(),
        }
    }

    fn summary(promises: Vec<Verdict>) -> Summary {
        let (store, namespace) = ("sqlite:x".to_owned(), "demo".to_owned());
        Summary::new(&fleet(1, 1), promises, store, namespace, Duration::from_secs(24))
    }

    #[test]
    fn a_broken_promise_is_named() {
        let summary =
            summary(vec![verdict(Kept::Held, &[]), verdict(Kept::Broken, &["a puddle was dry"; 7])]);
        assert!(!summary.held);
        expect_test::expect![[r"

            What was promised, and what was seen:

              held      water is wet
                        it was
              BROKEN    water is wet
                        it was
                        broken: a puddle was dry
                        broken: a puddle was dry
                        broken: a puddle was dry
                        broken: a puddle was dry
                        broken: a puddle was dry
                        broken: and 2 more

            One promise was broken. It took 24.00 s.
        "]]
        .assert_eq(&summary.text());
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let long = "a task that lost a second holder ".repeat(9);
        let text = wrapped("  held      ", long.trim_end());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with(UNDER)), "{text}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&text)[1..], words(&long), "no word is lost");
    }

    #[test]
    fn a_promise_that_was_not_tried_is_not_broken() {
        let summary = summary(vec![verdict(Kept::NotTried, &[])]);
        assert!(summary.held);
        assert!(summary.text().contains("not tried water is wet"));
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["promises"][0]["kept"], "not_tried");
        assert_eq!(json["took_ms"], 24_000);
    }
}

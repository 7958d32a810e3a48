//! Messages of an instance: a line for each event, with its moment in the machine's boot time.

use std::{fmt::Write, str::FromStr, time::Duration};

use tenure::clock::Moment;

/// The machine's own start: every process of it counts from there.
pub(crate) const BOOT: Moment = Moment::after_start(Duration::ZERO);

/// The right under which a task did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Under {
    pub(crate) task: usize,
    pub(crate) term: u64,
    /// Time for which the lease was still valid at least, if nothing is heard of it any more.
    pub(crate) left: Duration,
}

/// A message of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InstanceMessage {
    /// The instance takes part.
    Ready,
    /// The instance runs; `late` is the delay of the store's answer to its heartbeat.
    Pulse {
        late: Duration,
    },
    /// The first poll of a task's job.
    Began(Under),
    /// The job works, and holds the lease.
    Worked(Under),
    /// The job is over: nothing is done under this lease any more.
    Ended {
        task: usize,
        term: u64,
    },
    TickBegan {
        instant: i64,
        attempt: u32,
    },
    TickDone {
        instant: i64,
        attempt: u32,
    },
    /// The run was told to stop before it was through.
    TickStopped {
        instant: i64,
        attempt: u32,
    },
    /// Ticks that are not run.
    NotRun {
        count: u64,
        why: String,
    },
    /// A task is not run by any instance for a while.
    Rests {
        task: usize,
    },
    /// The instance noticed that its session is over.
    Lost {
        why: String,
    },
    /// The instance was drained, and has no task any more.
    Drained,
    Closed,
    /// The instance cannot go on.
    Failed {
        why: String,
    },
}

/// A line, its end included.
pub(crate) fn write(at: Moment, said: &InstanceMessage) -> String {
    let mut line = micros(at.since(BOOT)).to_string();
    let under =
        |word: &str, Under { task, term, left }: &Under| format!("{word} {task} {term} {}", micros(*left));
    let tick = |word: &str, instant: i64, attempt: u32| format!("{word} {instant} {attempt}");
    let words = match said {
        InstanceMessage::Ready => "ready".to_owned(),
        InstanceMessage::Pulse { late } => format!("pulse {}", micros(*late)),
        InstanceMessage::Began(it) => under("began", it),
        InstanceMessage::Worked(it) => under("worked", it),
        InstanceMessage::Ended { task, term } => format!("ended {task} {term}"),
        InstanceMessage::TickBegan { instant, attempt } => tick("tick-began", *instant, *attempt),
        InstanceMessage::TickDone { instant, attempt } => tick("tick-done", *instant, *attempt),
        InstanceMessage::TickStopped { instant, attempt } => tick("tick-stopped", *instant, *attempt),
        InstanceMessage::NotRun { count, why } => format!("not-run {count} {}", one_line(why)),
        InstanceMessage::Rests { task } => format!("rests {task}"),
        InstanceMessage::Lost { why } => format!("lost {}", one_line(why)),
        InstanceMessage::Drained => "drained".to_owned(),
        InstanceMessage::Closed => "closed".to_owned(),
        InstanceMessage::Failed { why } => format!("failed {}", one_line(why)),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(line, " {words}");
    line
}

/// Reads a line; nothing, if it is not one of these.
pub(crate) fn read(line: &str) -> Option<(Moment, InstanceMessage)> {
    let (at, rest) = line.split_once(' ')?;
    let at = BOOT + Duration::from_micros(at.parse().ok()?);
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut words = rest.split(' ');
    let said = match word {
        "ready" => InstanceMessage::Ready,
        "pulse" => InstanceMessage::Pulse { late: Duration::from_micros(number(&mut words)?) },
        "began" => InstanceMessage::Began(under(&mut words)?),
        "worked" => InstanceMessage::Worked(under(&mut words)?),
        "ended" => InstanceMessage::Ended { task: number(&mut words)?, term: number(&mut words)? },
        "tick-began" => {
            InstanceMessage::TickBegan { instant: number(&mut words)?, attempt: number(&mut words)? }
        }
        "tick-done" => {
            InstanceMessage::TickDone { instant: number(&mut words)?, attempt: number(&mut words)? }
        }
        "tick-stopped" => {
            InstanceMessage::TickStopped { instant: number(&mut words)?, attempt: number(&mut words)? }
        }
        "not-run" => {
            let (count, why) = rest.split_once(' ')?;
            InstanceMessage::NotRun { count: count.parse().ok()?, why: why.to_owned() }
        }
        "rests" => InstanceMessage::Rests { task: number(&mut words)? },
        "lost" => InstanceMessage::Lost { why: rest.to_owned() },
        "drained" => InstanceMessage::Drained,
        "closed" => InstanceMessage::Closed,
        "failed" => InstanceMessage::Failed { why: rest.to_owned() },
        _ => return None,
    };
    Some((at, said))
}

fn under(words: &mut std::str::Split<'_, char>) -> Option<Under> {
    Some(Under { task: number(words)?, term: number(words)?, left: Duration::from_micros(number(words)?) })
}

fn number<T: FromStr>(words: &mut std::str::Split<'_, char>) -> Option<T> {
    words.next()?.parse().ok()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A pipe takes up to 4096 bytes as a whole, so that a line is there or is not.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(800).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let at = BOOT + Duration::from_micros(1_234_567_890);
        let under = Under { task: 7, term: 1_767_225_600_000, left: Duration::from_micros(2_740_123) };
        let (instant, attempt) = (1_767_225_600_000, 2);
        for said in [
            InstanceMessage::Ready,
            InstanceMessage::Pulse { late: Duration::from_micros(1_234_567) },
            InstanceMessage::Began(under),
            InstanceMessage::Worked(under),
            InstanceMessage::Ended { task: 99, term: 3 },
            InstanceMessage::TickBegan { instant, attempt },
            InstanceMessage::TickDone { instant, attempt },
            InstanceMessage::TickStopped { instant, attempt },
            InstanceMessage::NotRun { count: 3, why: "too late".to_owned() },
            InstanceMessage::Rests { task: 12 },
            InstanceMessage::Lost { why: "no heartbeat was acknowledged for 3s".to_owned() },
            InstanceMessage::Drained,
            InstanceMessage::Closed,
            InstanceMessage::Failed { why: "a disk that is full".to_owned() },
        ] {
            let line = write(at, &said);
            assert_eq!(read(line.trim_end()), Some((at, said)));
        }
    }

    #[test]
    fn lines_that_are_cut_off_or_unknown_are_ignored() {
        assert_eq!(read("12 began 7 8"), None);
        assert_eq!(read("12"), None);
        assert_eq!(read("12 sings"), None);
        assert_eq!(read("soon ready"), None);
    }

    #[test]
    fn a_line_is_one_line_and_fits_into_a_pipe() {
        let why = format!("a\nb{}", "\u{1f600}".repeat(5000));
        let line = write(BOOT, &InstanceMessage::Failed { why });
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.len() < 4096, "{}", line.len());
    }
}

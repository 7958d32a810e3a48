//! Lines that a holder's process prints, one event each: when it happened, and what.

use std::time::Duration;

use tenure::{
    clock::Moment,
    model::{SessionId, Term},
    store::Ticket,
};
use tenure_sim::{EventKind, Reported, WorkKind};

/// A message of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// For the history.
    Seen(EventKind),
    /// A fenced transaction of its was acknowledged, which wrote this version of the key's resource.
    Committed { key: usize, term: Term, version: u64 },
    /// An attempt at a tick of the schedule begins.
    Ticked { instant: i64, attempt: u32 },
    /// All messages before this one have been printed.
    Echo(i64),
}

/// The time of the machine, as every process of it shows it.
pub(crate) fn start() -> Moment {
    Moment::after_start(Duration::ZERO)
}

/// A line, its end included.
///
/// # Panics
/// For what no process says of itself.
pub(crate) fn write(at: Moment, line: &Line) -> String {
    let said = match line {
        Line::Seen(what) => seen(what),
        Line::Committed { key, term, version } => format!("committed {key} {term} {version}"),
        Line::Ticked { instant, attempt } => format!("ticked {instant} {attempt}"),
        Line::Echo(number) => format!("echo {number}"),
    };
    format!("> {} {said}\n", at.since(start()).as_nanos())
}

fn seen(what: &EventKind) -> String {
    match what {
        EventKind::Opens { session } => format!("opens {session}"),
        EventKind::Confirmed { session, sent } => {
            format!("confirmed {session} {}", sent.since(start()).as_nanos())
        }
        EventKind::Noticed { key, term, session, ticket } => {
            format!("noticed {key} {term} {session} {ticket}")
        }
        EventKind::Began { key, term, tag, .. } => format!("began {key} {term} {tag}"),
        EventKind::Polled { key, term } => format!("polled {key} {term}"),
        EventKind::Ended { key, term } => format!("ended {key} {term}"),
        EventKind::Cancelled { key, term } => format!("cancelled {key} {term}"),
        EventKind::Reported(Reported::SessionOpened { session }) => format!("session-opened {session}"),
        EventKind::Reported(Reported::SessionLost { session, why }) => {
            format!("session-lost {session} {why}")
        }
        EventKind::Reported(Reported::Acquired { key, term }) => format!("acquired {key} {term}"),
        EventKind::Reported(Reported::Lost { key, term, why }) => format!("lost {key} {term} {why}"),
        EventKind::Reported(Reported::Released { key, term }) => format!("released {key} {term}"),
        EventKind::Reported(Reported::Overran { key, term }) => format!("overran {key} {term}"),
        EventKind::Reported(Reported::Missed { events }) => format!("missed {events}"),
        EventKind::Capped { cap } => format!("capped {cap}"),
        EventKind::Started => "started".to_owned(),
        EventKind::Closes => "closes".to_owned(),
        EventKind::Closed { overran } => format!("closed {overran}"),
        other => panic!("no process says {other:?}"),
    }
}

/// Reads a line; nothing, if it is not one of these.
pub(crate) fn read(line: &str) -> Option<(Moment, Line)> {
    let mut words = line.strip_prefix("> ")?.split(' ');
    let at = moment(&mut words)?;
    let said = match words.next()? {
        "opens" => Line::Seen(EventKind::Opens { session: session(&mut words)? }),
        "confirmed" => {
            Line::Seen(EventKind::Confirmed { session: session(&mut words)?, sent: moment(&mut words)? })
        }
        "noticed" => Line::Seen(EventKind::Noticed {
            key: number(&mut words)?,
            term: term(&mut words)?,
            session: session(&mut words)?,
            ticket: Ticket::try_new(number(&mut words)?)?,
        }),
        "began" => Line::Seen(EventKind::Began {
            key: number(&mut words)?,
            term: term(&mut words)?,
            tag: words.next()?.to_owned(),
            sort: WorkKind::Job,
        }),
        "polled" => Line::Seen(EventKind::Polled { key: number(&mut words)?, term: term(&mut words)? }),
        "ended" => Line::Seen(EventKind::Ended { key: number(&mut words)?, term: term(&mut words)? }),
        "cancelled" => Line::Seen(EventKind::Cancelled { key: number(&mut words)?, term: term(&mut words)? }),
        "session-opened" => told(Reported::SessionOpened { session: session(&mut words)? }),
        "session-lost" => {
            told(Reported::SessionLost { session: session(&mut words)?, why: reason(words.next()?) })
        }
        "acquired" => told(Reported::Acquired { key: number(&mut words)?, term: term(&mut words)? }),
        "lost" => told(Reported::Lost {
            key: number(&mut words)?,
            term: term(&mut words)?,
            why: reason(words.next()?),
        }),
        "released" => told(Reported::Released { key: number(&mut words)?, term: term(&mut words)? }),
        "overran" => told(Reported::Overran { key: number(&mut words)?, term: term(&mut words)? }),
        "missed" => told(Reported::Missed { events: number(&mut words)? }),
        "capped" => Line::Seen(EventKind::Capped { cap: number(&mut words)? }),
        "started" => Line::Seen(EventKind::Started),
        "closes" => Line::Seen(EventKind::Closes),
        "closed" => Line::Seen(EventKind::Closed { overran: number(&mut words)? }),
        "committed" => Line::Committed {
            key: number(&mut words)?,
            term: term(&mut words)?,
            version: number(&mut words)?,
        },
        "ticked" => Line::Ticked { instant: number(&mut words)?, attempt: number(&mut words)? },
        "echo" => Line::Echo(number(&mut words)?),
        _ => return None,
    };
    Some((at, said))
}

fn told(told: Reported) -> Line {
    Line::Seen(EventKind::Reported(told))
}

fn number<T: std::str::FromStr>(words: &mut std::str::Split<'_, char>) -> Option<T> {
    words.next()?.parse().ok()
}

fn moment(words: &mut std::str::Split<'_, char>) -> Option<Moment> {
    Some(start() + Duration::from_nanos(number(words)?))
}

fn term(words: &mut std::str::Split<'_, char>) -> Option<Term> {
    Term::try_new(number(words)?)
}

fn session(words: &mut std::str::Split<'_, char>) -> Option<SessionId> {
    number(words)
}

/// The reasons that the engine has, as it writes them.
fn reason(word: &str) -> &'static str {
    const REASONS: [&str; 9] = [
        "expired",
        "revoked",
        "declared_dead",
        "vanished",
        "resigned",
        "moved",
        "closed",
        "timed_out",
        "probe",
    ];
    REASONS.into_iter().find(|reason| *reason == word).unwrap_or("another reason")
}

#[test]
fn lines_are_read_as_they_were_written() {
    let at = start() + Duration::from_nanos(1_234_567_890_123);
    let session = "00112233445566778899aabbccddeeff".parse().unwrap();
    let (key, term, ticket) = (3, Term::new(9), Ticket::new(7));
    let all = [
        EventKind::Opens { session },
        EventKind::Confirmed { session, sent: at },
        EventKind::Noticed { key, term, session, ticket },
        EventKind::Began { key, term, tag: "2.1-3".to_owned(), sort: WorkKind::Job },
        EventKind::Polled { key, term },
        EventKind::Ended { key, term },
        EventKind::Cancelled { key, term },
        EventKind::Reported(Reported::SessionOpened { session }),
        EventKind::Reported(Reported::SessionLost { session, why: "closed" }),
        EventKind::Reported(Reported::Acquired { key, term }),
        EventKind::Reported(Reported::Lost { key, term, why: "expired" }),
        EventKind::Reported(Reported::Released { key, term }),
        EventKind::Reported(Reported::Overran { key, term }),
        EventKind::Reported(Reported::Missed { events: 4 }),
        EventKind::Capped { cap: 12 },
        EventKind::Reported(Reported::Lost { key, term, why: "moved" }),
        EventKind::Started,
        EventKind::Closes,
        EventKind::Closed { overran: 2 },
    ];
    let ticked = Line::Ticked { instant: 1_767_225_600_000, attempt: 2 };
    let others = [Line::Committed { key, term, version: 12 }, ticked, Line::Echo(5)];
    for line in all.into_iter().map(Line::Seen).chain(others) {
        let written = write(at, &line);
        assert_eq!(read(written.trim_end()), Some((at, line)));
    }
    assert_eq!(read("test lines::of ... ok"), None);
    assert_eq!(read("> 12 polled 1"), None, "a line that was cut off says nothing");
}

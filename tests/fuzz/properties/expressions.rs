//! Expressions: refused in one line, or with instants that rise; never a panic, and never long.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure::{
    model::StoreTime,
    schedule::{CalendarError, Timing},
};

use super::source::Source;

/// Longest processor time of any question, without optimization: it is microseconds with it.
const LONG: Duration = Duration::from_millis(500);

const ZONES: [&str; 8] = [
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Pacific/Apia",
    "Africa/Monrovia",
    "antarctica/troll",
    "Nowhere",
];
const PIECES: [&str; 44] = [
    "*", "*", "*", "*/", "/", "-", ",", "#", "L", "W", "LW", "?", "+", "H", "H(", ")", "h/", "0", "1", "2",
    "5", "7", "9", "15", "29", "30", "31", "59", "60", "mon", "SUN", "fri", "JAN", "feb", "DEC", "JULY",
    "@every ", "@at ", "@after ", "@daily", "s", "d", "T", ":",
];
const FIELDS: [&str; 24] = [
    "*", "*", "0", "1", "2", "3", "*/5", "0-3", "1,2", "H", "H/7", "H(1-3)", "29", "30", "31", "L", "LW",
    "15W", "5#3", "FRIL", "+MON", "2", "sun-mon", "1-5/2",
];

/// The bytes as an expression, and expressions made of pieces of some.
pub(crate) fn expressions(bytes: &[u8]) -> bool {
    let mut source = Source::new(bytes);
    let zone = ZONES[source.below(ZONES.len())];
    let spread = if source.one_in(4) { source.number() } else { 0 };
    let after = StoreTime::from_millis(source.number().cast_signed());
    let of = |text: String| {
        let timing = Timing::new(text).zone(zone).spread_over(Duration::from_secs(spread));
        timing.named("report")
    };
    let fields: Vec<_> = (0..5 + source.below(2)).map(|_| source.pick(&FIELDS)).collect();
    let pieces: String =
        (0..source.below(24)).map(|_| if source.one_in(3) { " " } else { source.pick(&PIECES) }).collect();
    let raw = String::from_utf8_lossy(bytes).into_owned();
    let known = [fields.join(" "), pieces, raw].map(|text| holds(&of(text), after));
    known.contains(&true)
}

/// Returns whether it is accepted. Then its instants rise, and asked from within it answers the same.
fn holds(timing: &Timing, after: StoreTime) -> bool {
    let checked = quickly(timing, Timing::check);
    let found = quickly(timing, |timing| timing.next(6, after));
    let instants = match (checked, found) {
        (Ok(()), Ok(instants)) => instants,
        (Err(one), Err(other)) => {
            refused(&one);
            assert_eq!(one, other, "{timing:?}");
            return false;
        }
        (one, other) => panic!("{timing:?}: {one:?}, but {other:?}"),
    };
    let mut last = after;
    for at in &instants {
        assert!(*at > last && at.as_millis() % 1000 == 0, "{timing:?} after {after}: {instants:?}");
        last = *at;
    }
    if let [first, second, ..] = instants[..] {
        assert_eq!(timing.next(1, first), Ok(vec![second]), "{timing:?}");
        let before = StoreTime::from_millis(second.as_millis() - 1);
        assert_eq!(timing.next(1, before), Ok(vec![second]), "{timing:?}");
    }
    true
}

fn quickly<T>(timing: &Timing, ask: impl Fn(&Timing) -> T) -> T {
    let begun = computed();
    let answer = ask(timing);
    let took = computed().saturating_sub(begun);
    assert!(took < LONG, "{timing:?} took {took:?}");
    answer
}

/// Time this thread has had a processor: other processes have no part in it.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it began at zero")
}

fn refused(error: &CalendarError) {
    let words = error.to_string();
    assert!(words.len() < 1200 && !words.contains(char::is_control), "{words}");
    assert!(
        ["the expression \"", "the zone \"", "the spread ("].iter().any(|begin| words.starts_with(begin)),
        "{words}"
    );
}

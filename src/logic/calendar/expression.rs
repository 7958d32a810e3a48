//! Expressions as they were written, and their canonical text.

use std::time::Duration;

use croner::{
    Cron,
    errors::CronError,
    parser::{CronParser, Year},
};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use super::{CalendarError, FIRST, LAST, LONGEST, fields, pattern::Pattern, stable, zone::Zone};
use crate::model::ScheduleName;

const LONGEST_EXPRESSION: usize = 256;

#[derive(Clone, Debug)]
pub(super) enum Expression {
    /// Civil times.
    Pattern(Pattern),
    /// `shift` and every `period` from there, in seconds since 1970.
    Every { period: i64, shift: i64 },
    /// Single instant, in seconds since 1970.
    At(i64),
    /// Single instant, in seconds after the timing was first stored.
    After(i64),
}

impl Expression {
    pub(super) fn read(
        text: &str,
        zone: &Zone,
        name: &ScheduleName,
    ) -> Result<(Self, String), CalendarError> {
        let bytes = text.len();
        if bytes > LONGEST_EXPRESSION {
            let why = format!("is {bytes} bytes long, at most {LONGEST_EXPRESSION} are allowed");
            return Err(CalendarError::of(text, why));
        }
        if let Some(odd) = text.chars().find(|c| !matches!(c, ' '..='~' | '\t')) {
            return Err(CalendarError::of(
                text,
                format!("has the character {odd:?}, which is not ASCII text"),
            ));
        }
        let read = if text.trim_start().starts_with('@') { word(text, zone, name) } else { cron(text, name) };
        read.map_err(|why| CalendarError::of(text, why))
    }
}

fn cron(text: &str, name: &ScheduleName) -> Result<(Expression, String), String> {
    let upper = text.to_ascii_uppercase();
    let fields: Vec<_> = upper.split_ascii_whitespace().collect();
    if fields.is_empty() {
        return Err("is empty".to_owned());
    }
    if let Some(problem) = fields::zone_before(text) {
        return Err(problem);
    }
    let (numbers, wildcard) = fields::read(&fields, name)?;
    let cron = parsed(&numbers).map_err(|error| {
        // As a sentence of its own, among ours.
        let words = error.to_string();
        format!("is refused: {}", words.trim_end_matches('.').to_ascii_lowercase())
    })?;
    let pattern = Pattern::new(cron, wildcard);
    if pattern.first(FIRST).is_none() {
        return Err("names a day that does not exist".to_owned());
    }
    Ok((Expression::Pattern(pattern), fields.join(" ")))
}

fn parsed(numbers: &str) -> Result<Cron, CronError> {
    CronParser::builder().year(Year::Disallowed).build().parse(numbers)
}

/// Returns the fields of a pattern in words; nothing if they are none.
pub(super) fn described(fields: &str, name: &ScheduleName) -> Option<String> {
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    let (numbers, _) = fields::read(&fields, name).ok()?;
    Some(parsed(&numbers).ok()?.describe().trim_end_matches('.').to_owned())
}

/// Returns what begins with `@`.
fn word(text: &str, zone: &Zone, name: &ScheduleName) -> Result<(Expression, String), String> {
    let text = text.trim();
    let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let rest = rest.trim();
    let pattern = match &*word.to_ascii_lowercase() {
        "@every" => {
            let period = duration(rest)?;
            let shift = stable::below(name, "every", period) as i64;
            let every = Expression::Every { period: period as i64, shift };
            return Ok((every, format!("@every {}", in_words(period))));
        }
        "@after" => {
            let delay = duration(rest)?;
            return Ok((Expression::After(delay as i64), format!("@after {}", in_words(delay))));
        }
        "@at" => {
            let at = instant(rest, zone)?;
            return Ok((Expression::At(at), format!("@at {}", timestamp(at))));
        }
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            return Err(
                "begins with none of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, \
                        @every, @at and @after"
                    .to_owned(),
            );
        }
    };
    if !rest.is_empty() {
        return Err(format!("has more after {word}"));
    }
    cron(pattern, name)
}

/// Whole seconds, from one to 366 days.
fn duration(text: &str) -> Result<u64, String> {
    let wrong = || "must have a duration such as 90s or 1h 30m".to_owned();
    // humantime panics where a sum of parts is 2^64 s.
    let digits = text.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
    if text.len() > 64 || digits.is_some_and(|digits| digits > 10) {
        return Err(wrong());
    }
    let duration = humantime_serde::re::humantime::parse_duration(text)
        .map_err(|error| format!("{}: {error}", wrong()))?;
    let seconds = duration.as_secs();
    if duration != Duration::from_secs(seconds) || !(1..=LONGEST).contains(&seconds) {
        return Err("must have whole seconds, from 1s to 366d".to_owned());
    }
    Ok(seconds)
}

/// An instant as RFC 3339 has it, or a civil time in the zone.
fn instant(text: &str, zone: &Zone) -> Result<i64, String> {
    let wrong = || {
        "must have an instant such as 2026-11-21T03:00:00Z, or a civil time of its zone without the Z"
            .to_owned()
    };
    let text = text.to_ascii_uppercase();
    // jiff reads more than one form of each.
    let shape =
        |text: &str| text.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte }).collect();
    let shape: Vec<u8> = shape(&text);
    let Some((b"0000-00-00T00:00:00", offset)) = shape.split_at_checked(19) else { return Err(wrong()) };
    let at = match offset {
        b"" => {
            let civil: DateTime = text.parse().map_err(|_| wrong())?;
            let civil = TimeZone::UTC.to_timestamp(civil).map_err(|_| out_of_range())?.as_second();
            // The search in the zone is for these years only.
            if !(FIRST..=LAST).contains(&civil) {
                return Err(out_of_range());
            }
            zone.reached(civil, FIRST)
        }
        b"Z" | b"+00:00" | b"-00:00" => text.parse::<Timestamp>().map_err(|_| wrong())?.as_second(),
        _ => return Err(wrong()),
    };
    // jiff takes a leap second for the one before.
    if text.as_bytes()[17] > b'5' {
        return Err(wrong());
    }
    if (FIRST..=LAST).contains(&at) { Ok(at) } else { Err(out_of_range()) }
}

fn out_of_range() -> String {
    "must have an instant of the years 1970 to 4999".to_owned()
}

fn timestamp(at: i64) -> crate::model::StoreTime {
    crate::model::StoreTime::from_millis(at * 1000)
}

/// `1d 2h 3m 4s`, as it is read again.
pub(super) fn in_words(seconds: u64) -> String {
    let parts =
        [(seconds / 86_400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let words: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if words.is_empty() { "0s".to_owned() } else { words.join(" ") }
}

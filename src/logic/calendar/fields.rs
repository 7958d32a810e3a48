//! The fields of a cron expression, checked and made numbers of before croner reads them. It takes more than
//! it says: names in any field and within words, items without anything, signs after a `W`. Whatever is not
//! plainly one thing is refused here, with the field in the message.

use std::fmt::Write;

use super::stable;
use crate::model::ScheduleName;

struct Field {
    name: &'static str,
    least: u64,
    most: u64,
    /// The most that `H` is replaced by: a day that every month has, a weekday that is not also another.
    most_spread: u64,
    /// From `least` on; an empty one has none.
    names: &'static [&'static str],
}

const fn plain(name: &'static str, least: u64, most: u64, most_spread: u64) -> Field {
    Field { name, least, most, most_spread, names: &[] }
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const DAY_OF_MONTH: &str = "day of month";
const WEEKDAY: &str = "weekday";

const FIELDS: [Field; 6] = [
    plain("second", 0, 59, 59),
    plain("minute", 0, 59, 59),
    plain("hour", 0, 23, 23),
    plain(DAY_OF_MONTH, 1, 31, 28),
    Field { names: &MONTHS, ..plain("month", 1, 12, 12) },
    Field { names: &WEEKDAYS, ..plain(WEEKDAY, 0, 7, 6) },
];

/// Returns what is wrong with `TZ=Europe/Berlin 30 2 * * *`, as some crons have it: their zone is of one line only.
pub(super) fn zone_before(text: &str) -> Option<String> {
    let (word, zone) = text.split_ascii_whitespace().next()?.split_once('=')?;
    let word = word.to_ascii_uppercase();
    let zone = if zone.is_empty() { "Europe/Berlin" } else { zone };
    matches!(&*word, "TZ" | "CRON_TZ").then(|| {
        format!("begins with {word}=, but a zone is not part of the expression: set it with .zone({zone:?})")
    })
}

/// Five or six fields in capitals as croner is to read them, and whether they follow the clock; or what is
/// wrong with them.
pub(super) fn read(fields: &[&str], name: &ScheduleName) -> Result<(String, bool), String> {
    let count = fields.len();
    if !(5..=6).contains(&count) {
        let fields = if count == 1 { "field" } else { "fields" };
        let years = if count == 7 { "; years cannot be given" } else { "" };
        return Err(format!("has {count} {fields}, and must have 5, or 6 with seconds first{years}"));
    }
    // Vixie's rule, of what is written.
    let wildcard = fields[..count - 3].iter().any(|field| field.starts_with('*'));
    let known = &FIELDS[6 - count..];
    let read: Result<Vec<_>, _> =
        known.iter().zip(fields).map(|(known, text)| known.read(text, name)).collect();
    let mut read = read?;
    if let Some(problem) = counted_otherwise(fields[count - 3], fields[count - 1]) {
        return Err(problem);
    }
    if needs_both(&read[count - 3], &read[count - 1]) {
        read[count - 1].insert(0, '+');
    }
    Ok((read.join(" "), wildcard))
}

/// Returns what is wrong with numbers of weekdays beside a `?`: that is how Quartz writes, and there Sunday is 1.
fn counted_otherwise(day: &str, weekday: &str) -> Option<String> {
    let here = by_names(weekday, 0).filter(|here| day == "?" && here != weekday)?;
    let quartz = by_names(weekday, 1).unwrap_or_else(|| "nothing".to_owned());
    Some(format!(
        "has the weekday \"{weekday}\" beside a ?, which means {here} here and {quartz} in Quartz: write names"
    ))
}

/// Returns a field of weekdays with names for its numbers, where Sunday is that number; nothing if one has no name.
fn by_names(weekdays: &str, sunday: usize) -> Option<String> {
    let name = |day: &str| match day.parse::<usize>().ok().filter(|_| is_number(day)) {
        Some(number) => Some(WEEKDAYS[number.checked_sub(sunday)? % WEEKDAYS.len()].to_owned()),
        None => Some(day.to_owned()),
    };
    let (and, items) = weekdays.split_at(usize::from(weekdays.starts_with('+')));
    let items = items.split(',').map(|item| {
        // What follows is no weekday.
        let (days, rest) = item.split_at(item.find(['/', '#', 'L']).unwrap_or(item.len()));
        let days: Option<Vec<_>> = days.split('-').map(name).collect();
        Some(days?.join("-") + rest)
    });
    let items: Option<Vec<_>> = items.collect();
    Some(and.to_owned() + &items?.join(","))
}

/// Returns whether croner needs to know that a day must match both its fields. Vixie's rule again: if one of them
/// begins with `*`, both; else either. croner knows that of a bare `*`, and not of `*/2`.
fn needs_both(day: &str, weekday: &str) -> bool {
    let bare = [day, weekday].contains(&"*");
    !bare && (day.starts_with('*') || weekday.starts_with('*'))
}

impl Field {
    fn read(&self, text: &str, name: &ScheduleName) -> Result<String, String> {
        // croner's "and": both the day and the weekday must match.
        let (and, items) = match text.strip_prefix('+') {
            Some(items) if self.name == WEEKDAY => ("+", items),
            _ => ("", text),
        };
        if matches!(self.name, DAY_OF_MONTH | WEEKDAY) && items == "?" {
            return Ok([and, "*"].concat());
        }
        let read: Result<Vec<_>, _> = items.split(',').map(|item| self.item(item, name)).collect();
        let read = read.map_err(|why| format!("has the {} \"{text}\", which {why}", self.name))?;
        if read.iter().any(|item| item == "L") && read.iter().any(|item| item == "LW") {
            return Err(format!(
                "has the {} \"{text}\", which must have one of L and LW, not both",
                self.name
            ));
        }
        Ok([and, &read.join(",")].concat())
    }

    fn item(&self, item: &str, name: &ScheduleName) -> Result<String, String> {
        if item.is_empty() {
            return Err("has nothing between two commas, or at an end".to_owned());
        }
        if let Some(rest) = item.strip_prefix('H') {
            return self.spread(rest, name);
        }
        if self.name == DAY_OF_MONTH {
            let nearest = item.strip_suffix('W').is_some_and(is_number);
            if nearest || matches!(item, "L" | "LW") {
                return Ok(item.to_owned());
            }
        }
        let (plain, of_month) = if self.name == WEEKDAY { split_of_month(item)? } else { (item, "") };
        let numbered = self.numbered(plain)?;
        Ok([&numbered, of_month].concat())
    }

    /// Ranges, steps and numbers, with numbers for names.
    fn numbered(&self, item: &str) -> Result<String, String> {
        let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
        if step.is_some_and(|step| !is_number(step) || step.bytes().all(|digit| digit == b'0')) {
            return Err("must have a number from 1 after the /".to_owned());
        }
        let most_step = self.most - self.least + 1;
        if step.and_then(|step| step.parse::<u64>().ok()).is_some_and(|step| step > most_step) {
            return Err(format!(
                "must have a number from 1 to {most_step} after the /, and there are no more of them; for a longer \
                 period there is @every"
            ));
        }
        let ends: Vec<_> = if range == "*" { vec![] } else { range.split('-').collect() };
        if ends.len() > 2 {
            return Err("is not a range such as 1-5".to_owned());
        }
        if step.is_some() && ends.len() == 1 {
            return Err(format!(
                "must have a range or * before the /, such as {}-{}/5",
                self.least, self.most
            ));
        }
        let numbers: Result<Vec<_>, _> =
            ends.iter().enumerate().map(|(at, end)| self.number(end, at > 0)).collect();
        let numbers = numbers?;
        if !numbers.is_sorted() {
            return Err("has a range that ends before it begins".to_owned());
        }
        let mut read = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("-");
        if range == "*" {
            read.push('*');
        }
        if let Some(step) = step {
            let _ = write!(read, "/{step}");
        }
        Ok(read)
    }

    fn number(&self, text: &str, ends_a_range: bool) -> Result<u64, String> {
        if let Some(at) = self.names.iter().position(|name| *name == text) {
            // A week that ends with Sunday ends with its seventh day.
            let sunday = self.name == WEEKDAY && at == 0 && ends_a_range;
            return Ok(if sunday { 7 } else { self.least + at as u64 });
        }
        let number = Some(text).filter(|text| is_number(text)).and_then(|text| text.parse::<u64>().ok());
        match number {
            Some(number) if (self.least..=self.most).contains(&number) => Ok(number),
            Some(_) => Err(format!("must be from {} to {}", self.least, self.most)),
            None if self.names.is_empty() => Err("is not a number, a range or a step".to_owned()),
            None => Err(format!("is not a number, a range, a step, or a name such as {}", self.names[1])),
        }
    }

    /// Returns what `H`, `H/15`, `H(0-29)` and `H(0-29)/10` are replaced by: a stable number by the schedule's name and the
    /// field.
    fn spread(&self, rest: &str, name: &ScheduleName) -> Result<String, String> {
        let wrong = || "is not one of H, H/15, H(0-29) or H(0-29)/10".to_owned();
        let most = self.most_spread;
        let (least, most, step) = match rest.strip_prefix('(') {
            None => (self.least, most, rest),
            Some(rest) => {
                let (range, step) = rest.split_once(')').ok_or_else(wrong)?;
                let (least, most) = range.split_once('-').ok_or_else(wrong)?;
                let end =
                    |text: &str| Some(text).filter(|text| is_number(text)).and_then(|text| text.parse().ok());
                (end(least).ok_or_else(wrong)?, end(most).ok_or_else(wrong)?, step)
            }
        };
        if least > most || least < self.least || most > self.most_spread {
            return Err(format!("must stay within H({}-{})", self.least, self.most_spread));
        }
        let all = most - least + 1;
        if step.is_empty() {
            return Ok((least + stable::below(name, self.name, all)).to_string());
        }
        let step =
            step.strip_prefix('/').filter(|step| is_number(step)).and_then(|step| step.parse::<u64>().ok());
        let step = step.ok_or_else(wrong)?;
        if !(1..=all).contains(&step) {
            return Err(format!("must have a step from 1 to {all}"));
        }
        Ok(format!("{}-{most}/{step}", least + stable::below(name, self.name, step)))
    }
}

/// Returns what follows a weekday to say which one of the month, as croner reads it: `#1` to `#5`, and `L` or `#L`.
fn split_of_month(item: &str) -> Result<(&str, &str), String> {
    let last = item.strip_suffix("#L").or_else(|| item.strip_suffix('L'));
    if let Some(weekday) = last {
        if weekday.is_empty() {
            return Err("must have a weekday before the L, such as 5L".to_owned());
        }
        return Ok((weekday, "#L"));
    }
    match item.split_once('#') {
        None => Ok((item, "")),
        Some((weekday, "1" | "2" | "3" | "4" | "5")) => Ok((weekday, &item[weekday.len()..])),
        Some(_) => Err("must have a number from 1 to 5, or L, after the #".to_owned()),
    }
}

/// Returns whether it is one to four digits. croner would take a sign, too.
fn is_number(text: &str) -> bool {
    (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

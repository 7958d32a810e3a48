//! The last hour as a time line: a lane for each sort of change.

use std::{collections::BTreeMap, time::Duration};

use maud::{Markup, html};
use tenure::model::StoreTime;
use tenure_look::{Change, Severity, one_line};

const LANES: [(Severity, &str, &str); 5] = [
    (Severity::Failure, "failures", "failure"),
    (Severity::Loss, "losses", "loss"),
    (Severity::Takeover, "takeovers", "takeover"),
    (Severity::Move, "moves", "move"),
    (Severity::Person, "people", "person"),
];
const WIDTH: u64 = 3600;
const LANE: u64 = 90;
const LEFT: u64 = 420;
/// Seconds that are one place.
const STEP: u64 = 12;

/// Changes that are so close that their marks would hide each other.
struct Near<'a> {
    last: &'a Change,
    count: usize,
}

/// The changes of each lane, by where they are drawn.
fn lanes(changes: &[Change], now: StoreTime) -> [BTreeMap<u64, Near<'_>>; LANES.len()] {
    let mut lanes = [const { BTreeMap::new() }; LANES.len()];
    for change in changes {
        let severity = change.severity();
        let Some(lane) = LANES.iter().position(|(known, ..)| *known == severity) else { continue };
        let age = now.since(change.at).min(Duration::from_secs(WIDTH)).as_secs();
        let x = LEFT + WIDTH - age / STEP * STEP;
        lanes[lane].entry(x).or_insert(Near { last: change, count: 0 }).count += 1;
    }
    lanes
}

pub(crate) fn hour(changes: &[Change], now: StoreTime) -> Markup {
    let lanes = lanes(changes, now);
    let height = LANE * LANES.len() as u64;
    let count = |lane: &BTreeMap<u64, Near<'_>>| lane.values().map(|near| near.count).sum::<usize>();
    let says: Vec<_> =
        LANES.iter().zip(&lanes).map(|((_, words, _), lane)| format!("{} {words}", count(lane))).collect();
    let says = format!("The last hour: {}", says.join(", "));
    html! {
        svg.hour viewBox=(format!("0 0 {} {}", LEFT + WIDTH + 110, height + 90)) role="img" aria-label=(says) {
            title { (says) }
            @for (at, ((_, words, class), lane)) in LANES.iter().zip(&lanes).enumerate() {
                @let y = at as u64 * LANE;
                text.lane x="0" y=(y + 62) { (words) }
                line.lane x1=(LEFT) x2=(LEFT + WIDTH) y1=(y + 45) y2=(y + 45) {}
                @for (x, near) in lane {
                    @let others = if near.count > 1 { format!(", and {} more about then", near.count - 1) } else { String::new() };
                    (mark(class, *x, y + 45, &format!("{}{others}", told(near.last))))
                }
            }
            @for minutes in (0..=60).step_by(10) {
                @let x = LEFT + WIDTH - minutes * 60;
                line.tick x1=(x) x2=(x) y1="0" y2=(height) {}
                text.tick x=(x) y=(height + 70) text-anchor="middle" {
                    @if minutes == 0 { "now" } @else { "-" (minutes) " min" }
                }
            }
        }
    }
}

/// Each sort has a shape of its own.
fn mark(class: &str, x: u64, y: u64, says: &str) -> Markup {
    let (left, right, top, bottom) = (x.saturating_sub(24), x + 24, y - 26, y + 26);
    let points = match class {
        "failure" => format!("{left},{top} {right},{top} {right},{bottom} {left},{bottom}"),
        "loss" => format!("{left},{top} {right},{top} {x},{bottom}"),
        "takeover" => format!("{x},{top} {right},{bottom} {left},{bottom}"),
        "person" => format!("{},{top} {},{top} {},{bottom} {},{bottom}", x - 9, x + 9, x + 9, x - 9),
        _ => format!("{x},{top} {right},{y} {x},{bottom} {left},{y}"),
    };
    html! { polygon class=(format!("mark {class}")) points=(points) { title { (says) } } }
}

pub(crate) fn told(change: &Change) -> String {
    let (word, rest) = change.describe();
    one_line(&format!("{} {word} {rest}", change.at))
}

/// The word for a severity; nothing if all is in order.
pub(crate) fn severity(severity: Severity) -> Option<&'static str> {
    LANES.iter().find(|(known, ..)| *known == severity).map(|(_, _, word)| *word)
}

#[cfg(test)]
mod tests {
    use tenure_look::ChangeKind;

    use super::*;

    #[test]
    fn marks_that_would_hide_each_other_are_one() {
        let now = StoreTime::from_millis(1_767_225_600_000);
        let change = |seconds: u64| Change {
            at: now.minus(Duration::from_secs(seconds)),
            what: ChangeKind::NotRun {
                schedule: "nightly".parse().unwrap(),
                from: now,
                instant: now,
                count: 1,
                why: tenure::model::Why::shortened("<b>"),
            },
        };
        let changes: Vec<_> = (0..3600).flat_map(|second| [change(second), change(second)]).collect();
        let drawn = hour(&changes, now).into_string();
        assert_eq!(drawn.matches("<polygon").count(), 300);
        assert!(drawn.contains("The last hour: 7200 failures, 0 losses"), "{drawn}");
        assert!(drawn.contains(", and 23 more about then") && !drawn.contains("<b>"), "{drawn}");
    }
}

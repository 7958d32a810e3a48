//! The instances: how each is, its last beat as a part of its ttl, and what it holds.

use std::collections::BTreeMap;

use tenure::model::{Kind, SessionId, SpreadName};
use tenure_look::{Instance, Liveness, Picture, SpreadMember, ago, length};

use super::super::{
    list::{Cell, Column, List, Row, Subject, Tone},
    text::{bar, permille},
};

const COLUMNS: &[Column] = &[
    Column::new("HOLDER", 10, 40, 0),
    Column::new("STATE", 10, 10, 1),
    Column::new("LAST BEAT", 12, 40, 2),
    Column::number("TASKS", 3),
    Column::number("LOCKS", 4),
    Column::number("SCHED", 5),
    Column::new("SHARES", 16, 80, 6),
    Column::new("PLACE", 12, 40, 8),
    Column::new("PROGRAM", 8, 30, 9),
    Column::new("STARTED", 7, 12, 7),
];

/// Columns of the bar of a share.
const BAR: usize = 8;

pub(super) fn list(picture: &Picture) -> List {
    let shares = shares(picture);
    let row = |one: Instance| {
        let about = &one.record.about;
        let (word, tone) = state(&one);
        let held = one.held;
        let share = shares.get(&one.record.id).map(|shares| shares.join("  ")).unwrap_or_default();
        let cells = vec![
            Cell::text(&about.holder),
            Cell::text(word).tone(tone),
            beat(&one, picture),
            Cell::text(held.tasks.to_string()),
            Cell::text(held.locks.to_string()),
            Cell::text(held.schedules.to_string()),
            Cell::text(share),
            Cell::text(format!("{}:{}", about.host, about.pid)),
            Cell::text(&about.program),
            Cell::text(ago(one.record.started, picture.now())),
        ];
        Row { subject: Subject::Instance(one.record.id), cells }
    };
    let rows = picture.instances().into_iter().map(row).collect();
    List::new(COLUMNS, rows)
}

/// Returns the state of an instance in a word, and its tone.
fn state(one: &Instance) -> (&'static str, Tone) {
    let tone = match one.life {
        Liveness::Alive if one.is_stalled() => Tone::Bad,
        Liveness::Alive if one.is_draining() || one.is_paused() => Tone::Note,
        Liveness::Alive => Tone::Good,
        Liveness::Closed => Tone::Quiet,
        _ => Tone::Bad,
    };
    (one.word(), tone)
}

/// The age of the last beat as a part of the ttl: at its end it looks dead.
fn beat(one: &Instance, picture: &Picture) -> Cell {
    let now = picture.now();
    if let Some(death) = &one.record.death {
        return Cell::text(ago(death.at, now)).tone(Tone::Quiet);
    }
    let age = length(now.since(one.record.beat_at));
    let tone = if one.looks_dead { Tone::Bad } else { Tone::Plain };
    Cell::text(age).bar(one.beat_age_permille(now)).tone(tone)
}

/// Returns the tasks of each instance in each spread, compared with its cap or else with the most of any member.
/// Schedules have a column of their own.
fn shares(picture: &Picture) -> BTreeMap<SessionId, Vec<String>> {
    let mut shares: BTreeMap<SessionId, Vec<String>> = BTreeMap::new();
    let schedules = Kind::Schedule.spread();
    for name in picture.spread_names().into_iter().filter(|name| Some(name) != schedules.as_ref()) {
        let Some(spread) = picture.spread(&name, 0, 0) else { continue };
        let most = spread.members.iter().map(|one| one.member.tasks).max().unwrap_or_default();
        for member in &spread.members {
            shares.entry(member.member.session).or_default().push(share(&name, member, most));
        }
    }
    shares
}

fn share(name: &SpreadName, member: &SpreadMember, most: usize) -> String {
    let (has, cap) = (member.member.tasks, member.member.share.cap);
    if cap < u32::MAX {
        let cap = usize::try_from(cap).unwrap_or(usize::MAX);
        format!("{} {has}/{cap} {name}", bar(permille(has, cap), BAR))
    } else {
        format!("{} {has} {name}", bar(permille(has, most), BAR))
    }
}

//! Names and times. A name is a foreign text: it stands by itself, whatever direction it is written in.

use maud::{Markup, html};
use tenure::model::{Kind, LockId, SessionId, StoreTime};
use tenure_look::{Liveness, ago, one_line};
pub(crate) use tenure_look::{count, value};

use crate::address::Base;

/// A text from the store.
pub(crate) fn name(text: &str) -> Markup {
    html! { bdi.name { (one_line(text)) } }
}

/// Draws the age of an instant.
pub(crate) fn since(at: StoreTime, now: StoreTime) -> Markup {
    html! { time.age datetime=(at.to_string()) title=(at.to_string()) { (ago(at, now)) } }
}

/// An instant by itself: `2026-01-01 03:12:00`.
pub(crate) fn instant(at: StoreTime) -> Markup {
    let text = at.to_string();
    let plain = text.trim_end_matches('Z').replace('T', " ");
    html! { time datetime=(text) { (plain.split('.').next().unwrap_or_default()) } }
}

/// `03:12:00`.
pub(crate) fn time_of_day(at: StoreTime) -> String {
    let text = at.to_string();
    text.get(11..19).unwrap_or(&text).to_owned()
}

/// Draws the state of a session, unless it is well.
pub(crate) fn life(life: Liveness) -> Markup {
    html! {
        @if life != Liveness::Alive { " " span.badge.bad { (life.as_str()) } }
    }
}

pub(crate) fn link_to_key(base: &Base, id: &LockId) -> String {
    base.link("/key", &[("kind", &id.kind.to_string()), ("key", id.key.as_str())])
}

/// A key that leads to its own screen; a schedule leads to its own.
pub(crate) fn key(base: &Base, id: &LockId) -> Markup {
    html! { a href=(link_to_key(base, id)) { (name(id.key.as_str())) } }
}

pub(crate) fn schedule(base: &Base, schedule: &str) -> Markup {
    html! { a href=(base.link("/schedule", &[("name", schedule)])) { (name(schedule)) } }
}

pub(crate) fn instance(base: &Base, holder: &str, session: SessionId) -> Markup {
    html! { a href=(base.link("/instance", &[("session", &session.to_string())])) { (name(holder)) } }
}

/// Returns the sort of thing that a key names.
pub(crate) fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Lock => "lock".to_owned(),
        Kind::Schedule => "schedule".to_owned(),
        Kind::Task(spread) => format!("task of {}", one_line(spread.as_str())),
        other => other.to_string(),
    }
}

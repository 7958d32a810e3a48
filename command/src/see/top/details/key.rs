//! A key: its holder, why a task is where it is, its waiters, and its former holders.

use tenure::{
    model::{LockId, Value},
    store::{LockRecord, Waiter},
};
use tenure_look::{KeyDetails, Liveness, ago, length};

use super::{
    super::{
        list::Tone,
        machine::Answer,
        text::count,
        views::{keys, state_of_lock},
    },
    Page,
};
pub(super) fn tell(page: &mut Page<'_>, id: &LockId, answer: Option<&Answer>) {
    page.heading(&format!("{} ({})", id.key, id.kind));
    let known = keys(page.picture).into_iter().find(|record| record.id == *id);
    match answer {
        Some(Answer::Key(_, Ok(look))) => {
            if let Some(refusal) = &look.refusal {
                page.text(0, format!("Its record cannot be used: {refusal}."), Tone::Bad);
            }
            match &look.record {
                Some(record) => all(page, record, Some(look)),
                None if look.refusal.is_none() => {
                    page.text(0, "It was never held, or its record was removed.", Tone::Bad);
                }
                None => {}
            }
            return;
        }
        Some(Answer::Key(_, Err(error))) => {
            page.text(0, format!("It cannot be read, so this is not all: {error}"), Tone::Bad);
        }
        _ => page.text(0, "Loading.", Tone::Quiet),
    }
    if let Some(record) = known {
        all(page, &record, None);
    }
}

fn all(page: &mut Page<'_>, record: &LockRecord, look: Option<&KeyDetails>) {
    let now = page.now();
    let life = look.and_then(|look| look.life).or_else(|| seen(page, record));
    let (word, tone) = state_of_lock(record, life, page.picture);
    page.toned("state", word, if tone == Tone::Bad { tone } else { Tone::Plain });
    if let Some(held) = &record.holding {
        let by = &held.by;
        page.field("holder", format!("{}{}", by.holder, life.map_or("", Liveness::mark)));
        if let Some(session) = look.and_then(|look| look.session.as_ref()) {
            let about = &session.about;
            page.field("place", format!("pid {} on {}", about.pid, about.host));
            page.said("program", Some(&about.program));
            let beat = ago(session.beat_at, now.max(session.beat_at));
            page.field("last beat", format!("{beat}, ttl {}", length(session.ttl)));
        }
        page.field("session", by.session.to_string());
        page.field("since", page.at(held.acquired_at));
        page.said("who", by.who.as_ref());
        page.said("why", by.why.as_ref());
        // It may be a secret, and a screen stays open.
        let hint = |value: &Value| format!("{} bytes: `tenure show` prints it", value.as_bytes().len());
        page.said("value", by.value.as_ref().map(hint));
    }
    page.field("term", record.term.to_string());
    if let Some(closed) = record.closed.filter(|closed| !closed.left(now).is_zero()) {
        page.field("closed", format!("until {}: it cannot be acquired yet", page.at(closed.until)));
    }
    for (at, reason) in page.picture.reasons(record).iter().enumerate() {
        page.field(if at == 0 { "reason" } else { "" }, reason);
    }
    if let Some(look) = look {
        waiters(page, &look.waiters, look.whole);
    }
    past(page, record);
}

/// Returns the state of the key's holder in the picture.
fn seen(page: &Page<'_>, record: &LockRecord) -> Option<Liveness> {
    let by = record.holding.as_ref()?.by.session;
    Some(page.picture.instance(by).map_or(Liveness::Missing, |one| one.life))
}

fn waiters(page: &mut Page<'_>, waiters: &[Waiter], whole: bool) {
    if waiters.is_empty() {
        return;
    }
    let now = page.now();
    page.heading(&format!("{} in the queue, the longest first", count(waiters.len(), "waiter")));
    for (at, waiter) in waiters.iter().enumerate() {
        let by = &waiter.by;
        let said = |name: &str, text: Option<String>| {
            text.map(|text| format!(", {name} {text}")).unwrap_or_default()
        };
        let who = said("who:", by.who.as_ref().map(ToString::to_string));
        let why = said("why:", by.why.as_ref().map(ToString::to_string));
        page.text(
            0,
            format!("{}. {} for {}{who}{why}", at + 1, by.holder, length(now.since(waiter.since))),
            Tone::Plain,
        );
    }
    if !whole {
        page.text(0, "More waiters follow.", Tone::Quiet);
    }
}

fn past(page: &mut Page<'_>, record: &LockRecord) {
    if record.past.is_empty() {
        return;
    }
    page.heading("Earlier holders, the last one first");
    for past in &record.past {
        let long = length(past.to.since(past.from));
        let (how, term, to) = (past.how.as_str(), past.term, page.at(past.to));
        page.text(0, format!("{} for {long}, {how} {to}, term {term}", past.holder), Tone::Plain);
        if let Some(note) = &past.note {
            page.text(4, note.as_str(), Tone::Quiet);
        }
    }
}

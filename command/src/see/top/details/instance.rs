//! An instance: where it is, how it is, and all that it holds.

use std::collections::BTreeMap;

use tenure::{
    model::{Kind, SessionId},
    store::LockRecord,
};
use tenure_look::length;

use super::{
    super::{
        list::Tone,
        text::count,
        views::{keys, shares, state_of_instance},
    },
    Page, TOLD,
};

pub(super) fn tell(page: &mut Page<'_>, session: SessionId) {
    let now = page.now();
    let Some(one) = page.picture.instance(session) else {
        page.heading("Instance");
        page.text(0, format!("The record of session {session} was removed."), Tone::Bad);
        return;
    };
    let record = &one.record;
    let about = &record.about;
    let (word, tone) = state_of_instance(&one);
    page.heading(&format!("Instance {}", about.holder));
    page.toned("state", word, if tone == Tone::Bad { tone } else { Tone::Plain });
    page.field("place", format!("pid {} on {}", about.pid, about.host));
    page.said("program", Some(&about.program));
    page.field("session", record.id.to_string());
    page.field("started", page.at(record.started));
    let age = length(now.since(record.beat_at));
    page.field("last beat", format!("{}: {age} of a ttl of {}", page.at(record.beat_at), length(record.ttl)));
    page.field("beats", record.beat.to_string());
    if let Some(since) = record.stalled_since {
        page.field("stalled", format!("its runtime has run no task since {}", page.at(since)));
    }
    if let Some(death) = &record.death {
        page.field(
            one.life.as_str(),
            format!("{}, declared by {}: {}", page.at(death.at), death.by, death.why),
        );
    }
    for request in &record.requests {
        let (key, term) = (&request.lock.key, request.term);
        page.field("asked", format!("by {} to release {key}, term {term}: {}", request.by, request.why));
    }
    for share in &record.shares {
        page.field("takes part", format!("{}: {}", share.spread, shares(share)));
    }
    let held: Vec<_> = keys(page.picture).into_iter().filter(|record| is_by(record, session)).collect();
    let mut tasks: BTreeMap<Kind, Vec<String>> = BTreeMap::new();
    for record in &held {
        if record.id.kind != Kind::Lock {
            tasks.entry(record.id.kind.clone()).or_default().push(record.id.key.to_string());
        }
    }
    let locks: Vec<_> = held.iter().filter(|record| record.id.kind == Kind::Lock).collect();
    if !locks.is_empty() {
        page.heading(&format!("Holds {}", count(locks.len(), "lock")));
    }
    for record in locks.into_iter().take(TOLD) {
        let Some(held) = &record.holding else { continue };
        let why = held.by.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let time = length(now.since(held.acquired_at));
        page.text(0, format!("{} for {time}, term {}{why}", record.id.key, record.term), Tone::Plain);
    }
    for (kind, keys) in tasks {
        let what = match kind.spread().filter(|_| kind != Kind::Schedule) {
            Some(spread) => format!("{} of {spread}", count(keys.len(), "task")),
            None => count(keys.len(), "schedule"),
        };
        page.heading(&format!("Holds {what}"));
        page.text(0, keys.iter().take(TOLD).cloned().collect::<Vec<_>>().join(", "), Tone::Plain);
    }
}

fn is_by(record: &LockRecord, session: SessionId) -> bool {
    record.holding.as_ref().is_some_and(|held| held.by.session == session)
}

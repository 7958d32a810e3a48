//! `tenure show`: all that is known of one key.

use std::fmt::Write;

use clap::Args;
use tenure::{
    model::{Kind, StoreTime},
    store::LockRecord,
};
use tenure_look::{KeyDetails, Liveness, value};

use super::{
    look::{OpenNamespace, said},
    named::{self, Named},
};
use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table, one_line},
    times,
};

/// The key was never held, or cannot be read.
const NOT_FOUND: u8 = 1;

#[derive(Args, Debug)]
#[command(
    after_help = "Exits with 1 and a sentence if the key was never held, or if its record was removed since."
)]
pub(crate) struct Show {
    #[command(flatten)]
    named: Named,
}

pub(crate) async fn run(common: &Common, show: Show) -> Result<u8, Failure> {
    // A name that breaks a rule is refused before any store is looked for.
    show.named.key()?;
    show.named.kind()?;
    let look = OpenNamespace::open(common).await?;
    let shown = look.key(show.named.meant(&look).await?).await?;
    let found = shown.record.is_some();
    // A user who gave the wrong option is told which one to give.
    let others = if found { Vec::new() } else { look.kinds_of(&shown.id.key).await? };
    out::print(common, &shown, || text(&shown, &others))?;
    look.close().await;
    Ok(if found { 0 } else { NOT_FOUND })
}

fn absent(shown: &KeyDetails, others: &[Kind]) -> String {
    let (kind, key) = (shown.id.kind.to_string(), shown.id.key.as_str());
    let mut text = match &shown.refusal {
        Some(refusal) => {
            format!("The {} {key:?} cannot be read: {}.", one_line(&kind), one_line(&refusal.to_string()))
        }
        None => format!(
            "The {} {key:?} was never held in namespace {}, or its record was removed since.",
            one_line(&kind),
            one_line(shown.id.namespace.as_str())
        ),
    };
    if !others.is_empty() {
        let options: Vec<_> = others.iter().map(named::option).collect();
        let _ = write!(text, " Another of that name is shown with {}.", one_line(&options.join(" or ")));
    }
    text.push('\n');
    text
}

/// All about a key. `others` are the kinds of other keys with that name.
pub(super) fn text(shown: &KeyDetails, others: &[Kind]) -> String {
    let Some(record) = &shown.record else { return absent(shown, others) };
    let now = shown.now;
    let mut fields = Vec::new();
    let mut line = |name, value| fields.push((name, value));
    line("key", format!("{} ({})", record.id.key, record.id.kind));
    match &record.holding {
        Some(held) => {
            let by = &held.by;
            line("holder", format!("{}{}", by.holder, shown.life.map_or("", Liveness::mark)));
            if let Some(session) = &shown.session {
                let about = &session.about;
                line("place", format!("pid {} on {}", about.pid, about.host));
                line("program", about.program.clone());
                line(
                    "last beat",
                    format!("{}, ttl {}", times::ago(session.beat_at, now), times::length(session.ttl)),
                );
            }
            line("session", by.session.to_string());
            line(
                "since",
                format!("{} ({})", times::local(held.acquired_at), times::ago(held.acquired_at, now)),
            );
            line("who", said(by.who.as_ref()));
            line("why", said(by.why.as_ref()));
            line("value", by.value.as_ref().map_or_else(|| "-".to_owned(), value));
        }
        None => line("holder", "none".to_owned()),
    }
    line("term", record.term.to_string());
    if let Some(closed) = record.closed.filter(|_| shown.closed_left.is_some()) {
        let left = times::length(closed.left(now));
        line(
            "closed",
            format!("until {}, for {left}: it cannot be acquired yet", times::local(closed.until)),
        );
    }
    out::fields(&fields) + &queue(shown, now) + &past(record, now)
}

fn queue(shown: &KeyDetails, now: StoreTime) -> String {
    if let Some(why) = &shown.waiters_unreadable {
        return format!("\nIts waiters cannot be read: {}\n", one_line(why));
    }
    if shown.waiters.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["", "WAITING", "SINCE", "WHO", "WHY"]);
    for (at, (waiter, life)) in shown.waiters.iter().zip(&shown.waiter_lives).enumerate() {
        let by = &waiter.by;
        table.row([
            (at + 1).to_string(),
            format!("{}{}", by.holder, life.mark()),
            times::ago(waiter.since, now),
            said(by.who.as_ref()),
            said(by.why.as_ref()),
        ]);
    }
    let more = if shown.whole { "" } else { "More waiters follow.\n" };
    format!("\n{}{more}", table.render())
}

fn past(record: &LockRecord, now: StoreTime) -> String {
    if record.past.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["BEFORE", "FROM", "FOR", "ENDED", "TERM", "HOW", "NOTE"]);
    for past in &record.past {
        table.row([
            past.holder.to_string(),
            times::local(past.from),
            times::length(past.to.since(past.from)),
            times::ago(past.to, now),
            past.term.to_string(),
            past.how.as_str().to_owned(),
            said(past.note.as_ref()),
        ]);
    }
    format!("\n{}", table.render())
}

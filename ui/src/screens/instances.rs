//! The fleet: a strip for each instance.

use std::sync::Arc;

use maud::{Markup, html};
use serde::Serialize;
use tenure::model::StoreTime;
use tenure_look::{Instance, Liveness, Picture, Reader, length};

use super::From;
use crate::{
    Shared,
    address::Base,
    answer::{self, Part, Problem, RenderContext},
    draw::{
        bar::{bar, permille},
        text::{count, instance, name, since},
    },
};

#[derive(Serialize)]
pub(crate) struct Screen {
    items: Vec<Instance>,
    from: usize,
    /// The place from which the list goes on.
    next: Option<usize>,
    now: StoreTime,
}

impl answer::Screen for Screen {
    type Query = From;
    const PATH: &'static str = "/instances";

    async fn load(_: &Shared, query: &From, picture: &Picture) -> Result<Arc<Self>, Problem> {
        let (from, all) = (query.from, picture.instances());
        let items: Vec<_> = all.iter().skip(from).take(Reader::PAGE).cloned().collect();
        let next = Some(from + items.len()).filter(|next| *next < all.len());
        Ok(Arc::new(Self { items, from, next, now: picture.now() }))
    }

    fn title(&self) -> String {
        "Instances".to_owned()
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        let more = html! {
            @if let Some(next) = self.next {
                p { a href=(context.base.link("/instances", &[("from", &next.to_string())])) { "More" } }
            }
        };
        vec![Part::new("fleet", html! { (strips(&context.base, &self.items, self.now)) (more) })]
    }
}

/// A strip for each instance: how it is, its last beat as a part of its ttl, and what it holds.
pub(crate) fn strips(base: &Base, instances: &[Instance], now: StoreTime) -> Markup {
    let most = instances.iter().map(|one| one.held.all()).max().unwrap_or_default();
    html! {
        @if instances.is_empty() { p.quiet { "No instance is in this namespace." } } @else {
            ul.fleet {
                @for one in instances { li { (strip(base, one, most, now)) } }
            }
        }
    }
}

fn strip(base: &Base, one: &Instance, most: usize, now: StoreTime) -> Markup {
    let about = &one.record.about;
    let (class, word) = state(one);
    let age = now.since(one.record.beat_at);
    let beat = format!("beat {} ago of {}", length(age), length(one.record.ttl));
    let held = one.held;
    let holds: Vec<_> = [(held.tasks, "task"), (held.schedules, "schedule"), (held.locks, "lock")]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| count(number, what))
        .collect();
    let holds = if holds.is_empty() { "nothing".to_owned() } else { holds.join(", ") };
    html! {
        div.strip {
            span.who { (instance(base, about.holder.as_str(), one.record.id)) " " span class=(format!("badge {class}")) { (word) } }
            span.place { (name(&format!("{}:{}", about.host, about.pid))) @if !about.program.is_empty() { " " (name(&about.program)) } }
            @if one.life.has_ended() {
                @if let Some(death) = &one.record.death {
                    span.death { (since(death.at, now)) ", by " (name(death.by.as_str())) ": " (name(death.why.as_str())) }
                }
            } @else {
                span.beat { (bar(one.beat_age_permille(now), if one.looks_dead { "bad" } else { "beat" }, &beat)) span.says { (beat) } }
                span.load { (bar(permille(held.all(), most), "load", &holds)) span.says { (holds) } }
            }
        }
    }
}

/// Returns the state of an instance, as a class and a word.
pub(crate) fn state(one: &Instance) -> (&'static str, &'static str) {
    let class = match one.life {
        Liveness::Alive if one.is_stalled() || !one.failing.is_empty() => "bad",
        Liveness::Alive if one.is_draining() || one.is_paused() => "note",
        Liveness::Alive => "good",
        Liveness::Closed => "quiet",
        _ => "bad",
    };
    (class, one.word())
}

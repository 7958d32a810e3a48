//! An instance, and the locks it holds.

use std::sync::Arc;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tenure::{
    model::{Kind, StoreTime},
    store::{Held, Page},
};
use tenure_look::{Instance, Liveness, Picture, Reader, length, terms};

use super::{FRESH, cursor, instances};
use crate::{
    Shared,
    act::{Verb, form},
    answer::{self, Part, Problem, RenderContext},
    draw::{
        bar::bar,
        text::{instant, key, kind, link_to_key, name, schedule, since},
    },
};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Query {
    session: String,
    after: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Screen {
    #[serde(flatten)]
    instance: Instance,
    /// Locks it holds, the latest grant first.
    holds: Page<Held>,
    now: StoreTime,
}

impl answer::Screen for Screen {
    type Query = Query;
    const PATH: &'static str = "/instance";

    async fn load(shared: &Shared, query: &Query, picture: &Picture) -> Result<Arc<Self>, Problem> {
        let session = query.session.parse().map_err(Problem::bad)?;
        let Some(instance) = picture.instance(session) else {
            return Err(Problem::not_found(format!(
                "the session {session} is not known: its record may have been removed since, or was not read yet"
            )));
        };
        let after = cursor(query.after.as_ref())?;
        let address = format!("instance {session} {:?} {:?}", query.after, instance.held);
        let look = shared.ui.pictures.reader();
        let holds = shared.cache.get(address, FRESH, look.held_by(session, after, Reader::PAGE)).await?;
        Ok(Arc::new(Self { instance, holds: (*holds).clone(), now: picture.now() }))
    }

    fn title(&self) -> String {
        format!("Instance {}", self.instance.record.about.holder)
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        vec![
            Part::new("about", self.about()),
            Part::new("shares", self.shares(context)),
            Part::new("holds", self.held(context)),
            Part::new("acts", self.acts(context)),
        ]
    }
}

impl Screen {
    fn about(&self) -> Markup {
        let (record, now) = (&self.instance.record, self.now);
        let (class, word) = instances::state(&self.instance);
        let beat = format!("{} ago, ttl {}", length(now.since(record.beat_at)), length(record.ttl));
        html! {
            dl {
                dt { "State" } dd { span class=(format!("badge {class}")) { (word) } }
                dt { "Place" } dd { "pid " (record.about.pid) " on " (name(&record.about.host)) }
                @if !record.about.program.is_empty() { dt { "Program" } dd { (name(&record.about.program)) } }
                dt { "Session" } dd { code { (record.id) } }
                dt { "Started" } dd { (instant(record.started)) ", " (since(record.started, now)) }
                dt { "Last beat" } dd {
                    (bar(self.instance.beat_age_permille(now), if self.instance.looks_dead { "bad" } else { "beat" }, &beat))
                    " " (beat)
                }
                @if let Some(stalled) = record.stalled_since {
                    dt { "Stalled" } dd { "Its runtime has run no task since " (instant(stalled)) }
                }
                @if let Some(death) = &record.death {
                    dt { (if self.instance.life == Liveness::Closed { "Closed" } else { "Died" }) } dd { (since(death.at, now)) ", declared by " (name(death.by.as_str())) ": " (name(death.why.as_str())) }
                }
            }
        }
    }

    fn shares(&self, context: &RenderContext) -> Markup {
        let shares = &self.instance.record.shares;
        html! {
            h2 { "Takes part in" }
            @if shares.is_empty() { p.quiet { "It takes part in no spread." } } @else {
                ul {
                    @for share in shares {
                        @let terms = terms(share, self.instance.record.drained.as_ref());
                        li {
                            a href=(context.base.link("/spread", &[("name", share.spread.as_str())])) { (name(share.spread.as_str())) }
                            @if !terms.is_empty() { ": " (terms) }
                        }
                    }
                }
            }
        }
    }

    fn held(&self, context: &RenderContext) -> Markup {
        let session = self.instance.record.id.to_string();
        html! {
            h2 { "Holds" }
            @if self.holds.items.is_empty() { p.quiet { "It holds nothing." } } @else {
                div.scroll {
                    table {
                        thead { tr { th scope="col" { "Key" } th scope="col" { "Kind" } th.number scope="col" { "Term" } } }
                        tbody {
                            @for held in &self.holds.items {
                                tr {
                                    th scope="row" {
                                        @if held.lock.kind == Kind::Schedule { (schedule(&context.base, held.lock.key.as_str())) }
                                        @else { (key(&context.base, &held.lock)) }
                                    }
                                    td { a href=(link_to_key(&context.base, &held.lock)) { (kind(&held.lock.kind)) } }
                                    td.number { (held.term) }
                                }
                            }
                        }
                    }
                }
                @if let Some(next) = &self.holds.next {
                    p { a href=(context.base.link("/instance", &[("session", &session), ("after", &next.to_hex())])) { "More" } }
                }
            }
        }
    }

    fn acts(&self, context: &RenderContext) -> Markup {
        let session = self.instance.record.id.to_string();
        let (fields, instance) = ([("session", session.as_str())], &self.instance);
        let (has_ended, holder) = (instance.life.has_ended(), instance.record.about.holder.as_str());
        let verb = if instance.is_draining() { Verb::Undrain } else { Verb::Drain };
        html! {
            div data-changed=(format!("It changed while you wrote: it is {} now.", instance.word())) {
                @if !has_ended { (form(context, verb, holder, &fields)) }
            }
        }
    }
}

//! The namespace at a glance.

use std::sync::Arc;

use maud::{Markup, html};
use serde::Serialize;
use tenure_look::{Overview, Picture};

use super::{Nothing, instances, schedules, spreads};
use crate::{
    Shared,
    answer::{self, Part, Problem, RenderContext},
    draw::{
        hour::hour,
        tables,
        text::{count, key, since},
    },
};

/// Instances, schedules and queues that are shown here.
const SHOWN: usize = 12;

#[derive(Serialize)]
pub(crate) struct Screen(Overview);

impl answer::Screen for Screen {
    type Query = Nothing;
    const PATH: &'static str = "/";

    async fn load(_: &Shared, _: &Nothing, picture: &Picture) -> Result<Arc<Self>, Problem> {
        Ok(Arc::new(Self(picture.overview())))
    }

    fn title(&self) -> String {
        "Overview".to_owned()
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        let overview = &self.0;
        vec![
            Part::new("hour", self.last_hour(context)),
            Part::new("fleet", self.fleet(context)),
            Part::new(
                "spreads",
                html! { h2 { a href=(context.base.link("/spreads", &[])) { "Spreads" } } (spreads::table(&context.base, &overview.spreads)) },
            ),
            Part::new("schedules", self.schedules(context)),
            Part::new("queues", self.queues(context)),
            Part::new("gaps", tables::gaps(&context.picture)),
        ]
    }
}

impl Screen {
    fn last_hour(&self, context: &RenderContext) -> Markup {
        let Overview { changes, now, .. } = &self.0;
        html! {
            h2 { a href=(context.base.link("/changes", &[])) { "The last hour" } }
            (hour(context.picture.changes(), *now))
            @if changes.is_empty() { p.quiet { "No takeover, loss, move or failure is on record." } }
            @else { (tables::changes(&changes[..changes.len().min(5)], *now)) }
        }
    }

    fn fleet(&self, context: &RenderContext) -> Markup {
        let Overview { instances, alive, silent, dead, closed, now, .. } = &self.0;
        let all = alive + silent + dead + closed;
        html! {
            h2 { a href=(context.base.link("/instances", &[])) { "Instances" } }
            (instances::strips(&context.base, &instances[..instances.len().min(SHOWN)], *now))
            @if all > SHOWN {
                p { a href=(context.base.link("/instances", &[])) { "All " (count(all, "instance")) } }
            }
        }
    }

    fn schedules(&self, context: &RenderContext) -> Markup {
        let Overview { troubled, upcoming, now, .. } = &self.0;
        let ttl = context.picture.ttl();
        html! {
            h2 { a href=(context.base.link("/schedules", &[])) { "Schedules" } }
            @if !troubled.is_empty() {
                h3 { "Need attention" }
                (schedules::table(&context.base, &troubled[..troubled.len().min(SHOWN)], ttl, *now))
            }
            @if upcoming.is_empty() { p.quiet { "No schedule has a tick to come." } } @else {
                h3 { "Next" }
                (schedules::table(&context.base, &upcoming[..upcoming.len().min(SHOWN)], ttl, *now))
            }
        }
    }

    fn queues(&self, context: &RenderContext) -> Markup {
        let Overview { queues, now, .. } = &self.0;
        html! {
            h2 { a href=(context.base.link("/locks", &[])) { "Queues" } }
            @if queues.is_empty() { p.quiet { "No waiter for a lock is known." } } @else {
                ul.queues {
                    @for queue in queues.iter().take(SHOWN) {
                        li {
                            (key(&context.base, &queue.lock.record.id)) ": "
                            (count(queue.queue.waiters.len(), "waiter"))
                            @if !queue.queue.whole { " and others" }
                            @if let Some(first) = queue.queue.waiters.first() { ", the first came " (since(first.since, *now)) }
                        }
                    }
                }
            }
        }
    }
}

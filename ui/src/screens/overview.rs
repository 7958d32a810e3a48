//! The namespace at a glance.

use std::sync::Arc;

use maud::{Markup, html};
use serde::Serialize;
use tenure_look::{Grade, Overview, Picture, Subject};

use super::{Nothing, instances};
use crate::{
    Shared,
    address::Base,
    answer::{self, Part, Problem, RenderContext},
    draw::{
        hour::hour,
        tables,
        text::{link_to_key, name, since},
    },
};

/// Troubles and instances that are shown here.
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
        vec![
            Part::new("verdict", self.verdict(context)),
            Part::new("fleet", self.fleet(context)),
            Part::new("hour", self.last_hour(context)),
            Part::new("gaps", tables::gaps(&context.picture)),
        ]
    }
}

impl Screen {
    fn verdict(&self, context: &RenderContext) -> Markup {
        let Overview { verdict, now, .. } = &self.0;
        let (shown, base) = (&verdict.troubles[..verdict.troubles.len().min(SHOWN)], &context.base);
        html! {
            h2 { (verdict.head()) span.quiet { ": " (verdict.sums()) } }
            ul.troubles {
                @for one in shown {
                    @let class = match one.grade { Grade::Passing => "", Grade::Warning => "note", Grade::Critical => "bad" };
                    li {
                        span class=(format!("badge {class}")) { (one.grade.as_str()) } " "
                        @if let Some(to) = address(base, &one.about) { a href=(to) { (name(&one.says)) } }
                        @else { (name(&one.says)) }
                        @if let Some(at) = one.untold(*now) { " " span.quiet { (since(at, *now)) } }
                        " " code { (one.command) }
                    }
                }
            }
            @if verdict.troubles.len() > SHOWN {
                p { "And " (verdict.troubles.len() - SHOWN) " more: " code { "tenure status --all" } }
            }
        }
    }

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
        let Overview { instances, verdict, now, .. } = &self.0;
        let bad: Vec<_> = instances.iter().filter(|one| !one.is_well()).take(SHOWN).cloned().collect();
        html! {
            h2 { a href=(context.base.link("/instances", &[])) { "Instances" } }
            @if !bad.is_empty() || instances.is_empty() { (instances::strips(&context.base, &bad, *now)) }
            p { (verdict.alive) " alive" }
        }
    }
}

/// The address of what a trouble is about; the store has none.
fn address(base: &Base, about: &Subject) -> Option<String> {
    Some(match about {
        Subject::Instance { session, .. } => base.link("/instance", &[("session", &session.to_string())]),
        Subject::Spread { spread } => base.link("/spread", &[("name", spread.as_str())]),
        Subject::Schedule { schedule } => base.link("/schedule", &[("name", schedule.as_str())]),
        Subject::Key { lock } => link_to_key(base, lock),
        _ => return None,
    })
}

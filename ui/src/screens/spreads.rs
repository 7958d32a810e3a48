//! The spreads in numbers.

use std::sync::Arc;

use maud::{Markup, html};
use serde::Serialize;
use tenure_look::{Picture, SpreadSummary};

use super::Nothing;
use crate::{
    Shared,
    address::Base,
    answer::{self, Part, Problem, RenderContext},
    draw::{
        bar::{bar, permille},
        text::{count, name},
    },
};

#[derive(Serialize)]
pub(crate) struct Screen {
    items: Vec<SpreadSummary>,
}

impl answer::Screen for Screen {
    type Query = Nothing;
    const PATH: &'static str = "/spreads";

    async fn load(_: &Shared, _: &Nothing, picture: &Picture) -> Result<Arc<Self>, Problem> {
        Ok(Arc::new(Self { items: picture.spreads() }))
    }

    fn title(&self) -> String {
        "Spreads".to_owned()
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        vec![Part::new("spreads", table(&context.base, &self.items))]
    }
}

fn table(base: &Base, spreads: &[SpreadSummary]) -> Markup {
    html! {
        @if spreads.is_empty() { p.quiet { "No instance takes part in a spread." } } @else {
            div.scroll {
                table {
                    thead { tr { th scope="col" { "Spread" } th scope="col" { "Held" } th.number scope="col" { "Tasks" } th.number scope="col" { "Members" } th scope="col" { "Besides" } } }
                    tbody {
                        @for one in spreads {
                            @let says = format!("{} of {} held", one.held, one.tasks);
                            tr {
                                th scope="row" { a href=(base.link("/spread", &[("name", one.spread.as_str())])) { (name(one.spread.as_str())) } }
                                td { (bar(permille(one.held, one.tasks), "load", &says)) " " (says) }
                                td.number { (one.tasks) }
                                td.number { (one.members) }
                                td { (besides(one)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn besides(one: &SpreadSummary) -> Markup {
    let members = |many: usize, state| format!("{} {state}", count(many, "member"));
    let badges = [
        (one.orphans, format!("{} orphaned", one.orphans), "bad"),
        (one.resting, format!("{} resting", one.resting), "note"),
        (one.never_ran, format!("{} never ran", one.never_ran), "bad"),
        (one.silent, members(one.silent, if one.silent == 1 { "looks dead" } else { "look dead" }), "bad"),
        (one.failing, members(one.failing, "failing"), "bad"),
        (one.draining, members(one.draining, "draining"), "note"),
    ];
    html! {
        @for (_, badge, class) in badges.into_iter().filter(|(count, ..)| *count > 0) {
            span class=(format!("badge {class}")) { (badge) } " "
        }
    }
}

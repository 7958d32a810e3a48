//! The last hour, as the records remember it.

use std::sync::Arc;

use maud::html;
use serde::{Deserialize, Serialize};
use tenure::model::StoreTime;
use tenure_look::{Group, Picture, Reader, Severity};

use crate::{
    Shared,
    answer::{self, Part, Problem, RenderContext},
    draw::{hour::hour, tables},
};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Query {
    /// Also what was in order.
    #[serde(default)]
    all: bool,
    #[serde(default)]
    from: usize,
}

#[derive(Serialize)]
pub(crate) struct Screen {
    items: Vec<Group>,
    from: usize,
    next: Option<usize>,
    #[serde(skip)]
    all: bool,
    now: StoreTime,
}

impl answer::Screen for Screen {
    type Query = Query;
    const PATH: &'static str = "/changes";

    async fn load(_: &Shared, query: &Query, picture: &Picture) -> Result<Arc<Self>, Problem> {
        let wanted =
            picture.changes().iter().filter(|change| query.all || change.severity() != Severity::Other);
        let groups = Group::all(wanted);
        let of = groups.len();
        let items: Vec<_> = groups.into_iter().skip(query.from).take(Reader::PAGE).collect();
        let next = Some(query.from + items.len()).filter(|next| *next < of);
        Ok(Arc::new(Self { items, from: query.from, next, all: query.all, now: picture.now() }))
    }

    fn title(&self) -> String {
        "The last hour".to_owned()
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        let link = |all: bool, from: usize| {
            let from = from.to_string();
            let query = [("all", if all { "true" } else { "false" }), ("from", from.as_str())];
            context.base.link("/changes", &query)
        };
        let list = html! {
            p {
                @if self.all { a href=(link(false, 0)) { "Only takeovers, losses, moves, failures and what people did" } }
                @else { a href=(link(true, 0)) { "Also what was in order" } }
            }
            (tables::changes(&self.items, self.now))
            @if let Some(next) = self.next { p { a rel="next" href=(link(self.all, next)) { "More" } } }
        };
        let kept = html! {
            h2 { "What is kept" }
            ul.quiet {
                li { "Of each key, its last five holders. One that changed hands more often within the hour shows the last of them." }
                li { "Of each instance, that it started and how it ended, as long as its record is kept. Beats and pauses of beats are not." }
                li { "Of each schedule, the last twenty entries of its ledger, of each run its last attempt, and its last pause." }
                li { "Of what people did: who released a key, paused a schedule or drained an instance, and why. Of resume, put back and a run that was ordered and has begun, names and reasons are in the log alone." }
            }
            (tables::gaps(&context.picture))
        };
        vec![
            Part::new("hour", hour(context.picture.changes(), self.now)),
            Part::new("changes", list),
            Part::new("gaps", kept),
        ]
    }
}

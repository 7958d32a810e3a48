//! A spread: the place of each task, and the reason for it.

use std::sync::Arc;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tenure::model::{LockId, SpreadName, StoreTime};
use tenure_look::{Picture, Reader, SpreadView, TaskView, one_line, terms};

use crate::{
    Shared,
    answer::{self, Part, Problem, RenderContext},
    draw::{
        bar::{bar, permille},
        matrix::matrix,
        text::{count, instance, key, life, name, since},
    },
};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Query {
    name: String,
    #[serde(default)]
    from: usize,
}

#[derive(Serialize)]
pub(crate) struct Screen {
    #[serde(flatten)]
    spread: SpreadView,
    /// Tasks in all, of which a page is shown.
    of: usize,
    from: usize,
    next: Option<usize>,
    /// All of them were read.
    whole: bool,
    now: StoreTime,
}

impl answer::Screen for Screen {
    type Query = Query;
    const PATH: &'static str = "/spread";

    async fn load(_: &Shared, query: &Query, picture: &Picture) -> Result<Arc<Self>, Problem> {
        let name = SpreadName::new(&query.name).map_err(Problem::bad)?;
        let Some(spread) = picture.spread(&name, query.from, Reader::PAGE) else {
            return Err(Problem::not_found(format!(
                "no instance takes part in a spread {:?}, and none of its tasks was ever taken",
                one_line(name.as_str())
            )));
        };
        let of = picture.task_count(&name);
        let next = Some(query.from + spread.tasks.len()).filter(|next| *next < of);
        let whole = picture.read().spreads.contains(&name);
        Ok(Arc::new(Self { of, from: query.from, next, whole, spread, now: picture.now() }))
    }

    fn title(&self) -> String {
        format!("Spread {}", self.spread.spread)
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        vec![
            Part::new("matrix", self.matrix(context)),
            Part::new("members", self.members(context)),
            Part::new("tasks", self.tasks(context)),
        ]
    }
}

impl Screen {
    fn pages(&self, context: &RenderContext) -> Markup {
        let link = |from: usize| {
            context
                .base
                .link("/spread", &[("name", self.spread.spread.as_str()), ("from", &from.to_string())])
        };
        html! {
            @if self.from > 0 || self.next.is_some() {
                p.pages {
                    "Tasks " (self.from.saturating_add(1)) " to " (self.from.saturating_add(self.spread.tasks.len())) " of " (self.of) "."
                    @if self.from > 0 { " " a rel="prev" href=(link(self.from.saturating_sub(Reader::PAGE))) { "Previous" } }
                    @if let Some(next) = self.next { " " a rel="next" href=(link(next)) { "More" } }
                }
            }
        }
    }

    fn matrix(&self, context: &RenderContext) -> Markup {
        html! {
            p.legend {
                span.held { "running" } " " span.lost { "held, its holder looks dead" } " " span.resting { "failing or resting" } " "
                span.free { "moving or waiting for room" } " " span.closed { "done" } " " span.moved { "has just moved" }
            }
            div.scroll { (matrix(&self.spread, self.now)) }
            (self.pages(context))
            @if let Some(wanted) = self.spread.wanted.filter(|_| self.spread.never_ran > 0) {
                p.bad { (wanted) " wanted, " (wanted.saturating_sub(self.spread.never_ran)) " ever ran, " (self.spread.never_ran) " never" }
            }
            @if !self.whole { p.quiet { "Not all of its tasks were read yet." } }
        }
    }

    fn members(&self, context: &RenderContext) -> Markup {
        let members = &self.spread.members;
        let most = members.iter().map(|one| one.member.tasks).max().unwrap_or_default();
        html! {
            h2 { "Members" }
            @if members.is_empty() { p.bad { "No living instance takes part." } } @else {
                div.scroll {
                    table {
                        thead { tr { th scope="col" { "Member" } th scope="col" { "Tasks" } th scope="col" { "Share" } } }
                        tbody {
                            @for one in members {
                                @let (member, terms) = (&one.member, terms(&one.member.share, one.member.drained.as_ref()));
                                @let whole = if member.share.cap < u32::MAX { member.share.cap as usize } else { most };
                                tr {
                                    th scope="row" {
                                        (instance(&context.base, member.holder.as_str(), member.session)) (life(one.life))
                                        @if member.failing { " " span.badge.bad { "failing" } }
                                    }
                                    td { (bar(permille(member.tasks, whole), "load", &count(member.tasks, "task"))) " " (member.tasks) }
                                    td { @if terms.is_empty() { span.quiet { "the usual" } } @else { (terms) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn tasks(&self, context: &RenderContext) -> Markup {
        html! {
            h2 { "Tasks, and why each is where it is" }
            @if self.spread.tasks.is_empty() { p.quiet { "None of its tasks was ever taken." } } @else {
                div.scroll {
                    table.tasks {
                        thead { tr { th scope="col" { "Task" } th scope="col" { "State" } th scope="col" { "Holder" } th scope="col" { "Since" } th scope="col" { "Why" } } }
                        tbody { @for task in &self.spread.tasks { (self.row(context, task)) } }
                    }
                }
                (self.pages(context))
            }
        }
    }

    fn row(&self, context: &RenderContext, task: &TaskView) -> Markup {
        let namespace = context.picture.namespace().clone();
        let kind = tenure::model::Kind::of_tasks(&self.spread.spread);
        let id = LockId { namespace, kind, key: task.key.clone() };
        let word = task.word();
        let class = if word == "running" { "badge good" } else { "badge note" };
        html! {
            tr {
                th scope="row" { (key(&context.base, &id)) }
                td { span class=(class) { (word) } }
                td {
                    @if let (Some((_, session)), Some(holder)) = (task.state.holder(), task.state.holder_name()) {
                        (instance(&context.base, &holder, session))
                    }
                }
                td { @if let Some(at) = task.since { (since(at, self.now)) } }
                td { (name(&task.why.join("; "))) }
            }
        }
    }
}

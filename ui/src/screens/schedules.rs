//! The schedules: the next time of each, how it went, and its owner.

use std::{sync::Arc, time::Duration};

use maud::{Markup, html};
use serde::Serialize;
use tenure::model::StoreTime;
use tenure_look::{Area, Picture, Reader, ScheduleState, ScheduleView};

use super::From;
use crate::{
    Shared,
    address::Base,
    answer::{self, Part, Problem, RenderContext},
    draw::{
        runs, tables,
        text::{instance, life, name, schedule, since},
    },
};

#[derive(Serialize)]
pub(crate) struct Screen {
    items: Vec<ScheduleView>,
    from: usize,
    next: Option<usize>,
    /// All of them were found.
    whole: bool,
    now: StoreTime,
}

impl answer::Screen for Screen {
    type Query = From;
    const PATH: &'static str = "/schedules";

    async fn load(_: &Shared, query: &From, picture: &Picture) -> Result<Arc<Self>, Problem> {
        let items = picture.schedules(query.from, Reader::PAGE);
        let next = Some(query.from + items.len()).filter(|next| *next < picture.schedule_count());
        let whole = picture.read().schedules;
        Ok(Arc::new(Self { items, from: query.from, next, whole, now: picture.now() }))
    }

    fn title(&self) -> String {
        "Schedules".to_owned()
    }

    fn concerns(&self, area: &Area) -> bool {
        !matches!(area, Area::Locks | Area::Waiters)
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        let list = html! {
            @if self.whole || !self.items.is_empty() { (table(&context.base, &self.items, context.picture.ttl(), self.now)) }
            @if self.from > 0 || self.next.is_some() {
                p.pages {
                    @if self.from > 0 {
                        a rel="prev" href=(context.base.link("/schedules", &[("from", &self.from.saturating_sub(Reader::PAGE).to_string())])) { "Previous" } " "
                    }
                    @if let Some(next) = self.next {
                        a rel="next" href=(context.base.link("/schedules", &[("from", &next.to_string())])) { "More" }
                    }
                }
            }
            (tables::unread_schedules(&context.picture))
        };
        vec![Part::new("schedules", list)]
    }
}

fn table(base: &Base, schedules: &[ScheduleView], ttl: Duration, now: StoreTime) -> Markup {
    html! {
        @if schedules.is_empty() { p.quiet { "No schedule is known in this namespace." } } @else {
            div.scroll {
                table.schedules {
                    thead { tr { th scope="col" { "Schedule" } th scope="col" { "When" } th scope="col" { "State" } th scope="col" { "Next" } th scope="col" { "Last runs" } th scope="col" { "Holder" } } }
                    tbody {
                        @for one in schedules {
                            tr {
                                th scope="row" { (schedule(base, one.status.record.id.name.as_str())) }
                                td { (when(one)) }
                                td { (standing(one, ttl)) }
                                td { @if let Some(next) = one.next.first() { (since(*next, now)) } @else { span.quiet { "-" } } }
                                td { (runs::cells(base, one)) }
                                td {
                                    @if let Some(owner) = &one.owner { (instance(base, owner.holder.as_str(), owner.session)) (life(owner.life)) }
                                    @else { span.badge.note { "none" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The expression in words, and its zone.
pub(crate) fn when(one: &ScheduleView) -> Markup {
    let timing = one.status.record.definition.as_ref().map(|definition| definition.timing.to_string());
    html! {
        @if let Some(words) = &one.in_words {
            span title=[timing.as_deref().map(tenure_look::one_line)] { (words) }
            @if let Some(zone) = &one.zone { span.quiet { ", " (zone) } }
        } @else if let Some(timing) = &timing { (name(timing)) } @else { span.quiet { "not run yet" } }
    }
}

pub(crate) fn standing(one: &ScheduleView, ttl: Duration) -> Markup {
    let standing = one.state(ttl);
    let class = match standing {
        ScheduleState::Overdue { .. } => "bad",
        ScheduleState::Unread | ScheduleState::Undefined | ScheduleState::Paused | ScheduleState::Due => {
            "note"
        }
        ScheduleState::Running | ScheduleState::Waiting => "good",
    };
    let failures = one.status.failures;
    html! {
        span class=(format!("badge {class}")) { (standing) }
        @if failures > 0 { " " span.badge.bad { (failures) " failed in a row" } }
        @if let Some(pause) = one.status.record.pause.as_ref().filter(|_| one.paused) {
            " by " (name(pause.by.as_str())) ": " (name(pause.why.as_str()))
        }
    }
}

//! A schedule, its ledger, and one of its runs.

use std::sync::Arc;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tenure::{
    StoreError,
    model::{Entry, RunRecord, ScheduleId, ScheduleName, StoreTime},
    store::{RunPage, ScheduleSeen},
};
use tenure_look::{Area, Picture, Reader, ScheduleView, ended, length, one_line};

use super::{FRESH, cursor, schedules};
use crate::{
    Shared,
    act::{Verb, form, state_of},
    answer::{self, Part, Problem, RenderContext},
    draw::{
        runs,
        text::{instance, instant, life, name, since},
    },
};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Query {
    name: String,
    /// The page of the ledger.
    after: Option<String>,
    /// The entry of that page that is shown whole.
    run: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Screen {
    #[serde(flatten)]
    schedule: ScheduleView,
    /// A page of its ledger, the last entry first.
    #[serde(rename = "ledger")]
    page: RunPage,
    /// The entry that was asked for.
    run: Option<RunRecord>,
    #[serde(skip)]
    query: Query,
    now: StoreTime,
}

/// Content that this screen reads itself.
struct Read {
    ledger: RunPage,
    /// The schedule, if the picture has none of that name.
    other: Option<ScheduleView>,
}

impl answer::Screen for Screen {
    type Query = Query;
    const PATH: &'static str = "/schedule";

    async fn load(shared: &Shared, query: &Query, picture: &Picture) -> Result<Arc<Self>, Problem> {
        let name = ScheduleName::new(&query.name).map_err(Problem::bad)?;
        let known = picture.schedule(&name).filter(|known| known.ledger.read_at.is_some());
        let after = cursor(query.after.as_ref())?;
        let id = ScheduleId { namespace: picture.namespace().clone(), name };
        let (look, is_known) = (shared.ui.pictures.reader(), known.is_some());
        let read = async {
            let ledger = look.history(id.clone(), after, Reader::PAGE).await?;
            let mut other = None;
            if !is_known
                && let Some(ScheduleSeen::Found(record)) =
                    look.seen_schedules(std::slice::from_ref(&id)).await?.pop()
            {
                other = look.schedules_of(vec![record]).await?.0.pop();
            }
            Ok::<_, StoreError>(Read { ledger, other })
        };
        let known_at = known.as_ref().map(|schedule| schedule.ledger.read_at);
        let address = format!("schedule {id} {:?} {known_at:?}", query.after);
        let read = shared.cache.get(address, FRESH, read).await?;
        let Some(schedule) = known.or_else(|| read.other.clone()) else {
            return Err(Problem::not_found(format!("there is no schedule {:?}", one_line(id.name.as_str()))));
        };
        let entries = &read.ledger.items;
        let wanted = query.run.as_ref();
        let run = wanted.and_then(|wanted| entries.iter().find(|run| runs::entry(run) == *wanted));
        if let (Some(wanted), None) = (wanted, run) {
            return Err(Problem::not_found(format!(
                "the entry {:?} is not on this page of the ledger, or was removed since",
                one_line(wanted)
            )));
        }
        let (run, ledger) = (run.cloned(), read.ledger.clone());
        Ok(Arc::new(Self { schedule, page: ledger, run, query: query.clone(), now: picture.now() }))
    }

    fn title(&self) -> String {
        format!("Schedule {}", self.schedule.status.record.id.name)
    }

    fn concerns(&self, area: &Area) -> bool {
        !matches!(area, Area::Locks | Area::Waiters)
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        vec![
            Part::new("about", self.about(context)),
            Part::new("run", self.one_run(context)),
            Part::new("acts", self.acts(context)),
            Part::new("ledger", self.ledger(context)),
        ]
    }
}

impl Screen {
    fn about(&self, context: &RenderContext) -> Markup {
        let (schedule, now) = (&self.schedule, self.now);
        let record = &schedule.status.record;
        html! {
            dl {
                dt { "When" } dd { (schedules::when(schedule)) }
                @if let Some(definition) = &record.definition {
                    dt { "Expression" } dd { code { (one_line(definition.timing.as_str())) } }
                    dt { "Policies" } dd { (name(definition.policies.as_str())) }
                    dt { "Since" } dd { (instant(definition.since)) }
                }
                dt { "State" } dd { (schedules::standing(schedule, context.picture.ttl())) }
                dt { "Holder" } dd {
                    @if let Some(owner) = &schedule.owner {
                        (instance(&context.base, owner.holder.as_str(), owner.session)) (life(owner.life)) ", term " (owner.term)
                    } @else { "none" }
                }
                dt { "Next" } dd {
                    @if schedule.next.is_empty() { "none" } @else {
                        ol.next { @for at in &schedule.next { li { (instant(*at)) ", " (since(*at, now)) } } }
                    }
                }
                @if !record.orders.is_empty() {
                    dt { "Wanted" } dd {
                        @for order in &record.orders { "by " (name(order.by.as_str())) ", " (since(order.at, now)) ": " (name(order.why.as_str())) " " }
                    }
                }
                dt { "Last runs" } dd { (runs::cells(&context.base, schedule)) }
            }
        }
    }

    fn one_run(&self, context: &RenderContext) -> Markup {
        let Some(run) = &self.run else { return html! {} };
        html! {
            div.run {
                h2 { "The " (run.id.entry.as_str()) " of " (instant(run.id.instant)) }
                dl {
                    dt { "Outcome" } dd { (ended(run, self.schedule.is_on(run))) }
                    @if let Some(skipped) = &run.skipped {
                        dt { "Not run" } dd { (skipped.ticks()) " from " (instant(skipped.from)) " to " (instant(run.id.instant)) }
                        dt { "Why" } dd { (name(skipped.why.as_str())) }
                        dt { "Recorded by" } dd { (instance(&context.base, run.holder.as_str(), run.session)) ", term " (run.term) }
                    } @else {
                        dt { "Attempt" } dd {
                            (run.attempt)
                            @if run.attempt > 1 { ". Of the attempts before, the ledger keeps the number alone." }
                        }
                        dt { "By" } dd { (instance(&context.base, run.holder.as_str(), run.session)) }
                        dt { "Term" } dd { (run.term) }
                        dt { "Begun" } dd { (instant(run.started)) ", " (length(run.lateness())) " after its instant" }
                        @if let Some(finish) = &run.finish {
                            dt { "Ended" } dd { (instant(finish.at)) ", after " (length(finish.at.since(run.started))) }
                            dt { "Again" } dd { @if finish.last { "No attempt follows." } @else { "Another attempt may follow." } }
                            @if let Some(error) = &finish.error { dt { "Error" } dd { pre { (error.as_str()) } } }
                        }
                    }
                }
            }
        }
    }

    fn ledger(&self, context: &RenderContext) -> Markup {
        let name_of = self.schedule.status.record.id.name.as_str();
        html! {
            h2 { "Ledger" }
            @if self.page.items.is_empty() { p.quiet { "It has not run yet." } } @else {
                div.scroll {
                    table {
                        thead { tr { th scope="col" { "Instant" } th scope="col" { "Outcome" } th scope="col" { "Late" } th scope="col" { "Took" } th scope="col" { "Holder" } th.number scope="col" { "Attempt" } th scope="col" { "Note" } } }
                        tbody { @for run in &self.page.items { (self.entry(context, run)) } }
                    }
                }
            }
            @for (record, refusal) in &self.page.refused { p.bad { (name(record)) ": " (name(&refusal.to_string())) } }
            @if let Some(next) = &self.page.next {
                p { a rel="next" href=(context.base.link("/schedule", &[("name", name_of), ("after", &next.to_hex())])) { "More" } }
            } @else if let Some(mark) = self.page.mark {
                p.quiet { "Runs up to " (instant(mark)) " may have been removed." }
            }
        }
    }

    fn entry(&self, context: &RenderContext, run: &RunRecord) -> Markup {
        let is_on = self.schedule.is_on(run);
        let (class, letter) = runs::how(run, is_on);
        let link = runs::link_to_run(&context.base, run, self.query.after.as_deref());
        html! {
            tr {
                th scope="row" { a href=(link) { (instant(run.id.instant)) } @if run.id.entry == Entry::Order { " (order)" } }
                td { span class=(format!("cell {class}")) aria-hidden="true" { (letter) } " " (ended(run, is_on)) }
                @if let Some(skipped) = &run.skipped {
                    td {} td {}
                    td { (name(run.holder.as_str())) }
                    td.number {}
                    td { (skipped.ticks()) " not run: " (name(skipped.why.as_str())) }
                } @else {
                    td { (length(run.lateness())) }
                    td { @if let Some(finish) = &run.finish { (length(finish.at.since(run.started))) } }
                    td { (name(run.holder.as_str())) }
                    td.number { (run.attempt) }
                    td { @if let Some(error) = run.finish.as_ref().and_then(|finish| finish.error.as_ref()) { (name(error.as_str())) } }
                }
            }
        }
    }

    fn acts(&self, context: &RenderContext) -> Markup {
        let record = &self.schedule.status.record;
        let (name, state) = (record.id.name.as_str(), state_of(record));
        let fields = [("name", name), ("seen", state.as_str())];
        let pause = if self.schedule.paused { Verb::Resume } else { Verb::Pause };
        html! {
            div data-changed=(format!("It changed while you wrote: it is {state} now.")) {
                (form(context, pause, name, &fields)) (form(context, Verb::Run, name, &fields))
            }
        }
    }
}

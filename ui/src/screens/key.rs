//! A key: its holder, its waiters, and its former holders.

use std::sync::Arc;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tenure::{
    model::{Key, Kind, LockId},
    spread::TaskState,
};
use tenure_look::{Area, KeyDetails, Picture, length, one_line};

use super::FRESH;
use crate::{
    Shared,
    act::{Verb, form, kind_of},
    answer::{self, Part, Problem, RenderContext},
    draw::{
        tables,
        text::{instance, instant, kind, life, name, schedule, since, value},
    },
};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Query {
    #[serde(default = "lock")]
    kind: String,
    key: String,
    /// True if its value is to be shown.
    #[serde(default)]
    value: bool,
}

fn lock() -> String {
    "lock".to_owned()
}

#[derive(Serialize)]
pub(crate) struct Screen {
    #[serde(flatten)]
    look: KeyDetails,
    /// Why a task is where it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
    #[serde(skip)]
    query: Query,
    /// True if it has a value, which is not shown.
    value_hidden: bool,
}

impl answer::Screen for Screen {
    type Query = Query;
    const PATH: &'static str = "/key";

    async fn load(shared: &Shared, query: &Query, picture: &Picture) -> Result<Arc<Self>, Problem> {
        let (kind, key) = (kind_of(&query.kind)?, Key::new(&query.key).map_err(Problem::bad)?);
        let id = LockId { namespace: picture.namespace().clone(), kind, key };
        let read = shared.ui.pictures.reader().key(id.clone());
        let known = picture.lock(&id).map(|record| (record.term, record.holding.is_some(), record.wanted));
        let look = shared.cache.get(format!("key {id} {known:?}"), FRESH, read).await?;
        let mut look = (*look).clone();
        if look.record.is_none() && look.refusal.is_none() {
            return Err(Problem::not_found(format!(
                "the {} {:?} was never held, or its record was removed since",
                one_line(&look.id.kind.to_string()),
                one_line(look.id.key.as_str())
            )));
        }
        let (mut query, mut value_hidden) = (query.clone(), false);
        if !query.value || shared.ui.hides_values {
            // There is no address that shows it.
            query.value |= shared.ui.hides_values;
            // Waiters have values, too.
            look.waiters.iter_mut().for_each(|waiter| waiter.by.value = None);
            let held = look.record.as_mut().and_then(|record| record.holding.as_mut());
            value_hidden = held.is_some_and(|held| held.by.value.take().is_some());
        }
        let reasons = look.record.as_ref().map(|record| picture.reasons(record)).unwrap_or_default();
        Ok(Arc::new(Self { look, reasons, query, value_hidden }))
    }

    fn title(&self) -> String {
        format!("{} {}", capital(&kind(&self.look.id.kind)), self.look.id.key)
    }

    fn concerns(&self, area: &Area) -> bool {
        *area == Area::Sessions
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        let now = self.look.now;
        let past = self.look.record.as_ref().map(|record| record.past.clone()).unwrap_or_default();
        vec![
            Part::new("about", self.about(context)),
            Part::new("acts", self.acts(context)),
            Part::new("queue", html! { h2 { "Queue" } (tables::waiters(&self.look)) }),
            Part::new("past", html! { h2 { "Before" } (tables::past(&past, now)) }),
        ]
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

impl Screen {
    fn about(&self, context: &RenderContext) -> Markup {
        let (look, now) = (&self.look, self.look.now);
        html! {
            @if let Some(refusal) = &look.refusal { p.bad { (name(&refusal.to_string())) } }
            dl {
                @if look.id.kind == Kind::Schedule { dt { "Schedule" } dd { (schedule(&context.base, look.id.key.as_str())) } }
                @if let Some(record) = &look.record {
                    dt { "Holder" } dd {
                        @if let Some(held) = &record.holding {
                            (instance(&context.base, held.by.holder.as_str(), held.by.session)) @if let Some(how) = look.life { (life(how)) }
                        } @else { "none" }
                    }
                    @if let Some(held) = &record.holding {
                        dt { "Since" } dd { (instant(held.acquired_at)) ", " (since(held.acquired_at, now)) }
                        @if let Some(who) = &held.by.who { dt { "Who" } dd { (name(who.as_str())) } }
                        @if let Some(why) = &held.by.why { dt { "Why" } dd { (name(why.as_str())) } }
                        dt { "Value" } dd { (self.value(context)) }
                    }
                    dt { "Term" } dd { (record.term) }
                }
                @if let Some(left) = look.closed_left { dt { "Closed" } dd { "for another " (length(left)) ": it cannot be acquired yet" } }
                @if !self.reasons.is_empty() {
                    dt { "Why it is there" } dd { ul { @for reason in &self.reasons { li { (name(reason)) } } } }
                }
            }
        }
    }

    fn value(&self, context: &RenderContext) -> Markup {
        let held = self.look.record.as_ref().and_then(|record| record.holding.as_ref());
        let shown = held.and_then(|held| held.by.value.as_ref());
        let link = |value: &[(&str, &str)]| {
            let mut query = vec![("kind", self.query.kind.as_str()), ("key", self.query.key.as_str())];
            query.extend(value);
            context.base.link("/key", &query)
        };
        html! {
            @if self.value_hidden && self.query.value { "not shown" }
            @else if self.value_hidden { "not shown: " a href=(link(&[("value", "true")])) { "show it" } }
            @else if let Some(shown) = shown { code { bdi { (value(shown)) } } " " a href=(link(&[])) { "hide it" } }
            @else { "none" }
        }
    }

    fn acts(&self, context: &RenderContext) -> Markup {
        let Some(record) = &self.look.record else { return html! {} };
        let (kind, term) = (self.look.id.kind.to_string(), record.term.to_string());
        let key = self.look.id.key.as_str();
        let fields = [("kind", kind.as_str()), ("key", key), ("term", term.as_str())];
        let state = TaskState::of_record(record, None, self.look.now);
        let holder = record.holding.as_ref().map(|held| held.by.holder.as_str());
        let has = holder.map_or_else(|| "no instance".to_owned(), one_line);
        html! {
            div data-changed=(format!("It changed hands while you wrote: {has} has it now.")) {
                @if let Some(holder) = holder { (form(context, Verb::Release, holder, &fields)) }
                @if matches!(state, TaskState::Resting { .. }) { (form(context, Verb::PutBack, key, &fields)) }
            }
        }
    }
}

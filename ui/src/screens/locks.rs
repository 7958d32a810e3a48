//! The locks: the holder of each, since when, and why.

use std::sync::Arc;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tenure::{
    StoreError,
    model::{Kind, StoreTime},
    store::Page,
};
use tenure_look::{Area, Lock, Picture, Reader};

use super::{FRESH, cursor};
use crate::{
    Shared,
    act::kind_of,
    answer::{self, Part, Problem, RenderContext},
    draw::text::{instance, key, kind, life, name, since},
};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Query {
    kind: Option<String>,
    after: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Screen {
    #[serde(flatten)]
    page: Page<Lock>,
    #[serde(skip)]
    kind: Kind,
    now: StoreTime,
}

impl answer::Screen for Screen {
    type Query = Query;
    const PATH: &'static str = "/locks";

    async fn load(shared: &Shared, query: &Query, picture: &Picture) -> Result<Arc<Self>, Problem> {
        let kind = query.kind.as_deref().map_or(Ok(Kind::Lock), kind_of)?;
        let after = cursor(query.after.as_ref())?;
        let look = shared.ui.pictures.reader();
        let read = async {
            let page = look.locks(Some(kind.clone()), after, Reader::PAGE).await?;
            Ok::<_, StoreError>(page.map(without_value))
        };
        let page = shared.cache.get(format!("locks {kind} {:?}", query.after), FRESH, read).await?;
        Ok(Arc::new(Self { page: (*page).clone(), kind, now: picture.now() }))
    }

    fn title(&self) -> String {
        match &self.kind {
            Kind::Lock => "Locks".to_owned(),
            other => format!("Keys: {}", kind(other)),
        }
    }

    fn concerns(&self, area: &Area) -> bool {
        *area == Area::Sessions
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part> {
        vec![Part::new("locks", self.table(context))]
    }
}

/// A value may be a secret, and is shown where it is asked for.
pub(super) fn without_value(mut lock: Lock) -> Lock {
    if let Some(held) = &mut lock.record.holding {
        held.by.value = None;
    }
    lock
}

impl Screen {
    fn table(&self, context: &RenderContext) -> Markup {
        html! {
            @if self.page.items.is_empty() { p.quiet { "There is none." } } @else {
                div.scroll {
                    table {
                        thead { tr { th scope="col" { "Key" } th scope="col" { "Holder" } th scope="col" { "Since" } th scope="col" { "Who" } th scope="col" { "Why" } th scope="col" { "Queue" } th.number scope="col" { "Term" } } }
                        tbody { @for lock in &self.page.items { (self.row(context, lock)) } }
                    }
                }
            }
            @for (record, refusal) in &self.page.refused { p.bad { (name(record)) ": " (name(&refusal.to_string())) } }
            @if let Some(next) = &self.page.next {
                p { a rel="next" href=(context.base.link("/locks", &[("kind", &self.kind.to_string()), ("after", &next.to_hex())])) { "More" } }
            }
        }
    }

    fn row(&self, context: &RenderContext, lock: &Lock) -> Markup {
        let record = &lock.record;
        html! {
            tr {
                th scope="row" { (key(&context.base, &record.id)) }
                @if let Some(held) = &record.holding {
                    td { (instance(&context.base, held.by.holder.as_str(), held.by.session)) @if let Some(how) = lock.life { (life(how)) } }
                    td { (since(held.acquired_at, self.now)) }
                    td { @if let Some(who) = &held.by.who { (name(who.as_str())) } }
                    td { @if let Some(why) = &held.by.why { (name(why.as_str())) } }
                } @else {
                    td { span.quiet { "none" } } td {} td {} td {}
                }
                td { @if record.wanted && record.holding.is_some() { span.badge.note { "wanted" } } }
                td.number { (record.term) }
            }
        }
    }
}

//! A screen in three forms: a page, a document, and events.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::Markup;
use serde::{Serialize, de::DeserializeOwned};
use tenure::StoreError;
use tenure_look::{Area, NotLoaded, Picture};

use crate::{Shared, address::Base, draw::tables, live, page};

/// Form of the answer that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Page,
    Json,
    Events,
}

impl Form {
    pub(crate) fn wanted(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        // The first that is known: browsers ask for pages first.
        for kind in accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim()) {
            match kind {
                "text/html" => return Self::Page,
                "application/json" => return Self::Json,
                "text/event-stream" => return Self::Events,
                _ => {}
            }
        }
        Self::Page
    }
}

/// A part of a page: what is replaced when it changes.
pub(crate) struct Part {
    pub(crate) id: &'static str,
    pub(crate) html: Markup,
}

impl Part {
    pub(crate) const fn new(id: &'static str, html: Markup) -> Self {
        Self { id, html }
    }
}

/// Surroundings of a screen: data needed to draw it, besides its content.
pub(crate) struct RenderContext {
    pub(crate) base: Base,
    pub(crate) picture: Arc<Picture>,
    /// The token of forms, if the visitor may act.
    pub(crate) may_act: Option<String>,
    /// The address that is shown, for forms that lead back to it.
    pub(crate) here: String,
}

/// A screen, of which there is one at each address.
pub(crate) trait Screen: Serialize + Send + Sync + Sized + 'static {
    /// Parameters of its address, behind the question mark.
    type Query: DeserializeOwned + Serialize + Clone + Send + Sync + 'static;
    /// Path of its address.
    const PATH: &'static str;

    /// Reads what it shows.
    fn load(
        shared: &Shared,
        query: &Self::Query,
        picture: &Picture,
    ) -> impl Future<Output = Result<Arc<Self>, Problem>> + Send;

    fn title(&self) -> String;

    /// Returns whether that part of the namespace is of concern here, so that it is told if it cannot be read.
    fn concerns(&self, _: &Area) -> bool {
        true
    }

    /// Returns its parts, and above them what cannot be read.
    fn all_parts(&self, context: &RenderContext) -> Vec<Part> {
        let unreadable = context.picture.unreadable().iter().filter(|(area, _)| self.concerns(area));
        let mut parts = vec![Part::new("unreadable", tables::unreadable(unreadable))];
        parts.extend(self.parts(context));
        parts
    }

    fn parts(&self, context: &RenderContext) -> Vec<Part>;
}

pub(crate) async fn show<S: Screen>(
    State(shared): State<Arc<Shared>>,
    Extension(base): Extension<Base>,
    headers: HeaderMap,
    query: Result<Query<S::Query>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let form = Form::wanted(&headers);
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => {
            return Problem::bad(error.body_text()).answer_in(Some(&shared), form, &base);
        }
    };
    if form == Form::Events {
        return live::events::<S>(shared, base, headers, query);
    }
    let loaded = async {
        let picture = shared.ui.pictures.get().await?;
        let screen = S::load(&shared, &query, &picture).await?;
        Ok::<_, Problem>((screen, picture))
    };
    match loaded.await {
        Err(problem) => problem.answer_in(Some(&shared), form, &base),
        Ok((screen, _)) if form == Form::Json => Json(&*screen).into_response(),
        Ok((screen, picture)) => {
            let context = render_context::<S>(&shared, base, picture, &query);
            page::page(&shared, &*screen, &context).into_response()
        }
    }
}

pub(crate) fn render_context<S: Screen>(
    shared: &Shared,
    base: Base,
    picture: Arc<Picture>,
    query: &S::Query,
) -> RenderContext {
    let here = here::<S>(&base, query);
    let may_act = shared.ui.actions.is_some() && base.1.may_act;
    let may_act = may_act.then(|| shared.csrf.token().to_owned());
    RenderContext { base, picture, may_act, here }
}

/// The address of a screen.
pub(crate) fn here<S: Screen>(base: &Base, query: &S::Query) -> String {
    let pairs = serde_json::to_value(query).ok();
    let pairs = pairs.as_ref().and_then(serde_json::Value::as_object);
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Bool(true) => Some("true".to_owned()),
        _ => None,
    };
    let pairs: Vec<(String, String)> = pairs
        .map(|pairs| pairs.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect())
        .unwrap_or_default();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    base.link(S::PATH, &pairs)
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) says: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, says: impl Into<String>) -> Self {
        Self { status, says: says.into() }
    }

    pub(crate) fn bad(says: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, says.to_string())
    }

    pub(crate) fn not_found(says: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, says)
    }

    pub(crate) fn answer(&self, form: Form, base: &Base) -> Response {
        self.answer_in(None, form, base)
    }

    /// The answer to somebody who may see the page.
    pub(crate) fn answer_in(&self, shared: Option<&Shared>, form: Form, base: &Base) -> Response {
        match form {
            Form::Page => (self.status, page::problem(self, base, shared)).into_response(),
            Form::Json | Form::Events => {
                (self.status, Json(serde_json::json!({ "error": self.says }))).into_response()
            }
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        // The place in a list that the address has: the visitor's fault.
        if error.is_foreign_cursor() {
            return Self::bad(error);
        }
        let words = if error.is_retryable() { "the store does not answer" } else { "it cannot be read" };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("{words}: {error}"))
    }
}

impl From<NotLoaded> for Problem {
    fn from(error: NotLoaded) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("the store does not answer: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use tenure::Applied;

    use super::*;

    #[test]
    fn the_form_is_the_first_that_is_known() {
        let of = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            Form::wanted(&headers)
        };
        assert_eq!(of("text/html,application/xhtml+xml,*/*;q=0.8"), Form::Page);
        assert_eq!(of("application/json"), Form::Json);
        assert_eq!(of("text/event-stream"), Form::Events);
        assert_eq!(of("*/*"), Form::Page);
        assert_eq!(Form::wanted(&HeaderMap::new()), Form::Page);
    }

    #[test]
    fn a_cursor_of_another_store_is_the_mistake_of_the_visitor() {
        let problem = Problem::from(StoreError::foreign_cursor("mongodb", "list locks"));
        assert_eq!(problem.status, StatusCode::BAD_REQUEST, "{}", problem.says);
        let cause = "the cursor was not made by this store";
        let problem = Problem::from(StoreError::new("mongodb", "list locks", Applied::No, false, cause));
        assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE, "{}", problem.says);
    }
}

//! The addresses, and what stands before all of them: access, and what a browser may do with an answer.

use std::{fmt::Write, sync::Arc};

use axum::{
    Extension, Router,
    extract::{OriginalUri, Request, State},
    http::{Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};

use crate::{
    Shared,
    access::{Denied, Visitor},
    act,
    answer::{Form, Problem, show},
    headers, login, metrics,
    screens::{changes, instance, instances, key, locks, overview, schedule, schedules, spread, spreads},
};

const STYLE: &str = include_str!("style.css");
const ICON: &str = include_str!("icon.svg");
const ALARM: &str = include_str!("alarm.svg");
const SCRIPT: &str = include_str!("script.js");

/// Longest body of a request: a form with a reason.
const LONGEST_BODY: usize = 64 * 1024;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let guarded = Router::new()
        .route("/", get(show::<overview::Screen>))
        .route("/instances", get(show::<instances::Screen>))
        .route("/instance", get(show::<instance::Screen>))
        .route("/spreads", get(show::<spreads::Screen>))
        .route("/spread", get(show::<spread::Screen>))
        .route("/schedules", get(show::<schedules::Screen>))
        .route("/schedule", get(show::<schedule::Screen>))
        .route("/locks", get(show::<locks::Screen>))
        .route("/key", get(show::<key::Screen>))
        .route("/changes", get(show::<changes::Screen>))
        .route("/metrics", get(metrics::metrics))
        .route("/act/{verb}", post(act::act))
        .route("/login", get(login::form).post(login::login))
        .route("/logout", post(login::logout))
        .fallback(nowhere)
        .layer(middleware::from_fn_with_state(shared.clone(), may_look));
    Router::new()
        .route("/healthz", get(metrics::health))
        .route("/icon.svg", get(async || asset("image/svg+xml", ICON)))
        .route("/alarm.svg", get(async || asset("image/svg+xml", ALARM)))
        .route("/style.css", get(async || asset("text/css; charset=utf-8", STYLE)))
        .route("/script.js", get(async || asset("text/javascript; charset=utf-8", SCRIPT)))
        .merge(guarded)
        .layer(axum::extract::DefaultBodyLimit::max(LONGEST_BODY))
        .layer(middleware::from_fn(headers::strict))
        .layer(middleware::from_fn(note_base))
        .with_state(shared)
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=300")], text).into_response()
}

/// Place of the page: the address under which a program has nested it; and the visitor, once that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base(pub(crate) String, pub(crate) Visitor);

impl Base {
    fn of(original: &Uri, inner: &Uri) -> Self {
        // A nested page has its first address where it is nested, without a slash behind it.
        let prefix = match inner.path() {
            "/" => original.path(),
            path => original.path().strip_suffix(path).unwrap_or_default(),
        };
        Self(prefix.trim_end_matches('/').to_owned(), Visitor::default())
    }

    /// An address of the page.
    pub(crate) fn link(&self, path: &str, query: &[(&str, &str)]) -> String {
        let mut link =
            if path == "/" && !self.0.is_empty() { self.0.clone() } else { format!("{}{path}", self.0) };
        for (at, (name, value)) in query.iter().enumerate() {
            link.push(if at == 0 { '?' } else { '&' });
            link.push_str(name);
            link.push('=');
            link.push_str(&encoded(value));
        }
        link
    }
}

/// A text as a part of an address.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Notes the address of the page, for its links.
async fn note_base(OriginalUri(original): OriginalUri, mut request: Request, next: Next) -> Response {
    let base = Base::of(&original, request.uri());
    if request.headers().get_all(header::HOST).iter().count() > 1 {
        return Problem::bad("this request has two Host headers")
            .answer(Form::wanted(request.headers()), &base);
    }
    request.extensions_mut().insert(base);
    next.run(request).await
}

async fn may_look(
    State(shared): State<Arc<Shared>>,
    Extension(base): Extension<Base>,
    mut request: Request,
    next: Next,
) -> Response {
    match shared.ui.access.check(&request) {
        Ok(visitor) => {
            request.extensions_mut().insert(Base(base.0, visitor));
            next.run(request).await
        }
        // Who gives a token has none before.
        Err(Denied::TokenWanted) if request.uri().path() == "/login" => next.run(request).await,
        Err(denied) => login::deny(denied, Form::wanted(request.headers()), &base),
    }
}

async fn nowhere(shared: State<Arc<Shared>>, base: Extension<Base>, request: Request) -> Response {
    Problem::not_found(format!("there is no page at {}", request.uri().path())).answer_in(
        Some(&shared),
        Form::wanted(request.headers()),
        &base,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_begin_where_the_page_is() {
        let of =
            |original: &str, inner: &str| Base::of(&original.parse().unwrap(), &inner.parse().unwrap()).0;
        assert_eq!(of("/", "/"), "");
        assert_eq!(of("/locks?after=1", "/locks?after=1"), "");
        assert_eq!(of("/ops/tenure/locks", "/locks"), "/ops/tenure");
        assert_eq!(of("/ops/tenure/", "/"), "/ops/tenure");
        assert_eq!(of("/ops/tenure", "/"), "/ops/tenure");
    }

    #[test]
    fn a_name_of_any_characters_is_one_part_of_an_address() {
        let base = Base("/t".to_owned(), Visitor::default());
        assert_eq!(
            base.link("/key", &[("kind", "lock"), ("key", "a&b=../é \u{202e}")]),
            "/t/key?kind=lock&key=a%26b%3D..%2F%C3%A9%20%E2%80%AE"
        );
        assert_eq!(
            (base.link("/", &[]), Base(String::new(), Visitor::default()).link("/", &[])),
            ("/t".to_owned(), "/".to_owned())
        );
    }
}

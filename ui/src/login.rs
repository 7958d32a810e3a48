//! Login by a token, logout, and the answer to visitors without access.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Extension, Form,
    extract::{ConnectInfo, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use crate::{
    Shared,
    access::{Denied, Login, cookie_name},
    address::Base,
    answer::{self, Problem},
    headers, page,
    tokens::VISIT,
};

/// Answers a visitor who is denied access.
pub(crate) fn deny(denied: Denied, form: answer::Form, base: &Base) -> Response {
    let (status, why) = match denied {
        Denied::Forbidden(why) => (StatusCode::FORBIDDEN, why),
        Denied::TokenWanted if form == answer::Form::Page => return ask(base, ""),
        Denied::TokenWanted => {
            let why = "a token is required: send the header Authorization: Bearer TOKEN";
            (StatusCode::UNAUTHORIZED, why.to_owned())
        }
        Denied::TooManyWrong => {
            let why = "this token is wrong, as many others were within a minute";
            (StatusCode::TOO_MANY_REQUESTS, why.to_owned())
        }
    };
    let mut answer = Problem::new(status, why).answer(form, base);
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, headers::BEARER);
    }
    answer
}

fn ask(base: &Base, problem: &str) -> Response {
    let body = html! {
        main #main {
            h1 { "A token is required" }
            @if !problem.is_empty() { p role="alert" { (problem) } }
            @if base.1.login == Login::Wanted { p { "The log of the page has one, which is good once." } }
            form method="post" action=(base.link("/login", &[])) {
                p { label for="token" { "Token " } input #token type="password" name="token" required autofocus autocomplete="current-password"; }
                p { button { "Show the page" } }
            }
        }
    };
    (StatusCode::UNAUTHORIZED, page::whole(base, "A token is required", &body, false)).into_response()
}

/// Leads to the login, or out.
pub(crate) fn way(base: &Base) -> Markup {
    html! {
        @match base.1.login {
            Login::None => {},
            Login::Wanted => p { a href=(base.link("/login", &[])) { "Give a token" } " to act." },
            Login::Done => form method="post" action=(base.link("/logout", &[])) { button { "Log out" } },
        }
    }
}

pub(crate) async fn form(Extension(base): Extension<Base>) -> Response {
    ask(&base, "")
}

#[derive(Deserialize)]
pub(crate) struct Given {
    token: String,
}

pub(crate) async fn login(
    State(shared): State<Arc<Shared>>,
    Extension(base): Extension<Base>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    Form(given): Form<Given>,
) -> Response {
    let peer = peer.map(|Extension(ConnectInfo(peer))| peer);
    match shared.ui.access.tokens.enter(given.token.trim(), peer) {
        Ok(cookie) => home(&base, &headers, &cookie, VISIT.as_secs()),
        Err(Denied::TokenWanted) => ask(&base, "That is not the token."),
        Err(denied) => deny(denied, answer::Form::Page, &base),
    }
}

pub(crate) async fn logout(
    State(shared): State<Arc<Shared>>,
    Extension(base): Extension<Base>,
    headers: HeaderMap,
) -> Response {
    shared.ui.access.tokens.leave(&headers);
    home(&base, &headers, "", 0)
}

/// Leads to the overview, with a cookie of that value.
fn home(base: &Base, headers: &HeaderMap, cookie: &str, seconds: u64) -> Response {
    let path = if base.0.is_empty() { "/" } else { &base.0 };
    // The browser says how it got the form, whatever a proxy did with it.
    let is_secure =
        headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https:"));
    let secure = if is_secure { "; Secure" } else { "" };
    let name = cookie_name(headers);
    let cookie =
        format!("{name}={cookie}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    let mut answer = Redirect::to(&base.link("/", &[])).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    answer
}

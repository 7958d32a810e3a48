//! Events: the parts of a screen that have changed, as they change.

use std::{
    collections::HashMap,
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use axum::{
    http::StatusCode,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures::{Stream, StreamExt, stream};
use serde_json::json;
use tenure_look::{Picture, Subscription};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    Shared,
    address::Base,
    answer::{Form, Problem, Screen, render_context},
};

/// Interval of keep-alive events: a proxy does not take a follower for one that has left.
const ALIVE: Duration = Duration::from_secs(15);

/// A screen that is followed, and the parts of it that were sent.
struct Watched<S: Screen> {
    shared: Arc<Shared>,
    base: Base,
    query: S::Query,
    followed: Subscription,
    _room: OwnedSemaphorePermit,
    /// True if the follower was informed that the store does not answer.
    is_troubled: bool,
    sent: HashMap<&'static str, u64>,
}

/// Maximum number of followers: each receives all changes, and none of their streams ends by itself.
pub(crate) const FOLLOWERS: usize = 200;

pub(crate) fn events<S: Screen>(shared: Arc<Shared>, base: Base, query: S::Query) -> Response {
    let Ok(room) = shared.room.clone().try_acquire_owned() else {
        let why = format!("{FOLLOWERS} pages are live already: load the page again to see changes");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).answer(Form::Events, &base);
    };
    let (followed, end) = (shared.ui.pictures.follow(), shared.ui.end.clone());
    let watched =
        Watched::<S> { shared, base, query, followed, _room: room, is_troubled: false, sent: HashMap::new() };
    let events = changes(watched).take_until(end.cancelled_owned());
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

fn changes<S: Screen>(watched: Watched<S>) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(watched, |mut watched| async move {
        let events = match watched.followed.next().await {
            Ok(picture) => watched.events(picture).await,
            // The content on screen stays, and is said to be old.
            Err(unread) => vec![trouble(&Problem::from(unread))],
        };
        Some((stream::iter(events.into_iter().map(Ok)), watched))
    })
    .flatten()
}

impl<S: Screen> Watched<S> {
    async fn events(&mut self, picture: Arc<Picture>) -> Vec<Event> {
        let is_new = picture.trouble().is_some() && !self.is_troubled;
        self.is_troubled = picture.trouble().is_some();
        if is_new {
            // At once: what a screen reads itself takes long to fail.
            return vec![now(&picture)];
        }
        match S::load(&self.shared, &self.query, &picture).await {
            Err(problem) => vec![trouble(&problem)],
            Ok(screen) => {
                let context = render_context::<S>(&self.shared, self.base.clone(), picture, &self.query);
                let mut events = Vec::new();
                for part in screen.parts(&context) {
                    let html = part.html.into_string();
                    let mut hasher = DefaultHasher::new();
                    html.hash(&mut hasher);
                    if self.sent.insert(part.id, hasher.finish()) != Some(hasher.finish()) {
                        events.push(event("part", &json!({ "id": part.id, "html": html })));
                    }
                }
                events.push(now(&context.picture));
                events
            }
        }
    }
}

fn now(picture: &Picture) -> Event {
    let (now, needing) = (picture.now().to_string(), picture.verdict().needing());
    event("now", &json!({ "now": now, "trouble": picture.trouble(), "needing": needing }))
}

fn trouble(problem: &Problem) -> Event {
    event("trouble", &json!({ "says": problem.says }))
}

fn event(name: &str, data: &serde_json::Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

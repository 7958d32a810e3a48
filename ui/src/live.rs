//! Events: the parts of a screen that have changed, as they change.

use std::{
    collections::HashMap,
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak},
    time::Duration,
};

use axum::{
    http::{HeaderMap, StatusCode},
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
    access::Login,
    address::Base,
    answer::{Form, Part, Problem, Screen, render_context},
};

/// Interval of events that say only that the page is there: a follower who gets none for three of them has lost it.
const ALIVE: Duration = Duration::from_secs(5);

/// A screen that is followed, and the parts of it that were sent.
struct Watched<S: Screen> {
    shared: Arc<Shared>,
    base: Base,
    /// The request that is answered, which may have the cookie of a visit.
    headers: HeaderMap,
    query: S::Query,
    followed: Subscription,
    _room: OwnedSemaphorePermit,
    /// True if the follower was informed that the store does not answer.
    is_troubled: bool,
    sent: HashMap<&'static str, u64>,
}

/// Maximum number of followers: each receives all changes, and none of their streams ends by itself.
pub(crate) const FOLLOWERS: usize = 200;

pub(crate) fn events<S: Screen>(
    shared: Arc<Shared>,
    base: Base,
    headers: HeaderMap,
    query: S::Query,
) -> Response {
    let Ok(room) = shared.room.clone().try_acquire_owned() else {
        let why = format!("{FOLLOWERS} pages are live already: load the page again to see changes");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).answer(Form::Events, &base);
    };
    let (followed, end) = (shared.ui.pictures.follow(), shared.ui.end.clone());
    let (is_troubled, sent) = (false, HashMap::new());
    let watched = Watched::<S> { shared, base, headers, query, followed, _room: room, is_troubled, sent };
    let events = changes(watched).take_until(end.cancelled_owned());
    let alive = KeepAlive::new().interval(ALIVE).event(event("alive", &json!({})));
    Sse::new(events).keep_alive(alive).into_response()
}

fn changes<S: Screen>(watched: Watched<S>) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(watched, |mut watched| async move {
        let next = watched.followed.next().await;
        // A visit that has ended sees nothing more.
        if watched.base.1.login == Login::Done {
            watched.shared.ui.access.tokens.visit(&watched.headers)?;
        }
        let events = match next {
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
        match drawn::<S>(&self.shared, &self.base, &self.query, &picture).await {
            Err(problem) => vec![trouble(&problem)],
            Ok(drawn) => {
                let is_new = |part: &&Drawn| self.sent.insert(part.id, part.hash) != Some(part.hash);
                let parts = drawn.1.iter().filter(is_new);
                let parts = parts.map(|part| Event::default().event("part").data(&part.data));
                parts.chain([now(&picture)]).collect()
            }
        }
    }
}

/// A part of a screen as an event.
struct Drawn {
    id: &'static str,
    /// Equal if the part is, but for ages: the script counts them.
    hash: u64,
    data: String,
}

/// Draws a screen once for all who see the same of it.
async fn drawn<S: Screen>(
    shared: &Shared,
    base: &Base,
    query: &S::Query,
    picture: &Arc<Picture>,
) -> Result<Arc<(Weak<Picture>, Vec<Drawn>)>, Problem> {
    let context = render_context::<S>(shared, base.clone(), picture.clone(), query);
    let viewed = format!("{} {} {:?}", base.0, context.here, context.may_act);
    let draw = async {
        let screen = S::load(shared, query, picture).await?;
        let part = |part: Part| {
            let html = part.html.into_string();
            let hash = without_ages(&html);
            Drawn { id: part.id, hash, data: json!({ "id": part.id, "html": html }).to_string() }
        };
        Ok((Arc::downgrade(picture), screen.all_parts(&context).into_iter().map(part).collect()))
    };
    let is_of_it = |_, known: &(Weak<Picture>, Vec<Drawn>)| known.0.as_ptr() == Arc::as_ptr(picture);
    shared.drawn.get_while(viewed, is_of_it, draw).await
}

fn without_ages(html: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut pieces = html.split("<time class=\"age\"");
    pieces.next().hash(&mut hasher);
    for piece in pieces {
        // The instant of an age counts, and the words for it do not.
        let (instant, rest) = piece.split_once('>').unwrap_or((piece, ""));
        instant.hash(&mut hasher);
        rest.split_once("</time>").map_or(rest, |(_, rest)| rest).hash(&mut hasher);
    }
    hasher.finish()
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

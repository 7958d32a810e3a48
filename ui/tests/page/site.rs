//! A page that is asked without a socket, as if from this machine.

use std::{net::SocketAddr, ops::Deref, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, BodyDataStream, to_bytes},
    extract::ConnectInfo,
    http::{Method, Request, StatusCode, header},
    response::Response,
};
use futures::StreamExt;
use scraper::{Html, Selector};
use tenure::{
    store::{MemoryStore, Store},
    testing::TestClock,
};
use tenure_look::{LivePicture, Reader};
use tenure_ui::{Access, Ui};
use tower::ServiceExt;

use crate::fleet::{Fleet, namespace};

/// Time limit for all that a page waits for: in time that is paused, so that no machine is too slow for it.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A store, and the clock of all its users: it follows tokio's.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<TestClock>,
}

impl Deref for Memory {
    type Target = Arc<dyn Store>;

    fn deref(&self) -> &Self::Target {
        &self.store
    }
}

/// A page.
pub(crate) struct Site {
    router: Router,
}

/// An answer that was read whole.
pub(crate) struct Read {
    pub(crate) status: StatusCode,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) body: String,
}

/// Events of a screen.
pub(crate) struct Events {
    stream: BodyDataStream,
    text: String,
}

pub(crate) fn memory() -> Memory {
    let clock = Arc::new(TestClock::new());
    Memory { store: Arc::new(MemoryStore::new(clock.clone())), clock }
}

impl Site {
    /// A page with open access, unless it gets another.
    pub(crate) fn new(memory: Memory, with: impl FnOnce(Ui) -> Ui) -> Self {
        let look = Reader::new(memory.store, namespace()).clock(memory.clock);
        Self::of(with(Ui::of(LivePicture::new(look)).access(Access::open())).router())
    }

    pub(crate) fn of(router: Router) -> Self {
        Self { router }
    }

    pub(crate) async fn ask(&self, request: axum::http::request::Builder, body: Body) -> Response {
        let mut request = request.body(body).unwrap();
        request.headers_mut().entry(header::HOST).or_insert("localhost:7070".parse().unwrap());
        let local: SocketAddr = "127.0.0.1:9".parse().unwrap();
        if request.extensions().get::<ConnectInfo<SocketAddr>>().is_none() {
            request.extensions_mut().insert(ConnectInfo(local));
        }
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn read(&self, request: axum::http::request::Builder, body: Body) -> Read {
        let answer = self.ask(request, body).await;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        Read { status, headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    /// Gets an address as a browser does.
    pub(crate) async fn get(&self, address: &str) -> Read {
        self.read(Request::get(address).header(header::ACCEPT, "text/html,*/*"), Body::empty()).await
    }

    pub(crate) async fn page(&self, address: &str) -> Html {
        self.page_at(200, address).await
    }

    pub(crate) async fn page_at(&self, status: u16, address: &str) -> Html {
        let read = self.get(address).await;
        assert_eq!(read.status, status, "{address}: {}", read.body);
        Html::parse_document(&read.body)
    }

    /// Asks until the page is so.
    pub(crate) async fn until(&self, address: &str, is_so: impl Fn(&Html) -> bool) -> Html {
        let began = tokio::time::Instant::now();
        loop {
            let read = self.get(address).await;
            let page = Html::parse_document(&read.body);
            if read.status == StatusCode::OK && is_so(&page) {
                return page;
            }
            assert!(began.elapsed() < SOON, "{address} says:\n{}", text(&page, "main"));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn json(&self, address: &str) -> serde_json::Value {
        let read =
            self.read(Request::get(address).header(header::ACCEPT, "application/json"), Body::empty()).await;
        assert_eq!(read.status, StatusCode::OK, "{address}: {}", read.body);
        serde_json::from_str(&read.body).unwrap()
    }

    pub(crate) async fn events(&self, address: &str) -> Events {
        let request = Request::get(address).header(header::ACCEPT, "text/event-stream");
        let answer = self.ask(request, Body::empty()).await;
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
        Events { stream: answer.into_body().into_data_stream(), text: String::new() }
    }

    /// Sends a form.
    pub(crate) async fn post(&self, address: &str, fields: &[(&str, &str)]) -> Read {
        self.post_from(address, fields, &[]).await
    }

    pub(crate) async fn post_from(
        &self,
        address: &str,
        fields: &[(&str, &str)],
        from: &[(&str, &str)],
    ) -> Read {
        let encoded = |text: &str| -> String {
            text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02X}"))
        };
        let body: Vec<_> =
            fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(address)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        for (name, value) in from {
            request = request.header(*name, *value);
        }
        self.read(request, Body::from(body.join("&"))).await
    }
}

impl Events {
    /// Waits for an event that is so, and returns its data.
    pub(crate) async fn until(
        &mut self,
        kind: &str,
        within: Duration,
        is_so: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let found = async {
            loop {
                let (name, data) = self.read().await;
                if name == kind && is_so(&data) {
                    return data;
                }
            }
        };
        tokio::time::timeout(within, found).await.expect("the event comes in time")
    }

    /// Any event.
    pub(crate) async fn any(&mut self, within: Duration) {
        tokio::time::timeout(within, self.read()).await.expect("an event comes in time");
    }

    /// The next event but for those that say only that the page is there, and its data.
    pub(crate) async fn next(&mut self, within: Duration) -> (String, serde_json::Value) {
        let next = async {
            loop {
                let event = self.read().await;
                if event.0 != "alive" {
                    return event;
                }
            }
        };
        tokio::time::timeout(within, next).await.expect("an event comes in time")
    }

    async fn read(&mut self) -> (String, serde_json::Value) {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let line = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_default().trim().to_owned()
                };
                let (name, data) = (line("event:"), line("data:"));
                self.text = String::from(rest);
                if name.is_empty() {
                    // It says only that it is there.
                    continue;
                }
                return (name, serde_json::from_str(&data).unwrap_or_default());
            }
            let more = self.stream.next().await.expect("events never end").unwrap();
            self.text.push_str(std::str::from_utf8(&more).unwrap());
        }
    }
}

/// The texts of all elements that a selector finds.
pub(crate) fn texts(page: &Html, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    let text = |element: scraper::ElementRef<'_>| element.text().collect::<String>();
    page.select(&selector)
        .map(|element| text(element).split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

pub(crate) fn text(page: &Html, selector: &str) -> String {
    texts(page, selector).join("\n")
}

pub(crate) fn attributes(page: &Html, selector: &str, name: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    page.select(&selector).filter_map(|element| element.attr(name)).map(ToOwned::to_owned).collect()
}

/// A fleet of two that has settled.
pub(crate) async fn fleet(memory: &Memory, tasks: usize) -> Fleet {
    let mut fleet = Fleet::new(memory.store.clone(), tasks).by(memory.clock.clone());
    for holder in ["pod-1", "pod-2"] {
        fleet.join(holder).await.unwrap();
    }
    fleet.settled().await;
    fleet
}

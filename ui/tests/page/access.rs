//! Access, and limits on a browser's use of an answer.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode, header},
};
use tenure_ui::{Access, Ui};

use crate::{
    fleet::namespace,
    site::{Site, attributes, memory, text},
};

const TOKEN: &str = "0123456789abcdef-token";
const ADDRESSES: [&str; 11] = [
    "/",
    "/instances",
    "/spreads",
    "/spread?name=x",
    "/schedules",
    "/schedule?name=x",
    "/locks",
    "/key?key=x",
    "/changes",
    "/metrics",
    "/nowhere",
];

#[tokio::test]
async fn a_page_without_access_rules_serves_its_own_machine_alone() {
    let site = Site::new(memory(), |ui| ui);
    let from = |peer: &str, host: &str| {
        let peer: SocketAddr = peer.parse().unwrap();
        Request::get("/").header("host", host).extension(ConnectInfo(peer))
    };
    assert_eq!(site.read(from("127.0.0.1:5", "localhost"), Body::empty()).await.status, 200);
    let other = site.read(from("10.0.0.1:5", "localhost"), Body::empty()).await;
    assert_eq!(other.status, 403);
    assert!(other.body.contains("comes from 10.0.0.1"));
    let rebound = site.read(from("127.0.0.1:5", "evil.example"), Body::empty()).await;
    assert_eq!(rebound.status, 403);
}

#[tokio::test]
async fn a_token_is_asked_for_at_every_address_and_kept_in_a_cookie() {
    let site = Site::new(memory(), |ui| ui.access(Access::token(TOKEN).unwrap()));
    for address in ADDRESSES {
        let read = site.get(address).await;
        assert_eq!(read.status, 401, "{address}");
        let page = scraper::Html::parse_document(&read.body);
        assert_eq!(attributes(&page, "form", "action"), ["/login"], "{address}");
    }
    assert_eq!(site.post("/act/pause", &[("csrf", "x")]).await.status, 401);
    assert_eq!(site.get("/healthz").await.status, 200, "it tells nothing");
    let json = site.read(Request::get("/").header("accept", "application/json"), Body::empty()).await;
    assert_eq!((json.status.as_u16(), json.headers["www-authenticate"].as_bytes()), (401, &b"Bearer"[..]));
    let bearer = Request::get("/").header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(site.read(bearer, Body::empty()).await.status, 200);

    let wrong = site.post("/login", &[("token", "0123456789abcdef-other")]).await;
    assert_eq!(wrong.status, 401);
    assert!(!wrong.headers.contains_key("set-cookie"));
    let login = site.post("/login", &[("token", TOKEN)]).await;
    assert_eq!(login.status, 303);
    let cookie = login.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let kept = cookie.split(';').next().unwrap();
    assert!(!kept.contains(TOKEN), "{kept}");
    let again = Request::get("/").header("cookie", kept);
    assert_eq!(site.read(again, Body::empty()).await.status, 200);
}

#[tokio::test]
async fn a_trusted_header_says_who_looks() {
    let site = Site::new(memory(), |ui| ui.access(Access::header("x-user").unwrap()));
    for address in ADDRESSES {
        assert_eq!(site.get(address).await.status, 403, "{address}");
    }
    let named = Request::get("/").header("x-user", "ann").header("host", "ops.example");
    assert_eq!(site.read(named, Body::empty()).await.status, 200);
}

#[tokio::test]
async fn every_answer_is_strict_and_is_not_kept() {
    let site = Site::new(memory(), |ui| ui);
    for address in ADDRESSES.into_iter().chain(["/style.css", "/script.js", "/icon.svg", "/healthz"]) {
        let headers = site.get(address).await.headers;
        let policy = headers["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "same-origin");
        let kept = headers["cache-control"].to_str().unwrap();
        assert!(
            kept == "no-store" || ["/style.css", "/script.js", "/icon.svg"].contains(&address),
            "{address}: {kept}"
        );
    }
}

#[tokio::test]
async fn nested_in_a_program_all_its_links_lead_to_itself() {
    let ui = Ui::new(memory().store, namespace()).access(Access::open());
    let site = Site::of(Router::new().nest("/ops/tenure", ui.router()));
    for address in ["/ops/tenure", "/ops/tenure/instances", "/ops/tenure/nowhere"] {
        let page = scraper::Html::parse_document(&site.get(address).await.body);
        let links = [
            attributes(&page, "a", "href"),
            attributes(&page, "link[rel=stylesheet]", "href"),
            attributes(&page, "script", "src"),
        ];
        for link in links.concat().iter().filter(|link| *link != "#main") {
            assert!(link == "/ops/tenure" || link.starts_with("/ops/tenure/"), "{address}: {link}");
        }
    }
    let page = site.page("/ops/tenure").await;
    for link in attributes(&page, "nav a", "href") {
        assert_eq!(site.get(&link).await.status, 200, "{link}");
    }
    assert!(text(&page, "h1").contains("Overview"));
}

#[tokio::test]
async fn followers_beyond_200_are_refused() {
    let site = Site::new(memory(), |ui| ui);
    let mut all = Vec::new();
    for _ in 0..200 {
        all.push(site.events("/").await);
    }
    let one_more = async || {
        let request = Request::get("/").header(header::ACCEPT, "text/event-stream");
        site.ask(request, Body::empty()).await.status()
    };
    assert_eq!(one_more().await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(site.get("/").await.status, 200, "the page itself is there");
    all.pop();
    assert_eq!(one_more().await, StatusCode::OK);
}

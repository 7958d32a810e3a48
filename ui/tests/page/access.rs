//! Access, and limits on a browser's use of an answer.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Request, StatusCode, Version, header, request::Builder},
};
use tenure_ui::{Access, Ui};

use crate::{
    fleet::namespace,
    site::{Read, SOON, Site, attributes, memory, text},
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

fn local() -> Site {
    Site::new(memory(), |ui| ui.access(Access::loopback()))
}

/// A page to act on, and the token that was announced last.
fn local_to_act() -> (Site, Arc<Mutex<String>>) {
    let last = Arc::new(Mutex::new(String::new()));
    let announced = last.clone();
    let announce = move |token: &str| token.clone_into(&mut announced.lock().unwrap());
    let site = Site::new(memory(), |ui| {
        ui.access(Access::loopback_to_act(announce)).actions("ops".parse().unwrap())
    });
    (site, last)
}

async fn asked(site: &Site, headers: &[(&str, &str)]) -> Read {
    site.read(with(Request::get("/locks"), headers), Body::empty()).await
}

fn with(request: Builder, headers: &[(&str, &str)]) -> Builder {
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

/// The cookie that an answer sets, with its attributes.
fn cookie(read: &Read) -> (String, String) {
    let cookie = read.headers["set-cookie"].to_str().unwrap().to_owned();
    (cookie.split(';').next().unwrap().to_owned(), cookie)
}

async fn log_in(site: &Site, token: &str) -> String {
    let login = site.post("/login", &[("token", token)]).await;
    assert_eq!(login.status, 303, "{}", login.body);
    cookie(&login).0
}

/// The refusal of an action without a reason to refuse it but the visitor.
async fn acts(site: &Site, headers: &[(&str, &str)]) -> Read {
    let request = with(Request::post("/act/pause"), headers)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json");
    site.read(request, Body::from("csrf=x&name=y&why=z")).await
}

#[tokio::test]
async fn a_page_without_access_rules_serves_its_own_machine_alone_by_its_names() {
    let site = local();
    let from = async |peer: &str, host: &str| {
        let peer: SocketAddr = peer.parse().unwrap();
        let request = Request::get("/locks").header("host", host).extension(ConnectInfo(peer));
        site.read(request, Body::empty()).await
    };
    for host in ["localhost", "LOCALHOST:7070", "127.0.0.1:7070", "127.1.2.3", "[::1]:7070", "[::1]"] {
        assert_eq!(from("127.0.0.1:5", host).await.status, 200, "{host}");
    }
    for peer in ["[::1]:5", "[::ffff:127.0.0.1]:5"] {
        assert_eq!(from(peer, "localhost").await.status, 200, "{peer}");
    }
    for host in ["", "evil.example", "localhost.evil.example", "10.0.0.1", "[::2]:7070", "127.0.0.1.evil:1"] {
        assert_eq!(
            from("127.0.0.1:5", host).await.status,
            403,
            "a site that has its name point here: {host}"
        );
    }
    let other = from("10.0.0.1:5", "localhost").await;
    assert!(other.status == 403 && other.body.contains("comes from 10.0.0.1"), "{}", other.body);
    let mut unknown = Request::get("/locks").header("host", "localhost").body(Body::empty()).unwrap();
    unknown.extensions_mut().clear();
    let router = Ui::new(memory().store, namespace()).router();
    let answer = tower::ServiceExt::oneshot(router, unknown).await.unwrap();
    assert_eq!(answer.status(), 403, "where it comes from is not known");
}

#[tokio::test]
async fn a_page_for_this_machine_refuses_what_came_through_a_proxy() {
    let site = local();
    for name in [
        "forwarded",
        "via",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-real-ip",
        "x-client-ip",
        "x-original-forwarded-for",
        "x-original-host",
        "x-envoy-external-address",
        "x-request-id",
        "x-amzn-trace-id",
        "x-cluster-client-ip",
        "true-client-ip",
        "cdn-loop",
        "cf-ray",
        "cf-connecting-ip",
        "fly-client-ip",
        "tailscale-user-login",
        "fastly-client-ip",
        "akamai-origin-hop",
        "incap-client-ip",
        "x-azure-ref",
        "x-cloud-trace-context",
        "x-b3-traceid",
        "x-scheme",
        "remote-user",
    ] {
        let read = asked(&site, &[(name, "1")]).await;
        assert!(read.status == 403 && read.body.contains(name), "{name}: {}", read.body);
    }
    let old = Request::get("/locks").version(Version::HTTP_10);
    assert_eq!(site.read(old, Body::empty()).await.status, 403, "a proxy that says nothing, as they were");
    for name in ["x-requested-with", "x-prometheus-scrape-timeout-seconds", "dnt", "sec-ch-ua", "priority"] {
        assert_eq!(asked(&site, &[(name, "1")]).await.status, 200, "{name}");
    }
}

#[tokio::test]
async fn a_page_for_this_machine_refuses_what_a_page_of_another_site_has_led_to() {
    let site = local();
    let same = ("sec-fetch-site", "same-origin");
    for (name, value) in [
        ("origin", "https://ops.example.com"),
        ("origin", "http://localhost:7071"),
        ("origin", "http://127.0.0.1:7070"),
        ("origin", "null"),
        ("referer", "https://ops.example.com/locks"),
        ("referer", "http://ops.example.com?http://localhost:7070/"),
        ("referer", "http://localhost:7070@evil.example/"),
        ("referer", "about:blank"),
    ] {
        for headers in
            [&[(name, value)][..], &[(name, value), same], &[(name, value), ("sec-fetch-mode", "navigate")]]
        {
            let read = asked(&site, headers).await;
            assert!(read.status == 403 && read.body.contains(name), "{name}: {value}: {}", read.body);
            assert_eq!(acts(&site, headers).await.status, 403);
        }
    }
    for (name, value) in [
        ("origin", "http://localhost:7070"),
        ("origin", "http://LOCALHOST:7070"),
        ("referer", "http://localhost:7070/key?key=https://a.example"),
        ("referer", "http://localhost:7070"),
    ] {
        assert_eq!(asked(&site, &[(name, value), same]).await.status, 200, "{name}: {value}");
    }
    for (mode, status) in [("no-cors", 403), ("navigate", 200)] {
        let read = asked(&site, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode)]).await;
        assert_eq!(read.status, status, "{mode}");
    }
}

#[tokio::test]
async fn a_request_with_two_hosts_is_refused() {
    let token = Access::token(TOKEN, None).unwrap();
    for access in [Access::loopback(), Access::open(), token] {
        let site = Site::new(memory(), |ui| ui.access(access));
        for address in ["/", "/login", "/healthz"] {
            let two = Request::get(address).header("host", "localhost").header("host", "evil.example");
            assert_eq!(site.read(two, Body::empty()).await.status, 400, "{address}");
        }
    }
}

#[tokio::test]
async fn on_this_machine_actions_need_a_token_and_looks_do_not() {
    let (site, last) = local_to_act();
    let look = asked(&site, &[]).await;
    let page = scraper::Html::parse_document(&look.body);
    assert_eq!(look.status, 200);
    assert_eq!(attributes(&page, "footer a[href='/login']", "href").len(), 1, "{}", look.body);
    let refused = acts(&site, &[]).await;
    assert!(refused.status == 403 && refused.body.contains("you may look, but not act"), "{}", refused.body);

    let first = last.lock().unwrap().clone();
    assert_eq!(attributes(&site.page_at(401, "/login").await, "form", "action"), ["/login"]);
    let kept = log_in(&site, &first).await;
    assert!(!kept.contains(&first), "{kept}");
    let refused = acts(&site, &[("cookie", &kept)]).await;
    assert!(refused.status == 403 && refused.body.contains("not from this page"), "{}", refused.body);
    let page = scraper::Html::parse_document(&asked(&site, &[("cookie", &kept)]).await.body);
    assert_eq!(attributes(&page, "footer form", "action"), ["/logout"]);

    assert_eq!(site.post("/login", &[("token", &first)]).await.status, 401, "it was good once");
    let second = last.lock().unwrap().clone();
    assert_ne!(first, second);
    log_in(&site, &second).await;
    // By another name, or from another site, nobody logs in.
    let third = last.lock().unwrap().clone();
    for headers in
        [("host", "evil.example"), ("origin", "http://evil.example"), ("x-forwarded-for", "10.0.0.1")]
    {
        assert_eq!(site.post_from("/login", &[("token", &third)], &[headers]).await.status, 403);
    }
    // Where no token is announced, none is wanted, and nobody acts.
    let site = Site::new(memory(), |ui| ui.access(Access::loopback()).actions("ops".parse().unwrap()));
    assert!(acts(&site, &[]).await.body.contains("not act"));
    assert_eq!(site.post("/login", &[("token", "x")]).await.status, 401);
}

#[tokio::test]
async fn a_token_is_asked_for_at_every_address_and_kept_in_a_cookie() {
    let site = Site::new(memory(), |ui| ui.access(Access::token(TOKEN, None).unwrap()));
    for address in ADDRESSES {
        let page = site.page_at(401, address).await;
        assert_eq!(attributes(&page, "form", "action"), ["/login"], "{address}");
    }
    assert_eq!(site.post("/act/pause", &[("csrf", "x")]).await.status, 401);
    assert_eq!(site.get("/healthz").await.status, 200, "it tells nothing");
    let json = asked(&site, &[("accept", "application/json")]).await;
    assert_eq!((json.status.as_u16(), json.headers["www-authenticate"].as_bytes()), (401, &b"Bearer"[..]));
    for (scheme, token, status) in [
        ("Bearer", TOKEN, 200),
        ("bearer", TOKEN, 200),
        ("BEARER ", TOKEN, 200),
        ("Basic", TOKEN, 401),
        ("Bearer", "0123456789abcdef-toke", 401),
        ("Bearer", "0123456789abcdef-tokeX", 401),
        ("Bearer", "", 401),
    ] {
        let read = asked(&site, &[("authorization", &format!("{scheme} {token}"))]).await;
        assert_eq!(read.status, status, "{scheme} {token}");
    }
    let wrong = site.post("/login", &[("token", "0123456789abcdef-other")]).await;
    assert_eq!(wrong.status, 401);
    assert!(!wrong.headers.contains_key("set-cookie"));
    let login = site.post("/login", &[("token", TOKEN)]).await;
    assert_eq!(login.status, 303);
    let (kept, cookie) = cookie(&login);
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200"), "{cookie}");
    assert!(!kept.contains(TOKEN), "{kept}");
    let among = |others| format!("a=b; {}{kept}; c=d", "tenure_token_7070=another; ".repeat(others));
    for (others, status) in [(1, 200), (8, 401)] {
        assert_eq!(asked(&site, &[("cookie", &among(others))]).await.status, status, "{others}");
    }
    // Neither is as good as the other in its place.
    let value = kept.split_once('=').unwrap().1;
    assert_eq!(asked(&site, &[("authorization", &format!("Bearer {value}"))]).await.status, 401);
    assert_eq!(asked(&site, &[("cookie", &format!("tenure_token_7070={TOKEN}"))]).await.status, 401);
    let by_tls = [("origin", "https://ops.example"), ("sec-fetch-site", "same-origin")];
    let secure = site.post_from("/login", &[("token", TOKEN)], &by_tls).await;
    assert!(self::cookie(&secure).1.ends_with("; Secure"), "{:?}", secure.headers);
    assert!(!format!("{:?}", Access::token(TOKEN, None)).contains("0123"));
}

#[tokio::test]
async fn a_logout_ends_the_visit_and_12_hours_do() {
    tokio::time::pause();
    let site = Site::new(memory(), |ui| ui.access(Access::token(TOKEN, None).unwrap()));
    let (one, two) = (log_in(&site, TOKEN).await, log_in(&site, TOKEN).await);
    let out = with(Request::post("/logout"), &[("cookie", &one)]);
    let out = site.read(out, Body::empty()).await;
    assert!(out.status == 303 && cookie(&out).1.starts_with("tenure_token_7070=; "), "{:?}", out.headers);
    assert!(cookie(&out).1.contains("Max-Age=0"));
    assert_eq!(asked(&site, &[("cookie", &one)]).await.status, 401);
    assert_eq!(asked(&site, &[("cookie", &two)]).await.status, 200);
    tokio::time::advance(Duration::from_secs(12 * 60 * 60)).await;
    assert_eq!(asked(&site, &[("cookie", &two)]).await.status, 401);
    assert_eq!(asked(&site, &[("cookie", "tenure_token_7070=")]).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_visit_end_with_it() {
    let site = Site::new(memory(), |ui| ui.access(Access::token(TOKEN, None).unwrap()));
    let (one, two) = (log_in(&site, TOKEN).await, log_in(&site, TOKEN).await);
    let follow = async |kept: &str| {
        let headers = [("cookie", kept), ("accept", "text/event-stream")];
        let answer = site.ask(with(Request::get("/"), &headers), Body::empty()).await;
        assert_eq!(answer.status(), 200);
        answer.into_body()
    };
    let ends = async |events| tokio::time::timeout(SOON, to_bytes(events, usize::MAX)).await.is_ok();
    let (of_one, of_two, also_of_two) = (follow(&one).await, follow(&two).await, follow(&two).await);
    site.read(with(Request::post("/logout"), &[("cookie", &one)]), Body::empty()).await;
    assert!(ends(of_one).await, "by a logout");
    assert!(!ends(of_two).await, "another visit goes on");
    tokio::time::advance(Duration::from_secs(12 * 60 * 60)).await;
    assert!(ends(also_of_two).await, "after 12 hours");
}

#[tokio::test]
async fn pages_on_two_ports_of_a_host_have_cookies_of_their_own() {
    let site = || Site::new(memory(), |ui| ui.access(Access::token(TOKEN, None).unwrap()));
    let pages = [("localhost:7070", site()), ("localhost:7071", site()), ("localhost", site())];
    let mut all = Vec::new();
    for (host, site) in &pages {
        all.push(cookie(&site.post_from("/login", &[("token", TOKEN)], &[("host", host)]).await).0);
    }
    let all = all.join("; ");
    for name in ["tenure_token_7070=", "tenure_token_7071=", "tenure_token="] {
        assert_eq!(all.matches(name).count(), 1, "{name}: {all}");
    }
    for (host, site) in &pages {
        assert_eq!(asked(site, &[("host", host), ("cookie", &all)]).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn visits_to_look_take_no_room_from_those_to_act() {
    let looking = "fedcba9876543210-looks";
    let site = Site::new(memory(), |ui| ui.access(Access::token(TOKEN, Some(looking.to_owned())).unwrap()));
    let (acting, first) = (log_in(&site, TOKEN).await, log_in(&site, looking).await);
    for _ in 0..1000 {
        log_in(&site, looking).await;
    }
    assert_eq!(asked(&site, &[("cookie", &first)]).await.status, 401, "a thousand came later");
    assert_eq!(asked(&site, &[("cookie", &acting)]).await.status, 200);
}

#[tokio::test]
async fn a_form_of_another_site_logs_nobody_in_or_out() {
    let site = Site::new(memory(), |ui| ui.access(Access::token(TOKEN, None).unwrap()));
    let kept = log_in(&site, TOKEN).await;
    for address in ["/login", "/logout"] {
        for foreign in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
            let read = site.post_from(address, &[("token", TOKEN)], &[("cookie", &kept), foreign]).await;
            assert!(read.status == 403 && read.body.contains("another site"), "{address}: {}", read.body);
        }
    }
    assert_eq!(asked(&site, &[("cookie", &kept)]).await.status, 200);
}

#[tokio::test]
async fn tokens_that_can_be_guessed_or_that_no_header_can_have_are_refused() {
    for (token, why) in [
        ("short", "5 characters"),
        ("aaaaaaaaaaaaaaaaaaaaaaaa", "one character"),
        ("0123456789 abcdef", "' '"),
    ] {
        let refused = Access::token(token, None).unwrap_err();
        assert!(refused.contains(why) && !refused.contains(token), "{refused}");
        assert!(Access::token(TOKEN, Some(token.to_owned())).is_err());
    }
    assert!(Access::token(TOKEN, Some(TOKEN.to_owned())).is_err());
}

#[tokio::test]
async fn wrong_tokens_are_counted_and_a_right_one_is_taken_all_the_same() {
    tokio::time::pause();
    let site = Site::new(memory(), |ui| ui.access(Access::token(TOKEN, None).unwrap()));
    let wrong = async |bearer: bool| {
        let token = "0123456789abcdef-other";
        if bearer {
            asked(&site, &[("authorization", &format!("Bearer {token}"))]).await.status.as_u16()
        } else {
            site.post("/login", &[("token", token)]).await.status.as_u16()
        }
    };
    for at in 0..100 {
        assert_eq!(wrong(at % 2 == 0).await, 401, "{at}");
    }
    for bearer in [true, false] {
        assert_eq!(wrong(bearer).await, 429);
    }
    assert_eq!(asked(&site, &[]).await.status, 401, "without one, the form is there");
    assert_eq!(asked(&site, &[("authorization", &format!("Bearer {TOKEN}"))]).await.status, 200);
    log_in(&site, TOKEN).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(wrong(true).await, 401);
}

#[tokio::test]
async fn a_second_token_lets_look_alone() {
    let looking = "fedcba9876543210-looks";
    let site = Site::new(memory(), |ui| {
        ui.access(Access::token(TOKEN, Some(looking.to_owned())).unwrap()).actions("ops".parse().unwrap())
    });
    for (token, why) in [(TOKEN, "not from this page"), (looking, "you may look, but not act")] {
        let (bearer, kept) = (format!("Bearer {token}"), log_in(&site, token).await);
        for header in [("authorization", &*bearer), ("cookie", &*kept)] {
            assert_eq!(asked(&site, &[header]).await.status, 200);
            let refused = acts(&site, &[header]).await;
            assert!(refused.status == 403 && refused.body.contains(why), "{}", refused.body);
        }
    }
}

#[tokio::test]
async fn a_trusted_header_says_who_looks_and_a_list_of_names_who_acts() {
    let hosts = || vec![" ops.example ".to_owned(), "10.0.0.1:7070".to_owned()];
    let access = |acting| Access::header("X-User", hosts(), acting).unwrap();
    let site = Site::new(memory(), |ui| ui.access(access(None)).actions("ops".parse().unwrap()));
    for address in ADDRESSES {
        assert_eq!(site.get(address).await.status, 403, "{address}");
    }
    let host = ("host", "ops.example");
    for (names, says) in [
        (&[][..], "no header x-user"),
        (&[" "], "no header x-user"),
        (&["ann", "root"], "more than one"),
        (&["root, ann"], "more than one"),
    ] {
        let names = names.iter().map(|name| ("x-user", *name));
        let read = asked(&site, &names.chain([host]).collect::<Vec<_>>()).await;
        assert!(read.status == 403 && read.body.contains(says), "{says}: {}", read.body);
    }
    for (host, status) in [
        ("ops.example", 200),
        ("OPS.example:8443", 200),
        ("10.0.0.1:7070", 200),
        ("10.0.0.1:7071", 403),
        ("evil.example", 403),
        ("localhost:7070", 403),
        ("", 403),
    ] {
        assert_eq!(asked(&site, &[("host", host), ("x-user", "ann")]).await.status, status, "{host}");
    }
    assert!(acts(&site, &[host, ("x-user", "bob")]).await.body.contains("not from this page"));
    let ann = vec!["ann".parse().unwrap()];
    let site = Site::new(memory(), |ui| ui.access(access(Some(ann))).actions("ops".parse().unwrap()));
    assert!(acts(&site, &[host, ("x-user", "ann")]).await.body.contains("not from this page"));
    assert!(acts(&site, &[host, ("x-user", "bob")]).await.body.contains("you may look, but not act"));
    assert_eq!(asked(&site, &[host, ("x-user", "bob")]).await.status, 200);
}

#[test]
fn a_trusted_header_has_a_name_and_a_host() {
    assert!(Access::header("no header", vec!["ops.example".to_owned()], None).is_err());
    for hosts in [&[][..], &[""], &["ops.example", " "]] {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        assert!(Access::header("X-User", hosts, None).is_err());
    }
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

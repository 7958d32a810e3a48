//! Names are other people's texts, and stay texts.

use axum::{body::Body, http::Request};
use scraper::{Html, Selector};
use tenure::{Elect, ElectConfig, Lease, schedule::Timing};
use tenure_look::one_line;

use crate::{
    fleet::{LEADER, NAMESPACE},
    site::{Site, attributes, fleet, memory, text},
};

fn names() -> Vec<String> {
    vec![
        "<script>alert(1)</script>".to_owned(),
        "\"><img src=x onerror=alert(1)>".to_owned(),
        "' onmouseover='alert(1)".to_owned(),
        "javascript:alert(1)".to_owned(),
        "\u{202e}gnirts detrevni".to_owned(),
        "מפתח עברי".to_owned(),
        "👩‍🚀🚀".to_owned(),
        "../..".to_owned(),
        "a&b=c#d?e%2f/".to_owned(),
        "]]>--></title></style>".to_owned(),
        "x".repeat(200),
    ]
}

#[tokio::test]
async fn the_way_back_from_an_action_stays_within_the_page() {
    let store = memory();
    let fleet = fleet(&store, 2).await;
    let site = Site::new(store.clone(), |ui| ui.actions("ops".parse().unwrap()));
    let address = "/schedule?name=digest";
    let page = site.until(address, |page| text(page, "main").contains("Berlin")).await;
    let csrf = attributes(&page, "form[action='/act/pause'] input[name=csrf]", "value").remove(0);
    for back in [
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "https://evil.example",
        "",
    ] {
        let fields = [("csrf", &*csrf), ("name", "digest"), ("why", "x"), ("back", back)];
        let read = site.post("/act/pause", &fields).await;
        assert_eq!(read.status, 200, "{}", read.body);
        assert_eq!(attributes(&Html::parse_document(&read.body), "main a", "href"), ["/"], "{back:?}");
    }
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_page_without_values_shows_none_on_request() {
    let store = memory();
    let mut fleet = fleet(&store, 2).await;
    fleet.hold("pod-1", LEADER, "leads the shop").await.unwrap();
    let site = Site::new(store.clone(), tenure_ui::Ui::no_values);
    let page = site.page(&format!("/key?key={LEADER}")).await;
    assert!(text(&page, "#about").contains("not shown"));
    assert!(!attributes(&page, "#about a", "href").concat().contains("value"), "no way to it");
    for accept in ["text/html", "application/json"] {
        let request = Request::get(format!("/key?key={LEADER}&value=true")).header("accept", accept);
        let read = site.read(request, Body::empty()).await;
        assert!(read.status == 200 && !read.body.contains("secret"), "{}", read.body);
    }
    fleet.close().await;
}

/// Fails if a page has an element or an attribute that did not come from us.
fn is_clean(page: &Html, address: &str) {
    let all = Selector::parse("*").unwrap();
    for element in page.select(&all) {
        let name = element.value().name();
        assert!(
            !matches!(name, "img" | "iframe" | "object" | "embed" | "style" | "base"),
            "{address}: <{name}>"
        );
        if name == "script" {
            assert_eq!(element.attr("src"), Some("/script.js"), "{address}");
            assert_eq!(element.text().collect::<String>(), "", "{address}: no script in the page");
        }
        for (attribute, value) in element.value().attrs() {
            assert!(!attribute.starts_with("on"), "{address}: {name} {attribute}");
            assert!(attribute != "style", "{address}: {name} has a style of its own");
            if matches!(attribute, "href" | "src" | "action" | "formaction") {
                let is_ours = value.starts_with('/') && !value.starts_with("//");
                assert!(
                    is_ours || value == "data:," || value == "#main",
                    "{address}: {value} leaves the host"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hostile_names_stay_text_on_every_screen() {
    let store = memory();
    let names = names();
    let config = ElectConfig::new(NAMESPACE, &names[0]).unwrap();
    let builder = Elect::builder(store.store.clone(), config).clock(store.clock.clone());
    let elect = builder.program(&names[1]).start().await.unwrap();
    let run = async |_, lease: Lease| {
        lease.cancelled().await;
        Ok::<_, String>(())
    };
    let spread = elect.spread(&names[0]).tasks(names.iter()).run(run).unwrap();
    let mut guards = Vec::new();
    let long = "y".repeat(512);
    for name in names.iter().chain([&long]) {
        let asked = elect.key(name).who(&names[3]).why(&names[1]).value(&names[0]);
        guards.push(asked.acquire().await.unwrap());
    }
    let mut schedules = Vec::new();
    for name in names.iter().filter(|name| name.len() < 100) {
        let fails = async |_, _| Err::<(), _>("<script>alert(2)</script>".to_owned());
        let Ok(schedule) = elect.schedule(name, Timing::new("* * * * * *")).run(fails) else { continue };
        schedules.push(schedule);
    }
    assert!(schedules.len() > 5);
    spread.until(|status| status.held() == names.len()).await;

    let site = Site::new(store, |ui| ui.store_name(&names[0]).actions("ops".parse().unwrap()));
    let mut addresses: Vec<_> = ["/", "/instances", "/spreads", "/schedules", "/locks", "/changes?all=true"]
        .map(ToOwned::to_owned)
        .into();
    // Wherever they lead.
    site.until("/", |page| text(page, "main").contains("alert(2)")).await;
    for at in addresses.clone() {
        let page = site.page(&at).await;
        addresses.extend(attributes(&page, "main a", "href"));
    }
    addresses.sort();
    addresses.dedup();
    assert!(addresses.len() > 30, "{addresses:?}");
    let mut said = String::new();
    for address in &addresses {
        let page = site.page(address).await;
        is_clean(&page, address);
        said.push_str(&text(&page, "body"));
    }
    for name in names.iter().chain([&long]) {
        let shown = name.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&one_line(&shown)), "{name:?} is shown as it is");
    }
    assert!(!said.contains(['\u{202e}', '\u{200b}']), "nothing is turned or hidden");
    // Programs get them as they are.
    for name in &names {
        let read = site.json("/locks").await;
        let found = read["items"].as_array().unwrap().iter().any(|lock| lock["id"]["key"] == **name);
        assert!(found, "{name:?}");
    }
    drop(guards);
    elect.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_of_the_greatest_length_is_found_by_its_own_link() {
    let store = memory();
    let config = ElectConfig::new(NAMESPACE, "pod-1").unwrap();
    let builder = Elect::builder(store.store.clone(), config).clock(store.clock.clone());
    let elect = builder.start().await.unwrap();
    let key = "👩‍🚀<b>".repeat(36);
    let guard = elect.acquire(&key).await.unwrap();
    let site = Site::new(store, |ui| ui);
    let link = attributes(&site.page("/locks").await, "#locks tbody th a", "href").remove(0);
    let page = site.page(&link).await;
    assert_eq!(text(&page, "h1"), format!("Lock {key}"));
    drop(guard);
    elect.close().await;
}

//! Readability for all visitors: without script, without colour, with a screen reader, in light and dark.

use std::collections::BTreeMap;

use scraper::{ElementRef, Html, Selector};
use tenure::model::Holder;

use crate::site::{Site, attributes, fleet, memory, text, texts};

const STYLE: &str = include_str!("../../src/style.css");
const SCRIPT: &str = include_str!("../../src/script.js");

fn select<'a>(page: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    page.select(&Selector::parse(selector).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn every_screen_can_be_read_aloud() {
    let store = memory();
    let fleet = fleet(&store, 10).await;
    let site = Site::new(store, |ui| ui.actions(Holder::new("ops").unwrap()));
    site.until("/schedules", |page| text(page, "main").contains("digest")).await;
    let screens = [
        "/",
        "/instances",
        "/spreads",
        "/spread?name=topics",
        "/schedules",
        "/schedule?name=pulse",
        "/locks",
        "/changes",
    ];
    for address in screens {
        let page = site.page(address).await;
        assert_eq!(attributes(&page, "html", "lang"), ["en"]);
        assert_eq!(texts(&page, "h1").len(), 1, "{address}");
        assert_eq!(attributes(&page, "nav", "aria-label"), ["Screens"]);
        assert_eq!(attributes(&page, "a.skip", "href"), ["#main"], "past what is on every screen");
        assert_eq!(select(&page, "main#main").len(), 1);
        assert!(attributes(&page, "meta[name=viewport]", "content")[0].contains("width=device-width"));
        for drawing in select(&page, "svg") {
            assert_eq!(drawing.attr("role"), Some("img"), "{address}");
            assert!(
                drawing.attr("aria-label").is_some_and(|says| !says.is_empty()),
                "{address}: it says what it shows"
            );
        }
        for heading in select(&page, "th") {
            assert!(heading.attr("scope").is_some(), "{address}: {}", heading.html());
        }
        for link in select(&page, "a, button, summary") {
            let says = link.text().collect::<String>().trim().to_owned();
            assert!(!says.is_empty() || link.attr("aria-label").is_some(), "{address}: {}", link.html());
        }
        for cell in select(&page, ".runs a") {
            // An instant, and how it ended.
            let says = cell.attr("aria-label").and_then(|says| says.split_once("Z ")).map(|(_, how)| how);
            let hows =
                ["succeeded", "failed", "is on", "not run", "its runner died", "cancelled", "timed out"];
            assert!(says.is_some_and(|says| hows.iter().any(|how| says.starts_with(how))), "{says:?}");
        }
        for input in select(&page, "input:not([type=hidden])") {
            let parents = input.ancestors().filter_map(ElementRef::wrap);
            assert!(
                parents.map(|parent| parent.value().name()).any(|name| name == "label"),
                "{address}: {}",
                input.html()
            );
        }
        let ids = attributes(&page, "[id]", "id");
        let mut once = ids.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), ids.len(), "{address}: each id once: {ids:?}");
        let levels: Vec<u32> =
            select(&page, "h1, h2, h3").iter().map(|h| h.value().name()[1..].parse().unwrap()).collect();
        assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{address}: {levels:?}");
    }
    assert_eq!(attributes(&site.page("/schedules").await, "nav a[aria-current]", "href"), ["/schedules"]);
    fleet.close().await;
}

#[tokio::test]
async fn colours_can_be_read_on_each_other_in_light_and_dark() {
    let (light, dark) = STYLE.split_once("prefers-color-scheme: dark").unwrap();
    for (scheme, text) in [("light", light), ("dark", &dark[..dark.find("\n}").unwrap()])] {
        let colours = colours(text);
        let text_pairs = [
            ("ink", "ground"),
            ("ink", "sheet"),
            ("quiet", "ground"),
            ("quiet", "sheet"),
            ("quiet", "row"),
            ("link", "sheet"),
            ("link", "ground"),
            ("link", "row"),
            ("good", "good-ground"),
            ("bad", "bad-ground"),
            ("bad", "sheet"),
            ("note", "note-ground"),
            ("ink", "plain-ground"),
            ("quiet", "plain-ground"),
            ("good", "sheet"),
            ("ink", "row"),
            ("sheet", "bad"),
            ("sheet", "ink"),
        ];
        for (on, ground) in text_pairs {
            let contrast = contrast(colours[on], colours[ground]);
            assert!(
                contrast >= 4.5,
                "{scheme}: {on} on {ground} is {contrast:.2}, and AA wants 4.5 for text"
            );
        }
        // Shapes need less.
        for (on, ground) in [
            ("held", "sheet"),
            ("lost", "sheet"),
            ("resting", "sheet"),
            ("move", "sheet"),
            ("held", "row"),
            ("fill", "plain-ground"),
        ] {
            let contrast = contrast(colours[on], colours[ground]);
            assert!(
                contrast >= 3.0,
                "{scheme}: {on} on {ground} is {contrast:.2}, and AA wants 3 for shapes"
            );
        }
    }
}

fn colours(text: &str) -> BTreeMap<&str, [f64; 3]> {
    text.lines().filter_map(colour).collect()
}

fn colour(line: &str) -> Option<(&str, [f64; 3])> {
    let (name, value) = line.trim().strip_prefix("--")?.split_once(": #")?;
    let value = u32::from_str_radix(value.trim_end_matches(';'), 16).ok()?;
    let part = |shift: u32| f64::from((value >> shift) & 0xff) / 255.0;
    Some((name, [part(16), part(8), part(0)]))
}

/// Contrast as WCAG counts it.
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let light = |colour: [f64; 3]| {
        let [r, g, b] = colour
            .map(|part| if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (a, b) = (light(a), light(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[tokio::test]
async fn the_script_is_short_and_nothing_comes_from_elsewhere() {
    assert!(SCRIPT.lines().count() < 200);
    for text in [STYLE, SCRIPT] {
        assert!(
            !text.contains("http:")
                && !text.contains("https:")
                && !text.contains("@import")
                && !text.contains("url(")
        );
    }
    assert!(!SCRIPT.contains("eval(") && !SCRIPT.contains("Function("));
    let site = Site::new(memory(), |ui| ui);
    assert_eq!(site.get("/style.css").await.body, STYLE);
    assert_eq!(site.get("/script.js").await.body, SCRIPT);
}

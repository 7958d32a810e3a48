//! Frame around each screen.

use maud::{DOCTYPE, Markup, html};
use tenure_look::Picture;

use crate::{
    Shared,
    address::Base,
    answer::{Problem, RenderContext, Screen},
    draw::text::{name, time_of_day},
    login,
};

/// Addresses that every page leads to, the letter that leads there, and what they are called.
const PLACES: [(&str, &str, &str); 6] = [
    ("/", "1", "Overview"),
    ("/instances", "2", "Instances"),
    ("/spreads", "3", "Spreads"),
    ("/schedules", "4", "Schedules"),
    ("/locks", "5", "Locks"),
    ("/changes", "6", "Last hour"),
];

pub(crate) fn page<S: Screen>(shared: &Shared, screen: &S, context: &RenderContext) -> Markup {
    let (base, title) = (&context.base, screen.title());
    let main = html! {
        h1 { (name(&title)) }
        @for part in screen.all_parts(context) {
            section id=(part.id) { (part.html) }
        }
    };
    frame(shared, base, S::PATH, &counted(&title, &context.picture), Some(context), &main)
}

/// Draws a problem: to those who may see the page in its frame, where the script loads it again once it can be drawn.
pub(crate) fn problem(problem: &Problem, base: &Base, shared: Option<&Shared>) -> Markup {
    let title = problem.status.canonical_reason().unwrap_or("Problem");
    let main = html! {
        h1 { (title) }
        p #problem .trouble role="alert" { (tenure_look::one_line(&problem.says)) }
    };
    match shared {
        Some(shared) => frame(shared, base, "", title, None, &main),
        None => whole(base, title, &html! { main #main { (main) } }, false),
    }
}

fn frame(
    shared: &Shared,
    base: &Base,
    path: &str,
    title: &str,
    context: Option<&RenderContext>,
    main: &Markup,
) -> Markup {
    let picture = context.map(|context| &context.picture);
    let trouble = picture.and_then(|picture| picture.trouble());
    let body = html! {
        header.top {
            a.skip href="#main" { "To the content" }
            p.where {
                a href=(base.link("/", &[])) { strong { "tenure" } } " "
                span.namespace { (name(shared.ui.pictures.reader().namespace().as_str())) }
                @if let Some(store) = &shared.ui.store_name { " " span.store { "in " (name(store)) } }
            }
            nav aria-label="Screens" {
                ul {
                    @for (place, letter, word) in PLACES {
                        li {
                            a href=(base.link(place, &[])) accesskey=(letter)
                                aria-current=[(path == place).then_some("page")] { (word) }
                        }
                    }
                }
            }
            p.state {
                span #live role="status" { @if picture.is_some() { "as of" } @else { "not live" } } " "
                @if let Some(now) = picture.map(|picture| picture.now()) {
                    time #now datetime=(now.to_string()) { (time_of_day(now)) }
                }
            }
        }
        p #trouble .trouble role="alert" hidden[trouble.is_none()] {
            @if let Some(trouble) = trouble { (old(trouble)) }
        }
        main #main tabindex="-1" { (main) }
        footer {
            p {
                "Times are the fleet's, in UTC. "
                @if let Some(context) = context { a href=(context.here) type="application/json" { "This address" } }
                @else { "Each address" }
                " answers with JSON, too, if asked by " code { "Accept: application/json" } "; "
                a href=(base.link("/metrics", &[])) { "metrics" } ". "
                "With script, the keys 1 to 6 lead to the screens, j and k along rows."
            }
            (login::way(base))
        }
    };
    whole(base, title, &body, true)
}

/// The title of the window: the number of troubles that need attention, and the screen.
fn counted(screen: &str, picture: &Picture) -> String {
    match picture.verdict().needing() {
        0 => screen.to_owned(),
        needing => format!("({needing}) {screen}"),
    }
}

/// Returns the notice shown while the store does not answer.
fn old(trouble: &str) -> String {
    format!("The store does not answer, so the data shown is old: {}", tenure_look::one_line(trouble))
}

pub(crate) fn whole(base: &Base, title: &str, body: &Markup, is_live: bool) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (tenure_look::one_line(title)) " - tenure" }
                link rel="stylesheet" href=(base.link("/style.css", &[]));
                link rel="icon" type="image/svg+xml" href=(base.link(if title.starts_with('(') { "/alarm.svg" } else { "/icon.svg" }, &[]));
                @if is_live { script src=(base.link("/script.js", &[])) defer {} }
            }
            body { (body) }
        }
    }
}

/// Draws the result of an action. The way back leads within the page only.
pub(crate) fn done(base: &Base, said: &str, back: &str) -> Markup {
    let home = base.link("/", &[]);
    // A browser reads a backslash as a slash, and passes over control characters.
    let is_odd = |letter: char| letter == '\\' || letter.is_control();
    let is_ours = back.starts_with(&home) && !back.starts_with("//") && !back.contains(is_odd);
    let body = html! {
        main #main {
            h1 { "Done" }
            p role="status" { (tenure_look::one_line(said)) }
            p { a href=(if is_ours { back } else { &home }) autofocus { "Back" } }
        }
    };
    whole(base, "Done", &body, false)
}

//! Findings of the doctor.

use std::{sync::Arc, time::Duration};

use maud::{Markup, html};
use serde::Serialize;
use tenure_look::Picture;

use super::Nothing;
use crate::{
    Finding, Shared,
    answer::{self, Part, Problem, RenderContext},
    draw::text::name,
};

/// The doctor is asked no more often.
const FRESH: Duration = Duration::from_secs(30);

#[derive(Clone, Serialize)]
pub(crate) struct Screen {
    items: Vec<Finding>,
}

impl answer::Screen for Screen {
    type Query = Nothing;
    const PATH: &'static str = "/doctor";

    async fn load(shared: &Shared, _: &Nothing, _: &Picture) -> Result<Arc<Self>, Problem> {
        let Some(doctor) = &shared.ui.doctor else {
            return Err(Problem::not_found(
                "this page has no doctor: run `tenure doctor` to check the store",
            ));
        };
        let find = async { Ok::<_, Problem>(Self { items: (doctor.0)().await }) };
        shared.findings.get("doctor".to_owned(), FRESH, find).await
    }

    fn title(&self) -> String {
        "Doctor".to_owned()
    }

    fn parts(&self, _: &RenderContext) -> Vec<Part> {
        vec![Part::new("findings", self.list())]
    }
}

impl Screen {
    fn list(&self) -> Markup {
        html! {
            p.quiet { "What " code { "tenure doctor --read-only" } " finds, checked twice a minute at most." }
            ul.findings {
                @for one in &self.items {
                    li {
                        span class=(format!("badge {}", class(&one.level))) { (one.level) } " "
                        strong { (name(&one.about)) } ": " (name(&one.says))
                        @if let Some(advice) = &one.advice { p { "Do: " (name(advice)) } }
                    }
                }
            }
        }
    }
}

fn class(level: &str) -> &'static str {
    match level {
        "ok" => "good",
        "bad" | "warning" => "bad",
        _ => "note",
    }
}

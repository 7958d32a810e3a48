//! Content of the page, read as a browser reads it: by a parser, and by its events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects")]
#![allow(clippy::disallowed_methods, reason = "what is measured here is time as people have it")]

#[path = "page/access.rs"]
mod access;
#[path = "page/acts.rs"]
mod acts;
#[path = "page/clocks.rs"]
mod clocks;
#[path = "fleet/mod.rs"]
mod fleet;
#[path = "page/hostile.rs"]
mod hostile;
#[path = "page/looks.rs"]
mod looks;
#[path = "page/serves.rs"]
mod serves;
#[path = "page/shows.rs"]
mod shows;
#[path = "page/site.rs"]
mod site;
#[path = "../../tests/support/wait.rs"]
mod wait;

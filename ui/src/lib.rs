//! A page for `tenure`: instances, spreads, schedules, locks, and what happened in the last hour.
//!
//! It reads the store through [`tenure_look`], opens no session, and costs the store about what
//! an instance at rest does, however many look. The same addresses answer with a page, with JSON, or with events, as
//! the request asks for by `Accept`.
//!
//! ```no_run
//! use tenure::store::MemoryStore;
//! use tenure_ui::{Access, Ui};
//!
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::default(); // the one that the program has
//! let ui = Ui::new(store.clone(), "shop".parse()?)
//!     // The program has a login of its own in front of the page.
//!     .access(Access::open());
//! let app: axum::Router = axum::Router::new().nest("/tenure", ui.router());
//! # Ok(()) }
//! ```
//!
//! # Access
//!
//! Without more, only requests from the same machine are answered ([`Access::loopback`]); see [`Access`] for the
//! others. No change is possible unless [`Ui::actions`] allows it, and the access lets the visitor act. Values of
//! locks are not shown unless they are asked for on a lock's own screen.

mod access;
mod act;
mod address;
mod answer;
mod cache;
mod draw;
mod headers;
mod live;
mod login;
mod metrics;
mod page;
mod screens;
mod serve;
mod tokens;

use std::sync::Arc;

use axum::Router;
use tenure::{
    model::{Holder, Namespace},
    store::Store,
};
use tenure_look::{LivePicture, Reader};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use access::Access;
pub use serve::serve;

use self::{act::Csrf, cache::Cache};

/// The page: its content, its visitors, and its actions.
#[derive(Clone, Debug)]
pub struct Ui {
    pictures: LivePicture,
    store_name: Option<String>,
    access: Access,
    actions: Option<Holder>,
    hides_values: bool,
    /// Cancelled when the page shuts down; ends all event streams.
    end: CancellationToken,
    /// Actions that were begun, whether or not their callers wait for them.
    begun: TaskTracker,
}

impl Ui {
    /// A page on that namespace of a store.
    #[must_use]
    pub fn new(store: impl Into<Arc<dyn Store>>, namespace: Namespace) -> Self {
        Self::of(LivePicture::new(Reader::new(store, namespace)))
    }

    /// A page on pictures that others may follow, too.
    #[must_use]
    pub fn of(pictures: LivePicture) -> Self {
        let (access, end, begun) = (Access::loopback(), CancellationToken::new(), TaskTracker::new());
        Self { pictures, store_name: None, access, actions: None, hides_values: false, end, begun }
    }

    /// Shows the store under that name, such as its address without a password.
    #[must_use]
    pub fn store_name(mut self, name: impl Into<String>) -> Self {
        self.store_name = Some(name.into());
        self
    }

    /// Sets the rule of access. Without this, only this machine may look, and no visitor may act.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Lets visitors whom the access lets act pause, resume and run schedules, drain instances, put tasks back, and ask
    /// for locks. What they do goes on record in that name, or in the one that a [trusted header](Access::header) gives.
    #[must_use]
    pub fn actions(mut self, by: Holder) -> Self {
        self.actions = Some(by);
        self
    }

    /// Shows the value of no lock, also if a visitor asks for it.
    #[must_use]
    pub fn no_values(mut self) -> Self {
        self.hides_values = true;
        self
    }

    /// The token that ends all events, which do not end by themselves, when a server of the program's own does.
    #[must_use]
    pub fn end(&self) -> CancellationToken {
        self.end.clone()
    }

    /// The addresses of the page, to be served or nested wherever a program wants them.
    pub fn router(self) -> Router {
        let shared = Shared {
            csrf: Csrf::new(),
            cache: Cache::default(),
            drawn: Cache::default(),
            room: Arc::new(Semaphore::new(live::FOLLOWERS)),
            ui: self,
        };
        address::router(Arc::new(shared))
    }
}

/// The addresses of a page that this machine alone may look at, and that changes nothing.
pub fn router(store: Arc<dyn Store>, namespace: Namespace) -> Router {
    Ui::new(store, namespace).router()
}

/// State that all requests share.
#[derive(Debug)]
struct Shared {
    ui: Ui,
    csrf: Csrf,
    cache: Cache,
    /// Screens as events.
    drawn: Cache,
    /// Permits for followers.
    room: Arc<Semaphore>,
}

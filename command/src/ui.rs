//! `tenure ui`: the page, served.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use futures::FutureExt;
use tenure_ui::{Access, Finding, Ui as Page};
use tokio::net::TcpListener;

use crate::{
    common::{Common, Level},
    doctor,
    exit::Failure,
    logs,
    out::one_line,
    say,
    see::look::OpenNamespace,
    settings::Settings,
    signals,
};

/// Serve a page on the namespace: instances, spreads, schedules, locks, and the last hour
///
/// It listens on the loopback address. On other addresses it needs a token, or a proxy in front that names the user.
/// It opens no session and costs the store about as much as an idle instance, however many users it has. Nothing can
/// be changed, unless --allow-actions is given.
#[derive(Args, Debug)]
pub(crate) struct Ui {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,

    /// Let its users pause, resume and run schedules, drain instances, put tasks back, and ask for keys
    #[arg(long)]
    allow_actions: bool,

    /// File with a token of 16 characters or more, which each user must give
    #[arg(long, value_name = "FILE", env = "TENURE_UI_TOKEN_FILE", conflicts_with = "trust_header")]
    token_file: Option<PathBuf>,

    /// Trust a proxy in front, which sets this header to the user's name; the address must be reachable only through it
    #[arg(long, value_name = "NAME")]
    trust_header: Option<String>,
}

pub(crate) async fn run(common: &Common, ui: Ui) -> Result<u8, Failure> {
    let access = ui.access()?;
    if !ui.listen.ip().is_loopback() && !access.is_safe_beyond_loopback() {
        return Err(Failure::usage(format!(
            "--listen {} is not a loopback address: add --token-file, or --trust-header if a proxy in front names the user",
            ui.listen
        )));
    }
    // Actions are logged, with name and reason.
    logs::start(common, Level::Info);
    let end = signals::ended()?;
    let settings = Arc::new(Settings::of(common)?);
    let by = settings.config.holder().clone();
    let look = if ui.allow_actions {
        OpenNamespace::open_to_act(common).await?
    } else {
        OpenNamespace::open(common).await?
    };
    let listener = TcpListener::bind(ui.listen)
        .await
        .map_err(|error| Failure::config(format!("cannot listen on {} (--listen): {error}", ui.listen)))?;
    if let Ok(at) = listener.local_addr() {
        say::say(format_args!("the page is at http://{at}"));
    }
    let mut page = Page::new(look.store().clone(), look.namespace().clone())
        .store_name(one_line(&look.place.name))
        .access(access)
        .doctor(move || find(settings.clone()).boxed());
    if ui.allow_actions {
        page = page.actions(by);
    }
    let served = tenure_ui::serve(listener, page, end).await;
    look.close().await;
    served.map_err(|error| Failure::failed(format!("the page cannot be served any more: {error}")))?;
    Ok(0)
}

impl Ui {
    fn access(&self) -> Result<Access, Failure> {
        if let Some(file) = &self.token_file {
            let token = std::fs::read_to_string(file)
                .map_err(|error| Failure::config(format!("--token-file {}: {error}", file.display())))?;
            return Access::token(token.trim())
                .map_err(|error| Failure::config(format!("--token-file {}: {error}", file.display())));
        }
        match &self.trust_header {
            Some(name) => {
                Access::header(name).map_err(|error| Failure::usage(format!("--trust-header: {error}")))
            }
            None => Ok(Access::loopback()),
        }
    }
}

/// Returns the findings of the doctor's read-only run.
async fn find(settings: Arc<Settings>) -> Vec<Finding> {
    let found = doctor::look_only(&settings).await;
    let finding = |found: &doctor::Finding| Finding {
        level: found.level.word().to_lowercase(),
        about: found.about.to_owned(),
        says: found.says.clone(),
        advice: found.advice.clone(),
    };
    found.iter().map(finding).collect()
}

//! `tenure ui`: the page, served.

mod serve;

use std::{
    fmt::Display,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use tenure::model::Holder;
use tenure_look::{LivePicture, Reader};
use tenure_ui::{Access, Ui as Page};
use tokio::net::TcpListener;

use crate::{
    common::{Common, Level},
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
/// be changed, unless --allow-actions is given. On the loopback address, without --token-file, users need no token to
/// look, and to act the one of the address in the log, which is good once.
#[derive(Args, Debug)]
pub(crate) struct Ui {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,

    /// Let its users pause, resume and run schedules, drain instances, put tasks back, and ask for keys
    #[arg(long)]
    allow_actions: bool,

    /// Show the value of no lock, also if a user asks for it
    #[arg(long)]
    no_values: bool,

    /// File with a token of 16 characters or more, which each user must give
    #[arg(long, value_name = "FILE", env = "TENURE_UI_TOKEN_FILE", conflicts_with = "trust_header")]
    token_file: Option<PathBuf>,

    /// File with a second token, for users who may look and not act
    #[arg(long, value_name = "FILE", requires = "token_file")]
    look_token_file: Option<PathBuf>,

    /// Trust a proxy in front, which sets this header to the user's name; the address must be reachable only through it
    #[arg(long, value_name = "NAME", requires = "hosts")]
    trust_header: Option<String>,

    /// Host that the proxy asks for, as in the header Host; others are refused (repeatable)
    #[arg(long = "host", value_name = "HOST", requires = "trust_header")]
    hosts: Vec<String>,

    /// Name of a user who may act; the others only look (repeatable) [default: all may act]
    #[arg(long, value_name = "NAME", requires = "trust_header", requires = "allow_actions")]
    acting: Vec<Holder>,
}

pub(crate) async fn run(common: &Common, ui: Ui) -> Result<u8, Failure> {
    let access = ui.access()?;
    if !ui.listen.ip().is_loopback() && access.is_none() {
        return Err(Failure::usage(format!(
            "--listen {} is not a loopback address: add --token-file, or --trust-header if a proxy in front names the user",
            ui.listen
        )));
    }
    // Actions are logged, with name and reason.
    logs::start(common, Level::Info);
    ui.token_file.iter().chain(&ui.look_token_file).for_each(|file| warn_if_open(file));
    let end = signals::ended()?;
    let by = Settings::of(common)?.config.holder().clone();
    let look = if ui.allow_actions {
        OpenNamespace::open_to_act(common).await?
    } else {
        OpenNamespace::open(common).await?
    };
    let cannot = |error| Failure::config(format!("cannot listen on {} (--listen): {error}", ui.listen));
    let listener = TcpListener::bind(ui.listen).await.map_err(cannot)?;
    let at = listener.local_addr().map_err(cannot)?;
    say::say(format_args!("the page is at http://{at}"));
    let mut page = Page::of(LivePicture::new(Reader::clone(&look))).store_name(one_line(&look.place.name));
    if let Some(access) = access {
        page = page.access(access);
    } else if ui.allow_actions {
        page = page.access(Access::loopback_to_act(move |token| {
            say::say(format_args!("to act, open http://{at}/#{token} (once; then another is printed)"));
        }));
    }
    if ui.allow_actions {
        page = page.actions(by);
    }
    if ui.no_values {
        page = page.no_values();
    }
    serve::serve(listener, page, end).await;
    look.close().await;
    Ok(0)
}

impl Ui {
    /// Returns the access that was asked for, unless it is that of this machine.
    fn access(&self) -> Result<Option<Access>, Failure> {
        if let Some(file) = &self.token_file {
            let token = read("--token-file", file)?;
            let access = of_file("--token-file", file, Access::token(token.clone(), None))?;
            let Some(file) = &self.look_token_file else { return Ok(Some(access)) };
            let looking = read("--look-token-file", file)?;
            return of_file("--look-token-file", file, Access::token(token, Some(looking))).map(Some);
        }
        let Some(name) = &self.trust_header else { return Ok(None) };
        if names_no_user(&name.to_ascii_lowercase()) {
            return Err(Failure::usage(format!(
                "--trust-header: {name} does not name a user, as browsers send it, or proxies for all requests: have \
                 the proxy set one of its own, such as X-Forwarded-User"
            )));
        }
        let acting = (!self.acting.is_empty()).then(|| self.acting.clone());
        Access::header(name, self.hosts.clone(), acting)
            .map(Some)
            .map_err(|error| Failure::usage(format!("--trust-header, --host: {error}")))
    }
}

/// Headers that browsers send, or proxies for all requests, or that frame a request. A star stands for any end.
const OTHERS: &str = "accept* access-control-* authorization cache-control connection content-* cookie date device-* \
                      dnt downlink dpr ect expect forwarded from host if-* keep-alive origin pragma priority proxy-* \
                      range referer rtt save-data sec-* te trailer transfer-encoding upgrade* user-agent via \
                      viewport-width width x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto \
                      x-real-ip x-request-id x-requested-with";

fn names_no_user(header: &str) -> bool {
    let is = |known: &str| known.strip_suffix('*').map_or(known == header, |begin| header.starts_with(begin));
    OTHERS.split(' ').any(is)
}

/// Reads the token in a file.
fn read(option: &str, file: &Path) -> Result<String, Failure> {
    let token = of_file(option, file, std::fs::read_to_string(file))?;
    Ok(token.trim().to_owned())
}

fn of_file<T, E: Display>(option: &str, file: &Path, result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|error| Failure::config(format!("{option} {}: {error}", file.display())))
}

/// Warns of a file that all users of this machine can open. It is not refused, as a cluster may give one no other
/// rights.
fn warn_if_open(file: &Path) {
    let mode = std::fs::metadata(file).map_or(0, |about| about.permissions().mode());
    if mode & 0o007 != 0 {
        let (file, mode) = (file.display(), format!("{:o}", mode & 0o777));
        tracing::warn!(%file, mode, "all users of this machine can open the file of a token: chmod it to 600");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_browsers_send_names_no_user() {
        for name in
            ["host", "cookie", "authorization", "content-length", "accept", "sec-fetch-site", "te", "dnt"]
        {
            assert!(names_no_user(name), "{name}");
        }
        for name in ["x-forwarded-user", "remote-user", "tailscale-user-login", "x-user"] {
            assert!(!names_no_user(name), "{name}");
        }
    }
}

//! Access: checked for every request before anything is read.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::ConnectInfo,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header},
};
use tenure::model::Holder;

use crate::tokens::Tokens;

/// Names that a proxy adds. A proxy on this machine asks for others.
const FORWARDED: &str = "akamai-* cdn-loop cf-* cloudfront-* fastly-* fly-* forwarded front-end-https max-forwards \
                         proxy-* remote-user surrogate-capability tailscale-* via x-*";
/// Names with an `x-` that programs of this machine send: scripts of a browser, and Prometheus.
const LOCAL: &str = "x-requested-with x-prometheus-scrape-timeout-seconds";
/// Rule of access to the page: who may look, and who may act where [actions](crate::Ui::actions) are allowed.
#[derive(Clone, Debug)]
pub struct Access {
    rule: Rule,
    pub(crate) tokens: Arc<Tokens>,
}

#[derive(Clone, Debug)]
enum Rule {
    Loopback,
    Open,
    Token,
    /// A header, the hosts that a proxy asks for, and the names of those who may act, unless all may.
    Header(HeaderName, Vec<String>, Option<Vec<Holder>>),
}

/// Visitor who may look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visitor {
    /// The name that a trusted proxy gave.
    pub(crate) name: Option<Holder>,
    pub(crate) may_act: bool,
    pub(crate) login: Login,
}

/// Use that a visitor has for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Login {
    #[default]
    None,
    /// A token would let the visitor act.
    Wanted,
    /// The visitor gave one, and has a cookie.
    Done,
}

/// Reason why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// A valid token is missing: the visitor can give one.
    TokenWanted,
    /// A wrong token was given, as many were within this minute.
    TooManyWrong,
    /// Refusal of this visitor, with the reason.
    Forbidden(String),
}

impl Access {
    /// Answers only requests that come from the same machine and name it: `localhost`, or a loopback address. So
    /// neither others nor a web site that has its name point here can look. Where a router is nested, the program has
    /// to be served with [`ConnectInfo`]; otherwise no request is known to be local. No visitor may act.
    #[must_use]
    pub fn loopback() -> Self {
        Self { rule: Rule::Loopback, tokens: Arc::default() }
    }

    /// As [`loopback`](Self::loopback), and lets act who has a token that is good once: `announce` is called with the
    /// first one now, and with the next one when that was used. Behind the `#` of the page's address, or typed into its
    /// form, it is exchanged for a cookie.
    #[must_use]
    pub fn loopback_to_act(announce: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { rule: Rule::Loopback, tokens: Arc::new(Tokens::once(announce)) }
    }

    /// Answers all requests that the program lets pass: it has authenticated the visitors. All may act.
    #[must_use]
    pub fn open() -> Self {
        Self { rule: Rule::Open, tokens: Arc::default() }
    }

    /// Answers requests with this token: as `Authorization: Bearer`, or typed into a form, after which a cookie stands
    /// for it for 12 hours, until a logout, or until this program ends. A second token lets look, and not act.
    ///
    /// # Errors
    ///
    /// If one has less than 16 characters, one that is repeated, or others than visible ASCII, or if they are the same.
    pub fn token(token: impl Into<String>, looking: Option<String>) -> Result<Self, String> {
        Ok(Self { rule: Rule::Token, tokens: Arc::new(Tokens::new(token.into(), looking)?) })
    }

    /// Answers requests that come through a proxy which sets this header to the user's name, and which cannot be
    /// bypassed. The proxy sends one of these `Host` headers: a web site that has its own name point here does not.
    /// A host without a port stands for all ports. With names, only these visitors may act.
    ///
    /// # Errors
    ///
    /// If that is not a valid name of a header, or if there is no host.
    pub fn header(name: &str, hosts: Vec<String>, acting: Option<Vec<Holder>>) -> Result<Self, String> {
        let valid = HeaderName::from_bytes(name.as_bytes());
        let name = valid.map_err(|_| format!("{name:?} is not the name of a header"))?;
        let hosts: Vec<_> = hosts.into_iter().map(|host| host.trim().to_owned()).collect();
        if hosts.is_empty() || hosts.contains(&String::new()) {
            return Err("name the Host header that the proxy sends".to_owned());
        }
        Ok(Self { rule: Rule::Header(name, hosts, acting), tokens: Arc::default() })
    }

    /// Returns whether it is safe to listen on an address that others reach.
    #[must_use]
    pub const fn is_safe_beyond_loopback(&self) -> bool {
        matches!(self.rule, Rule::Token | Rule::Header(..))
    }

    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<Visitor, Denied> {
        let (headers, host) = (request.headers(), host(request.headers()));
        if request.method() == Method::POST && is_foreign(headers, host) {
            return Err(Denied::Forbidden("this form comes from another site".to_owned()));
        }
        match &self.rule {
            Rule::Open => Ok(Visitor { may_act: true, ..Visitor::default() }),
            Rule::Loopback => match not_of_this_machine(request, host) {
                Some(why) => Err(Denied::Forbidden(format!("only this machine has access, and {why}"))),
                None => Ok(self.tokens.visit(headers).unwrap_or_else(|| self.tokens.stranger())),
            },
            Rule::Token => self.tokens.visitor(request)?.ok_or(Denied::TokenWanted),
            Rule::Header(name, hosts, acting) => {
                if !hosts.iter().any(|known| is_host(known, host)) {
                    let why = format!("this page is at {} alone, not at {host:?}", hosts.join(", "));
                    return Err(Denied::Forbidden(why));
                }
                let name = named_by(headers, name).map_err(Denied::Forbidden)?;
                let may_act = acting.as_ref().is_none_or(|acting| acting.contains(&name));
                Ok(Visitor { name: Some(name), may_act, login: Login::None })
            }
        }
    }
}

/// Returns the `Host` header, if it is a text.
fn host(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// A browser says that a form is not of this page. Behind a proxy, only its first word for that is to be relied upon.
fn is_foreign(headers: &HeaderMap, host: &str) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    match (text(HeaderName::from_static("sec-fetch-site")), text(header::ORIGIN)) {
        (Some(site), _) => site != "same-origin",
        (None, Some(origin)) if !host.is_empty() => {
            origin.split_once("://").map(|(_, origin)| origin) != Some(host)
        }
        (None, _) => false,
    }
}

/// Returns the name that a trusted header gives.
fn named_by(headers: &HeaderMap, name: &HeaderName) -> Result<Holder, String> {
    let value = headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    // One of them may be the client's own.
    if headers.get_all(name).iter().count() > 1 || value.is_some_and(|value| value.contains(',')) {
        return Err(format!(
            "the header {name} has more than one value: have the proxy set it, and drop it from what clients send"
        ));
    }
    match value.map(str::trim).filter(|value| !value.is_empty()).map(Holder::new) {
        Some(known) => known.map_err(|error| format!("the header {name}: {error}")),
        None => Err(format!(
            "the request has no header {name}: have the proxy in front set it to the name of the user"
        )),
    }
}

/// Returns why a request is not taken for one of a user of this machine.
fn not_of_this_machine<B>(request: &Request<B>, host: &str) -> Option<String> {
    let headers = request.headers();
    let Some(peer) = peer(request) else {
        return Some(
            "the program does not pass on where requests come from: choose another access".to_owned(),
        );
    };
    if !is_loopback(peer.ip()) {
        return Some(format!("this request comes from {}", peer.ip()));
    }
    if let Some(sign) = sign_of_a_proxy(request) {
        return Some(format!(
            "this request comes through a proxy (it has {sign}): use a token, or trust the header in which the proxy \
             names the user"
        ));
    }
    if !names_loopback(host) {
        return Some(format!("this request asks for {host:?}, not for localhost or a loopback address"));
    }
    // A proxy that is silent about itself passes these on. A browser's own word, that a page of the same site asks, is
    // about the address in front of that proxy.
    for name in [header::ORIGIN, header::REFERER] {
        let is_other = |value: &HeaderValue| {
            let site = value.to_str().ok().and_then(|value| value.split_once("://"));
            let site = site.and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
            !site.is_some_and(|site| site.eq_ignore_ascii_case(host))
        };
        if headers.get_all(&name).iter().any(is_other) {
            return Some(format!(
                "this request comes from a page of another site ({name}), or through a proxy: type the address, or use \
                 a token"
            ));
        }
    }
    is_embedded(headers).then(|| "this request comes from a page of another site".to_owned())
}

/// Returns the address that a request comes from, if the program passes it on.
pub(crate) fn peer<B>(request: &Request<B>) -> Option<SocketAddr> {
    request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer)
}

/// Returns whether a name is in a list, in which a star stands for any end.
fn is_one_of(name: &str, list: &str) -> bool {
    let is = |known: &str| known.strip_suffix('*').map_or(known == name, |begin| name.starts_with(begin));
    list.split(' ').any(is)
}

/// By what a proxy gives itself away. One that says nothing and speaks as browsers do is not known as one.
fn sign_of_a_proxy<B>(request: &Request<B>) -> Option<&str> {
    let is_sign =
        |name: &&str| (name.ends_with("-ip") || is_one_of(name, FORWARDED)) && !is_one_of(name, LOCAL);
    let mut signs = request.headers().keys().map(HeaderName::as_str).filter(is_sign);
    // No browser has spoken it for long, and proxies do unless they are told otherwise.
    let is_old = matches!(request.version(), Version::HTTP_09 | Version::HTTP_10);
    signs.next().or(Some("HTTP/1.0").filter(|_| is_old))
}

/// A browser says that a page of another site asks, by an image or a script, and not for a person who follows a link.
fn is_embedded(headers: &HeaderMap) -> bool {
    let says = |name: &str, words: &[&str]| {
        headers.get(name).is_some_and(|value| words.iter().any(|word| value.as_bytes() == word.as_bytes()))
    };
    says("sec-fetch-site", &["cross-site", "same-site"]) && !says("sec-fetch-mode", &["navigate"])
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
    }
}

/// Returns a `Host` header without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns the name of the cookie of a visit: a browser sends those of all ports of a host.
pub(crate) fn cookie_name(headers: &HeaderMap) -> String {
    let host = host(headers);
    let port = host.strip_prefix(without_port(host)).unwrap_or_default();
    format!("tenure_token{}", port.replace(':', "_"))
}

/// Returns whether a `Host` header is the known one, which stands for all ports if it has none.
fn is_host(known: &str, host: &str) -> bool {
    known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(without_port(host))
}

/// Returns whether a `Host` header names this machine.
fn names_loopback(host: &str) -> bool {
    let name = without_port(host);
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

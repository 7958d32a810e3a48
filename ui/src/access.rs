//! Access: checked for every request before anything is read.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use axum::{
    extract::ConnectInfo,
    http::{HeaderMap, HeaderName, Request, Version, header},
};
use tenure::model::Holder;

/// Name of the cookie by which a visitor who gave the token is recognized.
pub(crate) const COOKIE: &str = "tenure_token";
/// Headers that a proxy adds, besides all that begin with `x-forwarded-`. A proxy on this machine asks for others.
const FORWARDED: [&str; 5] = ["forwarded", "via", "x-real-ip", "true-client-ip", "cf-connecting-ip"];
/// Shorter tokens can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Rule of access to the page.
#[derive(Clone, Debug)]
pub struct Access(Rule);

#[derive(Clone)]
enum Rule {
    Loopback,
    Open,
    /// The token, and the value of the cookie in its place: other programs of this host get to see the cookie.
    Token {
        token: String,
        cookie: String,
    },
    Header(HeaderName),
}

/// Does not show the token.
impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("Loopback"),
            Self::Open => f.write_str("Open"),
            Self::Token { .. } => f.write_str("Token"),
            Self::Header(name) => write!(f, "Header({name})"),
        }
    }
}

/// Visitor who may look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    /// The name that a trusted proxy gave.
    pub(crate) name: Option<Holder>,
}

/// Reason why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// A valid token is missing: the visitor can give one.
    TokenWanted,
    /// Refusal of this visitor, with the reason.
    Forbidden(String),
}

impl Access {
    /// Answers only requests that come from the same machine and name it: `localhost`, or a loopback address. So
    /// neither others nor a web site that has its name point here can look. Where a router is nested, the program has
    /// to be served with [`ConnectInfo`]; otherwise no request is known to be local.
    #[must_use]
    pub const fn loopback() -> Self {
        Self(Rule::Loopback)
    }

    /// Answers all requests that the program lets pass: it has authenticated the visitors.
    #[must_use]
    pub const fn open() -> Self {
        Self(Rule::Open)
    }

    /// Answers requests with this token: as `Authorization: Bearer`, or typed into a form, after which a cookie stands
    /// for it for as long as this program runs.
    ///
    /// # Errors
    ///
    /// If it has less than 16 characters, or others than visible ASCII.
    pub fn token(token: impl Into<String>) -> Result<Self, String> {
        let token = token.into();
        if token.len() < SHORTEST_TOKEN {
            return Err(format!(
                "the token has {} characters, and needs at least {SHORTEST_TOKEN}, so that it cannot be guessed",
                token.len()
            ));
        }
        if let Some(odd) =
            token.chars().find(|c| !c.is_ascii_graphic() || matches!(c, ';' | ',' | '"' | '\\'))
        {
            return Err(format!("the token has the character {odd:?}, which cannot be kept in a cookie"));
        }
        Ok(Self(Rule::Token { token, cookie: random() }))
    }

    /// Answers requests that come through a proxy which sets this header to the user's name, and which cannot be
    /// bypassed.
    ///
    /// # Errors
    ///
    /// If that is not a valid name of a header.
    pub fn header(name: &str) -> Result<Self, String> {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        parsed
            .map(|name| Self(Rule::Header(name)))
            .map_err(|_| format!("{name:?} is not the name of a header"))
    }

    /// Returns whether it is safe to listen on an address that others reach.
    #[must_use]
    pub const fn is_safe_beyond_loopback(&self) -> bool {
        matches!(self.0, Rule::Token { .. } | Rule::Header(_))
    }

    /// Returns the value of the cookie for a visitor who gives this text, if a token is wanted and this is the token.
    pub(crate) fn cookie_for(&self, given: &str) -> Option<&str> {
        match &self.0 {
            Rule::Token { token, cookie } if same(token, given) => Some(cookie),
            _ => None,
        }
    }

    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<Visitor, Denied> {
        let headers = request.headers();
        match &self.0 {
            Rule::Open => Ok(Visitor { name: None }),
            Rule::Loopback => {
                let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
                let Some(ConnectInfo(peer)) = peer else {
                    return Err(Denied::Forbidden(
                        "only this machine has access, and the program does not pass on where requests come from: \
                         choose another access"
                            .to_owned(),
                    ));
                };
                if !is_loopback(peer.ip()) {
                    return Err(Denied::Forbidden(format!(
                        "only this machine has access, and this request comes from {}",
                        peer.ip()
                    )));
                }
                if let Some(sign) = sign_of_a_proxy(request) {
                    return Err(Denied::Forbidden(format!(
                        "only this machine has access, and this request comes through a proxy (it has {sign}): use a \
                         token, or trust the header in which the proxy names the user"
                    )));
                }
                if is_embedded(headers) {
                    return Err(Denied::Forbidden(
                        "this request comes from a page of another site".to_owned(),
                    ));
                }
                let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
                if names_loopback(host) {
                    Ok(Visitor { name: None })
                } else {
                    Err(Denied::Forbidden(format!(
                        "only this machine has access, by the name localhost or a loopback address, and not by {host:?}"
                    )))
                }
            }
            Rule::Token { token, cookie } => {
                let has_token = bearer(headers).is_some_and(|given| same(token, given));
                if has_token || cookies(headers).any(|given| same(cookie, given)) {
                    Ok(Visitor { name: None })
                } else {
                    Err(Denied::TokenWanted)
                }
            }
            Rule::Header(name) => {
                let value = headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
                // One of them may be the client's own.
                if headers.get_all(name).iter().count() > 1 || value.is_some_and(|value| value.contains(','))
                {
                    return Err(Denied::Forbidden(format!(
                        "the header {name} has more than one value: have the proxy set it, and drop it from what clients send"
                    )));
                }
                match value.map(str::trim).filter(|value| !value.is_empty()).map(Holder::new) {
                    Some(Ok(name)) => Ok(Visitor { name: Some(name) }),
                    Some(Err(error)) => Err(Denied::Forbidden(format!("the header {name}: {error}"))),
                    None => Err(Denied::Forbidden(format!(
                        "the request has no header {name}: have the proxy in front set it to the name of the user"
                    ))),
                }
            }
        }
    }
}

/// By what a proxy gives itself away. One that says nothing and speaks as browsers do is not known as one.
fn sign_of_a_proxy<B>(request: &Request<B>) -> Option<&str> {
    let names = request.headers().keys().map(HeaderName::as_str);
    let mut signs = names.filter(|name| FORWARDED.contains(name) || name.starts_with("x-forwarded-"));
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

/// Returns whether a `Host` header names this machine.
fn names_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

/// Another page on another port of this host may have set one of that name, too.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// Draws a random text that cannot be guessed.
pub(crate) fn random() -> String {
    let random = || getrandom::u64().expect("the system has random numbers");
    format!("{:016x}{:016x}", random(), random())
}

/// Compares in a time that does not show where two texts differ.
pub(crate) fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn request(headers: &[(&str, &str)], peer: Option<&str>) -> Request<()> {
        let mut request = Request::new(());
        for (name, value) in headers {
            request
                .headers_mut()
                .append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        if let Some(peer) = peer {
            request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 5)));
        }
        request
    }

    #[test]
    fn only_this_machine_by_its_own_name_may_look() {
        let check = |host: &str, peer| Access::loopback().check(&request(&[("host", host)], peer)).is_ok();
        for host in ["localhost", "LOCALHOST:7070", "127.0.0.1:7070", "127.1.2.3", "[::1]:7070", "[::1]"] {
            assert!(check(host, Some("127.0.0.1")), "{host}");
        }
        assert!(check("localhost", Some("::1")) && check("localhost", Some("::ffff:127.0.0.1")));
        for host in ["", "example.com", "localhost.example.com", "10.0.0.1", "[::2]:7070"] {
            assert!(!check(host, Some("127.0.0.1")), "a site that points its name here: {host}");
        }
        assert!(!check("localhost", Some("10.0.0.1")), "another machine");
        assert!(!check("localhost", None), "where it comes from is not known");
        for (name, value) in
            [("x-forwarded-host", "a.example"), ("forwarded", "for=10.0.0.1"), ("via", "1.1 proxy")]
        {
            let asked = request(&[("host", "localhost"), (name, value)], Some("127.0.0.1"));
            assert!(Access::loopback().check(&asked).is_err(), "a proxy on this machine: {name}");
        }
        let mut old = request(&[("host", "localhost")], Some("127.0.0.1"));
        *old.version_mut() = Version::HTTP_10;
        assert!(Access::loopback().check(&old).is_err(), "a proxy that says nothing");
        for (mode, may_look) in [("no-cors", false), ("navigate", true)] {
            let headers = [("host", "localhost"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode)];
            let asked = request(&headers, Some("127.0.0.1"));
            assert_eq!(Access::loopback().check(&asked).is_ok(), may_look, "{mode}");
        }
    }

    #[test]
    fn a_token_is_wanted_whole() {
        let access = Access::token(TOKEN).unwrap();
        let check = |headers: &[(&str, &str)]| access.check(&request(headers, None));
        assert_eq!(check(&[]), Err(Denied::TokenWanted));
        let bearer = format!("Bearer {TOKEN}");
        assert!(check(&[("authorization", &bearer)]).is_ok());
        let kept = access.cookie_for(TOKEN).unwrap();
        let cookies = format!("a=b; {COOKIE}=another; {COOKIE}={kept}; c=d");
        assert!(check(&[("cookie", &cookies)]).is_ok());
        // Neither is as good as the other in its place.
        assert!(check(&[("cookie", &format!("{COOKIE}={TOKEN}"))]).is_err());
        assert!(check(&[("authorization", &format!("Bearer {kept}"))]).is_err());
        assert!(access.cookie_for("0123456789abcdeX").is_none());
        for wrong in
            ["Bearer 0123456789abcdeX", "Bearer 0123456789abcde", "Bearer ", "Basic 0123456789abcdef"]
        {
            assert_eq!(check(&[("authorization", wrong)]), Err(Denied::TokenWanted), "{wrong}");
        }
        assert!(Access::token("short").unwrap_err().contains("5 characters"));
        assert!(Access::token("0123456789abcde;").unwrap_err().contains("';'"));
        assert!(!format!("{access:?}").contains("0123"));
    }

    #[test]
    fn a_proxy_says_who_asks() {
        let access = Access::header("X-Forwarded-User").unwrap();
        let check = |headers: &[(&str, &str)]| access.check(&request(headers, None));
        let name = |name: &str| Ok(Visitor { name: Some(Holder::new(name).unwrap()) });
        assert_eq!(check(&[("x-forwarded-user", "ann")]), name("ann"));
        assert!(matches!(check(&[]), Err(Denied::Forbidden(why)) if why.contains("x-forwarded-user")));
        assert!(matches!(check(&[("x-forwarded-user", " ")]), Err(Denied::Forbidden(_))));
        let twice = [("x-forwarded-user", "ann"), ("x-forwarded-user", "root")];
        assert!(matches!(check(&twice), Err(Denied::Forbidden(why)) if why.contains("more than one")));
        assert!(matches!(check(&[("x-forwarded-user", "root, ann")]), Err(Denied::Forbidden(_))));
        assert!(Access::header("no header").is_err());
    }
}

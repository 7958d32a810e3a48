//! Tokens: those that let a visitor in, the visits that they began, and the wrong ones.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{HeaderMap, Request, header};
use tokio::time::Instant;

use crate::{
    access::{Denied, Login, Visitor, cookie_name, peer},
    cache::now,
};

/// Shorter tokens can be guessed.
const SHORTEST: usize = 16;
/// Time for which a visit lasts.
pub(crate) const VISIT: Duration = Duration::from_secs(12 * 60 * 60);
/// Visits to act that are kept at most, and visits to look.
const MOST_VISITS: usize = 1000;
/// Cookies of the name of ours that are looked at in a request.
const MOST_COOKIES: usize = 8;
/// Wrong tokens within a minute, after which wrong ones are refused without a form.
const MOST_WRONG: u32 = 100;
const MINUTE: Duration = Duration::from_secs(60);

type Announce = dyn Fn(&str) + Send + Sync;

/// Tokens, and what became of them.
#[derive(Default)]
pub(crate) struct Tokens {
    /// Tokens that are good again and again, and whether each lets act.
    lasting: Vec<(String, bool)>,
    /// Receiver of tokens that are good once.
    announce: Option<Box<Announce>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    once: Option<String>,
    visits: Vec<Visit>,
    wrong: u32,
    /// Start of the minute in which they are counted.
    since: Option<Instant>,
    told: Option<Instant>,
}

/// Visit of a browser, which has a cookie in place of the token: other programs of this host get to see the cookie.
struct Visit {
    cookie: String,
    may_act: bool,
    until: Instant,
}

/// Does not show the tokens.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    pub(crate) fn new(acting: String, looking: Option<String>) -> Result<Self, String> {
        if looking.as_ref() == Some(&acting) {
            return Err("the token to look is the one to act".to_owned());
        }
        let lasting: Vec<_> =
            [(acting, true)].into_iter().chain(looking.map(|token| (token, false))).collect();
        lasting.iter().try_for_each(|(token, _)| check(token))?;
        Ok(Self { lasting, announce: None, state: Mutex::default() })
    }

    pub(crate) fn once(announce: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let token = random();
        announce(&token);
        let state = State { once: Some(token), ..State::default() };
        Self { lasting: Vec::new(), announce: Some(Box::new(announce)), state: Mutex::new(state) }
    }

    /// Returns a visitor without a token: there may be one to be had.
    pub(crate) fn stranger(&self) -> Visitor {
        let login = if self.announce.is_some() { Login::Wanted } else { Login::None };
        Visitor { login, ..Visitor::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a token lets act, if it is one that lasts. A right one is taken however many are wrong.
    fn find(&self, given: &str) -> Option<bool> {
        self.lasting.iter().find(|(token, _)| same(token, given)).map(|(_, may_act)| *may_act)
    }

    /// Begins a visit with a token. Returns the value of its cookie.
    pub(crate) fn enter(&self, given: &str, peer: Option<SocketAddr>) -> Result<String, Denied> {
        let may_act = self.find(given).or_else(|| {
            let announce = self.announce.as_ref()?;
            let next = random();
            self.state().once.as_mut().filter(|once| same(once, given))?.clone_from(&next);
            announce(&next);
            Some(true)
        });
        let Some(may_act) = may_act else { return Err(self.count_wrong(peer)) };
        let (cookie, mut state) = (random(), self.state());
        state.visits.retain(|visit| visit.until > now());
        let mut alike = (0..state.visits.len()).filter(|at| state.visits[*at].may_act == may_act);
        if let Some(first) = alike.next()
            && alike.count() + 1 >= MOST_VISITS
        {
            state.visits.remove(first);
        }
        state.visits.push(Visit { cookie: cookie.clone(), may_act, until: now() + VISIT });
        tracing::info!(peer = peer.map(tracing::field::display), may_act, "a visitor logged in");
        Ok(cookie)
    }

    /// Ends the visit of a request.
    pub(crate) fn leave(&self, headers: &HeaderMap) {
        let given = cookies(headers);
        self.state().visits.retain(|visit| !given.iter().any(|given| same(&visit.cookie, given)));
    }

    /// Returns the visitor who gives a token or the cookie of a visit.
    pub(crate) fn visitor<B>(&self, request: &Request<B>) -> Result<Option<Visitor>, Denied> {
        let Some(given) = bearer(request.headers()) else { return Ok(self.visit(request.headers())) };
        let may_act = self.find(given).ok_or_else(|| self.count_wrong(peer(request)))?;
        Ok(Some(Visitor { may_act, ..Visitor::default() }))
    }

    /// Returns the visitor who has the cookie of a visit.
    pub(crate) fn visit(&self, headers: &HeaderMap) -> Option<Visitor> {
        let (given, state) = (cookies(headers), self.state());
        let mut visits = state.visits.iter().filter(|visit| visit.until > now());
        let visit = visits.find(|visit| given.iter().any(|given| same(&visit.cookie, given)))?;
        Some(Visitor { name: None, may_act: visit.may_act, login: Login::Done })
    }

    /// Counts a wrong token, and has the log say so once a second at most.
    fn count_wrong(&self, peer: Option<SocketAddr>) -> Denied {
        let (mut state, now) = (self.state(), now());
        if state.since.is_none_or(|since| now - since >= MINUTE) {
            (state.since, state.wrong) = (Some(now), 0);
        }
        state.wrong += 1;
        if state.told.is_none_or(|told| now - told >= Duration::from_secs(1)) {
            state.told = Some(now);
            let (peer, count) = (peer.map(tracing::field::display), state.wrong);
            tracing::warn!(peer, count, "wrong tokens within a minute were refused");
        }
        if state.wrong > MOST_WRONG { Denied::TooManyWrong } else { Denied::TokenWanted }
    }
}

/// Checks that a token cannot be guessed, and can be sent.
fn check(token: &str) -> Result<(), String> {
    let length = token.len();
    if length < SHORTEST {
        return Err(format!(
            "the token has {length} characters, and needs at least {SHORTEST}, so that it cannot be guessed"
        ));
    }
    if token.bytes().all(|byte| token.starts_with(char::from(byte))) {
        return Err("the token is one character, repeated, which can be guessed".to_owned());
    }
    match token.chars().find(|c| !c.is_ascii_graphic()) {
        Some(odd) => Err(format!("the token has the character {odd:?}, which a header cannot have")),
        None => Ok(()),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Another page under another path of this host may have set one of that name, too.
fn cookies(headers: &HeaderMap) -> Vec<&str> {
    let ours = cookie_name(headers);
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == ours).map(|(_, value)| value).take(MOST_COOKIES).collect()
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
    use std::sync::{Arc, OnceLock};

    use super::*;

    #[test]
    fn a_token_is_good_once_it_is_announced() {
        let (tokens, told) = (Arc::new(OnceLock::<Tokens>::new()), Arc::new(Mutex::new(Vec::new())));
        let (known, all) = (tokens.clone(), told.clone());
        let announce = move |token: &str| {
            let mut all = all.lock().unwrap();
            all.push(token.to_owned());
            // The second one is used before the call that announces it has returned.
            if all.len() == 2 {
                drop(all);
                known.get().unwrap().enter(token, None).unwrap();
            }
        };
        let tokens = tokens.get_or_init(|| Tokens::once(announce));
        let first = told.lock().unwrap()[0].clone();
        tokens.enter(&first, None).unwrap();
        assert_eq!(told.lock().unwrap().len(), 3);
    }
}

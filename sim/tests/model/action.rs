//! All that can happen, one step each, and how it is told.

use std::fmt;

use crate::model::{
    wire::{Message, Request},
    world::{Id, Mark, Place, Session},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Gain(Id),
    Apply(Message),
    Answer(Message),
    Forget(Message),
    Lose(Message),
    Double(Message),
    Commit,
    Failover,
    Delete(Session),
    Open(Id),
    Beat(Id),
    Abandon(Id),
    Close(Id),
    Reopen(Id),
    Observe(Id),
    ObserveFormer(Id),
    Declare(Id),
    Want(Id),
    GiveUp(Id),
    Take(Id),
    Wait(Id),
    Hint(Id),
    Look(Id),
    Confirm(Id),
    Cancel(Id),
    Finish(Id),
    Release(Id, Option<Place>),
    Audit(Id),
    GiveBack(Id),
}

/// Instances have letters, sessions and tickets have numbers.
fn name(id: Id) -> char {
    char::from(b'A' + id)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Tick => f.write_str("a tick passes"),
            Action::Gain(id) => write!(f, "{}'s clock gains a tick", name(id)),
            Action::Apply(message) => write!(f, "the primary applies {message}"),
            Action::Answer(message) => {
                write!(f, "{} is answered {message}: {:?}", name(message.from), message.progress)
            }
            Action::Forget(message) => write!(f, "{} waits no longer for {message}", name(message.from)),
            Action::Lose(message) => write!(f, "lost on its way: {message}"),
            Action::Double(message) => write!(f, "it will come twice: {message}"),
            Action::Commit => f.write_str("a majority has all of it"),
            Action::Failover => f.write_str("the primary is replaced, and what no majority kept is undone"),
            Action::Delete(session) => write!(f, "the record of session {session} is deleted by hand"),
            Action::Open(id) => write!(f, "{} opens a session", name(id)),
            Action::Beat(id) => write!(f, "{} sends a beat", name(id)),
            Action::Abandon(id) => write!(f, "{} gives its session up", name(id)),
            Action::Close(id) => write!(f, "{} closes its session", name(id)),
            Action::Reopen(id) => write!(f, "{} starts over under a new session", name(id)),
            Action::Observe(id) => write!(f, "{} looks at the holder's session", name(id)),
            Action::ObserveFormer(id) => {
                write!(f, "{} looks at the holder's session, at the deposed primary", name(id))
            }
            Action::Declare(id) => write!(f, "{} declares dead what it has seen for a ttl", name(id)),
            Action::Want(id) => write!(f, "{} has a new ticket", name(id)),
            Action::GiveUp(id) => write!(f, "{} gives its ticket up", name(id)),
            Action::Take(id) => write!(f, "{} sends a take", name(id)),
            Action::Wait(id) => write!(f, "{} asks for a place in the queue", name(id)),
            Action::Hint(id) => write!(f, "{} is told of a grant by a hint", name(id)),
            Action::Look(id) => write!(f, "{} reads the lock", name(id)),
            Action::Confirm(id) => write!(f, "{} asks by a take whether it still holds", name(id)),
            Action::Cancel(id) => write!(f, "{}'s job is asked to stop", name(id)),
            Action::Finish(id) => write!(f, "{}'s job has stopped", name(id)),
            Action::Release(id, None) => write!(f, "{} sends a release", name(id)),
            Action::Release(id, Some(to)) => {
                write!(f, "{} sends a release that hands over to {to}", name(id))
            }
            Action::Audit(id) => write!(f, "{}'s audit reads what it holds", name(id)),
            Action::GiveBack(id) => write!(f, "{}'s audit gives back what it found", name(id)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ticket {} of session {}", self.ticket, self.session)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'s ", name(self.from))?;
        match self.request {
            Request::Open { session, nonce } => write!(f, "opening of session {session} (nonce {nonce})"),
            Request::Beat { session, number, nonce, ttl } => {
                write!(f, "beat {number} of session {session} (nonce {nonce}, ttl {ttl})")
            }
            Request::Declare { session, mark: Mark::Beat(nonce) } => {
                write!(f, "declaration of session {session} if its beat is {nonce}")
            }
            Request::Declare { session, mark: Mark::Missing } => {
                write!(f, "declaration of session {session} if it is missing")
            }
            Request::Declare { session, mark: Mark::Any } => {
                write!(f, "declaration of session {session} whatever its beat")
            }
            Request::Take { place, dead: 0 } => write!(f, "take for {place}"),
            Request::Take { place, dead } => {
                write!(f, "take for {place} (dead are")?;
                for session in (0..8).filter(|session| dead & (1 << session) != 0) {
                    write!(f, " {session}")?;
                }
                f.write_str(")")
            }
            Request::Release { session, term, to: None } => {
                write!(f, "release by session {session} of term {term}")
            }
            Request::Release { session, term, to: Some(to) } => {
                write!(f, "release by session {session} of term {term} to {to}")
            }
            Request::Wait(place) => write!(f, "place in the queue for {place}"),
            Request::Leave(place) => write!(f, "leave of {place} from the queue"),
        }
    }
}

//! A TCP proxy in front of one node, to be put between a client and MongoDB.
//!
//! It takes messages apart, so that it can lose exactly the reply to the third
//! `findAndModify`. A client must not look past it: the URI of the proxy has
//! `directConnection=true`, or the whole set is [moved behind](super::mongod::Deployment::move_behind)
//! proxies, so that its members reach each other through them too.
//!
//! What is swallowed is gone for good, as is the message in it; a client that
//! waits for it without a limit waits for ever, also after the mode is [`Mode::Pass`]
//! again.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mongodb::bson::{RawBson, RawDocument};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::wait::LIMIT;
use super::wire::Message;

/// Treatment of the messages that arrive from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Forwards all.
    Pass,
    /// Accepts connections and swallows what both sides send. Neither side sees the other close.
    BlackHole,
    /// Closes what is open and refuses connections, as a host does on which nothing listens.
    Refuse,
    /// Forwards each message so much later.
    Delay { to_server: Duration, to_client: Duration },
    /// Forwards to the server and swallows what it replies. The client does not see the server close.
    RepliesLost,
    /// Swallows what the client sends and forwards what the server still says. The server does not see
    /// the client close.
    RequestsLost,
}

impl Mode {
    fn swallows_requests(self) -> bool {
        matches!(self, Self::BlackHole | Self::RequestsLost)
    }

    fn swallows_replies(self) -> bool {
        matches!(self, Self::BlackHole | Self::RepliesLost)
    }
}

#[derive(Debug, Default)]
struct Counts {
    passed: BTreeMap<String, u64>,
    dropped: BTreeMap<String, u64>,
    swallowed: u64,
    severed: u64,
}

/// Commands that are never answered: of this name, in one of these collections if any are named.
#[derive(Debug)]
struct Silence {
    command: String,
    collections: &'static [&'static str],
}

/// Fate of a reply that the client is not to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The connection is closed instead.
    Closed,
    /// No byte comes, and the connection stays open.
    Silent,
}

/// Choice of the replies to drop.
#[derive(Debug)]
enum Target {
    /// Replies to any command of the name.
    Any,
    /// Replies to the same operation over and over: that on the record of the first one that comes to one of these
    /// collections.
    One(&'static [&'static str], Option<RawBson>),
}

/// Replies that are still to be dropped.
#[derive(Debug)]
struct Drops {
    left: u32,
    target: Target,
}

/// Shared state of the tasks of a proxy.
#[derive(Debug)]
struct State {
    server: SocketAddr,
    wanted: watch::Sender<Mode>,
    applied: watch::Sender<Mode>,
    counts: watch::Sender<Counts>,
    /// By command.
    to_drop: Mutex<HashMap<String, Drops>>,
    silences: Mutex<Vec<Silence>>,
    /// Changes when all connections are to be closed.
    severings: watch::Sender<u64>,
}

/// A proxy in front of one node. Dropped, it closes all its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
    acceptor: JoinHandle<()>,
    /// Bound, never listening: keeps the port while nothing listens on it.
    _reserved: TcpSocket,
}

impl Proxy {
    /// A proxy that passes all to the node on port `server`.
    pub(crate) fn start(server: u16) -> Self {
        let reserved = socket(0).expect("loopback has a free port");
        let address = reserved.local_addr().expect("a bound socket has an address");
        let listener = listen(address.port()).expect("the reserved port can be listened on");
        let state = Arc::new(State {
            server: loopback(server),
            wanted: watch::Sender::new(Mode::Pass),
            applied: watch::Sender::new(Mode::Pass),
            counts: watch::Sender::default(),
            to_drop: Mutex::default(),
            silences: Mutex::default(),
            severings: watch::Sender::default(),
        });
        let acceptor = tokio::spawn(accept(Arc::clone(&state), address.port(), listener));
        Self { port: address.port(), state, acceptor, _reserved: reserved }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A URI that keeps a client on this proxy, whatever the node says of its set.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Returns when the mode is in force.
    pub(crate) async fn set_mode(&self, mode: Mode) {
        self.state.wanted.send_replace(mode);
        let mut applied = self.state.applied.subscribe();
        let waited = timeout(LIMIT, applied.wait_for(|now| *now == mode)).await;
        assert!(waited.is_ok(), "the proxy is not in {mode:?} after {LIMIT:?}");
    }

    /// Lets the next `times` commands of this name reach the server, swallows
    /// its replies and closes the connection instead.
    pub(crate) fn drop_replies(&self, command: &str, times: u32) {
        let drops = Drops { left: times, target: Target::Any };
        self.state.to_drop().insert(command.to_owned(), drops);
    }

    /// As [`Proxy::drop_replies`], of one operation only, however often it is sent again: of the next
    /// `findAndModify` in one of these collections, and of those that follow on the same record.
    pub(crate) fn drop_replies_of_one(&self, collections: &'static [&'static str], times: u32) {
        let drops = Drops { left: times, target: Target::One(collections, None) };
        self.state.to_drop().insert("findAndModify".to_owned(), drops);
    }

    /// Lets commands of this name reach the server and swallows its replies: all else is answered, so that the client
    /// takes the server for a healthy one. Only in these collections, if any are named.
    pub(crate) fn silence(&self, command: &str, collections: &'static [&'static str]) {
        self.state.silences().push(Silence { command: command.to_owned(), collections });
    }

    /// Ends every [`Proxy::silence`]. What was swallowed is gone.
    pub(crate) fn end_silence(&self) {
        self.state.silences().clear();
    }

    /// Closes all connections that are open. New ones may be opened at once.
    pub(crate) fn sever(&self) {
        self.state.severings.send_modify(|number| *number += 1);
    }

    /// Number of commands of this name that were forwarded to the server.
    pub(crate) fn passed(&self, command: &str) -> u64 {
        self.state.counts.borrow().passed.get(command).copied().unwrap_or(0)
    }

    /// Number of replies that were dropped as [`Proxy::drop_replies`] or [`Proxy::silence`] asked for.
    pub(crate) fn dropped(&self, command: &str) -> u64 {
        self.state.counts.borrow().dropped.get(command).copied().unwrap_or(0)
    }

    /// Number of messages that were swallowed, on the way there or back.
    pub(crate) fn swallowed(&self) -> u64 {
        self.state.counts.borrow().swallowed
    }

    /// Number of connections that were closed as [`Proxy::sever`] asked for.
    pub(crate) fn severed(&self) -> u64 {
        self.state.counts.borrow().severed
    }

    /// Returns when at least `times` commands of this name were forwarded.
    pub(crate) async fn until_passed(&self, command: &str, times: u64) {
        let what = format!("{times} {command} passed");
        self.until(&what, |now| now.passed.get(command) >= Some(&times)).await;
    }

    /// Returns when at least `times` replies to this command were dropped.
    pub(crate) async fn until_dropped(&self, command: &str, times: u64) {
        let what = format!("{times} replies to {command} dropped");
        self.until(&what, |now| now.dropped.get(command) >= Some(&times)).await;
    }

    /// Returns when at least so many messages were swallowed.
    pub(crate) async fn until_swallowed(&self, times: u64) {
        self.until(&format!("{times} messages swallowed"), |now| now.swallowed >= times).await;
    }

    /// Returns when at least so many connections were closed.
    pub(crate) async fn until_severed(&self, times: u64) {
        self.until(&format!("{times} connections closed"), |now| now.severed >= times).await;
    }

    async fn until(&self, what: &str, condition: impl FnMut(&Counts) -> bool) {
        let mut counts = self.state.counts.subscribe();
        let waited = timeout(LIMIT, counts.wait_for(condition)).await.is_ok();
        assert!(waited, "not after {LIMIT:?}: {what}; {:?}", *self.state.counts.borrow());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The acceptor owns the tasks of the connections; they end with it.
        self.acceptor.abort();
    }
}

impl State {
    fn mode(&self) -> Mode {
        *self.wanted.borrow()
    }

    fn to_drop(&self) -> MutexGuard<'_, HashMap<String, Drops>> {
        self.to_drop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silences(&self) -> MutexGuard<'_, Vec<Silence>> {
        self.silences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_silent(&self, command: &str, message: &Message) -> bool {
        self.silences().iter().any(|silence| {
            let collections = silence.collections;
            let of = || message.body().and_then(|body| body.get_str(command).ok());
            silence.command == command
                && (collections.is_empty() || of().is_some_and(|of| collections.contains(&of)))
        })
    }

    fn takes_drop(&self, command: &str, message: &Message) -> bool {
        let mut to_drop = self.to_drop();
        let Some(drops) = to_drop.get_mut(command).filter(|drops| drops.left > 0) else { return false };
        if let Target::One(collections, record) = &mut drops.target {
            let body = message.body().filter(|body| is_of(body, collections));
            let Some(here) = body.and_then(record_of) else { return false };
            if *record.get_or_insert_with(|| here.clone()) != here {
                return false;
            }
        }
        drops.left -= 1;
        true
    }

    fn swallows(&self) {
        self.counts.send_modify(|counts| counts.swallowed += 1);
    }

    async fn until(&self, condition: impl FnMut(&Mode) -> bool) {
        // Cannot fail: `self` holds the sender.
        let _ = self.wanted.subscribe().wait_for(condition).await;
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn socket(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Lets one socket reserve the port while another listens on it.
    socket.set_reuseaddr(true)?;
    socket.bind(loopback(port))?;
    Ok(socket)
}

fn listen(port: u16) -> io::Result<TcpListener> {
    socket(port)?.listen(128)
}

async fn accept(state: Arc<State>, port: u16, listener: TcpListener) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let mut wanted = state.wanted.subscribe();
    loop {
        let mode = *wanted.borrow_and_update();
        if mode == Mode::Refuse {
            listener = None;
            connections.shutdown().await;
        } else if listener.is_none() {
            listener = Some(listen(port).expect("the reserved port can be listened on again"));
        }
        state.applied.send_replace(mode);
        tokio::select! {
            biased;
            changed = wanted.changed() => changed.expect("the state holds the sender"),
            Some(_) = connections.join_next() => {}
            Some(client) = next(listener.as_ref()) => {
                connections.spawn(connection(Arc::clone(&state), client));
            }
        }
    }
}

async fn next(listener: Option<&TcpListener>) -> Option<TcpStream> {
    let (client, _) = listener?.accept().await.ok()?;
    Some(client)
}

async fn connection(state: Arc<State>, client: TcpStream) {
    let mut severings = state.severings.subscribe();
    let server = TcpStream::connect(state.server).await;
    let Ok(server) = server else {
        return state.until(|mode| !mode.swallows_replies() && !mode.swallows_requests()).await;
    };
    // Without it small messages wait for the acknowledgement of the one before.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let unanswered = Mutex::default();
    // Where one direction ends, dropping both ends the other.
    tokio::select! {
        () = requests(&state, from_client, to_server, &unanswered) => {}
        () = replies(&state, from_server, to_client, &unanswered) => {}
        _ = severings.changed() => state.counts.send_modify(|counts| counts.severed += 1),
    }
}

/// Returns whether a `findAndModify` is about a record of these collections.
fn is_of(command: &RawDocument, collections: &[&str]) -> bool {
    command.get_str("findAndModify").is_ok_and(|collection| collections.contains(&collection))
}

fn record_of(command: &RawDocument) -> Option<RawBson> {
    Some(command.get_document("query").ok()?.get("_id").ok()??.into())
}

/// The requests whose replies are lost: by their ids the command, and how.
type Unanswered = Mutex<HashMap<i32, (String, Loss)>>;

async fn requests(state: &State, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, unanswered: &Unanswered) {
    while let Ok(Some(message)) = Message::read(&mut from).await {
        match state.mode() {
            mode if mode.swallows_requests() => {
                state.swallows();
                continue;
            }
            Mode::Delay { to_server, .. } => tokio::time::sleep(to_server).await,
            _ => {}
        }
        let name = message.command_name().unwrap_or("unknown").to_owned();
        if state.takes_drop(&name, &message) {
            locked(unanswered).insert(message.request_id(), (name.clone(), Loss::Closed));
        } else if state.is_silent(&name, &message) {
            locked(unanswered).insert(message.request_id(), (name.clone(), Loss::Silent));
        }
        if to.write_all(message.bytes()).await.is_err() {
            break;
        }
        state.counts.send_modify(|counts| *counts.passed.entry(name).or_default() += 1);
    }
    state.until(|mode| !mode.swallows_requests()).await;
}

async fn replies(state: &State, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, unanswered: &Unanswered) {
    while let Ok(Some(message)) = Message::read(&mut from).await {
        let unanswered = locked(unanswered).remove(&message.response_to());
        if let Some((name, loss)) = unanswered {
            state.counts.send_modify(|counts| *counts.dropped.entry(name).or_default() += 1);
            if loss == Loss::Closed {
                return;
            }
            continue;
        }
        match state.mode() {
            mode if mode.swallows_replies() => {
                state.swallows();
                continue;
            }
            Mode::Delay { to_client, .. } => tokio::time::sleep(to_client).await,
            _ => {}
        }
        if to.write_all(message.bytes()).await.is_err() {
            break;
        }
    }
    state.until(|mode| !mode.swallows_replies()).await;
}

fn locked(unanswered: &Unanswered) -> MutexGuard<'_, HashMap<i32, (String, Loss)>> {
    unanswered.lock().unwrap_or_else(PoisonError::into_inner)
}

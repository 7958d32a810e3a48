//! Reasons why tenure is behind, written by hand: one for each kind of figure and peer.

use crate::{
    figures::{Figure, Part},
    peers::Peer,
};

const STORE: &str = "The store: MongoDB commits a majority write slower than etcd does. The bare writes of the floor are behind, too.";
const MEMORY: &str = "Redis answers from the memory of one node: no disk and no majority keep what it says.";
const READ: &str =
    "A try of query-insert-delete that loses is a read. A try of tenure is an update that can win.";
const PIPELINE: &str = "A take of tenure is an update by a pipeline: it decides on term, holder, session and queue, where the peer \
     compares one date.";
const ENGINE: &str = "The engine keeps a state machine, timers and a watch for each key, so that a job stops before its lease ends. \
     The peer sends two commands and keeps nothing.";
const QUEUE: &str = "Each turn of tenure goes to another instance, in the order of the queue: a majority write, a bell and a majority \
     read. A peer that polls gives the key to whoever asks next, mostly its last holder; its least/most shows that.";
const HEIR: &str = "The heir is woken by a bell in the store and acts on a majority read. A server of etcd and its watch are one \
     process.";
const OWN_CLOCK: &str = "Waiters of tenure count the ttl from the beat that they saw, each by its own clock, so no wall clock has to be \
     right. And tenure beats six times a ttl, the peers three times: less of its ttl has passed when the fault comes.";
const NO_RENEWAL: &str =
    "mongo-lock-async renews nothing: its lease ends a ttl after the take, even while its holder works.";
const CLOSE: &str = "A close of tenure ends the session, too, after its release. The heir waits for a bell and a majority read; a \
     poll may come sooner by chance.";
const IN_MEMORY: &str = "etcd renews a lease in the memory of its leader, without a write.";
const SESSION: &str = "A session beats six times a ttl and reads what is asked of it, whatever it holds; a peer renews three times a \
     ttl. With few keys an instance the session is the larger part.";
const FEW: &str = "A window has few turns of each waiter, so that a single turn counts.";

/// Why tenure is behind this peer, if it is.
pub(crate) fn why(figure: Figure, part: Part, peer: Peer) -> &'static str {
    match (figure, peer) {
        (Figure::RestCommands | Figure::RestWrites | Figure::RestServers, Peer::Etcd) => IN_MEMORY,
        (Figure::RestCommands | Figure::RestWrites | Figure::RestServers, Peer::Redis)
            if part == Part::Servers =>
        {
            MEMORY
        }
        (Figure::RestCommands | Figure::RestWrites | Figure::RestServers, _) => SESSION,
        (Figure::Killed | Figure::Frozen | Figure::CutOff, Peer::MongoLock) => NO_RENEWAL,
        (Figure::Killed | Figure::Frozen | Figure::CutOff, _) => OWN_CLOCK,
        (Figure::Closed, Peer::Etcd) => HEIR,
        (Figure::Closed, _) => CLOSE,
        (Figure::LeastToMost, _) => FEW,
        (_, Peer::Redis) => MEMORY,
        (Figure::HandOver | Figure::Turns, Peer::Etcd) => HEIR,
        (Figure::HandOver | Figure::Turns, _) => QUEUE,
        (Figure::Try, Peer::Insert) => READ,
        _ if part == Part::Client => ENGINE,
        (_, Peer::Etcd) => STORE,
        _ => PIPELINE,
    }
}

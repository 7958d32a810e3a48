//! Reasons why tenure is behind, written by hand: one for each kind of figure and peer.

use crate::{
    figures::{At, Figure, Part},
    peers::Peer,
};

const STORE: &str = "\
    MongoDB commits a majority write slower than etcd does: the bare writes of the floor are behind, too.";
const MEMORY: &str = "\
    Redis answers from the memory of one node; neither a disk nor a majority keeps the answer.";
const READ: &str = "A losing try is a read there. Ours is an update that can win.";
const PIPELINE: &str = "\
    Our take is an update by a pipeline that decides on term, holder, session and queue; the peer's decides on one \
    field.";
const FLUSH: &str = "\
    Our release waits for no flush of the journal. On one node the flush of a take has to carry the release before \
    it, which makes bare writes slower, too.";
const ENGINE: &str = "\
    The engine keeps a state machine and a lease for each key, so that a job stops before its lease ends. The peer \
    keeps nothing.";
const QUEUE: &str = "\
    Each turn goes to another instance, in the order of the queue, by writes, a bell and a majority read. Where \
    waiters poll, the last holder mostly wins again: see least/most.";
const HEIR: &str = "\
    A server of etcd waits in place of its client. Our heir is woken by a bell in the store and acts on a majority \
    read.";
const OWN_CLOCK: &str = "\
    Our waiters count the ttl from a beat that they saw, by their own clocks: no wall clock has to be right. And we \
    beat six times a ttl, the peers three times: less of it has passed at the fault.";
const NO_RENEWAL: &str = "\
    It renews nothing: its lease ends a ttl after the take, even while its holder works.";
const CLOSE: &str = "A poll came sooner than bell and majority read, by chance.";
const IN_MEMORY: &str = "etcd renews a lease in the memory of its leader, without a write.";
const SESSION: &str = "\
    A session beats six times a ttl and reads what is asked of it; a peer renews three times. With few keys an \
    instance that is more.";
const FEW: &str = "A window has few turns of each waiter, so that one turn counts.";

/// Why tenure is behind this peer, if it is. `store`: so is the floor.
pub(crate) fn why((nodes, figure, part, _): At, peer: Peer, store: bool) -> &'static str {
    match (figure, peer) {
        (Figure::RestCommands | Figure::RestWrites | Figure::RestServers, Peer::Etcd) => IN_MEMORY,
        (Figure::RestServers, Peer::Redis) => MEMORY,
        (Figure::RestCommands | Figure::RestWrites | Figure::RestServers, _) => SESSION,
        (Figure::Killed | Figure::Frozen | Figure::CutOff, Peer::MongoLock) => NO_RENEWAL,
        (Figure::Killed | Figure::Frozen | Figure::CutOff, _) => OWN_CLOCK,
        (Figure::LeastToMost, _) => FEW,
        (Figure::HandOver | Figure::Turns | Figure::Closed, Peer::Etcd) => HEIR,
        (Figure::Closed, _) => CLOSE,
        (_, Peer::Redis) => MEMORY,
        (Figure::HandOver | Figure::Turns, _) => QUEUE,
        (Figure::Try, Peer::Insert) => READ,
        (Figure::Open, Peer::MongoLock | Peer::Insert | Peer::ShedLock) if nodes == 1 => FLUSH,
        _ if part == Part::Client => ENGINE,
        (_, Peer::Etcd) if store => STORE,
        _ => PIPELINE,
    }
}

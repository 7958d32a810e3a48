//! Numbers of tickets, attempts and beats.

use crate::model::number;

number! {
    /// A request for a key: a lock call, a place in the queue, a campaign's turn.
    ///
    /// Fresh from one counter of the session, never used again. A lock that is granted names the ticket it was
    /// granted to, and only a ticket that is still pending may take it up ([R7](crate::store#rules-of-safety)). A
    /// session starts its counter at a random place: two sessions then seldom use the same number, and a
    /// [`Hint`](crate::store::Hint) can say more.
    Ticket
}
number! {
    /// A random number that marks one attempt to open or beat. Never used for two attempts: a beat that was rolled
    /// back and sent again must not look like the one that was seen before ([R3](crate::store#rules-of-safety)).
    Nonce
}
number! {
    /// The count of a session's beats. A beat counts only if its number is larger than the one in
    /// the record, so a late one changes nothing.
    Beat
}

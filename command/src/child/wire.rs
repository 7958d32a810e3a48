//! Messages between tenure and the guardian: a few bytes each, over a socket that keeps their bounds.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
    },
};

/// Descriptors that go with the first order, at most.
const DESCRIPTORS: usize = 3;
/// The longest message.
const LONGEST: usize = 33;

/// A message from tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Start CMD. Standard input comes with it, then what is said to come.
    Begin { presence: bool, key_lock: bool, own_group: bool, times: Times },
    /// Let CMD run until then.
    Extend { end: Duration },
    /// End it: by SIGTERM, and after so much time by SIGKILL.
    Stop { within: Duration },
    /// Pass a signal on.
    Signal(i32),
}

/// Times by which a child has to end, by itself or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// The end of the lease, in boot time.
    pub(crate) end: Duration,
    /// Time before the end at which it gets SIGTERM.
    pub(crate) grace: Duration,
    /// Time before the end at which it gets SIGKILL.
    pub(crate) allowance: Duration,
    /// From SIGTERM to SIGKILL, at most.
    pub(crate) kill_after: Duration,
}

impl Times {
    /// Takes in that the lease holds until then.
    pub(super) fn extend(&mut self, end: Duration) {
        self.end = self.end.max(end);
    }

    /// Time at which its grace begins.
    pub(super) fn grace_begins(self) -> Duration {
        self.end.saturating_sub(self.grace)
    }
}

/// A message from the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// CMD has this pid.
    Began(i32),
    /// CMD has ended by itself or by a signal, with this code.
    Exited(i32),
    /// CMD was ended by this signal.
    Signaled(i32),
    /// The guardian ends CMD by its own timer: the lease is about to end, and no order has extended it.
    Expired,
    /// CMD could not be started, for this error of the system.
    Failed(i32),
    /// A process that cannot be ended.
    Stuck(i32),
    /// No descendant is left.
    NoneLeft,
}

fn nanos(time: Duration) -> [u8; 8] {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}

fn time(bytes: &[u8]) -> Option<Duration> {
    Some(Duration::from_nanos(u64::from_le_bytes(bytes.try_into().ok()?)))
}

impl Order {
    fn encode(self) -> Vec<u8> {
        match self {
            Self::Begin { presence, key_lock, own_group, times } => {
                let flags = u8::from(presence) | u8::from(key_lock) << 1 | u8::from(own_group) << 2;
                let mut bytes = vec![b'B', flags];
                for part in [times.end, times.grace, times.allowance, times.kill_after] {
                    bytes.extend(nanos(part));
                }
                bytes
            }
            Self::Extend { end } => [&b"E"[..], &nanos(end)].concat(),
            Self::Stop { within } => [&b"T"[..], &nanos(within)].concat(),
            Self::Signal(signal) => [&b"S"[..], &signal.to_le_bytes()].concat(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        Some(match tag {
            b'B' => {
                let (flags, rest) = rest.split_first()?;
                let (parts, []) = rest.as_chunks::<8>() else { return None };
                let &[end, grace, allowance, kill_after] = parts else { return None };
                let times = Times {
                    end: time(&end)?,
                    grace: time(&grace)?,
                    allowance: time(&allowance)?,
                    kill_after: time(&kill_after)?,
                };
                let [presence, key_lock, own_group] = [1, 2, 4].map(|flag| flags & flag != 0);
                Self::Begin { presence, key_lock, own_group, times }
            }
            b'E' => Self::Extend { end: time(rest)? },
            b'T' => Self::Stop { within: time(rest)? },
            b'S' => Self::Signal(i32::from_le_bytes(rest.try_into().ok()?)),
            _ => return None,
        })
    }
}

impl News {
    fn encode(self) -> [u8; 5] {
        let (tag, number) = match self {
            Self::Began(pid) => (b'P', pid),
            Self::Exited(code) => (b'X', code),
            Self::Signaled(signal) => (b'K', signal),
            Self::Expired => (b'E', 0),
            Self::Failed(error) => (b'F', error),
            Self::Stuck(pid) => (b'L', pid),
            Self::NoneLeft => (b'N', 0),
        };
        let mut bytes = [tag; 5];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, number) = bytes.split_first()?;
        let number = i32::from_le_bytes(number.try_into().ok()?);
        Some(match tag {
            b'P' => Self::Began(number),
            b'X' => Self::Exited(number),
            b'K' => Self::Signaled(number),
            b'E' => Self::Expired,
            b'F' => Self::Failed(number),
            b'L' => Self::Stuck(number),
            b'N' => Self::NoneLeft,
            _ => return None,
        })
    }
}

/// The two ends of a socket that neither blocks nor is inherited.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends an order. One that finds the other end gone is lost, as is whatever it was about.
pub(super) fn order(to: impl AsFd, order: Order) -> io::Result<()> {
    said(send(to, &order.encode(), SendFlags::NOSIGNAL))
}

/// Sends the first order with its descriptors.
pub(super) fn begin(to: impl AsFd, order: Order, with: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(with)) {
        return Err(io::Error::other("too many descriptors"));
    }
    said(sendmsg(to, &[IoSlice::new(&order.encode())], &mut ancillary, SendFlags::NOSIGNAL))
}

/// Tells tenure something, if it is there and listens.
pub(super) fn tell(to: impl AsFd, news: News) {
    // Frozen, it hears what fits into the socket; gone, nothing.
    let _ = send(to, &news.encode(), SendFlags::NOSIGNAL);
}

fn said(sent: rustix::io::Result<usize>) -> io::Result<()> {
    Ok(sent.map(drop)?)
}

/// Outcome of a look for a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard<T> {
    Something(T),
    /// No message at present.
    Nothing,
    /// The other end is gone.
    Gone,
}

fn heard<T>(read: rustix::io::Result<usize>, bytes: &[u8], decode: impl Fn(&[u8]) -> Option<T>) -> Heard<T> {
    match read {
        Ok(0) => Heard::Gone,
        // A message that it does not know was sent by another version, which is none of its kin.
        Ok(read) => decode(&bytes[..read]).map_or(Heard::Gone, Heard::Something),
        Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
        Err(_) => Heard::Gone,
    }
}

fn receive(from: impl AsFd, bytes: &mut [u8]) -> rustix::io::Result<usize> {
    match recv(&from, &mut *bytes, RecvFlags::empty()) {
        // The other end is gone, and has not read all it was told: the kernel says so once, and that before what the
        // other end has said.
        Err(Errno::CONNRESET) => recv(&from, bytes, RecvFlags::empty()),
        read => read,
    }
    .map(|(read, _)| read)
}

/// Hears an order.
pub(super) fn next_order(from: impl AsFd) -> Heard<Order> {
    let mut bytes = [0; LONGEST + 1];
    heard(receive(from, &mut bytes), &bytes, Order::decode)
}

/// Hears the first order, with its descriptors.
pub(super) fn first_order(from: impl AsFd) -> Option<(Order, Vec<OwnedFd>)> {
    let mut bytes = [0; LONGEST + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message =
        recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    Some((Order::decode(&bytes[..message.bytes])?, descriptors))
}

/// Hears news.
pub(super) fn next_news(from: impl AsFd) -> Heard<News> {
    let mut bytes = [0; 6];
    heard(receive(from, &mut bytes), &bytes, News::decode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_news_arrive_as_sent_and_a_closed_end_is_noticed() {
        let times = Times {
            end: Duration::from_secs(9),
            grace: Duration::from_secs(3),
            allowance: Duration::from_millis(20),
            kill_after: Duration::from_secs(2),
        };
        let (here, there) = pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let first = Order::Begin { presence: true, key_lock: false, own_group: true, times };
        begin(&here, first, &[file.as_fd(), file.as_fd()]).unwrap();
        let (order_heard, descriptors) = first_order(&there).unwrap();
        assert_eq!((order_heard, descriptors.len()), (first, 2));
        for said in [
            Order::Extend { end: Duration::from_nanos(7) },
            Order::Stop { within: Duration::ZERO },
            Order::Signal(15),
        ] {
            order(&here, said).unwrap();
            assert_eq!(next_order(&there), Heard::Something(said));
        }
        assert_eq!(next_order(&there), Heard::Nothing);
        for said in [
            News::Began(7),
            News::Exited(3),
            News::Signaled(9),
            News::Expired,
            News::Failed(11),
            News::Stuck(8),
            News::NoneLeft,
        ] {
            tell(&there, said);
            assert_eq!(next_news(&here), Heard::Something(said));
        }
        drop(there);
        assert_eq!(next_news(&here), Heard::Gone);
    }

    #[test]
    fn news_of_a_guardian_that_ended_arrive_though_it_left_an_order_unread() {
        let (tenure, guardian) = pair().unwrap();
        tell(&guardian, News::Began(7));
        tell(&guardian, News::Exited(0));
        order(&tenure, Order::Extend { end: Duration::from_secs(9) }).unwrap();
        drop(guardian);
        assert_eq!(next_news(&tenure), Heard::Something(News::Began(7)));
        assert_eq!(next_news(&tenure), Heard::Something(News::Exited(0)));
        assert_eq!(next_news(&tenure), Heard::Gone);
    }
}

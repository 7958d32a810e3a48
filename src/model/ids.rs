//! Numbers that must never be mistaken for one another.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

/// The largest number a record may carry: 2^53 - 1, which every tool that reads the records shows exactly.
///
/// A larger one in a record was not written by tenure.
pub const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A start of an instance. Never used twice: a statement about a session never comes to mean another.
///
/// Drawn at random by the process that starts the instance; the store does not invent any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u128);

impl SessionId {
    /// A session of that number.
    #[must_use]
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// The half that names its process: a process draws it once, and the other half for each session.
    pub(crate) const fn process(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not the 32 lower-case hexadecimal digits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotASession;

impl fmt::Display for NotASession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a session is written as 32 lower-case hexadecimal digits")
    }
}

impl std::error::Error for NotASession {}

impl FromStr for SessionId {
    type Err = NotASession;

    // Strict, so that two texts never name one session: stores compare the text.
    fn from_str(text: &str) -> Result<Self, NotASession> {
        let digits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !digits {
            return Err(NotASession);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| NotASession)
    }
}

/// A number of a record, as a type of its own.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        pub struct $name(u64);

        impl $name {
            #[doc = concat!("A ", stringify!($name), " of that number.")]
            ///
            /// # Panics
            /// If the number is larger than [`MAX_NUMBER`](crate::model::MAX_NUMBER).
            #[must_use]
            pub const fn new(number: u64) -> Self {
                assert!(number <= $crate::model::MAX_NUMBER, "no number of a record is larger than 2^53 - 1");
                Self(number)
            }

            #[doc = concat!("A ", stringify!($name), " of that number, unless it is larger than [`MAX_NUMBER`].")]
            ///
            /// [`MAX_NUMBER`]: crate::model::MAX_NUMBER
            #[must_use]
            pub const fn try_new(number: u64) -> Option<Self> {
                if number <= $crate::model::MAX_NUMBER { Some(Self(number)) } else { None }
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// The fencing number of a lock: strictly larger with every change of holder, also after the lock was released,
    /// its holder died, or its record was purged ([R5](crate::store#rules-of-safety)).
    ///
    /// A resource that remembers the largest term it has seen and refuses smaller ones is safe
    /// from every holder that came too late.
    Term
}

pub(crate) use number;

impl Term {
    /// The first term of a lock that has no record: the store's clock, so that one whose record was
    /// purged does not start again below ([R5](crate::store#rules-of-safety)).
    #[must_use]
    pub fn first(now: StoreTime) -> Self {
        Self(u64::try_from(now.as_millis()).unwrap_or(0).clamp(1, MAX_NUMBER))
    }

    /// The next term of a lock ([R5](crate::store#rules-of-safety)): larger than this one, and not behind the store's
    /// clock. `None` if this one is [`MAX_NUMBER`]: there is no larger one, and the lock is granted no more.
    #[must_use]
    pub fn next(self, now: StoreTime) -> Option<Self> {
        Self::try_new(self.0 + 1).map(|next| next.max(Self::first(now)))
    }
}

/// An instant by the store's clock, in milliseconds since 1970.
///
/// For people to read, and to guess when the next look is worth it. It never decides that a lease
/// is over ([R1](crate::store#rules-of-safety)): a replica set's clock is the wall clock of whichever member is primary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreTime(i64);

impl StoreTime {
    /// The instant so many milliseconds after 1970 began.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970 began.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The same instant as the standard library has it; `None` if that has no room for it.
    #[must_use]
    pub fn to_system_time(self) -> Option<SystemTime> {
        let length = Duration::from_millis(self.0.unsigned_abs());
        if self.0 < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(length)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(length)
        }
    }

    /// The instant that much later, or the last one there is.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The instant that much earlier, or the first one there is.
    #[must_use]
    pub fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns how long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// The millisecond that the instant lies in. What lies further away than a `StoreTime` reaches is the first or the
/// last one there is.
impl From<SystemTime> for StoreTime {
    fn from(time: SystemTime) -> Self {
        let nanos = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanos| -nanos),
        };
        let millis = nanos.div_euclid(1_000_000);
        Self(i64::try_from(millis).unwrap_or(if millis < 0 { i64::MIN } else { i64::MAX }))
    }
}

/// RFC 3339 in UTC, with milliseconds if there are any: `2026-11-21T03:00:00Z`. The few instants outside of
/// the years -9999 to 9999 have no such form, and are shown in milliseconds.
impl fmt::Display for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) if self.0 % 1000 == 0 => write!(f, "{at:.0}"),
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_written_in_one_way_only() {
        let id = SessionId::from_u128(0xab);
        assert_eq!(id.to_string(), "000000000000000000000000000000ab");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "ab", "000000000000000000000000000000AB", "+00000000000000000000000000000ab"] {
            assert_eq!(text.parse::<SessionId>(), Err(NotASession), "{text}");
        }
    }

    #[test]
    fn a_term_rises_whatever_the_clock_says() {
        let at = StoreTime::from_millis;
        assert_eq!(Term::first(at(1000)), Term::new(1000));
        assert_eq!(Term::new(900).next(at(1000)), Some(Term::new(1000)));
        assert_eq!(Term::new(1000).next(at(1000)), Some(Term::new(1001)));
        assert_eq!(Term::new(5000).next(at(1000)), Some(Term::new(5001)));
        assert_eq!(Term::first(at(-5)), Term::new(1));
    }

    #[test]
    fn a_term_at_its_limit_has_no_next_one_whatever_the_clock_says() {
        let (last, far) = (Term::new(MAX_NUMBER), StoreTime::from_millis(i64::MAX));
        for now in [StoreTime::from_millis(i64::MIN), StoreTime::from_millis(1000), far] {
            assert_eq!(last.next(now), None);
            assert!(Term::first(now) <= last);
        }
        assert_eq!(Term::new(MAX_NUMBER - 1).next(far), Some(last));
        assert_eq!(Term::new(1).next(far), Some(last));
    }

    #[test]
    fn an_instant_is_shown_in_utc_with_milliseconds_if_there_are_any() {
        let shown = |millis| StoreTime::from_millis(millis).to_string();
        assert_eq!(shown(1_795_230_000_000), "2026-11-21T03:00:00Z");
        let debug = format!("{:?}", [StoreTime::from_millis(1_795_230_000_000)]);
        assert_eq!(debug, "[2026-11-21T03:00:00Z]", "and so it stands in lists");
        assert_eq!(shown(1_795_230_000_050), "2026-11-21T03:00:00.050Z");
        assert_eq!(shown(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(shown(i64::MAX), "9223372036854775807 ms");
        assert_eq!(shown(i64::MIN), "-9223372036854775808 ms");
    }

    #[test]
    fn an_instant_is_the_same_in_the_standard_library_to_the_millisecond() {
        for millis in [0, 1, -1, 1_795_230_000_050, -62_135_596_800_000] {
            let at = StoreTime::from_millis(millis);
            assert_eq!(at.to_system_time().map(StoreTime::from), Some(at));
        }
        let after = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_999_999);
        assert_eq!(StoreTime::from(after), StoreTime::from_millis(1));
        let before = SystemTime::UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(StoreTime::from(before), StoreTime::from_millis(-1));
        for far in [i64::MAX, i64::MIN] {
            let back = StoreTime::from_millis(far).to_system_time().map(StoreTime::from);
            assert!(back.is_none_or(|back| back == StoreTime::from_millis(far)), "{back:?}");
        }
    }

    #[test]
    fn instants_do_not_overflow() {
        let last = StoreTime::from_millis(i64::MAX);
        assert_eq!(last.plus(Duration::MAX), last);
        assert_eq!(StoreTime::from_millis(i64::MIN).minus(Duration::MAX), StoreTime::from_millis(i64::MIN));
        assert_eq!(StoreTime::from_millis(5).since(last), Duration::ZERO);
    }
}

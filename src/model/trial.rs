//! Tasks that are tried alone, lest they kill the process of whoever runs them.

use std::{fmt, str::FromStr};

use super::{Digest, Key};

/// So many digits name one task.
const ALL: u8 = 16;

/// Tasks that a member has on trial: those whose digests begin with these hexadecimal digits. All sixteen are of one
/// task; fewer are of a group, where too many are to be tried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trial {
    prefix: u64,
    digits: u8,
}

impl Trial {
    /// Of this task alone.
    #[must_use]
    pub fn of(key: &Key) -> Self {
        Self { prefix: digest(key), digits: ALL }
    }

    /// Of all whose digests begin with so many of these digits.
    #[must_use]
    pub const fn group(self, digits: u8) -> Self {
        let digits = if digits < self.digits { digits } else { self.digits };
        Self { prefix: cut(self.prefix, digits), digits }
    }

    /// Returns whether this task is on trial.
    #[must_use]
    pub fn is_of(self, key: &Key) -> bool {
        cut(digest(key), self.digits) == self.prefix
    }

    /// Returns whether it is of one task.
    #[must_use]
    pub const fn is_of_one(self) -> bool {
        self.digits == ALL
    }

    /// Returns how many digits name it.
    #[must_use]
    pub const fn digits(self) -> u8 {
        self.digits
    }
}

/// The first digits of a digest, and zeros.
const fn cut(digest: u64, digits: u8) -> u64 {
    match digits {
        0 => 0,
        digits => digest >> (64 - 4 * digits as u32) << (64 - 4 * digits as u32),
    }
}

/// The digest of a key, mixed, so that keys that differ in their ends begin differently.
fn digest(key: &Key) -> u64 {
    let mut digest = Digest::default();
    digest.write(key.as_str().as_bytes());
    digest.half_mixed()
}

impl fmt::Display for Trial {
    /// Its digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{:016x}", self.prefix)[..usize::from(self.digits)])
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trial({self})")
    }
}

/// A text that names no trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATrial;

impl fmt::Display for NotATrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a trial is named by at most {ALL} lower-case hexadecimal digits")
    }
}

impl std::error::Error for NotATrial {}

impl FromStr for Trial {
    type Err = NotATrial;

    fn from_str(text: &str) -> Result<Self, NotATrial> {
        let digits = u8::try_from(text.len()).ok().filter(|digits| *digits <= ALL).ok_or(NotATrial)?;
        if !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NotATrial);
        }
        let prefix = u64::from_str_radix(&format!("{text:0<16}"), 16).map_err(|_| NotATrial)?;
        Ok(Self { prefix, digits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new(format!("task-{number:03}")).unwrap()
    }

    #[test]
    fn a_trial_is_of_its_task_and_of_the_groups_around_it() {
        let one = Trial::of(&key(7));
        assert!(one.is_of_one() && one.is_of(&key(7)));
        for digits in 0..=16 {
            let group = one.group(digits);
            assert!(group.is_of(&key(7)) && group.digits() == digits);
            assert_eq!(group.to_string().parse(), Ok(group), "it is read as it was written");
        }
        assert!(one.group(0).is_of(&key(8)) && !one.is_of(&key(8)));
        assert_eq!(one.group(3).group(9), one.group(3), "a group is not narrowed by asking for more");
    }

    #[test]
    fn groups_of_one_digit_share_out_keys_that_differ_in_their_ends() {
        let groups: std::collections::BTreeSet<_> =
            (0..200).map(|number| Trial::of(&key(number)).group(1)).collect();
        assert_eq!(groups.len(), 16);
    }

    #[test]
    fn what_is_no_row_of_digits_names_no_trial() {
        for text in ["x", "0A", "00000000000000000", "ä", "+1", " 1"] {
            assert_eq!(text.parse::<Trial>(), Err(NotATrial), "{text}");
        }
        assert!("".parse::<Trial>().unwrap().is_of(&key(1)), "of everything");
    }
}

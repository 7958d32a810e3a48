//! Which file it is that a session holds.

use std::{fmt, str::FromStr};

/// The one file that proves a session dead: device, inode, and the kernel that gave its lock.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// The content of `/proc/sys/kernel/random/boot_id`.
    pub(crate) boot: String,
}

/// As a record has it: `device:inode:boot`, the numbers as `stat` shows them.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.device, self.inode, self.boot)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAnIdentity;

impl FromStr for Identity {
    type Err = NotAnIdentity;

    // Strict: what was not written by this gives no proof.
    fn from_str(text: &str) -> Result<Self, NotAnIdentity> {
        let mut parts = text.splitn(3, ':');
        let (Some(device), Some(inode), Some(boot)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NotAnIdentity);
        };
        let (Ok(device), Ok(inode)) = (device.parse(), inode.parse()) else { return Err(NotAnIdentity) };
        let identity = Self { device, inode, boot: boot.to_owned() };
        if boot.is_empty() || identity.to_string() != text { Err(NotAnIdentity) } else { Ok(identity) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_was_written_and_nothing_else_is() {
        let boot = "99a6a063-7f16-493f-9e88-cc32ffd4e65b".to_owned();
        let identity = Identity { device: 65024, inode: u64::MAX, boot };
        assert_eq!(identity.to_string().parse(), Ok(identity));
        for text in ["", "1", "1:2", "1:2:", "+1:2:b", "01:2:b", "1:-2:b", " 1:2:b", "a:2:b", ":2:b"] {
            assert_eq!(text.parse::<Identity>(), Err(NotAnIdentity), "{text:?}");
        }
    }
}

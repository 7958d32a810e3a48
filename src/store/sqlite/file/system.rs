//! File systems, and which of them lock files among all the processes that can see them.

use std::{fmt, io, os::fd::AsFd, path::Path};

/// Local file systems whose locks on files, and whose inode numbers, can be relied on. One that is not here may lock
/// within one machine, or one sandbox, while others see the same files.
const LOCAL: &[(u32, &str)] = &[
    (0xef53, "ext2, ext3 or ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x2405_1905, "ubifs"),
];

/// Others, by the names under which people know them.
const OTHERS: &[(u32, &str)] = &[
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x6573_5546, "fuse or virtiofs"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x0bd0_0bd0, "lustre"),
    (0x5346_414f, "afs"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
];

/// A file system, by the number that the kernel gives its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystem(u32);

impl FileSystem {
    /// Of an open file or folder.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::numbered(rustix::fs::fstatfs(file)?.f_type))
    }

    /// Of a path. Opens nothing.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::numbered(rustix::fs::statfs(path)?.f_type))
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the numbers have 32 bits")]
    fn numbered(number: rustix::fs::FsWord) -> Self {
        Self(number as u32)
    }

    /// Returns whether its locks hold for every process that can see its files.
    pub(crate) fn is_local(self) -> bool {
        LOCAL.iter().any(|(number, _)| *number == self.0)
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match LOCAL.iter().chain(OTHERS).find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "a file system of kind {:#x}", self.0),
        }
    }
}

impl fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_not_known_to_be_local_are_not_local() {
        for (number, name) in
            [(0x6969, "nfs"), (0x6573_5546, "fuse or virtiofs"), (0x9fa0, "a file system of kind 0x9fa0")]
        {
            let file_system = FileSystem(number);
            assert!(!file_system.is_local());
            assert_eq!(file_system.to_string(), name);
        }
        assert!(FileSystem(0xef53).is_local());
        assert!(FileSystem(0x794c_7630).is_local());
    }

    #[test]
    fn the_file_systems_of_this_machine_are_known_by_path_and_by_descriptor() {
        let processes = FileSystem::at(Path::new("/proc")).unwrap();
        assert!(!processes.is_local(), "{processes:?}");
        let open = std::fs::File::open("/proc").unwrap();
        assert_eq!(FileSystem::of(&open).unwrap(), processes);
        let error = FileSystem::at(Path::new("/proc/none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}

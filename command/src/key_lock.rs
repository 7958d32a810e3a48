//! The second bar on one host: a lock on a file of the key, which CMD and all it starts inherit.
//!
//! Whatever was killed or frozen, another CMD of the key starts only when the last process that holds this lock is
//! gone, or has closed it.

use std::{
    fs::{self, File},
    hash::{BuildHasher, Hasher, RandomState},
    io, mem,
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, linkat, openat, statat, unlinkat},
    io::Errno,
    process::geteuid,
};
use tenure::model::LockId;

use crate::exit::Failure;

/// The longest name of a file that keeps its whole key.
const LONGEST: usize = 200;

/// Time between two looks whether it is free.
const LOOK: Duration = Duration::from_millis(50);

/// Bit of a folder by which files in it get its group.
pub(crate) const PASSES_GROUP_ON: u32 = 0o2000;

/// Users that the store is open to: the locks of its keys are open to the same.
struct Sharing {
    /// Read and write permission bits of the store.
    mode: u32,
    user: u32,
    group: u32,
}

impl Sharing {
    fn of(store: &Path) -> io::Result<Self> {
        let data = fs::metadata(store)?;
        Ok(Self { mode: data.mode() & 0o666, user: data.uid(), group: data.gid() })
    }

    /// Opens a new folder or file to the users.
    fn open(&self, made: &File) -> io::Result<()> {
        // Before the permissions, which a change of the owner may clear. A user who is not in the group may not; root
        // makes what the user of the store can use.
        let _ = fchown(made, geteuid().is_root().then_some(self.user), Some(self.group));
        let data = made.metadata()?;
        let mode =
            if data.is_dir() { data.mode() & PASSES_GROUP_ON | of_folder(self.mode) } else { self.mode };
        made.set_permissions(fs::Permissions::from_mode(mode))
    }

    /// Makes the folder of the keys. It gets its name when it is open to all users.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let mut new = folder.as_os_str().to_owned();
        new.push(suffix());
        fs::create_dir(&new)?;
        let opened = open_folder(new.as_ref())
            .and_then(|made| self.open(&made))
            .and_then(|()| fs::rename(&new, folder));
        if opened.is_err() {
            let _ = fs::remove_dir(&new);
        }
        match opened {
            // Another process was quicker.
            Err(_) if folder.exists() => Ok(()),
            opened => opened,
        }
    }

    /// Makes the file of a key. It gets its name when it is open to all users.
    fn make_file(&self, folder: &File, name: &str) -> io::Result<()> {
        let new = format!("{name}{}", suffix());
        let made = open_in(folder, &new, OFlags::CREATE | OFlags::EXCL);
        let named = || Ok(linkat(folder, &new, folder, name, AtFlags::empty())?);
        let opened = made.and_then(|file| self.open(&file)).and_then(|()| named());
        let _ = unlinkat(folder, &new, AtFlags::empty());
        match opened {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            opened => opened,
        }
    }
}

/// Returns the mode of a folder: a user who may read a file in it may look into it.
pub(crate) const fn of_folder(mode: u32) -> u32 {
    mode | mode >> 2 & 0o111
}

/// An ending for the name of what is being made, of its own for each.
fn suffix() -> String {
    format!("-new-{:016x}", RandomState::new().build_hasher().finish())
}

/// Opens a folder that is no link: in a folder of a group others could put one there.
fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

/// Opens a file in a folder, no link either.
fn open_in(folder: &File, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// The folder beside the store's file in which keys have their files.
pub(crate) fn folder(store: &Path) -> PathBuf {
    let mut folder = store.as_os_str().to_owned();
    folder.push("-keys");
    folder.into()
}

/// The file of a key, not yet locked.
#[derive(Debug)]
pub(crate) struct KeyFile {
    store: PathBuf,
    name: String,
    folder: File,
    file: File,
}

impl KeyFile {
    /// Opens the file of a key beside the store's file.
    pub(crate) fn open(store: &Path, lock: &LockId) -> Result<Self, Failure> {
        Self::of(store, name(lock))
    }

    fn of(store: &Path, name: String) -> Result<Self, Failure> {
        let path = folder(store);
        let open_or_make = || {
            let found = match open_folder(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Sharing::of(store)?.make_folder(&path)?;
                    open_folder(&path)?
                }
                found => found?,
            };
            let file = match open_in(&found, &name, OFlags::empty()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Sharing::of(store)?.make_file(&found, &name)?;
                    open_in(&found, &name, OFlags::empty())?
                }
                file => file?,
            };
            Ok::<_, io::Error>((found, file))
        };
        match open_or_make() {
            Ok((folder, file)) => Ok(Self { store: store.to_owned(), name, folder, file }),
            Err(error) => Err(Failure::store(format!(
                "the file {} for the key cannot be opened: {error}",
                path.join(name).display()
            ))),
        }
    }

    /// Locks it, if it is free.
    pub(crate) fn try_lock(&mut self) -> Result<bool, Failure> {
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if self.is_in_place() => return Ok(true),
                // Its last user has removed it: the next one has another.
                Ok(()) => *self = Self::of(&self.store, mem::take(&mut self.name))?,
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn is_in_place(&self) -> bool {
        let named = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let opened = self.file.metadata();
        matches!((named, opened), (Ok(named), Ok(opened)) if (named.st_dev, named.st_ino) == (opened.dev(), opened.ino()))
    }

    /// Removes the file of a key that this process still holds in the store, unless a process has it locked.
    pub(crate) fn remove(store: &Path, lock: &LockId) {
        let name = name(lock);
        let Ok(folder) = open_folder(&folder(store)) else { return };
        let Ok(file) = open_in(&folder, &name, OFlags::empty()) else { return };
        let file = Self { store: store.to_owned(), name, folder, file };
        if flock(&file.file, FlockOperation::NonBlockingLockExclusive).is_ok() && file.is_in_place() {
            let _ = unlinkat(&file.folder, &file.name, AtFlags::empty());
        }
    }

    /// Locks it as soon as it is free.
    pub(crate) async fn lock(mut self) -> Result<Self, Failure> {
        // A thread that waits for it could not be called back when the lock is not wanted any more.
        while !self.try_lock()? {
            tokio::time::sleep(LOOK).await;
        }
        Ok(self)
    }

    fn failed(&self, error: Errno) -> Failure {
        let path = folder(&self.store).join(&self.name);
        Failure::store(format!("the file {} cannot be locked: {error}", path.display()))
    }

    /// The other processes that have it open: its holder, and processes that wait for it.
    pub(crate) fn holders(&self) -> Vec<i32> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let Ok(wanted) = self.file.metadata().map(|file| (file.dev(), file.ino())) else { return Vec::new() };
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let has_it = |pid: &i32| {
            let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
            open.flatten()
                .any(|fd| fs::metadata(fd.path()).is_ok_and(|file| (file.dev(), file.ino()) == wanted))
        };
        let mut holders: Vec<i32> = pids.filter(|pid| *pid != own).filter(has_it).collect();
        holders.sort_unstable();
        holders
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }
}

/// A name for the file of a lock: unlike for unlike ones, up to a digest of long keys.
fn name(lock: &LockId) -> String {
    let whole = format!("{} {} {}", lock.namespace, lock.kind, lock.key);
    let mut name = String::new();
    for byte in whole.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            b' ' => name.push('.'),
            other => name.extend(['%', digit(other >> 4), digit(other & 15)]),
        }
    }
    if name.len() > LONGEST {
        // FNV-1a: two long keys of one digest would wait for each other, and nothing worse.
        let digest = whole.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        name.truncate(LONGEST);
        name = format!("{name}~{digest:016x}");
    }
    name
}

fn digit(half: u8) -> char {
    char::from_digit(half.into(), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use tenure::model::{Key, Kind, Namespace};

    use super::*;

    fn lock(key: &str) -> LockId {
        LockId { namespace: Namespace::new("shop").unwrap(), kind: Kind::Lock, key: Key::new(key).unwrap() }
    }

    #[test]
    fn names_are_as_different_as_keys() {
        assert_eq!(name(&lock("report")), "shop.lock.report");
        assert_eq!(name(&lock("a/b c")), "shop.lock.a%2fb.c");
        let (one, other) = ("x".repeat(400), format!("{}y", "x".repeat(399)));
        let (one, other) = (name(&lock(&one)), name(&lock(&other)));
        assert!(one != other && one.len() < 255 && other.len() < 255);
    }

    #[test]
    fn a_key_file_has_the_permissions_of_its_store() {
        let folder = std::env::temp_dir().join(format!("tenure-key-mode-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let store = folder.join("tenure.db");
        File::create(&store).unwrap();
        for shared in [0o660, 0o600] {
            fs::set_permissions(&store, fs::Permissions::from_mode(shared)).unwrap();
            let file = KeyFile::open(&store, &lock(&format!("{shared:o}"))).unwrap();
            assert_eq!(file.file().metadata().unwrap().mode() & 0o777, shared);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_folder_of_the_keys_and_files_in_it_have_user_and_group_of_the_store() {
        let folder = std::env::temp_dir().join(format!("tenure-key-group-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let own = rustix::process::getgid();
        let groups = rustix::process::getgroups().unwrap();
        let is_root = rustix::process::getuid().is_root();
        // A group that files do not get by themselves, if this user may give them to one.
        let group = if is_root {
            own.as_raw() + 1
        } else {
            groups.into_iter().find(|group| *group != own).unwrap_or(own).as_raw()
        };
        chown(&folder, None, Some(group)).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o2770)).unwrap();
        let store = folder.join("tenure.db");
        File::create(&store).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o660)).unwrap();
        // Files that root makes are the user's of the store.
        let user = if is_root { 65_534 } else { rustix::process::getuid().as_raw() };
        chown(&store, Some(user), None).unwrap();
        let look = |data: fs::Metadata| (data.uid(), data.gid(), data.mode() & 0o7777);
        let file = KeyFile::open(&store, &lock("report")).unwrap();
        let keys = super::folder(&store);
        assert_eq!(look(fs::metadata(&keys).unwrap()), (user, group, 0o2770));
        assert_eq!(look(file.file().metadata().unwrap()), (user, group, 0o660));
        assert_eq!(fs::read_dir(&keys).unwrap().count(), 1, "nothing else is left");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing else is left");
        // As an earlier version left it: its files had the group of whoever came first.
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o770)).unwrap();
        chown(&keys, None, Some(own.as_raw())).unwrap();
        let file = KeyFile::open(&store, &lock("other")).unwrap();
        assert_eq!(look(file.file().metadata().unwrap()), (user, group, 0o660));
        // Another one of the group may put links there.
        symlink(&store, keys.join(name(&lock("link")))).unwrap();
        assert!(KeyFile::open(&store, &lock("link")).is_err());
        // And one instead of the folder.
        let elsewhere = folder.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::remove_dir_all(&keys).unwrap();
        symlink(&elsewhere, &keys).unwrap();
        assert!(KeyFile::open(&store, &lock("report")).is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_key_file_is_locked_by_one_opener_at_a_time() {
        let folder = std::env::temp_dir().join(format!("tenure-key-lock-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let store = folder.join("tenure.db");
        File::create(&store).unwrap();
        let mut first = KeyFile::open(&store, &lock("report")).unwrap();
        let mut second = KeyFile::open(&store, &lock("report")).unwrap();
        assert!(first.try_lock().unwrap());
        assert!(!second.try_lock().unwrap());
        KeyFile::remove(&store, &lock("report"));
        assert_eq!(fs::read_dir(super::folder(&store)).unwrap().count(), 1, "it is in use");
        drop(first);
        KeyFile::remove(&store, &lock("report"));
        assert_eq!(fs::read_dir(super::folder(&store)).unwrap().count(), 0);
        // Of a file that is gone there is nothing to lock: the next has another.
        assert!(second.try_lock().unwrap());
        let mut third = KeyFile::open(&store, &lock("report")).unwrap();
        assert!(!third.try_lock().unwrap());
        fs::remove_dir_all(folder).unwrap();
    }
}

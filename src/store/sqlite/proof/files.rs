//! The files that sessions hold, and what they prove.

use std::{
    collections::BTreeMap,
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::fchown,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, fchmod, flock, fstat,
        mkdir, openat, renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::Identity;
use crate::{
    model::SessionId,
    store::{
        Presence,
        sqlite::file::{Sharing, header, system::FileSystem},
    },
    sync::locked,
    words,
};

/// File in which the kernel says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The prefix of a file's name until it is locked; a random number follows.
const NEW: &str = "new-";
/// The permissions a file may have.
const OPEN_TO: Mode =
    Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP).union(Mode::ROTH).union(Mode::WOTH);
/// A new file is lost to a process that tidies up if both meet in a window of microseconds.
const ATTEMPTS: u32 = 16;

/// The folder in which each session has a file.
pub(crate) struct SessionFiles {
    path: PathBuf,
    folder: OwnedFd,
    /// The id of this boot of this kernel.
    boot: String,
    /// The permissions of a file.
    file_mode: Mode,
    /// The user and the group of a file, if they are known.
    owner: Option<(u32, u32)>,
    /// The files that sessions of this process hold now.
    held: Arc<Mutex<BTreeMap<SessionId, Identity>>>,
}

/// Proof that a session's process is gone. There is no other way to get one than [`SessionFiles::prove`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    session: SessionId,
}

impl Proof {
    pub(crate) const fn session(&self) -> SessionId {
        self.session
    }
}

/// Reason why there is no proof that a session is dead.
#[derive(Debug)]
pub(crate) enum NoProof {
    /// The session's file is locked: its process lives, frozen or not, or one that it forked.
    Held,
    /// The session has no file.
    Missing,
    /// The session's file is not the one it held.
    AnotherFile,
    /// The session's file was locked under another kernel, or before this one was booted.
    AnotherBoot,
    /// The session's file could not be looked at.
    Failed(io::Error),
}

impl fmt::Display for NoProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "its file is locked",
            Self::Missing => "its file is missing",
            Self::AnotherFile => "its file was replaced",
            Self::AnotherBoot => "its file was locked under another boot of the kernel",
            Self::Failed(error) => return write!(f, "its file could not be looked at: {error}"),
        })
    }
}

/// A file that is held for a session. It is let go when this is dropped.
pub(crate) struct HeldFile {
    session: SessionId,
    #[cfg(test)]
    identity: Identity,
    held: Arc<Mutex<BTreeMap<SessionId, Identity>>>,
    /// Locked until it is closed.
    file: OwnedFd,
}

impl HeldFile {
    /// Returns the identity that the session's record is to contain.
    #[cfg(test)]
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    #[cfg(test)]
    pub(crate) const fn session(&self) -> SessionId {
        self.session
    }

    #[cfg(test)]
    pub(crate) const fn file(&self) -> &OwnedFd {
        &self.file
    }
}

impl AsFd for HeldFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        // First: no session is opened with a file that is let go.
        locked(&self.held).remove(&self.session);
    }
}

impl fmt::Debug for HeldFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldFile").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Returns the mode of a folder: a user who may read a file may look into it.
fn of_folder(file: Mode) -> Mode {
    let mut folder = file;
    for (read, look) in [(Mode::RUSR, Mode::XUSR), (Mode::RGRP, Mode::XGRP), (Mode::ROTH, Mode::XOTH)] {
        if file.contains(read) {
            folder |= look;
        }
    }
    folder
}

/// Gives a new file to the group of the database, and to its user if root makes it, before its permissions are set: a
/// change of the owner may clear some.
fn give(file: &OwnedFd, owner: Option<(u32, u32)>) {
    let Some((user, group)) = owner else { return };
    // A user who is not in the group may not, and keeps it for a group of its own.
    let _ = fchown(file, geteuid().is_root().then_some(user), Some(group));
}

fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
}

/// Makes a folder. It gets its name when all may use it that may use the database, whatever the mask of this process.
fn make(path: &Path, users: Sharing) -> Result<(), Errno> {
    let random = getrandom::u64().map_err(|_| Errno::IO)?;
    let new = header::beside(path, &format!("-new-{random:016x}"));
    mkdir(&new, Mode::RWXU)?;
    let opened = || {
        let folder = open_folder(&new)?;
        give(&folder, users.owner);
        // The bit by which files get the group of their folder, if it was inherited.
        let inherited = Mode::from_raw_mode(fstat(&folder)?.st_mode) & Mode::SGID;
        fchmod(&folder, of_folder(Mode::from_raw_mode(users.mode) & OPEN_TO) | inherited)?;
        renameat(CWD, &new, CWD, path)
    };
    let named = opened();
    if named.is_err() {
        let _ = unlinkat(CWD, &new, AtFlags::REMOVEDIR);
    }
    match named {
        // Another process was quicker.
        Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(()),
        named => named,
    }
}

impl SessionFiles {
    /// Opens the folder, and makes it if it is not there, for the users that may use the database. Without one where
    /// nothing can be proven: on a file system that may be shared with other machines, or under a kernel that does not
    /// say which boot it is. The log says so.
    ///
    /// # Errors
    /// The folder cannot be made or opened; the error names it.
    pub(crate) fn open(path: &Path, users: Sharing) -> io::Result<Option<Self>> {
        let say = |doing: &'static str| move |error: Errno| told(doing, path, error);
        let file_mode = Mode::from_raw_mode(users.mode) & OPEN_TO;
        // A folder that is there stays as it is.
        let folder = match open_folder(path) {
            Err(Errno::NOENT) => {
                make(path, users).map_err(say("make"))?;
                open_folder(path)
            }
            opened => opened,
        };
        let folder = folder.map_err(say("open"))?;
        let file_system = FileSystem::of(&folder)?;
        let path = std::fs::canonicalize(path)?;
        let folder_name = path.display();
        if !file_system.is_local() {
            words::warn!(
                folder = %folder_name, ?file_system,
                "not a local file system: no crash detection, takeovers wait for the ttl"
            );
            return Ok(None);
        }
        let Some(boot) = boot_id() else {
            words::warn!(
                folder = %folder_name,
                "the kernel reports no boot id: no crash detection, takeovers wait for the ttl"
            );
            return Ok(None);
        };
        Ok(Some(Self { path, folder, boot, file_mode, owner: users.owner, held: Arc::default() }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a session's file and locks it, for what the engine keeps as long as the session or a job under it lives.
    ///
    /// # Errors
    /// The file cannot be made, or was there already; the error names it.
    pub(crate) fn presence(&self, session: SessionId) -> io::Result<Presence> {
        self.hold(session).map(Presence::of_file)
    }

    /// The file that this process holds for a session, if it does: what the session's record is to say.
    pub(crate) fn identity(&self, session: SessionId) -> Option<Identity> {
        locked(&self.held).get(&session).cloned()
    }

    /// Makes a session's file and locks it. It gets its name when it is locked: so a process that finds a file by
    /// that name, and not locked, knows that its holder is gone.
    pub(crate) fn hold(&self, session: SessionId) -> io::Result<HeldFile> {
        let name = session.to_string();
        let failed = |error| told("make", &self.path.join(&name), error);
        let mut attempts = 0;
        let file = loop {
            attempts += 1;
            match self.locked_as(&name) {
                Ok(file) => break file,
                // A process that tidies up took it for one that was left behind.
                Err(Errno::NOENT | Errno::WOULDBLOCK) if attempts < ATTEMPTS => {}
                Err(error) => return Err(failed(error)),
            }
        };
        let stat = fstat(&file).map_err(|error| {
            // No session has it.
            let _ = unlinkat(&self.folder, &*name, AtFlags::empty());
            failed(error)
        })?;
        let identity = Identity { device: stat.st_dev, inode: stat.st_ino, boot: self.boot.clone() };
        locked(&self.held).insert(session, identity.clone());
        Ok(HeldFile {
            session,
            #[cfg(test)]
            identity,
            held: self.held.clone(),
            file,
        })
    }

    fn locked_as(&self, name: &str) -> Result<OwnedFd, Errno> {
        let new = format!("{NEW}{:016x}", getrandom::u64().map_err(|_| Errno::IO)?);
        // For writing: the kernel tells of the close of such files alone.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, &*new, flags, Mode::RUSR | Mode::WUSR)?;
        give(&file, self.owner);
        fchmod(&file, self.file_mode)?;
        // Not a link: the kernel tells of a close by the name that was opened, and that one goes with it.
        let named =
            flock(&file, FlockOperation::NonBlockingLockExclusive).and_then(|()| self.rename(&new, name));
        if named.is_err() {
            let _ = unlinkat(&self.folder, &*new, AtFlags::empty());
        }
        named.map(|()| file)
    }

    /// Replaces nothing.
    fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        match renameat_with(&self.folder, from, &self.folder, to, RenameFlags::NOREPLACE) {
            // A file system that cannot do both in one. Only one store ever makes a file of that name.
            Err(Errno::INVAL | Errno::NOSYS) => match statat(&self.folder, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => renameat(&self.folder, from, &self.folder, to),
                Err(error) => Err(error),
            },
            done => done,
        }
    }

    /// Proves that the process of a session is gone, whose record names that file.
    ///
    /// # Errors
    /// There is no proof, for this reason.
    pub(crate) fn prove(&self, session: SessionId, identity: &Identity) -> Result<Proof, NoProof> {
        if identity.boot != self.boot {
            return Err(NoProof::AnotherBoot);
        }
        let is_it = |stat: &Stat| (stat.st_dev, stat.st_ino) == (identity.device, identity.inode);
        self.let_go(&session.to_string(), is_it).map(|_| Proof { session })
    }

    /// Opens that file, if it is the right one, and locks it as any process that looks may. Once it has no holder, it
    /// never has one again.
    fn let_go(&self, name: &str, is_it: impl Fn(&Stat) -> bool) -> Result<(OwnedFd, Stat), NoProof> {
        // Without waiting, should a pipe have been put in its place.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Err(NoProof::Missing),
            Err(Errno::LOOP) => return Err(NoProof::AnotherFile),
            Err(error) => return Err(NoProof::Failed(error.into())),
        };
        let stat = fstat(&file).map_err(|error| NoProof::Failed(error.into()))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || !is_it(&stat) {
            return Err(NoProof::AnotherFile);
        }
        // Shared: all processes that look get it, at the same time.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok((file, stat)),
            Err(Errno::WOULDBLOCK) => Err(NoProof::Held),
            Err(error) => Err(NoProof::Failed(error.into())),
        }
    }

    /// Returns whether the file of a session is there, and no process holds it any more.
    ///
    /// # Errors
    /// It is not so, for this reason.
    pub(crate) fn is_let_go(&self, session: SessionId) -> Result<(), NoProof> {
        self.let_go(&session.to_string(), |_| true).map(drop)
    }

    /// Removes the file of a session that has no record, if no process holds it any more. To be called while no store
    /// can insert a record: then none can come that names the file, since a store that inserts one looks whether it
    /// is held.
    pub(crate) fn remove_stray(&self, session: SessionId) {
        self.remove_let_go(&session.to_string());
    }

    /// Removes the files whose makers died before they gave them their names.
    pub(crate) fn remove_unfinished(&self) {
        match self.names() {
            Ok(names) => {
                for new in names.iter().filter(|name| name.starts_with(NEW)) {
                    self.remove_let_go(new);
                }
            }
            Err(error) => words::debug!(%error, "could not look for files that were left behind"),
        }
    }

    fn remove_let_go(&self, name: &str) {
        // The lock is kept until it is gone.
        let Ok((_file, stat)) = self.let_go(name, |_| true) else { return };
        let there = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)) {
            self.unlink(name);
        }
    }

    /// Removes the file of a session, whose record says that it is dead. Nothing is removed before that: a file that
    /// is missing proves nothing.
    pub(crate) fn remove(&self, dead: SessionId) {
        self.unlink(&dead.to_string());
    }

    fn unlink(&self, name: &str) {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            // Another process was quicker.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                let error = told("remove", &self.path.join(name), error);
                words::debug!(%error, "left an unneeded file behind");
            }
        }
    }

    /// Returns whether a process holds the file of a session.
    ///
    /// # Errors
    /// A file could not be looked at.
    pub(crate) fn is_anybody_there(&self) -> io::Result<bool> {
        for session in self.sessions()? {
            match self.is_let_go(session) {
                Err(NoProof::Held) => return Ok(true),
                Err(NoProof::Failed(error)) => return Err(error),
                Ok(()) | Err(NoProof::Missing | NoProof::AnotherFile | NoProof::AnotherBoot) => {}
            }
        }
        Ok(false)
    }

    /// The sessions that have a file.
    pub(crate) fn sessions(&self) -> io::Result<Vec<SessionId>> {
        // Other files do not belong in there; they stay.
        Ok(self.names()?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let say = |error| told("list", &self.path, error);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder).map_err(say)? {
            let entry = entry.map_err(say)?;
            names.extend(entry.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }
}

impl fmt::Debug for SessionFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionFiles").field("path", &self.path).finish_non_exhaustive()
    }
}

fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string(BOOT_ID).ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

fn told(doing: &str, path: &Path, error: Errno) -> io::Error {
    let text = format!("could not {doing} {}: {error}", path.display());
    io::Error::new(io::Error::from(error).kind(), text)
}

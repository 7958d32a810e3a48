//! The file: found, made, and opened, with everything checked that can go wrong.

pub(super) mod error;
pub(super) mod header;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) mod inotify;
mod name;
mod patience;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) mod system;
pub(super) mod tables;

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};

use self::error::{LONGEST, OpenError};
#[cfg(any(target_os = "linux", target_os = "android"))]
use self::system::FileSystem;
use super::SqliteOptions;
use crate::{error::in_one_line, sync::locked};

/// The longest that opening waits for a process that has the whole file locked, as for its repair after a crash.
const OPENING: Duration = Duration::from_secs(5);
/// A log that has grown beyond this is cut when it is written from its beginning again.
pub(super) const LOG_KEPT: u32 = 16 << 20;
/// Statements that are kept prepared: more than there are.
const STATEMENTS: usize = 64;

/// A file, wherever its name leads: device and inode.
pub(super) type Identity = (u64, u64);

/// A file that this process has open. As long as there is one of these it must not be opened but by SQLite.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    identity: Option<Identity>,
    /// The writers of this process pass it one after the other, without asking SQLite again and again.
    pub(super) gate: Mutex<()>,
}

impl OpenFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the path still leads to this file. After it was removed or replaced, others would use another
    /// one.
    pub(super) fn is_in_place(&self) -> bool {
        self.identity.is_none() || identity(&self.path).ok().flatten() == self.identity
    }
}

/// Opens nothing.
#[cfg(unix)]
pub(super) fn identity(path: &Path) -> io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt;

    let data = fs::metadata(path)?;
    Ok(Some((data.dev(), data.ino())))
}

#[cfg(not(unix))]
pub(super) fn identity(path: &Path) -> io::Result<Option<Identity>> {
    fs::metadata(path).map(|_| None)
}

/// The users that a file is open to: files that are made beside it are open to the same.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "the files beside it are SQLite's own there")
)]
pub(super) struct Sharing {
    pub(super) mode: u32,
    /// The user and the group that the mode is about, if they are known.
    pub(super) owner: Option<(u32, u32)>,
}

impl Sharing {
    /// Open to the owner alone.
    pub(super) const OWNER: Self = Self { mode: 0o600, owner: None };

    /// Returns the users of a file; its owner alone, if they cannot be seen.
    pub(super) fn of(path: &Path) -> Self {
        #[cfg(unix)]
        let found = fs::metadata(path).map(|data| {
            use std::os::unix::fs::MetadataExt;

            Self { mode: data.mode(), owner: Some((data.uid(), data.gid())) }
        });
        #[cfg(not(unix))]
        let found = fs::metadata(path).map(|_| Self::OWNER);
        found.unwrap_or(Self::OWNER)
    }
}

/// The files that this process has open.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<OpenFile>>> = Mutex::new(BTreeMap::new());

/// Finds or makes a file, checks it, and answers with it and a first connection.
pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<(Arc<OpenFile>, Connection), OpenError> {
    let path = &whole(path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    check_folder(folder)?;
    // Held until the connection is there: no other thread may look at the file meanwhile.
    let mut open = locked(&OPEN);
    open.retain(|_, file| file.strong_count() > 0);
    let known = open.get(path).and_then(Weak::upgrade).filter(|file| file.is_in_place());
    let is_known = known.is_some();
    let file = if let Some(file) = known {
        file
    } else {
        // Also of what this process has open, which is not looked at closer.
        header::check_sort(path)?;
        if !is_open_here(&open, path)? && !header::look(path)? {
            create(path, folder)?;
        }
        name::check(path, folder)?;
        let identity = identity(path).map_err(|error| OpenError::of_io(path, &error))?;
        Arc::new(OpenFile { path: path.clone(), identity, gate: Mutex::default() })
    };
    let connection = first_connection(&file, options, is_known)?;
    open.insert(path.clone(), Arc::downgrade(&file));
    Ok((file, connection))
}

/// Returns whether this process has the file open: by a store, or by a connection of the program's own.
fn is_open_here(open: &BTreeMap<PathBuf, Weak<OpenFile>>, path: &Path) -> Result<bool, OpenError> {
    let identity = match identity(path) {
        Ok(Some(identity)) => identity,
        Ok(None) => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(OpenError::of_io(path, &error)),
    };
    let mut files = open.values().filter_map(Weak::upgrade);
    Ok(files.any(|file| file.identity == Some(identity)) || name::is_open(identity))
}

/// The path without links, from the root: the program may change its folder later.
fn whole(path: &Path) -> Result<PathBuf, OpenError> {
    match fs::canonicalize(path) {
        Ok(whole) => return Ok(whole),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(OpenError::of_io(path, &error)),
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        let problem = "it names no file".to_owned();
        return Err(OpenError::Failed { path: path.to_owned(), problem });
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let whole = fs::canonicalize(folder);
    Ok(whole.map_err(|error| OpenError::Folder { path: folder.to_owned(), error })?.join(name))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn check_folder(folder: &Path) -> Result<(), OpenError> {
    use rustix::fs::{Access, access};

    let failed = |error: rustix::io::Errno| OpenError::of_io(folder, &error.into());
    let found = FileSystem::at(folder).map_err(|error| OpenError::of_io(folder, &error))?;
    if !found.is_local() {
        return Err(OpenError::NotLocal { path: folder.to_owned(), found: found.to_string() });
    }
    // SQLite makes files beside the database.
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(failed)
}

/// Accepts every folder: no check here knows what is a local file system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere there is something to check")]
fn check_folder(_: &Path) -> Result<(), OpenError> {
    Ok(())
}

/// Makes a new file, which gets its name when it is whole. Another process may have made one meanwhile.
fn create(path: &Path, folder: &Path) -> Result<(), OpenError> {
    let random = getrandom::u64().map_err(|error| OpenError::of_io(path, &io::Error::from(error)))?;
    let new = header::beside(path, &format!("-new-{random:016x}"));
    let created = create_at(&new, path, folder);
    // A crash leaves it behind, and it does no harm.
    let _ = fs::remove_file(&new);
    created
}

fn create_at(new: &Path, path: &Path, folder: &Path) -> Result<(), OpenError> {
    let failed = |error: io::Error| OpenError::of_io(path, &error);
    let of_sqlite = |error: rusqlite::Error| OpenError::of_sqlite(path, &error);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(new).map_err(failed)?;
    open_to_group(&file, folder).map_err(failed)?;
    // Before SQLite opens it, whose locks would go with this close.
    drop(file);
    let connection = Connection::open_with_flags(new, flags()).map_err(of_sqlite)?;
    tables::create(&connection).map_err(of_sqlite)?;
    let _mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(of_sqlite)?;
    connection.close().map_err(|(_, error)| of_sqlite(error))?;
    match fs::hard_link(new, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // The name is kept, too.
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Opens a new file to the group of its folder, if that is a folder of a group: the group may write to it, and files in
/// it get that group.
#[cfg(unix)]
fn open_to_group(file: &fs::File, folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const OF_GROUP: u32 = 0o2020;
    if fs::metadata(folder)?.mode() & OF_GROUP != OF_GROUP {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(0o660))
}

#[cfg(not(unix))]
fn open_to_group(_: &fs::File, _: &Path) -> io::Result<()> {
    Ok(())
}

fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn first_connection(
    file: &OpenFile,
    options: &SqliteOptions,
    is_known: bool,
) -> Result<Connection, OpenError> {
    let path = &file.path;
    let failed = |error: rusqlite::Error| OpenError::of_sqlite(path, &error);
    let damaged = |problem| OpenError::Damaged { path: path.clone(), problem };
    let mut connection = connect(file, options).map_err(failed)?;
    if connection.is_readonly("main").map_err(failed)? {
        let problem = "this user may only read it".to_owned();
        return Err(OpenError::ReadOnly { path: path.clone(), problem });
    }
    // Again by SQLite itself, which knows the log.
    let application = tables::application(&connection).map_err(failed)?;
    if application != tables::APPLICATION {
        return Err(damaged(format!("its application id is {application:#x}")));
    }
    let version = tables::version(&connection).map_err(failed)?;
    if version > tables::VERSION {
        return Err(header::newer(path, version));
    }
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(damaged(format!("it has no log: its journal mode is {mode}")));
    }
    if !is_known {
        check(path, &connection, "quick_check")?;
    }
    let version = tables::migrate(&connection).map_err(failed)?;
    if version > tables::VERSION {
        return Err(header::newer(path, version));
    }
    patience::set(&mut connection).map_err(failed)?;
    Ok(connection)
}

/// Checks that a file is whole: `quick_check` looks at every page, and `integrity_check` also finds each row in each
/// index, which takes up to ten times as long.
pub(super) fn check(path: &Path, connection: &Connection, how: &str) -> Result<(), OpenError> {
    let said = connection.query_row(&format!("PRAGMA {how}(1)"), [], |row| row.get::<_, String>(0));
    let said = said.map_err(|error| OpenError::of_sqlite(path, &error))?;
    if said == "ok" {
        return Ok(());
    }
    Err(OpenError::Damaged { path: path.to_owned(), problem: in_one_line(&said, LONGEST) })
}

/// A further connection to a file that is open.
pub(super) fn connect_again(file: &OpenFile, options: &SqliteOptions) -> Result<Connection, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::of_sqlite(&file.path, &error);
    let mut connection = connect(file, options).map_err(failed)?;
    patience::set(&mut connection).map_err(failed)?;
    Ok(connection)
}

fn connect(file: &OpenFile, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(&file.path, flags())?;
    connection.busy_timeout(OPENING)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = {LOG_KEPT}; PRAGMA temp_store = MEMORY; \
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
    ))?;
    if let Some(most) = options.max_pages {
        connection.execute_batch(&format!("PRAGMA max_page_count = {most}"))?;
    }
    Ok(connection)
}

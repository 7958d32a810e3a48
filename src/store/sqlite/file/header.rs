//! A look at a file before SQLite opens it, by plain reading. It changes nothing.
//!
//! Only while the file is not open in this process: closing any descriptor of it would drop SQLite's locks,
//! also those of a connection that the program made by itself.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{
    error::OpenError,
    tables::{APPLICATION, VERSION},
};

/// The first bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const LENGTH: usize = 100;
/// A file that another process is just writing back may look too short for a moment.
const LOOKS: u32 = 3;

/// The path with something behind its name, as SQLite does it.
pub(crate) fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(what);
    name.into()
}

fn has_log(path: &Path) -> bool {
    std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0)
}

/// Refuses what is there and no file.
pub(crate) fn check_sort(path: &Path) -> Result<(), OpenError> {
    match std::fs::metadata(path) {
        Ok(data) if !data.is_file() => {
            Err(OpenError::Foreign { path: path.to_owned(), what: "a folder or device".to_owned() })
        }
        _ => Ok(()),
    }
}

/// Looks at a file. Says whether it is there; if so, it seems to be one that can be used.
pub(crate) fn look(path: &Path) -> Result<bool, OpenError> {
    let damaged = |problem: &str| OpenError::Damaged { path: path.to_owned(), problem: problem.to_owned() };
    let foreign = |what: String| OpenError::Foreign { path: path.to_owned(), what };
    let mut looks = 0;
    loop {
        looks += 1;
        let had_log = has_log(path);
        // First: to open a pipe is to wait for its other end.
        check_sort(path)?;
        let mut file = match File::open(path) {
            Ok(file) => file,
            // SQLite would delete the log.
            Err(error) if error.kind() == io::ErrorKind::NotFound && had_log => {
                return Err(damaged(
                    "it is gone, and its log, the file with -wal behind its name, is still there",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(OpenError::of_io(path, &error)),
        };
        let failed = |error| OpenError::of_io(path, &error);
        let data = file.metadata().map_err(failed)?;
        let mut header = Vec::new();
        file.by_ref().take(LENGTH as u64).read_to_end(&mut header).map_err(failed)?;
        drop(file);
        if header.is_empty() {
            return Err(damaged("it is empty"));
        }
        let begins = header.len().min(MAGIC.len());
        if header[..begins] != MAGIC[..begins] {
            return Err(foreign("something that is no SQLite database".to_owned()));
        }
        let Ok(header) = <&[u8; LENGTH]>::try_from(header.as_slice()) else {
            return Err(damaged("it is cut off"));
        };
        let application = i32::from_be_bytes(four(header, 68));
        if application != APPLICATION {
            return Err(foreign(format!("a SQLite database with the application id {application:#x}")));
        }
        let version = i32::from_be_bytes(four(header, 60));
        if version > VERSION {
            return Err(newer(path, version));
        }
        let page = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65536,
            size => u64::from(size),
        };
        let pages = u64::from(u32::from_be_bytes(four(header, 28)));
        // While there is a log, parts of the file may be in there.
        let is_short = data.len() < pages * page || page == 0 || data.len() % page != 0;
        if is_short && !had_log && !has_log(path) {
            if looks < LOOKS {
                continue;
            }
            let problem = format!("it is cut off: it has {} of its {} bytes", data.len(), pages * page);
            return Err(damaged(&problem));
        }
        return Ok(true);
    }
}

pub(crate) fn newer(path: &Path, version: i32) -> OpenError {
    OpenError::Newer { path: path.to_owned(), found: version.into(), known: VERSION.into() }
}

fn four(header: &[u8; LENGTH], at: usize) -> [u8; 4] {
    [header[at], header[at + 1], header[at + 2], header[at + 3]]
}

//! The names of a file. SQLite keeps its log beside the *name* that a file was opened by, so under two names it would be
//! two databases, each of which grants what the other one has granted.

use std::{fs, path::Path};

use super::{Identity, error::OpenError, header};

/// Checks that a file has one name, in one folder, wherever it is looked at from.
#[cfg(unix)]
pub(crate) fn check(path: &Path, folder: &Path) -> Result<(), OpenError> {
    let failed = |error: std::io::Error| OpenError::of_io(path, &error);
    if links(path).map_err(failed)? > 1 {
        // The process that makes a file gives it its name by a link, and may have died before the first name was
        // gone.
        remove_new(path, folder);
        let links = links(path).map_err(failed)?;
        if links > 1 {
            let problem = format!("it has {links} names (hard links), and the log lies beside one of them");
            return Err(OpenError::Names { path: path.to_owned(), problem });
        }
    }
    if is_mounted(path, folder) {
        let problem = "it is mounted by itself, and the log lies beside its other name".to_owned();
        return Err(OpenError::Names { path: path.to_owned(), problem });
    }
    Ok(())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere there is something to check")]
pub(crate) fn check(_: &Path, _: &Path) -> Result<(), OpenError> {
    Ok(())
}

#[cfg(unix)]
fn links(path: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;

    fs::metadata(path).map(|data| data.nlink())
}

/// Removes the names that the file had before it was whole.
#[cfg(unix)]
fn remove_new(path: &Path, folder: &Path) {
    use std::os::unix::ffi::OsStrExt;

    let new = header::beside(path, "-new-");
    let (Ok(whole), Some(new)) = (super::identity(path), new.file_name()) else { return };
    // An error leaves a name, which is told.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_new = entry.file_name().as_bytes().starts_with(new.as_bytes());
        if is_new && super::identity(&entry.path()).is_ok_and(|found| found == whole) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns whether the file is mounted, and not its folder: as into a container.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_mounted(path: &Path, folder: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

    let mount = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        // Kernels before 5.8 do not say.
        StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID).then_some(found.stx_mnt_id)
    };
    mount(path) != mount(folder)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_mounted(_: &Path, _: &Path) -> bool {
    false
}

/// Returns whether this process has a file open, by whatever: closing another descriptor of it would drop the locks that
/// the process has on it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn is_open(identity: Identity) -> bool {
    // Without /proc it is not known.
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    descriptors
        .into_iter()
        .any(|entry| super::identity(&entry.path()).is_ok_and(|found| found == Some(identity)))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn is_open(_: Identity) -> bool {
    false
}

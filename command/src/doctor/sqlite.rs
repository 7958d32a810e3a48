//! A SQLite file, and the disk and folder it lies in.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use super::findings::Findings;
use crate::{
    file::{limit, try_notice},
    key_lock,
};

/// Less free space than this is told.
const ROOM: u64 = 64 * 1024 * 1024;
/// A log longer than this is told: a process reads all the time.
const LOG: u64 = 64 * 1024 * 1024;

pub(super) fn look(path: &Path, findings: &mut Findings) {
    match fs::metadata(path) {
        Ok(file) => findings.ok("file", format!("{} has {}", path.display(), size(file.len()))),
        Err(_) => findings.untested("file", format!("{} is made at the first use", path.display())),
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.exists() {
        let folder = folder.display();
        return findings.bad(
            "folder",
            format!("{folder} is not there"),
            format!("make it: mkdir -p {folder}"),
        );
    }
    room(folder, findings);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if let Ok(log) = fs::metadata(log) {
        if log.len() > LOG {
            findings.warning(
                "log",
                format!("the log beside the file has {}", size(log.len())),
                "it shrinks in a moment without readers: find the program that keeps the file open for reading",
            );
        } else {
            findings.ok("log", format!("the log beside the file has {}", size(log.len())));
        }
    }
    // Of the folder, if the file is not there yet.
    match try_notice(path).or_else(|_| try_notice(folder)) {
        Ok(()) => findings.ok("inotify", "the kernel gives notice of changes"),
        Err(error) => findings.warning(
            "inotify",
            format!("the kernel gives no notice of changes, so waiters look for them: {error}{}", limit(&error)),
            "raise the limit (sysctl): each process that uses a SQLite file takes an instance; one that gets none finds \
             keys that are handed over up to 100 ms later, and crashes up to 10 s later",
        ),
    }
    // The folders lie beside the file itself, by whatever links it is named.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut sessions = path.as_os_str().to_owned();
    sessions.push("-sessions");
    for (about, folder, rights, failing) in [
        (
            "keys",
            key_lock::folder(path),
            Access::READ_OK | Access::WRITE_OK,
            "exec of their keys ends with 69",
        ),
        (
            "sessions",
            sessions.into(),
            Access::READ_OK,
            "keys of crashed holders are taken over after the ttl",
        ),
    ] {
        if folder.exists() {
            judge_folder(about, path, &folder, barred(&folder, rights), failing, findings);
        }
    }
}

/// Returns what this user may not use of a folder that all users of the store share: it, or a file in it.
fn barred(folder: &Path, rights: Access) -> Option<PathBuf> {
    if access(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Some(folder.to_owned());
    }
    let mut files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    // A file may go while this looks at the folder.
    files.find(|file| access(file.as_path(), rights).is_err() && file.exists())
}

fn judge_folder(
    about: &'static str,
    store: &Path,
    folder: &Path,
    barred: Option<PathBuf>,
    failing: &str,
    findings: &mut Findings,
) {
    let Some(barred) = barred else {
        return findings.ok(about, format!("this user may use all of {}", folder.display()));
    };
    let Ok(store) = fs::metadata(store) else { return };
    let (mode, name) = (store.mode() & 0o666, folder.display());
    findings.warning(
        about,
        format!("this user may not use {}: {failing}", barred.display()),
        format!(
            "as root, or their owner: chown -R {}:{} {name}; chmod {:o} {name}; chmod {mode:o} {name}/*",
            store.uid(),
            store.gid(),
            key_lock::PASSES_GROUP_ON | key_lock::of_folder(mode)
        ),
    );
}

fn room(folder: &Path, findings: &mut Findings) {
    match rustix::fs::statvfs(folder) {
        Err(error) => findings
            .untested("disk", format!("the free space of {} cannot be read: {error}", folder.display())),
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let is_read_only = disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
            judge_disk(folder, free, is_read_only, findings);
        }
    }
}

fn judge_disk(folder: &Path, free: u64, is_read_only: bool, findings: &mut Findings) {
    let folder = folder.display();
    let says = format!("{} are free on the disk of {folder}", size(free));
    if is_read_only {
        findings.bad("disk", format!("{folder} is on a disk that is read only"), "mount it for writing");
    } else if free < ROOM {
        findings.warning("disk", says, "make room: on a full disk nothing new can be locked or recorded");
    } else {
        findings.ok("disk", says);
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes / 1024),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes / 1024 / 1024),
        _ => format!("{} GiB", bytes / 1024 / 1024 / 1024),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_disk_that_is_full_or_read_only_is_told() {
        let judged = |free, is_read_only| {
            let mut findings = Findings::default();
            judge_disk(Path::new("/data"), free, is_read_only, &mut findings);
            findings.render(false)
        };
        assert!(judged(ROOM, false).starts_with("ok "));
        assert!(
            judged(ROOM - 1, false).starts_with("WARNING     disk  63 MiB are free on the disk of /data")
        );
        assert!(judged(ROOM, true).starts_with("BAD         disk  /data is on a disk that is read only"));
    }

    #[test]
    fn a_log_that_grew_is_told() {
        let folder = std::env::temp_dir().join(format!("tenure-doctor-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut findings = Findings::default();
        fs::File::create(folder.join("tenure.db-wal")).unwrap().set_len(LOG + 1).unwrap();
        look(&folder.join("tenure.db"), &mut findings);
        fs::remove_dir_all(&folder).unwrap();
        assert!(findings.render(false).contains("WARNING     log      the log beside the file has 64 MiB"));
    }

    #[test]
    fn folders_that_this_user_may_not_use_are_named_with_the_commands_that_help() {
        let folder = std::env::temp_dir().join(format!("tenure-doctor-keys-{}", std::process::id()));
        let store = folder.join("tenure.db");
        let keys = key_lock::folder(&store);
        fs::create_dir_all(&keys).unwrap();
        fs::write(&store, "").unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o660)).unwrap();
        fs::write(keys.join("shop.lock.report"), "").unwrap();
        let all = Access::READ_OK | Access::WRITE_OK;
        assert_eq!(barred(&keys, all), None);
        // Root may use every file, but run none that is no program.
        assert_eq!(barred(&keys, all | Access::EXEC_OK), Some(keys.join("shop.lock.report")));
        let mut findings = Findings::default();
        judge_folder("keys", &store, &keys, Some(keys.join("shop.lock.report")), "it fails", &mut findings);
        let (told, name) = (findings.render(false), keys.display());
        assert!(told.starts_with(&format!("WARNING     keys  this user may not use {name}/shop.")), "{told}");
        assert!(told.contains(&format!("; chmod 2770 {name}; chmod 660 {name}/*")), "{told}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn sizes_are_told_by_one_unit() {
        for (bytes, told) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 KiB"),
            (10_485_760, "10 MiB"),
            (1 << 40, "1024 GiB"),
        ] {
            assert_eq!(size(bytes), told);
        }
    }
}

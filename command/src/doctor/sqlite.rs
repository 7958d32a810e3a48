//! A SQLite file, and the disk and folder it lies in.

use std::{fs, path::Path};

use super::findings::Findings;

/// Less free space than this is told.
const ROOM: u64 = 64 * 1024 * 1024;
/// A log longer than this is told: somebody reads all the time.
const LOG: u64 = 64 * 1024 * 1024;

pub(super) fn look(path: &Path, findings: &mut Findings) {
    match fs::metadata(path) {
        Ok(file) => findings.ok("file", format!("{} has {}", path.display(), size(file.len()))),
        Err(_) => findings.untested("file", format!("{} is made at the first use", path.display())),
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    room(folder, findings);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if let Ok(log) = fs::metadata(log) {
        if log.len() > LOG {
            findings.warning(
                "log",
                format!("the log beside the file has {}", size(log.len())),
                "it shrinks when nobody reads for a moment: look for a program that keeps the file open for reading",
            );
        } else {
            findings.ok("log", format!("the log beside the file has {}", size(log.len())));
        }
    }
}

fn room(folder: &Path, findings: &mut Findings) {
    match rustix::fs::statvfs(folder) {
        Err(error) => findings.untested("disk", format!("{} cannot be looked at: {error}", folder.display())),
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let says = format!("{} are free on the disk of {}", size(free), folder.display());
            if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
                findings.bad(
                    "disk",
                    format!("{} is on a disk that is read only", folder.display()),
                    "mount it for writing",
                );
            } else if free < ROOM {
                findings.warning(
                    "disk",
                    says,
                    "make room: on a full disk no heartbeat is written, and leases are lost",
                );
            } else {
                findings.ok("disk", says);
            }
        }
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
    use super::*;

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

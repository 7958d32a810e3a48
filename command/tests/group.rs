//! The command for users of one group, each with a primary group of its own.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::cli::{Folder, LONG, Running, bare, output, set_variables, stderr, stdout, until_there};

const GROUP: u32 = 60_009;

/// A command of a user, by the copy of the binary in that folder: users may not enter the folders of another.
fn as_user(user: u32, folder: &Folder, words: &[&str]) -> Command {
    let (plain, mut command) = (bare(), Command::new("setpriv"));
    let id = user.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--groups", &GROUP.to_string()]);
    command.args(["sh", "-c", "umask 077 && exec \"$@\"", "sh"]).arg(plain.get_program());
    command.arg("--default-signal").arg(folder.join("tenure"));
    command.args(["--store", &format!("sqlite:{}", folder.join("shared/tenure.db").display())]);
    command.args(LONG).args(words).current_dir("/").env("HOME", "/").stdin(Stdio::null());
    set_variables(&mut command, &plain);
    command
}

#[test]
fn users_of_a_group_share_keys_in_a_folder_of_the_group() {
    if !rustix::process::getuid().is_root() {
        println!(
            "users_of_a_group_share_keys_in_a_folder_of_the_group was left out: only root is other users"
        );
        return;
    }
    let folder = Folder::new("group");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // By another process: what is open for writing here, and so in whatever is just being started, cannot be run.
    let binary = env!("CARGO_BIN_EXE_tenure");
    assert!(Command::new("cp").args([binary]).arg(folder.join("tenure")).status().unwrap().success());
    let shared = folder.join("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, Some(0), Some(GROUP)).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2770)).unwrap();

    for (user, key) in [(60_001, "first"), (60_002, "first"), (60_002, "second"), (60_001, "second")] {
        let ran = output(&mut as_user(user, &folder, &["exec", "--key", key, "--nonblock", "--", "true"]));
        assert!(ran.status.success(), "{user} {key}: {}", stderr(&ran));
    }
    let begun = folder.join("begun");
    let script = format!("echo > {}; exec sleep 600", begun.display());
    let first =
        Running::start(&mut as_user(60_001, &folder, &["exec", "--key", "k", "--", "sh", "-c", &script]));
    until_there(&begun);
    first.signal(Signal::KILL);
    let next = output(&mut as_user(60_002, &folder, &["exec", "--key", "k", "--wait", "2m", "--", "true"]));
    assert!(next.status.success(), "{}", stderr(&next));
    let doctor = output(&mut as_user(60_002, &folder, &["doctor", "--color", "never"]));
    let report = stdout(&doctor);
    assert!(report.contains("ok          keys ") && report.contains("ok          sessions "), "{report}");
    for entry in fs::read_dir(&shared).unwrap() {
        let (entry, found) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
        let mode = if found.is_dir() { 0o2770 } else { 0o660 };
        assert_eq!((found.gid(), found.mode() & 0o7777), (GROUP, mode), "{}", entry.display());
    }
}

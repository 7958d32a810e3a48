//! The command under the limits of a user: processes, and the size of files.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::cli::{Folder, bare, output, set_variables, stderr, tenure};

/// A user that runs nothing else: the limit counts all of a user's processes and threads.
const USER: &str = "60003";

#[test]
fn a_user_who_may_start_few_threads_is_told() {
    if !rustix::process::getuid().is_root() {
        println!("a_user_who_may_start_few_threads_is_told was left out: only root is other users");
        return;
    }
    let folder = Folder::new("threads");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // By another process: what is open for writing here, and so in whatever is just being started, cannot be run.
    let binary = folder.join("tenure");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_tenure")).arg(&binary).status().unwrap().success());
    for most in [1, 2, 4, 8] {
        let limit = format!("--nproc={most}:{most}");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "prlimit", &limit]).arg(&binary);
        command.args(["--store", &folder.store(), "exec", "--key", "k", "--", "true"]).current_dir("/");
        set_variables(&mut command, &bare());
        let ended = output(&mut command);
        let (code, said) = (ended.status.code(), stderr(&ended));
        assert!(matches!(code, Some(69 | 125)) && said.contains("thread"), "{most}: {code:?} {said}");
        assert!(said.lines().all(|line| line.starts_with("tenure: ")), "{most}: {said}");
    }
}

#[test]
fn a_store_file_that_may_not_grow_is_an_error() {
    let folder = Folder::new("file-size");
    let of = tenure(&folder.store());
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 64 && exec \"$@\"", "sh"]).arg(of.get_program()).args(of.get_args());
    command.args(["exec", "--key", "k", "--", "true"]);
    set_variables(&mut command, &of);
    let ended = output(&mut command);
    assert_eq!(ended.status.code(), Some(69), "{}", stderr(&ended));
    assert!(
        stderr(&ended).starts_with("tenure: ") && stderr(&ended).contains("tenure.db"),
        "{}",
        stderr(&ended)
    );
}

//! Hazards of the machine for a file in use: names and mounts, other users, a disk that is full, neighbours.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tenure::{
    model::{Key, Kind, LockId, SessionId},
    store::{
        Store, StoreExt, Take, TakeAnswer,
        sqlite::{OpenError, SqliteStore},
    },
};
use tenure_conformance::LIMIT;

use crate::{
    folder::{Folder, fixture},
    wait::{self, until, until_blocking},
};

/// The place of a test that was started once more, as somebody else or where it may mount.
const PLACE: &str = "TENURE_TEST_PLACE";

/// Starts a test once more, with mounts of its own. Returns whether it is that one now.
fn may_mount(test: &str) -> bool {
    if std::env::var_os(PLACE).is_some() {
        return true;
    }
    let itself = std::env::current_exe().unwrap();
    let again = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(itself)
        .args(["--exact", test, "--nocapture"])
        .env(PLACE, "mounts")
        .output()
        .expect("util-linux is installed");
    let said = [again.stdout, again.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if said.contains("unshare failed") || said.contains("Operation not permitted") {
        println!("{test} was left out, since nobody may mount here: {said}");
        return false;
    }
    assert!(again.status.success() && said.contains("1 passed"), "{said}");
    false
}

fn mount(arguments: &[&str], at: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(at).status().unwrap();
    assert!(mounted.success(), "mount: Operation not permitted");
}

async fn takes(store: &SqliteStore, session: u128, key: &str) -> bool {
    let fixture = fixture(store);
    let lock = LockId { namespace: "shop".parse().unwrap(), kind: Kind::Lock, key: Key::new(key).unwrap() };
    let by = fixture.candidate(SessionId::from_u128(session), 1);
    let answers = store.take(vec![Take { lock, by }], Vec::new(), LIMIT).await.unwrap();
    matches!(answers[0], TakeAnswer::Taken(_))
}

fn refused_for_its_names(path: &Path) {
    let error = SqliteStore::open(path).unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, OpenError::Names { .. }) && words.contains(path.to_str().unwrap()), "{words}");
}

/// SQLite keeps a log for each name: each of the two would grant what the other one has granted.
#[tokio::test]
async fn a_file_of_two_names_is_refused() {
    let folder = Folder::new();
    let store = folder.open();
    assert!(takes(&store, 1, "report").await);
    let link = folder.path().join("link.db");
    fs::hard_link(folder.database(), &link).unwrap();
    refused_for_its_names(&link);
    assert!(takes(&store, 1, "more").await, "a backup by links ends nobody's lease");
    store.close().await;
    refused_for_its_names(&folder.database());
    fs::remove_file(&link).unwrap();
    assert!(!takes(&folder.open(), 2, "report").await);
}

/// A process that makes a file may die before the first name is gone.
#[tokio::test]
async fn a_name_that_was_left_behind_is_tidied_up() {
    let folder = Folder::new();
    folder.open().close().await;
    let left = folder.path().join("tenure.db-new-0123456789abcdef");
    fs::hard_link(folder.database(), &left).unwrap();
    folder.open().close().await;
    assert!(!left.exists());
}

#[tokio::test]
async fn a_file_that_is_mounted_by_itself_is_refused() {
    if !may_mount("host::a_file_that_is_mounted_by_itself_is_refused") {
        return;
    }
    let folder = Folder::new();
    let store = folder.open();
    let within = folder.path().join("container");
    fs::create_dir(&within).unwrap();
    let path = within.join("tenure.db");
    fs::write(&path, "").unwrap();
    mount(&["--bind", folder.database().to_str().unwrap()], &path);
    refused_for_its_names(&path);
    assert!(takes(&store, 1, "report").await);
    // The folder as a whole is the same one.
    mount(&["--bind", folder.path().to_str().unwrap()], &within);
    assert!(!takes(&SqliteStore::open(within.join("tenure.db")).unwrap(), 2, "report").await);
}

/// A look at the file that closes it again would drop the locks of that connection, and then some versions of SQLite
/// delete the log.
#[tokio::test]
async fn a_connection_of_the_programs_own_keeps_its_locks() {
    let folder = Folder::new();
    folder.open().close().await;
    let shell = folder.shell();
    shell.query_row("SELECT count(*) FROM locks", [], |row| row.get::<_, i64>(0)).unwrap();
    let store = folder.open();
    let inode = {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(folder.database()).unwrap().ino()
    };
    // The kernel's list of locks: process, device and inode, and the bytes. While the list changes some may be left
    // out of it.
    let (mine, inode) = (format!(" {} ", std::process::id()), format!(":{inode} "));
    until_blocking("this process has the database locked", || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let is_locked = locks.lines().any(|line| line.contains(&mine) && line.contains(&inode));
        if is_locked { Ok(()) } else { Err(locks) }
    });
    drop((shell, store));
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = Folder::new();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(matches!(SqliteStore::open(pipe).unwrap_err(), OpenError::Foreign { .. }));
}

#[test]
fn a_path_that_is_too_long_is_no_question_of_rights() {
    let folder = Folder::new();
    let deep = (0..6).fold(folder.path().to_owned(), |deep, _| deep.join("x".repeat(100)));
    fs::create_dir_all(&deep).unwrap();
    let words = SqliteStore::open(deep.join("tenure.db")).unwrap_err().to_string();
    assert!(words.contains("tenure.db") && !words.contains("this user needs"), "{words}");
}

/// Root is everybody: then the test is done as somebody else.
#[tokio::test]
async fn a_file_that_was_opened_to_others_is_used_by_others() {
    if let Ok(place) = std::env::var(PLACE) {
        let store = SqliteStore::open(Path::new(&place).join("tenure.db")).unwrap();
        assert!(
            store.presence(SessionId::from_u128(7)).await.unwrap().is_some(),
            "its death can be proven, too"
        );
        return;
    }
    let folder = Folder::new();
    folder.open().close().await;
    fs::remove_dir(folder.path().join("tenure.db-sessions")).unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    fs::set_permissions(folder.database(), PermissionsExt::from_mode(0o666)).unwrap();
    folder.open().close().await;
    let binary = folder.path().join("binary");
    // By another process: a file that is open for writing here, and so in whatever is just being started, cannot be run.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&binary).status().unwrap();
    assert!(copied.success());
    let mut again = Command::new(binary);
    again.args(["--exact", "host::a_file_that_was_opened_to_others_is_used_by_others", "--nocapture"]);
    again.env(PLACE, folder.path()).current_dir("/");
    if rustix::process::getuid().is_root() {
        again.uid(65534).gid(65534);
    }
    let output = again.output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// The log cannot grow, but what is in it has room in the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_disk_that_is_full_sessions_live_on() {
    if !may_mount("host::on_a_disk_that_is_full_sessions_live_on") {
        return;
    }
    let folder = Folder::new();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"], &disk);
    let store = SqliteStore::open(disk.join("tenure.db")).unwrap();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    assert!(takes(&store, 1, "first").await);
    let mut filler = File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    for number in 1..=20 {
        store.beat(fixture.beat(session, number), LIMIT).await.unwrap();
    }
    store.close().await;
}

/// Another writer would find the file locked for ever: constant writing leaves gaps of microseconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constant_writer_on_a_slow_disk_lets_others_write() {
    const SYNC: Duration = Duration::from_millis(50);
    /// Transactions of the other that one of ours waits for. On a machine that stands still now and then some wait
    /// for more.
    const MANY: usize = 20;

    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicUsize::new(0));
    let busy = thread::spawn({
        let (shell, stop, written) = (folder.shell(), Arc::clone(&stop), Arc::clone(&written));
        move || {
            shell.busy_timeout(Duration::from_secs(10)).unwrap();
            while !stop.load(Ordering::Relaxed) {
                shell.execute_batch("BEGIN IMMEDIATE").unwrap();
                thread::sleep(SYNC);
                shell.execute_batch("COMMIT").unwrap();
                written.fetch_add(1, Ordering::Relaxed);
                // As a store of ours does after a commit that took so long.
                thread::sleep(Duration::from_millis(2));
            }
        }
    });
    let mut waited = Vec::new();
    for number in 1..=20 {
        let before = written.load(Ordering::Relaxed);
        store.beat(fixture.beat(session, number), wait::LIMIT).await.unwrap();
        waited.push(written.load(Ordering::Relaxed) - before);
    }
    stop.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    waited.sort_unstable();
    assert!(waited[waited.len() / 2] <= MANY, "beats waited for so many transactions of another: {waited:?}");
}

/// With a listing that never ends the log could not begin anew, and would grow for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_does_not_grow_for_ever_beside_those_who_read() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    let reader = folder.open();
    let reading = tokio::spawn(async move {
        loop {
            reader.list_locks("shop".parse().unwrap(), None, None, 1000, LIMIT).await.unwrap();
        }
    });
    // The header of the log counts how often it has begun anew.
    let times = || {
        let mut header = [0; 16];
        File::open(folder.path().join("tenure.db-wal")).unwrap().read_exact(&mut header).unwrap();
        u32::from_be_bytes(header[12..].try_into().unwrap())
    };
    let (before, mut round) = (times(), 0);
    let write = async || {
        round += 1;
        let takes = (0..100).map(|number| Take {
            lock: fixture.lock(&format!("{} {number:0>300}", round % 10)),
            by: fixture.talkative(session, round),
        });
        store.take(takes.collect(), Vec::new(), LIMIT).await.unwrap();
        let begun_anew = times() - before;
        if begun_anew >= 2 { Ok(()) } else { Err(begun_anew) }
    };
    until("the log begins anew, and once more", write).await;
    reading.abort();
    println!("after {round} rounds");
}

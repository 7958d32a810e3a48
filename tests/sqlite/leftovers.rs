//! The files of sessions: none is left behind, and none is taken from a session that has one.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Barrier},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Signal, set_parent_process_death_signal},
};
use tenure::{
    model::{Retention, SessionId},
    store::{Presence, SessionSeen, Store, StoreExt, sqlite::SqliteStore},
};
use tenure_conformance::{Fixture, LIMIT};

use crate::{
    folder::{Folder, fixture},
    wait::until,
};

const DATABASE: &str = "TENURE_TEST_LEFTOVERS";
/// The sessions that a process opens, and those that it would have opened a moment later.
const OPENED: usize = 5;
const UNOPENED: usize = 2;

/// The names of the files that there are.
fn files(folder: &Folder) -> Vec<String> {
    let files = fs::read_dir(folder.path().join("tenure.db-sessions")).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// Waits until there are these files, and no others.
async fn until_left(folder: &Folder, expected: &[String]) {
    let look = async || {
        let mut left = files(folder);
        left.sort_unstable();
        if left == expected { Ok(()) } else { Err(left) }
    };
    until("only these files are left", look).await;
}

async fn presence(store: &SqliteStore, session: SessionId) -> Presence {
    store.presence(session).await.unwrap().expect("these tests run on a local file system")
}

/// A session with its file, as an instance opens it.
async fn opened(store: &SqliteStore, fixture: &Fixture) -> (SessionId, Presence) {
    let open = fixture.opening();
    let (session, presence) = (open.session, presence(store, open.session).await);
    assert!(matches!(fixture.open(&open).await, SessionSeen::Alive(_)));
    (session, presence)
}

async fn purge(store: &SqliteStore, fixture: &Fixture) {
    let (namespace, retention) = (fixture.namespace().clone(), Retention::default());
    let purged = store.purge(namespace, retention, None, LIMIT).await.unwrap();
    assert_eq!(purged.next, None);
}

/// Purges until these files are gone.
async fn purged_until_gone(store: &SqliteStore, fixture: &Fixture, files: &[PathBuf]) {
    let look = async || {
        purge(store, fixture).await;
        let left: Vec<_> = files.iter().filter(|file| file.exists()).collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    };
    until("a purge removes these files", look).await;
}

#[tokio::test]
#[ignore = "not a test: the process that others start"]
async fn holds() {
    let Ok(database) = std::env::var(DATABASE) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let store = SqliteStore::open(database).unwrap();
    let (fixture, mut kept) = (fixture(&store), Vec::new());
    for _ in 0..OPENED {
        kept.push(opened(&store, &fixture).await.1);
    }
    for _ in 0..UNOPENED {
        kept.push(presence(&store, fixture.session()).await);
    }
    println!("\nheld");
    std::future::pending::<()>().await;
}

/// A process with sessions, that is killed with this value.
struct Process(Child);

impl Process {
    fn start(folder: &Folder) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "leftovers::holds", "--ignored", "--nocapture"])
            .env(DATABASE, folder.database())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let process = Self(child);
        assert!(out.lines().map_while(Result::ok).any(|line| line == "held"), "it ended too early");
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_leave_no_file() {
    let folder = Folder::new();
    let mut processes: Vec<_> = (0..3).map(|_| Process::start(&folder)).collect();
    assert_eq!(files(&folder).len(), 3 * (OPENED + UNOPENED));
    // At once: none of them is there to hear of the others.
    for process in &mut processes {
        process.0.kill().unwrap();
    }
    drop(processes);
    assert!(files(&folder).len() >= OPENED + UNOPENED, "{:?}", files(&folder));

    let store = folder.open();
    let fixture = fixture(&store);
    let (session, _presence) = opened(&store, &fixture).await;
    until_left(&folder, &[session.to_string()]).await;
    let alive = "SELECT count(*) FROM sessions WHERE died_at IS NULL";
    let alive: i64 = folder.shell().query_row(alive, [], |row| row.get(0)).unwrap();
    assert_eq!(alive, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sessions_that_came_and_went_leave_no_file() {
    let folder = Folder::in_memory();
    let store = folder.open();
    let fixture = fixture(&store);
    let mut most = 0;
    for number in 0..1000 {
        let (session, presence) = opened(&store, &fixture).await;
        // Some are closed in the store, some die, and some are never opened.
        match number % 3 {
            0 => drop(fixture.declare_dead(session).await),
            1 => drop(self::presence(&store, fixture.session()).await),
            _ => {}
        }
        drop(presence);
        most = most.max(files(&folder).len());
    }
    until_left(&folder, &[]).await;
    println!("at most {most} files at a time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_removes_session_files_that_nobody_holds_and_no_record_names() {
    let folder = Folder::new();
    folder.open().close().await;
    let within = folder.path().join("tenure.db-sessions");
    // What is moved to its place is told to nobody. Like the file of a session it is locked before it has its name.
    let place = |name: &str| {
        let made = folder.path().join("made");
        fs::write(&made, "").unwrap();
        let file = fs::File::open(&made).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        fs::rename(&made, within.join(name)).unwrap();
        file
    };
    drop(place("new-fedcba9876543210"));
    let store = folder.open();
    let fixture = fixture(&store);
    // With this the store has looked at all files once. From now on only a purge does.
    until_left(&folder, &[]).await;
    let [stray, held] = [(); 2].map(|()| fixture.session().to_string());
    let (unfinished, notes) = ("new-0123456789abcdef", "notes");
    for name in [&stray, unfinished, notes] {
        drop(place(name));
    }
    let holder = place(&held);
    // A newer version may know what it is for.
    let (newer, newers) = opened(&store, &fixture).await;
    folder.shell().execute("UPDATE sessions SET v = 99", []).unwrap();
    drop(newers);
    // Its own thread hears of one close after the other: of that one, when the next one has had its effect.
    let (next, presence) = opened(&store, &fixture).await;
    drop(presence);
    let next = within.join(next.to_string());
    until("a session that ended leaves no file", async || if next.exists() { Err(&next) } else { Ok(()) })
        .await;

    // A process that another test starts has a copy of every descriptor, until its program begins.
    let gone = [within.join(&stray), within.join(unfinished)];
    purged_until_gone(&store, &fixture, &gone).await;
    let mut expected = [notes.to_owned(), held.clone(), newer.to_string()];
    expected.sort_unstable();
    let mut left = files(&folder);
    left.sort_unstable();
    assert_eq!(left, expected, "held: {held}, of a newer version: {newer}");
    drop(holder);
    purged_until_gone(&store, &fixture, &[within.join(&held)]).await;
    assert!(within.join(newer.to_string()).exists());
}

/// An opening of a store, and a purge, tidy up while others open sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_just_being_opened_never_loses_its_file() {
    const OPENERS: usize = 3;
    const EACH: usize = 60;

    let folder = Arc::new(Folder::in_memory());
    let store = folder.open();
    let begin = Arc::new(Barrier::new(OPENERS + 2));
    let opening = Arc::new(());
    let openers: Vec<_> = (0..OPENERS)
        .map(|_| {
            let (folder, begin, opening) = (folder.clone(), begin.clone(), opening.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let store = folder.open();
                begin.wait();
                runtime.block_on(async {
                    let (fixture, mut all) = (fixture(&store), Vec::new());
                    for _ in 0..EACH {
                        all.push(opened(&store, &fixture).await);
                    }
                    drop(opening);
                    (store, all)
                })
            })
        })
        .collect();
    let tidying: Vec<_> = [true, false]
        .map(|purges| {
            let (folder, begin, opening) = (folder.clone(), begin.clone(), Arc::downgrade(&opening));
            let store = store.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let fixture = fixture(&store);
                begin.wait();
                let mut times = 0;
                while opening.strong_count() > 0 || times == 0 {
                    times += 1;
                    if purges {
                        runtime.block_on(purge(&store, &fixture));
                    } else {
                        runtime.block_on(folder.open().close());
                    }
                }
                times
            })
        })
        .into();
    drop(opening);
    let sessions: Vec<_> = openers.into_iter().map(|opener| opener.join().unwrap()).collect();
    let times: Vec<usize> = tidying.into_iter().map(|one| one.join().unwrap()).collect();
    println!("purged and opened {times:?} times");

    let shell = folder.shell();
    let mut statement = shell.prepare("SELECT id, file_inode FROM sessions").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?))).unwrap();
    let on_record: BTreeMap<String, i64> = rows.collect::<Result<_, _>>().unwrap();
    assert_eq!(on_record.len(), OPENERS * EACH);
    for (session, inode) in on_record {
        let file = fs::metadata(folder.path().join("tenure.db-sessions").join(&session));
        assert_eq!(file.unwrap().ino().cast_signed(), inode, "{session}");
    }
    assert_eq!(files(&folder).len(), OPENERS * EACH);
    drop(sessions);
    until_left(&folder, &[]).await;
}

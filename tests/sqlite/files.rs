//! Files that are not as they should be: each is named with the rule that it breaks, and nothing is overwritten.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tenure::{
    Applied,
    model::LockId,
    store::{
        LockRecord, LockSeen, ReleaseTo, SessionSeen, StoreExt, Take, TakeAnswer,
        sqlite::{OpenError, SqliteOptions, SqliteStore},
    },
};
use tenure_conformance::{Fixture, LIMIT};

use crate::folder::{Folder, fixture};

const PAGE: usize = 4096;

fn refused(path: &Path) -> OpenError {
    let error = SqliteStore::open(path).expect_err("this file cannot be used");
    let words = error.to_string();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(words.contains(name) || words.contains(path.parent().unwrap().to_str().unwrap()), "{words}");
    error
}

/// All files of a folder, byte by byte.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.clone(), fs::read(path).unwrap_or_default())).collect()
}

/// A store of many locks, and all the records that each of them ever had.
async fn filled(store: &SqliteStore) -> (Fixture, BTreeMap<LockId, Vec<LockRecord>>) {
    let fixture = fixture(store);
    let mut known = BTreeMap::new();
    let session = fixture.opened().await.id;
    let locks: Vec<_> = (0..300).map(|number| fixture.lock(&format!("order {number:0>100}"))).collect();
    let takes = locks.iter().map(|lock| Take { lock: lock.clone(), by: fixture.candidate(session, 1) });
    for answer in fixture.take_all(takes.collect(), &[]).await {
        let TakeAnswer::Taken(record) = answer else { panic!("it was free: {answer:?}") };
        known.insert(record.id.clone(), vec![record]);
    }
    for lock in locks.iter().step_by(7) {
        let record = fixture.record(lock).await;
        let freed = fixture.freed(&record).await;
        known.get_mut(lock).unwrap().push(freed);
    }
    (fixture, known)
}

/// Opens what may be damaged, and reads everything. Answers that it gives are records that there were; it is true if
/// it gave any.
async fn is_an_error_or_right(path: &Path, known: &BTreeMap<LockId, Vec<LockRecord>>) -> bool {
    let store = match SqliteStore::open(path) {
        Ok(store) => store,
        Err(OpenError::Damaged { path: named, .. }) => {
            assert_eq!(named, fs::canonicalize(path).unwrap_or(named.clone()));
            return false;
        }
        Err(other) => panic!("{other}"),
    };
    let locks: Vec<_> = known.keys().cloned().collect();
    match store.locks(locks.clone(), LIMIT).await {
        Ok(seen) => {
            for (lock, seen) in locks.iter().zip(seen) {
                if let LockSeen::Found(record) = seen {
                    assert!(known[lock].contains(&record), "{record:?} was never so");
                }
            }
        }
        Err(error) => assert!(error.to_string().contains("is damaged"), "{error}"),
    }
    true
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_its_owners_alone_and_whole_from_its_first_moment() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let store = folder.open();
    fixture(&store).opened().await;
    let files = contents(folder.path());
    let names: Vec<_> = files.keys().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    let with_sessions = ["tenure.db", "tenure.db-sessions", "tenure.db-shm", "tenure.db-wal"];
    assert_eq!(names, with_sessions, "nothing else is left");
    for path in files.keys() {
        let owners_alone = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, owners_alone, "{path:?}");
    }
}

#[tokio::test]
async fn a_file_is_opened_again_with_all_that_is_in_it() {
    let folder = Folder::new();
    let store = folder.open();
    let (fixture, known) = filled(&store).await;
    drop(fixture);
    store.close().await;
    let files: Vec<_> = contents(folder.path()).into_keys().collect();
    assert_eq!(
        files,
        [folder.database(), folder.path().join("tenure.db-sessions")],
        "its log was written back"
    );
    assert!(is_an_error_or_right(&folder.database(), &known).await);
    let store = folder.open();
    let locks: Vec<_> = known.keys().cloned().collect();
    let seen = store.locks(locks, LIMIT).await.unwrap();
    let last = known.values().map(|records| LockSeen::Found(records.last().unwrap().clone()));
    assert_eq!(seen, last.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_left_alone() {
    let folder = Folder::new();
    folder.open().close().await;
    let shell = folder.shell();
    let _: String = shell.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0)).unwrap();
    shell.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(shell);
    let before = contents(folder.path());
    let error = refused(&folder.database());
    assert!(matches!(&error, OpenError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("newer version of tenure"), "{error}");
    assert_eq!(contents(folder.path()), before);
}

/// An instance of a newer version has brought the tables up to its own while the file is in use.
#[tokio::test]
async fn a_newer_layout_stops_those_who_do_not_know_it() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    folder.shell().pragma_update(None, "user_version", 4).unwrap();
    let error = store.beat(fixture.beat(session, 1), LIMIT).await.unwrap_err();
    assert!(error.to_string().contains("a newer version of tenure has changed it to layout 4"), "{error}");
}

/// A layout that SQLite knows from the log alone is found, too.
#[tokio::test]
async fn a_version_that_only_the_log_knows_is_seen() {
    let folder = Folder::new();
    let store = folder.open();
    folder.shell().execute_batch("PRAGMA user_version = 99").unwrap();
    let copy = Folder::new();
    for file in ["tenure.db", "tenure.db-wal"] {
        fs::copy(folder.path().join(file), copy.path().join(file)).unwrap();
    }
    let error = refused(&copy.database());
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    drop(store);
}

#[test]
fn foreign_files_are_left_alone() {
    let folder = Folder::new();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "something else, and it is longer than a header of SQLite is: ".repeat(10)).unwrap();
    let database = folder.path().join("shop.db");
    let shell = rusqlite::Connection::open(&database).unwrap();
    shell.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)").unwrap();
    drop(shell);
    let within = folder.path().join("folder");
    fs::create_dir(&within).unwrap();
    // A program may have it open for itself.
    let _open = fs::File::open(&within).unwrap();
    let before = contents(folder.path());
    for (path, expected) in
        [(&text, "no SQLite database"), (&database, "application id 0x0"), (&within, "folder or device")]
    {
        let error = refused(path);
        assert!(matches!(error, OpenError::Foreign { .. } | OpenError::Failed { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error} should tell of {expected}");
        assert!(!error.is_retryable());
    }
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_path_that_leads_nowhere_is_named() {
    let folder = Folder::new();
    let error = refused(&folder.path().join("missing/tenure.db"));
    assert!(matches!(&error, OpenError::Folder { path, .. } if path.ends_with("missing")), "{error}");
}

/// SQLite would take an empty file for a new database, and delete a log without one.
#[tokio::test]
async fn an_empty_file_or_a_log_alone_is_no_new_database() {
    let folder = Folder::new();
    let empty = folder.path().join("empty.db");
    fs::write(&empty, "").unwrap();
    let error = refused(&empty);
    assert!(error.to_string().contains("it is empty"), "{error}");
    let gone = folder.path().join("gone.db");
    fs::write(folder.path().join("gone.db-wal"), "a log").unwrap();
    let error = refused(&gone);
    assert!(error.to_string().contains("it is gone, and its log"), "{error}");
    assert_eq!(fs::read(folder.path().join("gone.db-wal")).unwrap(), b"a log");
    assert!(!gone.exists() && fs::read(empty).unwrap().is_empty());
}

#[tokio::test]
async fn half_a_file_is_refused_wherever_it_is_cut() {
    let folder = Folder::new();
    let store = folder.open();
    let (fixture, _) = filled(&store).await;
    drop(fixture);
    store.close().await;
    let whole = fs::read(folder.database()).unwrap();
    assert!(whole.len() > 20 * PAGE, "{}", whole.len());
    let cut = folder.path().join("cut.db");
    let pages = (0..whole.len()).step_by(PAGE);
    for length in pages.chain([1, 50, 99, 100, 5000, whole.len() - 1]) {
        fs::write(&cut, &whole[..length]).unwrap();
        let error = refused(&cut);
        assert!(matches!(error, OpenError::Damaged { .. }), "{length}: {error}");
        assert_eq!(fs::read(&cut).unwrap().len(), length, "nothing is written");
    }
}

/// A copy of file and log, either of them cut: whatever is answered was so at some time.
#[tokio::test]
async fn a_copy_that_is_cut_is_refused_or_right() {
    let folder = Folder::new();
    let store = folder.open();
    let (_fixture, known) = filled(&store).await;
    let [file, log] = ["tenure.db", "tenure.db-wal"].map(|name| fs::read(folder.path().join(name)).unwrap());
    let mut opened = 0;
    let cuts = |length: usize| (0..=length).step_by(PAGE);
    for length in cuts(log.len()) {
        let copy = Folder::in_memory();
        fs::write(copy.database(), &file).unwrap();
        fs::write(copy.path().join("tenure.db-wal"), &log[..length]).unwrap();
        opened += u32::from(is_an_error_or_right(&copy.database(), &known).await);
    }
    assert!(opened > 0, "the whole copy can be opened");
    for length in cuts(file.len()) {
        let copy = Folder::in_memory();
        fs::write(copy.database(), &file[..length]).unwrap();
        fs::write(copy.path().join("tenure.db-wal"), &log).unwrap();
        is_an_error_or_right(&copy.database(), &known).await;
    }
}

/// Pages that a disk has lost or mixed up.
#[tokio::test]
async fn pages_that_make_no_sense_are_noticed() {
    let folder = Folder::new();
    let store = folder.open();
    let (fixture, known) = filled(&store).await;
    drop(fixture);
    store.close().await;
    let whole = fs::read(folder.database()).unwrap();
    let page = PAGE;
    let mut refused = 0;
    for number in 1..whole.len() / page {
        for filling in [0_u8, 0xff, 0x55] {
            let copy = Folder::in_memory();
            let mut damaged = whole.clone();
            damaged[number * page..(number + 1) * page].fill(filling);
            fs::write(copy.database(), damaged).unwrap();
            refused += usize::from(!is_an_error_or_right(&copy.database(), &known).await);
        }
    }
    assert!(refused > whole.len() / page, "{refused}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_system_that_is_not_known_to_be_local_is_refused() {
    let error = SqliteStore::open("/proc/tenure.db").unwrap_err();
    assert!(matches!(error, OpenError::NotLocal { .. }), "{error}");
    assert!(error.to_string().starts_with("/proc: it is on a file system of kind 0x9fa0"), "{error}");
}

/// Root may write everywhere: then the test does it as somebody else.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_the_user_cannot_write_is_named() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};

    const PLACE: &str = "TENURE_TEST_READ_ONLY";
    if let Ok(place) = std::env::var(PLACE) {
        let place = Path::new(&place);
        for name in ["closed/tenure.db", "closed/new.db", "open/tenure.db"] {
            let error = SqliteStore::open(place.join(name)).expect_err(name);
            assert!(matches!(error, OpenError::ReadOnly { .. }), "{name}: {error}");
            assert!(error.to_string().contains(place.to_str().unwrap()), "{error}");
        }
        return;
    }
    let folder = Folder::new();
    folder.open().close().await;
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for (within, mode) in [("closed", 0o555), ("open", 0o777)] {
        let within = folder.path().join(within);
        fs::create_dir(&within).unwrap();
        let file = within.join("tenure.db");
        fs::copy(folder.database(), &file).unwrap();
        fs::set_permissions(file, PermissionsExt::from_mode(0o444)).unwrap();
        fs::set_permissions(within, PermissionsExt::from_mode(mode)).unwrap();
    }
    let before = contents(&folder.path().join("closed"));
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "files::a_file_that_the_user_cannot_write_is_named", "--nocapture"]);
    again.env(PLACE, folder.path()).current_dir("/");
    if rustix::process::getuid().is_root() {
        again.uid(65534).gid(65534);
    }
    match again.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        }
        // Nobody but root may reach the binary of the tests.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}"),
    }
    assert_eq!(contents(&folder.path().join("closed")), before);
    fs::set_permissions(folder.path().join("closed"), PermissionsExt::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn on_a_full_disk_what_is_there_goes_on_and_nothing_new_is_half_stored() {
    let folder = Folder::new();
    let store = SqliteStore::open_with(folder.database(), SqliteOptions::new().max_pages(60)).unwrap();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    let first = fixture.held(&fixture.lock("first"), session, 1).await;
    let mut taken = 0;
    let error = loop {
        let takes = (0..20).map(|number| Take {
            lock: fixture.lock(&format!("{taken} {number:0>300}")),
            by: fixture.talkative(session, 1),
        });
        match store.take(takes.collect(), Vec::new(), LIMIT).await {
            Ok(_) => taken += 20,
            Err(error) => break error,
        }
    };
    let words = error.to_string();
    assert!(words.contains("there is no room for") && words.contains("tenure.db"), "{words}");
    assert_eq!(error.applied(), Applied::No);
    let half = store.locks(vec![fixture.lock(&format!("{taken} {:0>300}", 0))], LIMIT).await.unwrap();
    assert_eq!(half, [LockSeen::Absent], "all of a batch that fails is undone");
    let beaten = fixture.send(&fixture.beat(session, 1)).await;
    assert!(matches!(beaten, SessionSeen::Alive(_)), "{beaten:?}");
    fixture.release(&first.id, session, first.term, ReleaseTo::Free).await;
    assert_eq!(fixture.record(&first.id).await.holding, None);
    // With more room it goes on.
    let more = SqliteStore::open(folder.database()).unwrap();
    let more = Fixture::new(Arc::new(more));
    more.held(&more.lock("more"), session, 2).await;
}

/// A store that went on with the old file would exclude no other.
#[tokio::test]
async fn a_file_that_was_removed_or_replaced_is_written_no_more() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    let away = folder.path().join("away.db");
    fs::rename(folder.database(), &away).unwrap();
    let error = store.beat(fixture.beat(session, 1), LIMIT).await.unwrap_err();
    assert!(error.to_string().contains("removed or replaced while it was in use"), "{error}");
    assert_eq!((error.applied(), error.is_retryable()), (Applied::No, false));
    fs::rename(away, folder.database()).unwrap();
    assert!(matches!(fixture.send(&fixture.beat(session, 2)).await, SessionSeen::Alive(_)));
}

//! A file that was restored from a backup.

use std::{fs, sync::Arc, time::Duration};

use tenure::{
    Clock,
    model::Term,
    store::{
        LockSeen, SessionSeen, StoreExt,
        sqlite::{OpenError, SqliteOptions, SqliteStore},
    },
    testing::TestClock,
};
use tenure_conformance::LIMIT;

use crate::folder::{Folder, fixture};

const HOUR: Duration = Duration::from_secs(3600);

/// The clock is an hour behind what it was: without the command a term would be given out again.
#[tokio::test]
async fn after_its_terms_were_raised_a_backup_gives_out_none_again() {
    let (folder, restored) = (Folder::new(), Folder::new());
    let clock = Arc::new(TestClock::new());
    let options = SqliteOptions::new().clock(clock.clone());
    let store = SqliteStore::open_with(folder.database(), options.clone()).unwrap();
    let fixture_of = fixture(&store);
    let session = fixture_of.opened().await.id;
    let lock = fixture_of.lock("report");
    let first = fixture_of.held(&lock, session, 1).await;
    folder.shell().execute("VACUUM INTO ?1", [restored.database().to_str().unwrap()]).unwrap();
    clock.step_wall(HOUR);
    fixture_of.freed(&first).await;
    let answered = fixture_of.held(&lock, session, 2).await.term;
    clock.step_wall_back(2 * HOUR);

    assert!(fs::metadata(restored.database()).unwrap().len() > 0);
    assert_eq!(SqliteStore::raise_terms_with(restored.database(), &options).unwrap(), 1);
    let store = SqliteStore::open_with(restored.database(), options).unwrap();
    let SessionSeen::Dead(dead) = store.observe(vec![session], LIMIT).await.unwrap().remove(0) else {
        panic!("the sessions of a backup are dead");
    };
    assert_eq!(dead.death.unwrap().why.as_str(), "the database was restored from a backup");
    let LockSeen::Found(record) = store.locks(vec![lock.clone()], LIMIT).await.unwrap().remove(0) else {
        panic!("it was in the backup");
    };
    assert!(record.is_held_by(session), "it is taken from its dead holder like any other");
    let fixture_of = fixture(&store);
    let by = fixture_of.candidate(fixture_of.session(), 1);
    let next = fixture_of.take_over(&lock, &by, &[session]).await;
    let next = next.taken().expect("its holder is dead").term;
    assert!(next > answered, "{next} after {answered}, by a clock at {}", clock.wall());
}

/// As a copy may be that was made of the bare files while they were written.
#[tokio::test]
async fn a_backup_whose_tables_and_indexes_are_of_different_moments_is_refused() {
    const INDEX: &str = "name = 'locks_of_session'";

    let folder = Folder::new();
    let store = folder.open();
    let fixture_of = fixture(&store);
    let session = fixture_of.opened().await.id;
    let record = fixture_of.held(&fixture_of.lock("report"), session, 1).await;
    drop(fixture_of);
    store.close().await;
    let hidden = folder.shell();
    hidden
        .execute_batch(&format!(
            "PRAGMA writable_schema = ON; CREATE TEMP TABLE kept AS SELECT * FROM sqlite_schema WHERE {INDEX};
             DELETE FROM sqlite_schema WHERE {INDEX}; PRAGMA writable_schema = RESET;
             UPDATE locks SET session = '{:032x}';
             PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT * FROM kept;
             PRAGMA writable_schema = RESET;",
            7
        ))
        .unwrap();
    drop(hidden);
    let error = SqliteStore::raise_terms(folder.database()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("row 1 missing from index locks_of_session"), "{error}");
    let term = folder.shell().query_row("SELECT term FROM locks", [], |row| row.get::<_, i64>(0));
    assert_eq!(term.map(|term| Term::new(term.cast_unsigned())), Ok(record.term), "nothing is written");
}

/// A lock that was first taken after the backup was made, by a clock that was an hour ahead.
#[tokio::test]
async fn terms_are_raised_for_locks_that_the_backup_does_not_know() {
    let (folder, restored) = (Folder::new(), Folder::new());
    let clock = Arc::new(TestClock::new());
    let options = SqliteOptions::new().clock(clock.clone());
    let store = SqliteStore::open_with(folder.database(), options.clone()).unwrap();
    folder.shell().execute("VACUUM INTO ?1", [restored.database().to_str().unwrap()]).unwrap();
    clock.step_wall(HOUR);
    let fixture_of = fixture(&store);
    let answered = fixture_of.held(&fixture_of.lock("report"), fixture_of.session(), 1).await.term;
    clock.step_wall_back(HOUR);
    SqliteStore::raise_terms_with(restored.database(), &options).unwrap();
    let store = SqliteStore::open_with(restored.database(), options).unwrap();
    let fixture_of = fixture(&store);
    let next = fixture_of.held(&fixture_of.lock("report"), fixture_of.session(), 1).await.term;
    assert!(next > answered, "{next} after {answered}, by a clock at {}", clock.wall());
}

#[tokio::test]
async fn terms_of_a_file_that_is_not_there_or_in_use_are_not_raised() {
    let folder = Folder::new();
    let error = SqliteStore::raise_terms(folder.database()).unwrap_err();
    assert!(error.to_string().contains("tenure.db") && !folder.database().exists(), "{error}");

    let store = folder.open();
    let fixture_of = fixture(&store);
    let session = fixture_of.opened().await.id;
    let refused = || {
        let raised = SqliteStore::raise_terms(folder.database());
        assert!(matches!(raised, Err(OpenError::InUse { .. })), "{raised:?}");
    };
    refused();
    assert!(matches!(fixture_of.seen(session).await, SessionSeen::Alive(_)));

    // A session that could get no file, in a process that is gone: it is alive until its ttl is over.
    drop(fixture_of);
    store.close().await;
    let shell = folder.shell();
    shell.execute("UPDATE sessions SET file_dev = NULL, file_inode = NULL, boot_id = NULL", []).unwrap();
    refused();
    shell.execute("UPDATE sessions SET beat_at = beat_at - ttl_ms", []).unwrap();
    drop(shell);
    assert_eq!(SqliteStore::raise_terms(folder.database()).unwrap(), 0);
}

//! Several stores and several processes on one file.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};

use tenure::{
    model::{Key, Kind, LockId, SessionId},
    store::{StoreExt, Take, TakeAnswer, Ticket, sqlite::SqliteStore},
};
use tenure_conformance::{LIMIT, TTL};

use crate::folder::{Folder, fixture};

#[cfg(unix)]
#[tokio::test]
async fn a_file_under_several_names_is_one_store() {
    let folder = Folder::new();
    let first = folder.open();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(folder.database(), &link).unwrap();
    let others = [folder.open(), SqliteStore::open(&link).unwrap()];
    let fixture_of = fixture(&first);
    let record = fixture_of.held(&fixture_of.lock("report"), fixture_of.session(), 1).await;
    for other in others {
        let take = Take { lock: record.id.clone(), by: fixture_of.candidate(fixture_of.session(), 1) };
        assert_eq!(
            other.take(vec![take], Vec::new(), LIMIT).await.unwrap(),
            [TakeAnswer::Held(record.clone())]
        );
    }
}

const PLACE: &str = "TENURE_TEST_CROWDED";
const PROCESSES: usize = 6;
const KEYS: usize = 40;

/// The process of one contender: takes whatever it gets, one by one, and prints it.
async fn contend(place: &str) {
    let (number, path) = place.split_once(' ').unwrap();
    let store = SqliteStore::open(path).unwrap();
    let session = SessionId::from_u128(number.parse().unwrap());
    for key in 0..KEYS {
        let lock = LockId {
            namespace: "shop".parse().unwrap(),
            kind: Kind::Lock,
            key: Key::new(format!("key {key}")).unwrap(),
        };
        let by = tenure::store::Candidate::new(session, Ticket::new(1), TTL, "pod".parse().unwrap());
        match store.take(vec![Take { lock, by }], Vec::new(), LIMIT).await.unwrap().remove(0) {
            TakeAnswer::Taken(record) => println!("GOT {key} {}", record.term),
            TakeAnswer::Held(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A plain `BEGIN` that upgrades would fail here again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_processes_that_race_one_gets_each_key_and_none_fails() {
    if let Ok(place) = std::env::var(PLACE) {
        return contend(&place).await;
    }
    // They race for making it, too.
    let folder = Folder::new();
    let start = |number: usize| {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args([
            "--exact",
            "crowded::of_processes_that_race_one_gets_each_key_and_none_fails",
            "--nocapture",
        ]);
        again.env(PLACE, format!("{number} {}", folder.database().display()));
        again.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<_> = (1..=PROCESSES).map(start).collect();
    let mut got = BTreeMap::<String, u32>::new();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        for line in said.lines().filter_map(|line| line.split_once("GOT ")) {
            *got.entry(line.1.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
    }
    assert_eq!(got.len(), KEYS, "{got:?}");
    assert!(got.values().all(|count| *count == 1), "{got:?}");
}

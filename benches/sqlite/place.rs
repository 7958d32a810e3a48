//! A folder of the bench's own, the stores in it, and processes beside this one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use tenure::{Elect, store::sqlite::SqliteStore};

use crate::instances::{config, start};

/// Variable with the purpose of such a process.
const PURPOSE: &str = "TENURE_BENCH_PURPOSE";
/// The database that it uses.
const DATABASE: &str = "TENURE_BENCH_DATABASE";

/// A folder that goes with this value.
#[derive(Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(stage: &str) -> Self {
        // On a disk: a temporary folder may be in memory, where a sync costs nothing.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stage}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the target folder can be written");
        Self(folder)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("tenure.db")
    }

    pub(crate) fn floor(&self) -> PathBuf {
        self.0.join("floor.db")
    }

    pub(crate) fn store(&self) -> SqliteStore {
        open(&self.database())
    }

    pub(crate) async fn instance(&self, holder: &str) -> Elect {
        start(self.store(), config(holder)).await
    }

    /// Starts this program once more, for that purpose, on this database.
    pub(crate) fn process(&self, purpose: &str) -> Process {
        let program = std::env::current_exe().expect("this program has a file");
        let child = Command::new(program)
            .env(PURPOSE, purpose)
            .env(DATABASE, self.database())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        Process(child)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // An error leaves files in the target folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process beside this one. Killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether this process was started for that. If so, it ends with the one that started it.
pub(crate) fn is_started_for(purpose: &str) -> bool {
    let is_so = std::env::var(PURPOSE).is_ok_and(|known| known == purpose);
    if is_so {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("it is a valid signal");
    }
    is_so
}

/// The store of a process that was started beside the bench.
pub(crate) fn given_store() -> SqliteStore {
    open(Path::new(&std::env::var_os(DATABASE).expect("whoever started it says where")))
}

fn open(database: &Path) -> SqliteStore {
    SqliteStore::open(database).expect("the folder is ours")
}

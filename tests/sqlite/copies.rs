//! Copies of the bare files, taken while they are written. Nobody should make them, and somebody will.
//!
//! The file and its log are read one after the other, with pauses, by a process that has neither open by SQLite (this
//! one): closing another descriptor would drop SQLite's locks. So a copy may be of no moment at all: a file with a log
//! that was begun again meanwhile, with one that is older than itself, or read in the middle of a checkpoint. The
//! checksums of the log tell of none of these.
//!
//! Such a copy is refused, or every row that can be read in it was so at some time, and none of its keys is granted
//! under a term again: for that a term need only be behind the clock. What nobody notices is that its rows are of
//! different moments, and that of a value which is longer than a page some pages may be: these are counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Read},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::{
    process::{Signal, set_parent_process_death_signal},
    time::{ClockId, clock_gettime},
};
use tenure::{
    StoreError,
    model::{Holder, Kind, LockId, Retention, SessionId, Term, Value, Why},
    store::{
        Candidate, Declaration, Evidence, LockRecord, LockSeen, Release, ReleaseTo, SessionSeen, Store,
        StoreExt, Take, TakeAnswer, Ticket, Wait,
        sqlite::{OpenError, SqliteStore},
    },
};
use tenure_conformance::{LIMIT, TTL};

use crate::folder::{Folder, fixture};

/// The seed, the number and the file of a process that makes the load.
const LOAD: &str = "TENURE_TEST_LOAD";
const COPIES: usize = 60;
const PROCESSES: u64 = 2;
/// In each process.
const TASKS: u64 = 3;
const KEYS: u64 = 40;
/// After so many grants a task goes on under another session.
const GRANTS: u64 = 30;

/// Dice that fall the same way for the same seed (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % most
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(longest.as_nanos()).unwrap() + 1))
    }
}

/// A clock that all processes share.
fn now() -> u128 {
    let now = clock_gettime(ClockId::Monotonic);
    u128::from(now.tv_sec.cast_unsigned()) * 1_000_000_000 + u128::from(now.tv_nsec.cast_unsigned())
}

fn lock(key: u64) -> LockId {
    let key = format!("order {key:0>60}").parse().unwrap();
    LockId { namespace: "load".parse().unwrap(), kind: Kind::Lock, key }
}

fn holder() -> Holder {
    "pod".parse().unwrap()
}

/// Long ones take pages of their own. All of it tells whose it is.
fn value(ticket: Ticket, length: u64) -> Value {
    Value::new(vec![ticket.get().to_le_bytes()[0]; usize::try_from(length).unwrap()]).unwrap()
}

/// A value that is not as it was set: its pages are of different moments.
fn is_patched(record: &LockRecord) -> bool {
    let by = record.holding.as_ref().map(|holding| &holding.by);
    by.is_some_and(|by| {
        let value = by.value.as_ref().map(Value::as_bytes).unwrap_or_default();
        value.iter().any(|byte| *byte != by.ticket.get().to_le_bytes()[0])
    })
}

// ----- the load

async fn opened(store: &SqliteStore) -> SessionId {
    let mut open = fixture(store).opening();
    open.about.namespace = "load".parse().unwrap();
    // It has a file, which goes with the process: terms of a copy are not raised while a session may be alive.
    std::mem::forget(store.presence(open.session).await.unwrap());
    assert!(matches!(store.open(open.clone(), LIMIT).await, Ok(SessionSeen::Alive(_))));
    open.session
}

fn declaration(session: SessionId, ground: Evidence) -> Declaration {
    let why = Why::new("a test").unwrap();
    Declaration { session, ground, by: holder(), why, tell: Vec::new() }
}

/// Ends a session and all that is left of it, so that its place in the tables is used again.
async fn closed(store: &SqliteStore, session: SessionId) {
    let declaration = declaration(session, Evidence::Operator);
    store.declare(declaration, LIMIT).await.unwrap();
    let retention = Retention { sessions: Duration::ZERO, ..Retention::default() };
    store.purge("load".parse().unwrap(), retention, None, LIMIT).await.unwrap();
}

/// Takes and releases keys as quickly as it can, and says which terms it was answered, and when.
async fn contend(store: SqliteStore, mut dice: Dice, ends: Arc<AtomicBool>) {
    let (mut session, mut tickets, mut left) = (opened(&store).await, 0, GRANTS);
    while !ends.load(Ordering::Acquire) {
        tickets += 1;
        let (ticket, key) = (Ticket::new(tickets), dice.below(KEYS));
        let mut by = Candidate::new(session, ticket, TTL, holder());
        by.value = Some(value(ticket, dice.below(6000)));
        let take = Take { lock: lock(key), by: by.clone() };
        let taken = store.take(vec![take], Vec::new(), LIMIT).await.unwrap().remove(0);
        assert!(!matches!(taken, TakeAnswer::Refused(_)), "{taken:?}");
        if let TakeAnswer::Taken(record) = taken {
            println!("GOT {key} {} {session} {}", record.term, now());
            let (lock, term) = (record.id, record.term);
            let release = Release { lock, session, term, note: None, then: ReleaseTo::Free };
            store.release(vec![release], LIMIT).await.unwrap();
            left -= 1;
        } else {
            store.wait(vec![Wait { lock: lock(key), by }], LIMIT).await.unwrap();
            store.stop_waiting(vec![(lock(key), session, ticket)], LIMIT).await.unwrap();
        }
        if left == 0 {
            closed(&store, session).await;
            (session, left) = (opened(&store).await, GRANTS);
        }
    }
}

/// Writes the log back again and again, in each of the ways in which SQLite does.
fn write_back(path: &Path, mut dice: Dice, ends: &AtomicBool) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_millis(5)).unwrap();
    while !ends.load(Ordering::Acquire) {
        let way = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][usize::try_from(dice.below(4)).unwrap()];
        // It may be busy.
        let _ = connection.query_row(&format!("PRAGMA wal_checkpoint({way})"), [], |_| Ok(()));
        thread::sleep(dice.up_to(Duration::from_millis(12)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "not a test: the processes that others start"]
async fn loads() {
    let Ok(load) = std::env::var(LOAD) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let mut parts = load.splitn(3, ' ');
    let [seed, number] = [(); 2].map(|()| parts.next().unwrap().parse::<u64>().unwrap());
    let path = parts.next().unwrap().to_owned();
    let store = SqliteStore::open(&path).unwrap();
    let ends = Arc::<AtomicBool>::default();
    let dice = |task: u64| Dice(seed ^ (number << 8 | task).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let tasks: Vec<_> =
        (1..=TASKS).map(|task| tokio::spawn(contend(store.clone(), dice(task), ends.clone()))).collect();
    let checkpoints = (number == 1).then(|| {
        let (dice, ends) = (dice(0), ends.clone());
        thread::spawn(move || write_back(Path::new(&path), dice, &ends))
    });
    // Until the one that started it lets go.
    let input = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
    input.await.unwrap();
    ends.store(true, Ordering::Release);
    for task in tasks {
        task.await.unwrap();
    }
    if let Some(checkpoints) = checkpoints {
        checkpoints.join().unwrap();
    }
    store.close().await;
    println!("DONE");
}

/// A term that somebody was answered.
struct Grant {
    key: u64,
    term: Term,
    session: SessionId,
    at: u128,
}

fn read_grant(line: &str) -> Option<Grant> {
    let mut parts = line.split_once("GOT ")?.1.split(' ');
    let mut next = || parts.next().unwrap();
    let (key, term) = (next().parse().unwrap(), Term::new(next().parse().unwrap()));
    Some(Grant { key, term, session: next().parse().unwrap(), at: next().parse().unwrap() })
}

/// A process that makes load until this goes.
struct Load {
    child: Child,
    input: Option<ChildStdin>,
    grants: Option<JoinHandle<Vec<Grant>>>,
}

impl Load {
    fn start(seed: u64, number: u64, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "copies::loads", "--ignored", "--nocapture"])
            .env(LOAD, format!("{seed} {number} {}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let first = lines.find_map(|line| read_grant(&line)).expect("it takes a key");
        let grants = thread::spawn(move || {
            let mut grants = vec![first];
            for line in lines {
                grants.extend(read_grant(&line));
                if line == "DONE" {
                    return grants;
                }
            }
            panic!("a process of the load has failed");
        });
        Self { input: child.stdin.take(), child, grants: Some(grants) }
    }

    /// All that it was answered.
    fn end(mut self) -> Vec<Grant> {
        drop(self.input.take());
        self.grants.take().unwrap().join().unwrap()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.input.take());
        if self.grants.is_some() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

// ----- the copies

/// As `cp` reads, on a machine that has other things to do.
fn read_slowly(path: &Path, dice: &mut Dice) -> Option<Vec<u8>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => panic!("{error}"),
    };
    let (mut bytes, average) = (Vec::new(), 1 << (12 + dice.below(7)));
    loop {
        let chunk = 1 + dice.below(2 * average);
        if file.by_ref().take(chunk).read_to_end(&mut bytes).unwrap() == 0 {
            return Some(bytes);
        }
        if dice.below(8) == 0 {
            thread::sleep(dice.up_to(Duration::from_millis(3)));
        }
    }
}

/// Copies the file and its log, in either order.
fn copy(from: &Folder, to: &Folder, dice: &mut Dice) {
    let mut names = ["tenure.db", "tenure.db-wal"];
    if dice.below(2) == 0 {
        names.reverse();
    }
    for name in names {
        if let Some(bytes) = read_slowly(&from.path().join(name), dice) {
            fs::write(to.path().join(name), bytes).unwrap();
        }
        thread::sleep(dice.up_to(Duration::from_millis(3)));
    }
}

/// Answers of a copy.
#[derive(Default)]
struct Answers {
    /// The records that were found in it.
    read: Vec<(u64, LockRecord)>,
    /// The new terms.
    granted: Vec<(u64, Term)>,
    /// Keys whose record could not be used.
    refused: usize,
    /// Keys that somebody holds, as far as the copy knows.
    held: usize,
    /// Impossible answers.
    wrong: Vec<String>,
}

/// A copy that was judged.
struct Judged {
    /// True if its terms were raised.
    raised: bool,
    /// The moment before which any term that was answered has to be smaller.
    since: u128,
    opened: u128,
    answers: Answers,
    /// Error that ended it.
    error: Option<String>,
}

/// An error that a copy may give.
enum Trouble {
    Open(OpenError),
    Store(StoreError),
}

impl From<OpenError> for Trouble {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Opens a copy, reads what is in it, and takes every key that is free, by a new session.
async fn ask(path: &Path, raise: bool, answers: &mut Answers) -> Result<(), Trouble> {
    if raise {
        SqliteStore::raise_terms(path)?;
    }
    let store = SqliteStore::open(path)?;
    let asked = ask_opened(&store, raise, answers).await;
    store.close().await;
    Ok(asked?)
}

async fn ask_opened(store: &SqliteStore, raised: bool, answers: &mut Answers) -> Result<(), StoreError> {
    let (locks, mut dead): (Vec<_>, _) = ((0..KEYS).map(lock).collect(), BTreeSet::new());
    let mut found = BTreeMap::new();
    for (key, seen) in (0..).zip(store.locks(locks.clone(), LIMIT).await?) {
        match seen {
            LockSeen::Found(record) => {
                dead.extend(record.holding.as_ref().filter(|_| raised).map(|holding| holding.by.session));
                found.insert(record.id.clone(), record.clone());
                answers.read.push((key, record));
            }
            LockSeen::Refused(_) => answers.refused += 1,
            LockSeen::Absent => {}
        }
    }
    // By another index, or none.
    let listed = store.list_locks("load".parse().unwrap(), None, None, 1000, LIMIT).await?;
    let listed: BTreeMap<_, _> = listed.items.into_iter().map(|record| (record.id.clone(), record)).collect();
    if found != listed {
        answers.wrong.push(format!("{} are found, and others listed: {}", found.len(), listed.len()));
    }
    for session in &dead {
        let missing = Evidence::Missing { namespace: "load".parse().unwrap(), holder: holder(), ttl: TTL };
        let seen = store.declare(declaration(*session, missing), LIMIT).await?;
        if !matches!(seen, SessionSeen::Dead(_)) {
            answers.wrong.push(format!("nobody of a backup lives: {seen:?}"));
        }
    }
    let mut open = fixture(store).opening();
    open.about.namespace = "load".parse().unwrap();
    let session = open.session;
    store.open(open, LIMIT).await?;
    let by = Candidate::new(session, Ticket::new(1), TTL, holder());
    let takes: Vec<_> = locks.into_iter().map(|lock| Take { lock, by: by.clone() }).collect();
    for (key, answer) in (0..).zip(store.take(takes, dead.into_iter().collect(), LIMIT).await?) {
        match answer {
            TakeAnswer::Taken(record) => {
                if record.id != lock(key) {
                    answers.wrong.push(format!("instead of {key} this was taken: {record:?}"));
                }
                answers.granted.push((key, record.term));
            }
            TakeAnswer::Held(record) | TakeAnswer::Closed(record) => {
                if raised {
                    answers.wrong.push(format!("everybody is dead, and this is held: {record:?}"));
                }
                answers.held += 1;
            }
            TakeAnswer::Refused(_) => answers.refused += 1,
        }
    }
    Ok(())
}

/// An error tells which file it is, and that it is damaged.
fn words(path: &Path, trouble: Trouble) -> String {
    let words = match trouble {
        Trouble::Open(error) => {
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
            error.to_string()
        }
        Trouble::Store(error) => {
            assert!(error.to_string().contains("is damaged") && !error.is_retryable(), "{error}");
            format!("once opened: {error}")
        }
    };
    assert!(words.contains(path.to_str().unwrap()) && !words.contains('\n'), "{words}");
    words.replace(path.to_str().unwrap(), "COPY")
}

fn seed() -> u64 {
    std::env::var("TENURE_SEED").map_or(1, |seed| seed.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_no_moment_are_refused_or_give_out_no_term_again() {
    let seed = seed();
    println!("TENURE_SEED={seed}");
    let copies = std::env::var("TENURE_COPIES").map_or(COPIES, |copies| copies.parse().unwrap());
    let folder = Folder::in_memory();
    let loads: Vec<_> = (1..=PROCESSES).map(|number| Load::start(seed, number, &folder.database())).collect();
    let (mut dice, mut all) = (Dice(seed), Vec::new());
    for _ in 0..copies {
        let (restored, begun) = (Folder::in_memory(), now());
        copy(&folder, &restored, &mut dice);
        let (raised, opened, path) = (dice.below(2) == 0, now(), restored.database());
        let mut answers = Answers::default();
        let asked = ask(&path, raised, &mut answers).await;
        let error = asked.err().map(|trouble| words(&path, trouble));
        let since = if raised { opened } else { begun };
        all.push(Judged { raised, since, opened, answers, error });
    }
    let grants: Vec<_> = loads.into_iter().flat_map(Load::end).collect();
    judge(&all, &grants);
}

fn judge(all: &[Judged], grants: &[Grant]) {
    let mut answered = BTreeMap::<u64, Vec<&Grant>>::new();
    for grant in grants {
        answered.entry(grant.key).or_default().push(grant);
    }
    let before = |key: u64, at: u128| {
        let terms = answered[&key].iter().filter(|grant| grant.at < at).map(|grant| grant.term);
        terms.max().unwrap_or(Term::new(0))
    };
    let (mut opened, mut terms, mut overtaken, mut patched, mut refused, mut held) = (0, 0, 0, 0, 0, 0);
    let (mut wrong, mut errors) = (Vec::<String>::new(), BTreeMap::<&str, usize>::new());
    for copy in all {
        let answers = &copy.answers;
        if let Some(error) = &copy.error {
            *errors.entry(error).or_default() += 1;
        } else {
            opened += 1;
        }
        for (key, record) in &answers.read {
            if record.id != lock(*key) {
                wrong.push(format!("instead of {key} this was found: {record:?}"));
            }
            let was = answered[key].iter().any(|grant| {
                let session = record.holding.as_ref().map_or(grant.session, |holding| holding.by.session);
                // Those of a copy that was restored are larger.
                copy.raised || grant.term == record.term && grant.session == session
            });
            if !was {
                wrong.push(format!("{record:?} was never so"));
            }
            patched += usize::from(is_patched(record));
        }
        for (key, term) in &answers.granted {
            let known = before(*key, copy.since);
            if *term <= known {
                wrong.push(format!("key {key}: {term} after {known}; raised: {}", copy.raised));
            }
            terms += 1;
            overtaken += usize::from(before(*key, copy.opened) >= *term);
        }
        refused += answers.refused;
        held += answers.held;
        wrong.extend(answers.wrong.iter().cloned());
    }
    println!(
        "{} copies beside {} grants: {opened} opened, {terms} terms, {overtaken} overtaken, {held} held, {refused} \
         refused, {patched} patched",
        all.len(),
        grants.len(),
    );
    for (error, times) in &errors {
        println!("{times} times: {error}");
    }
    assert!(wrong.is_empty(), "{}: {:#?}", wrong.len(), &wrong[..wrong.len().min(9)]);
    assert!(opened > 0 && terms > 0, "some copies can be used");
}

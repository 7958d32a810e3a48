use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
};

use futures::FutureExt;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::watch;

use super::{table::Reader, *};
use crate::{
    clock::{Clock, SystemClock},
    model::{Kind, LockId, SessionId, StoreTime},
    store::{
        News,
        sqlite::{
            file::{header, tables},
            wait,
        },
    },
};

/// The database of a child process of a test.
const DATABASE: &str = "TENURE_TEST_DATABASE";
/// The number of changes it makes.
const CHANGES: &str = "TENURE_TEST_CHANGES";

/// A database that goes with the test.
struct Place {
    folder: PathBuf,
    hints: Hints,
}

impl Place {
    fn new() -> Self {
        let folder = env::temp_dir().join(format!("tenure-hints-{:016x}", getrandom::u64().unwrap()));
        fs::create_dir(&folder).unwrap();
        let (database, sessions) = (folder.join("tenure.db"), folder.join("tenure.db-sessions"));
        let connection = connect(&database);
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        tables::create(&connection).unwrap();
        fs::create_dir(&sessions).unwrap();
        fs::write(sessions.join(session().to_string()), "").unwrap();
        Self { hints: Hints::new(&database, Some(&sessions), None), folder }
    }

    /// The hints as another process has them.
    fn other(&self) -> Hints {
        hints(&self.hints.0.database)
    }

    fn connect(&self) -> Connection {
        connect(&self.hints.0.database)
    }

    fn reader(&self) -> Reader {
        Reader::new(self.connect()).unwrap()
    }

    fn listener(&self) -> Option<Arc<Listener>> {
        locked(&self.hints.0.listener).upgrade()
    }

    /// Returns its listener, once the thread waits for news.
    async fn listens(&self, ear: &mut BoxStream<'static, Hint>) -> Arc<Listener> {
        // Of the stream, of its topics, of the thread.
        for _ in 0..3 {
            assert_eq!(next(ear).await, Hint::Resync);
        }
        self.listener().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn connect(database: &Path) -> Connection {
    let connection = Connection::open(database).unwrap();
    connection.busy_timeout(wait::LIMIT).unwrap();
    connection
}

fn hints(database: &Path) -> Hints {
    Hints::new(database, Some(&header::beside(database, "-sessions")), None)
}

fn change(connection: &mut Connection, bells: &[Bell]) {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    ring(&transaction, bells, StoreTime::from_millis(5)).unwrap();
    transaction.commit().unwrap();
}

fn lock(key: &str) -> LockId {
    LockId { namespace: "shop".parse().unwrap(), kind: Kind::Lock, key: key.parse().unwrap() }
}

fn session() -> SessionId {
    SessionId::from_u128(1)
}

fn me() -> Topic {
    Topic::Session(session())
}

/// A topic of many sessions.
fn spread() -> Topic {
    Topic::Spread("shop".parse().unwrap(), "topics".parse().unwrap())
}

fn bell(to: &Topic, key: &str) -> Bell {
    Bell { to: to.clone(), news: News::Handed(lock(key)) }
}

fn topics(of: &[Topic]) -> watch::Sender<BTreeSet<Topic>> {
    watch::Sender::new(of.iter().cloned().collect())
}

async fn next(ear: &mut BoxStream<'static, Hint>) -> Hint {
    wait::within("there is a hint", ear.next()).await.expect("it does not end")
}

#[tokio::test]
async fn a_listener_hears_the_bells_of_its_topics_from_any_process() {
    let (place, topics) = (Place::new(), topics(&[me()]));
    // A store of its own, as another process has it.
    let other = place.other();
    let mut ear = place.hints.listen(topics.subscribe());
    place.listens(&mut ear).await;
    let mut writer = place.connect();
    let stranger = Topic::Session(SessionId::from_u128(2));
    change(&mut writer, &[bell(&stranger, "a"), bell(&me(), "b"), bell(&me(), "b")]);
    other.announce(&[bell(&stranger, "a"), bell(&me(), "b")]);
    assert_eq!(next(&mut ear).await, Hint::News(News::Handed(lock("b"))));
    change(&mut writer, &[bell(&me(), "d")]);
    place.hints.announce(&[bell(&me(), "any")]);
    assert_eq!(next(&mut ear).await, Hint::News(News::Handed(lock("d"))));
    topics.send_modify(|topics| {
        topics.insert(stranger.clone());
    });
    assert_eq!(next(&mut ear).await, Hint::Resync, "for a topic that is added");
    change(&mut writer, &[bell(&stranger, "e")]);
    place.hints.announce(&[bell(&me(), "any")]);
    assert_eq!(next(&mut ear).await, Hint::News(News::Handed(lock("e"))));
}

#[tokio::test]
async fn a_bell_that_was_not_committed_is_not_heard() {
    let (place, topics) = (Place::new(), topics(&[me()]));
    let mut ear = place.hints.listen(topics.subscribe());
    place.listens(&mut ear).await;
    let mut writer = place.connect();
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    ring(&transaction, &[bell(&me(), "undone")], StoreTime::from_millis(5)).unwrap();
    place.hints.announce(&[bell(&me(), "any")]);
    transaction.rollback().unwrap();
    place.hints.announce(&[bell(&me(), "any")]);
    change(&mut writer, &[bell(&me(), "done")]);
    place.hints.announce(&[bell(&me(), "any")]);
    assert_eq!(next(&mut ear).await, Hint::News(News::Handed(lock("done"))), "and no gap");
}

#[tokio::test]
async fn without_a_topic_there_is_no_thread() {
    let (place, topics) = (Place::new(), topics(&[]));
    let mut ear = place.hints.listen(topics.subscribe());
    assert_eq!(next(&mut ear).await, Hint::Resync);
    assert!(ear.next().now_or_never().is_none());
    assert!(place.listener().is_none());
    topics.send_replace([me()].into());
    // For the topic, and of the thread.
    for _ in 0..2 {
        assert_eq!(next(&mut ear).await, Hint::Resync);
    }
    let listener = place.listener().unwrap();
    let mut second = place.hints.listen(topics.subscribe());
    for _ in 0..2 {
        assert_eq!(next(&mut second).await, Hint::Resync);
    }
    assert!(second.next().now_or_never().is_none());
    assert!(Arc::ptr_eq(&listener, &place.listener().unwrap()), "one for the whole store");
    drop(second);
    topics.send_replace(BTreeSet::new());
    assert!(ear.next().now_or_never().is_none());
    Arc::try_unwrap(listener).expect("nobody keeps it").end();
    topics.send_replace([me()].into());
    for _ in 0..2 {
        assert_eq!(next(&mut ear).await, Hint::Resync);
    }
    change(&mut place.connect(), &[bell(&me(), "a")]);
    place.hints.announce(&[bell(&me(), "any")]);
    assert_eq!(next(&mut ear).await, Hint::News(News::Handed(lock("a"))));
}

/// A file in which the kernel says how the thread of a listener is.
fn of_thread(listener: &Listener, file: &str) -> String {
    fs::read_to_string(Path::new("/proc").join(listener.task.get().unwrap()).join(file)).unwrap()
}

/// The times that the thread of a listener has begun to wait.
fn sleeps(listener: &Listener) -> u64 {
    let status = of_thread(listener, "status");
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

async fn until_it_waits(listener: &Listener) {
    while !of_thread(listener, "stat").contains(") S ") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_hand_over_wakes_no_listener_of_other_sessions() {
    let (place, mine) = (Place::new(), topics(&[me()]));
    let mut ear = place.hints.listen(mine.subscribe());
    place.listens(&mut ear).await;
    // Of another process. It hears what all hear.
    let (other, others) = (place.other(), topics(&[spread()]));
    let mut stranger = other.listen(others.subscribe());
    for _ in 0..3 {
        assert_eq!(next(&mut stranger).await, Hint::Resync);
    }
    let listener = locked(&other.0.listener).upgrade().unwrap();
    until_it_waits(&listener).await;
    let (before, mut writer) = (sleeps(&listener), place.connect());
    for number in 0..50 {
        change(&mut writer, &[bell(&me(), &number.to_string())]);
        other.announce(&[bell(&me(), "any")]);
        assert_eq!(next(&mut ear).await, Hint::News(News::Handed(lock(&number.to_string()))));
    }
    // A single sleep more may have another reason.
    assert!(sleeps(&listener) <= before + 1, "woken {} times", sleeps(&listener) - before);
    // Of all else that concerns a session every process is told: it is rare, and may be too much for a bell each.
    let freed = Bell { to: me(), news: News::Lock(lock("freed")) };
    change(&mut writer, std::slice::from_ref(&freed));
    other.announce(&[freed]);
    assert_eq!(next(&mut ear).await, Hint::News(News::Lock(lock("freed"))));
    change(&mut writer, &[bell(&spread(), "all")]);
    place.hints.announce(&[bell(&spread(), "all")]);
    assert_eq!(next(&mut stranger).await, Hint::News(News::Handed(lock("all"))));
}

#[tokio::test]
async fn listeners_are_not_woken_by_reads_or_by_writes_that_ring_nothing() {
    let (place, topics) = (Place::new(), topics(&[me()]));
    let mut ear = place.hints.listen(topics.subscribe());
    let listener = place.listens(&mut ear).await;
    let slept = || sleeps(&listener);
    let mut writer = place.connect();
    change(&mut writer, &[bell(&me(), "a")]);
    place.hints.announce(&[bell(&me(), "any")]);
    assert_eq!(next(&mut ear).await, Hint::News(News::Handed(lock("a"))));
    until_it_waits(&listener).await;
    writer.execute_batch("CREATE TABLE beats (at INTEGER) STRICT").unwrap();
    let sleeps_on = |_| {
        let before = slept();
        for _ in 0..50 {
            writer.execute("INSERT INTO beats VALUES (1)", []).unwrap();
            let many: i64 =
                place.connect().query_row("SELECT count(*) FROM beats", [], |row| row.get(0)).unwrap();
            assert!(many > 0);
        }
        writer.pragma_update(None, "wal_checkpoint", "truncate").unwrap();
        slept() == before
    };
    // It may have slept for another reason at first: before it waits, something else may be locked.
    assert!((0..3).any(sleeps_on), "writes wake it");
}

#[tokio::test]
async fn a_database_that_is_gone_or_cannot_be_watched_is_told_of() {
    let (place, topics) = (Place::new(), topics(&[me()]));
    let mut ear = place.hints.listen(topics.subscribe());
    place.listens(&mut ear).await;
    let moved = place.folder.join("moved.db");
    fs::rename(&place.hints.0.database, &moved).unwrap();
    let Hint::Failing { error, lasting } = next(&mut ear).await else { panic!("it was moved") };
    assert!(lasting && error.contains("tenure.db") && error.contains("moved"), "{error}");

    let mut ear = place.other().listen(topics.subscribe());
    let mut heard = Vec::new();
    while heard.len() < 2 {
        heard.push(next(&mut ear).await);
    }
    let failing =
        heard.iter().any(|hint| matches!(hint, Hint::Failing { error, .. } if error.contains("tenure.db")));
    assert!(failing, "{heard:?}");
}

#[test]
fn a_reader_too_far_behind_gets_a_resync_and_old_rings_are_pruned() {
    let place = Place::new();
    let (mut near, mut far, mut writer) = (place.reader(), place.reader(), place.connect());
    for round in 0..60 {
        let bells: Vec<_> = (0..100).map(|number| bell(&me(), &format!("{round} {number}"))).collect();
        change(&mut writer, &bells);
        let heard = near.news();
        assert_eq!(heard, bells.into_iter().map(Heard::Bell).collect::<Vec<_>>());
    }
    assert_eq!(far.news(), [Heard::Resync], "instead of thousands");
    let kept: i64 = writer.query_row("SELECT count(*) FROM rings", [], |row| row.get(0)).unwrap();
    assert!((4096..4096 + 256 + 100).contains(&kept), "{kept}");
    change(&mut writer, &[bell(&me(), "next")]);
    for reader in [&mut near, &mut far] {
        assert_eq!(reader.news(), [Heard::Bell(bell(&me(), "next"))]);
        assert_eq!(reader.news(), []);
    }
}

#[test]
fn a_gap_is_a_resync_and_so_is_what_cannot_be_read() {
    let place = Place::new();
    let (mut reader, mut writer) = (place.reader(), place.connect());
    change(&mut writer, &[bell(&me(), "a"), bell(&me(), "b")]);
    writer.execute("DELETE FROM rings WHERE id = 1", []).unwrap();
    assert_eq!(reader.news(), [Heard::Resync, Heard::Bell(bell(&me(), "b"))]);
    writer.execute("INSERT INTO rings (topic, news, at) VALUES (NULL, 'of a later version', 5)", []).unwrap();
    change(&mut writer, &[bell(&me(), "c")]);
    assert_eq!(reader.news(), [Heard::Resync, Heard::Bell(bell(&me(), "c"))]);
    writer.execute("DELETE FROM rings", []).unwrap();
    assert_eq!(reader.news(), [Heard::Resync], "the numbers begin anew");
    change(&mut writer, &[bell(&me(), "d")]);
    assert_eq!(reader.news(), [Heard::Bell(bell(&me(), "d"))]);
    writer.execute_batch("ALTER TABLE rings RENAME TO lost").unwrap();
    assert_eq!(reader.news(), [Heard::Resync]);
    writer.execute_batch("ALTER TABLE lost RENAME TO rings").unwrap();
    assert_eq!(reader.news(), [Heard::Resync]);
    change(&mut writer, &[bell(&me(), "e")]);
    assert_eq!(reader.news(), [Heard::Bell(bell(&me(), "e"))]);
}

/// A process that rings.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nanos() -> u128 {
    SystemClock::new().now().since(crate::clock::Moment::after_start(Duration::ZERO)).as_nanos()
}

/// Not a test: the child process of another.
#[test]
#[ignore = "the child process of another test"]
fn a_process_that_rings() {
    let Some(database) = env::var_os(DATABASE) else { return };
    let hints = hints(Path::new(&database));
    let mut writer = connect(Path::new(&database));
    writer.pragma_update(None, "synchronous", "full").unwrap();
    let changes: usize = env::var(CHANGES).unwrap().parse().unwrap();
    // One change for each line, so that none waits behind another.
    for (number, _) in std::io::stdin().lines().take(changes).enumerate() {
        let begun = nanos();
        change(&mut writer, &[bell(&me(), &number.to_string())]);
        let committed = nanos();
        hints.announce(&[bell(&me(), "any")]);
        println!("rang {begun} {committed}");
        std::io::stdout().flush().unwrap();
    }
}

/// Every synced commit of another process is heard, at once: half of them in ten times what a line in a pipe takes at
/// the most, which is read beside it on a thread of its own, too.
#[tokio::test]
async fn every_change_of_another_process_is_heard_within_milliseconds() {
    let changes: usize = env::var(CHANGES).ok().and_then(|many| many.parse().ok()).unwrap_or(50);
    let (place, topics) = (Place::new(), topics(&[me()]));
    let mut ear = place.hints.listen(topics.subscribe());
    place.listens(&mut ear).await;
    let mut child = Writer(
        Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "store::sqlite::hints::tests::a_process_that_rings",
                "--ignored",
                "--nocapture",
            ])
            .env(DATABASE, &place.hints.0.database)
            .env(CHANGES, changes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut orders = child.0.stdin.take().unwrap();
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let said = lines.filter_map(|line| {
            let (begun, committed) = line.split_once("rang ")?.1.split_once(' ')?;
            Some((begun.parse::<u128>().unwrap(), committed.parse::<u128>().unwrap()))
        });
        said.for_each(|times| tell.send(times).expect("the test listens"));
    });
    let (mut by_pipe, mut after_commit, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..changes {
        orders.write_all(b"\n").unwrap();
        // With its own signal: the next change is made once this one was heard.
        let by_hint = async {
            assert_eq!(next(&mut ear).await, Hint::News(News::Handed(lock(&number.to_string()))));
            nanos()
        };
        let by_line = async { (wait::within("a line", told.recv()).await.expect("it rings"), nanos()) };
        let (heard, ((begun, committed), read)) = tokio::join!(by_hint, by_line);
        let micros = |from: u128, to: u128| to.saturating_sub(from) / 1000;
        by_pipe.push(micros(committed, read));
        after_commit.push(micros(committed, heard));
        whole.push(micros(begun, heard));
    }
    let all = [
        ("by a pipe", &mut by_pipe),
        ("after the commit", &mut after_commit),
        ("with the commit", &mut whole),
    ];
    for (what, times) in all {
        times.sort_unstable();
        let (p50, p95) = (times[changes / 2], times[changes * 19 / 20]);
        println!("{changes} changes, heard {what}: p50 {p50} us p95 {p95} us");
    }
    let (by_pipe, after_commit) = (by_pipe[changes / 2], after_commit[changes / 2]);
    assert!(after_commit < 10 * by_pipe.max(500), "{after_commit} us, by a pipe {by_pipe} us");
}

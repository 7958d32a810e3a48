//! Whole engines on the memory store, in paused time: what they ask of the store.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use tenure::{
    Elect, Lease,
    model::{Kind, SpreadName},
    sim::Dice,
    spread::{Spread, Task},
    store::{Hint, LockSeen, MemoryStore, News, Store, StoreExt, Topic},
    testing::{Call, Counting, Counts, Course, Intercept, Intercepted, Operation, TestClock},
};
use tokio::time::sleep;
use tracing_subscriber::{Layer, layer::SubscriberExt};

use crate::{
    figures::figure,
    fleet::name,
    killable::Killable,
    member::{NAMESPACE, SPREAD, config, keys},
};

const SIZES: [(usize, usize); 4] = [(10, 1_000), (30, 3_000), (100, 10_000), (200, 20_000)];
/// Time within which everything that belongs to an event has happened, also where a death has to be noticed
/// first.
const WINDOW: Duration = Duration::from_secs(60);
/// Records that a listing reads at once: of a little, and of everything.
const ROLLING: u64 = 100;

/// Counts how often anybody plans.
struct Plans(Arc<AtomicU64>);

impl<S: tracing::Subscriber> Layer<S> for Plans {
    fn enabled(
        &self,
        metadata: &tracing::Metadata<'_>,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) -> bool {
        metadata.target() == "tenure::spread::shell"
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if event.metadata().fields().field("orders").is_some() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counts calls, each of which takes its time by chance.
#[derive(Debug)]
struct Way {
    counting: Counting,
    longest: Duration,
    chance: Mutex<Dice>,
}

impl Intercept for Way {
    fn decide(&self, call: &Call) -> Course {
        let _ = self.counting.decide(call);
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let mut some = || chance.up_to(self.longest);
        Course::PLAIN.late_by(some()).answered_after(some())
    }
}

struct Player {
    elect: Elect,
    spread: Option<Spread>,
    process: Killable,
    way: Arc<Intercepted<Way>>,
}

impl Player {
    fn counts(&self) -> Counts {
        self.way.intercept().counting.counts()
    }
}

struct Team {
    clock: Arc<TestClock>,
    memory: MemoryStore,
    tasks: usize,
    longest: Duration,
    seed: u64,
    players: BTreeMap<String, Player>,
    plans: Arc<AtomicU64>,
    starts: Arc<AtomicU64>,
    grants: Arc<AtomicU64>,
    last_grant: Arc<Mutex<Option<tokio::time::Instant>>>,
    /// Calls of those who are gone.
    gone: Vec<Counts>,
}

/// Counts up to some moment.
#[derive(Clone, Debug)]
struct Counted {
    of: Vec<Counts>,
    plans: u64,
    starts: u64,
    grants: u64,
}

impl Counted {
    fn calls(&self, operation: Operation) -> u64 {
        self.of.iter().map(|counts| counts.calls(operation)).sum()
    }

    fn keys(&self, operation: Operation) -> u64 {
        self.of.iter().map(|counts| counts.keys(operation)).sum()
    }

    fn sum(&self, of: impl Fn(Operation) -> bool) -> u64 {
        let wanted = Operation::ALL.iter().copied().filter(|operation| of(*operation));
        wanted.map(|operation| self.calls(operation)).sum()
    }

    fn writes(&self) -> u64 {
        self.sum(Operation::is_write)
    }

    fn reads(&self) -> u64 {
        self.sum(|operation| !operation.is_write())
    }

    /// Records that reads answered with, at most: those that were named, and those of a page.
    fn records(&self) -> u64 {
        let named = [Operation::Observe, Operation::Locks, Operation::Waiters];
        let listed = [Operation::Sessions, Operation::ListLocks, Operation::HeldBy];
        named.into_iter().map(|one| self.keys(one)).sum::<u64>()
            + listed.into_iter().map(|one| self.calls(one) * ROLLING).sum::<u64>()
    }
}

#[allow(clippy::disallowed_methods, reason = "paused time is what this measures in")]
fn paused() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

impl Team {
    fn new(tasks: usize, longest: Duration, plans: Arc<AtomicU64>) -> Self {
        let clock = Arc::new(TestClock::new());
        let memory = MemoryStore::new(clock.clone());
        let (grants, last_grant) = (Arc::new(AtomicU64::new(0)), Arc::default());
        let team = Self {
            clock,
            memory,
            tasks,
            longest,
            seed: 0,
            players: BTreeMap::new(),
            plans,
            starts: Arc::default(),
            grants: grants.clone(),
            last_grant: Arc::clone(&last_grant),
            gone: Vec::new(),
        };
        let spread = Topic::Spread(NAMESPACE.parse().expect("a name"), SPREAD.parse().expect("a name"));
        let memory = team.memory.clone();
        let mut hints = memory.hints(tokio::sync::watch::channel([spread].into()).1);
        tokio::spawn(async move {
            let mut terms = BTreeMap::new();
            while let Some(hint) = hints.next().await {
                let Hint::News(News::Lock(lock)) = hint else { continue };
                let Ok(seen) = memory.locks(vec![lock], Duration::from_secs(1)).await else { continue };
                let record = seen.into_iter().next().and_then(LockSeen::found);
                let Some(record) = record.filter(|record| record.holding.is_some()) else { continue };
                if terms.insert(record.id.clone(), record.term) != Some(record.term) {
                    grants.fetch_add(1, Ordering::Relaxed);
                    *last_grant.lock().expect("nobody panics") = Some(paused());
                }
            }
        });
        team
    }

    async fn start(&mut self, holder: &str) {
        self.seed += 1;
        let (process, seed, longest) = (Killable::default(), self.seed, self.longest);
        let way = Way { counting: Counting::default(), longest, chance: Mutex::new(Dice::new(seed)) };
        let way = way.around(Arc::new(self.memory.clone()));
        let store: Arc<dyn Store> = way.clone();
        let builder = Elect::builder(store, config(holder, false)).clock(self.clock.clone());
        let elect =
            builder.tasks(Arc::new(process.clone())).seed(seed).start().await.expect("the store answers");
        self.players.insert(holder.to_owned(), Player { elect, spread: None, process, way });
    }

    fn join(&mut self, holder: &str) {
        let starts = self.starts.clone();
        let job = move |_: Task, lease: Lease| {
            starts.fetch_add(1, Ordering::Relaxed);
            async move {
                lease.cancelled().await;
                Ok::<_, String>(())
            }
        };
        let player = self.players.get_mut(holder).expect("it was started");
        let spreading = player.elect.spread(SPREAD).tasks(keys(self.tasks));
        player.spread = Some(spreading.run(job).expect("it is open, and within the limits"));
    }

    async fn leave(&mut self, holder: &str) {
        let player = self.players.remove(holder).expect("it was started");
        player.elect.close().await;
        self.gone.push(player.counts());
    }

    fn kill(&mut self, holder: &str) {
        let player = self.players.remove(holder).expect("it was started");
        player.process.kill();
        self.gone.push(player.counts());
    }

    fn counted(&self) -> Counted {
        let of = self.players.values().map(Player::counts);
        Counted {
            of: of.chain(self.gone.iter().copied()).collect(),
            plans: self.plans.load(Ordering::Relaxed),
            starts: self.starts.load(Ordering::Relaxed),
            grants: self.grants.load(Ordering::Relaxed),
        }
    }

    fn counts(&self) -> Vec<usize> {
        let shares = self.players.values().filter_map(|player| player.spread.as_ref());
        shares.map(|spread| spread.share().len()).collect()
    }

    fn least(&self, orphans: usize) -> usize {
        let mut counts = self.counts();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let (part, larger) = (self.tasks / counts.len(), self.tasks % counts.len());
        let excess = |(at, count): (usize, &usize)| count.saturating_sub(part + usize::from(at < larger));
        orphans + counts.iter().enumerate().map(excess).sum::<usize>()
    }

    async fn is_whole(&self) {
        let counts = self.counts();
        assert_eq!(counts.iter().sum::<usize>(), self.tasks, "all are held: {counts:?}");
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counts:?}");
        let kind = Some(Kind::Task(SpreadName::new(SPREAD).expect("within the limits")));
        let namespace = NAMESPACE.parse().expect("within the limits");
        let page = self.memory.list_locks(namespace, kind, None, 1_000_000, WINDOW);
        let held =
            page.await.expect("it answers").items.iter().filter(|record| record.holding.is_some()).count();
        assert_eq!(held, self.tasks);
    }
}

/// Every call is answered at once.
pub(crate) fn near() {
    of_sizes("near", &SIZES, Duration::ZERO);
}

/// Calls, and their answers, are on their way for up to 20 ms.
pub(crate) fn far() {
    // The larger ones take too long: everybody plans often.
    of_sizes("far", &SIZES[..3], Duration::from_millis(20));
}

fn of_sizes(way: &str, sizes: &[(usize, usize)], longest: Duration) {
    println!(
        "| calls | instances | tasks | event | moves | least | settled, ms | plans each | reads each | records each | writes each | of one that joined: reads | records |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut needless = 0;
    for (members, tasks) in sizes.iter().copied() {
        // Time can be paused on a runtime of one thread only, and none runs within another.
        let one = std::thread::spawn(move || {
            let plans = Arc::new(AtomicU64::new(0));
            let counting = tracing_subscriber::registry().with(Plans(plans.clone()));
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().expect("it can be started");
            tracing::subscriber::with_default(counting, || {
                runtime.block_on(of_size(members, tasks, longest, plans))
            })
        });
        needless = needless.max(one.join().expect("it does not panic"));
    }
    figure(&format!("engines_{way}_needless_moves"), needless as f64);
}

async fn of_size(members: usize, tasks: usize, longest: Duration, plans: Arc<AtomicU64>) -> u64 {
    let mut team = Team::new(tasks, longest, plans);
    for number in 0..members {
        team.start(&name(number)).await;
    }
    for number in 0..members {
        team.join(&name(number));
    }
    sleep(WINDOW).await;
    team.is_whole().await;
    let some = (members / 100).max(1);
    let mut needless = 0;
    let mut fresh = members;
    for event in ["nothing", "one joins", "one leaves", "one crashes", "a tenth joins"] {
        // Whoever was watched for the sake of what came before is watched no more.
        sleep(team.players[&name(0)].elect.config().ttl() * 4).await;
        let before_it = team.counted();
        sleep(WINDOW).await;
        let quiet = team.counted();
        let (size, mut orphans, mut joined) = (team.players.len(), 0, Vec::new());
        if event.ends_with("joins") {
            let how_many = if event == "one joins" { 1 } else { (members / 10).max(some) };
            for _ in 0..how_many {
                team.start(&name(fresh)).await;
                joined.push(name(fresh));
                fresh += 1;
            }
            sleep(Duration::from_secs(5)).await;
        }
        // Those who opened a session are no part of what comes of a join.
        let start = team.counted();
        let at = paused();
        match event {
            "one leaves" => {
                orphans = team.players[&name(members / 2)].spread.as_ref().map_or(0, |one| one.share().len());
                team.leave(&name(members / 2)).await;
            }
            "one crashes" => {
                orphans = team.players[&name(members / 3)].spread.as_ref().map_or(0, |one| one.share().len());
                team.kill(&name(members / 3));
            }
            _ => joined.iter().for_each(|holder| team.join(holder)),
        }
        let least = team.least(orphans) as u64;
        sleep(WINDOW).await;
        team.is_whole().await;
        let end = team.counted();
        let settled = team
            .last_grant
            .lock()
            .expect("nobody panics")
            .map_or(Duration::ZERO, |last| last.checked_duration_since(at).unwrap_or_default());
        // What an instance asks in as much time when nothing happens is no part of it.
        let each = |of: &dyn Fn(&Counted) -> u64| {
            let beyond = (of(&end) - of(&start)) as f64 - (of(&quiet) - of(&before_it)) as f64;
            if event == "nothing" {
                (of(&quiet) - of(&before_it)) as f64 / size as f64
            } else {
                beyond / size as f64
            }
        };
        let first =
            joined.first().map(|holder| Counted { of: vec![team.players[holder].counts()], ..end.clone() });
        let of_first = |of: &dyn Fn(&Counted) -> u64| {
            first.as_ref().map_or_else(|| "-".to_owned(), |one| of(one).to_string())
        };
        let moves = end.grants - start.grants;
        assert_eq!(moves, end.starts - start.starts);
        needless = needless.max(moves.abs_diff(least));
        println!(
            "| {} | {size} | {tasks} | {event} | {moves} | {least} | {:.0} | {:.2} | {:.2} | {:.1} | {:.2} | {} | {} |",
            if longest.is_zero() { "near" } else { "far" },
            settled.as_secs_f64() * 1e3,
            each(&|one| one.plans),
            each(&Counted::reads),
            each(&Counted::records),
            each(&Counted::writes),
            of_first(&Counted::reads),
            of_first(&Counted::records),
        );
        if std::env::var_os("TENURE_BENCH_OPERATIONS").is_some() {
            for operation in Operation::ALL {
                let calls = |one: &Counted| one.calls(*operation);
                let beyond = each(&calls);
                if beyond.abs() > 0.005 {
                    println!(
                        "measured {event} {operation:?} {beyond:.2} calls {:.2} keys",
                        each(&|one| one.keys(*operation))
                    );
                }
            }
        }
    }
    for (_, player) in std::mem::take(&mut team.players) {
        player.process.kill();
    }
    needless
}

//! Schedules on a replica set: each tick once whoever dies, for two commands, and what operators say of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use mongodb::{
    bson::{Bson, Document},
    event::{EventHandler, command::CommandEvent},
};
use tenure::{
    Clock, Elect, ElectConfig, SystemClock,
    clock::Moment,
    model::{Entry, Outcome, RunRecord, ScheduleId, StoreTime, Why},
    schedule::{Misfire, Overlap, Schedule, Tick},
    store::{
        StoreExt,
        mongo::{MongoOptions, MongoStore},
    },
};
use tokio::sync::watch;

use crate::elect_mongodb::fleet::{
    LIMIT, MS, Place, SECOND, asked, quick, replica_set, rounds, steady, until, when, within,
};
use crate::{killable::Killable, mongodb::connected};

const NAME: &str = "report";
const MINUTE: Duration = Duration::from_secs(60);
/// Lateness of a tick that nobody had to make up for, on a busy machine.
const CAUGHT_UP: Duration = Duration::from_secs(3);
/// A poll interval too long to help: instances look when they get a hint.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// The machine's clocks, but what it says the time of day is: nobody should ask.
#[derive(Debug)]
struct Elsewhere {
    millis: i64,
}

impl Clock for Elsewhere {
    fn now(&self) -> Moment {
        SystemClock::new().now()
    }

    fn wall(&self) -> StoreTime {
        StoreTime::from_millis(wall().as_millis() + self.millis)
    }
}

/// The store's clock: its servers are on this machine.
fn wall() -> StoreTime {
    SystemClock::new().wall()
}

/// A run, as its job saw it.
#[derive(Clone, Debug)]
struct Run {
    instant: StoreTime,
    is_ordered: bool,
    by: String,
    at: StoreTime,
}

impl Run {
    fn lateness(&self) -> Duration {
        self.at.since(self.instant)
    }
}

/// Registry of runs. It fails if the schedule is run twice at once.
#[derive(Clone, Default)]
struct Registry(Arc<watch::Sender<Page>>);

#[derive(Default)]
struct Page {
    runs: Vec<Run>,
    runs_at: Option<String>,
}

struct Running(Registry);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.send_modify(|page| page.runs_at = None);
    }
}

impl Registry {
    fn begin(&self, tick: &Tick, by: &str) -> Running {
        let run = Run {
            instant: tick.scheduled_at(),
            is_ordered: tick.is_ordered(),
            by: by.to_owned(),
            at: wall(),
        };
        let mut before = None;
        self.0.send_modify(|page| {
            before = page.runs_at.replace(by.to_owned());
            page.runs.push(run);
        });
        assert_eq!(before, None, "{tick} runs at {by}, too");
        Running(self.clone())
    }

    fn runs(&self) -> Vec<Run> {
        self.0.borrow().runs.clone()
    }

    /// The latest of such runs, once there is one.
    async fn until(&self, what: &str, is_it: impl Fn(&Run) -> bool) -> Run {
        let mut pages = self.0.subscribe();
        let latest = |page: &Page| page.runs.iter().rev().find(|run| is_it(run)).cloned();
        let found = within(what, pages.wait_for(|page| latest(page).is_some())).await;
        latest(&found.expect("the registry is here")).expect("there is one")
    }

    /// Waits until somebody is in the middle of the run of a tick that is not made up for; says who.
    async fn mid_tick(&self) -> String {
        let from = wall();
        let mut pages = self.0.subscribe();
        let is_so = |page: &Page| {
            let last = page.runs.last();
            page.runs_at.is_some() && last.is_some_and(|run| run.at >= from && run.lateness() < CAUGHT_UP)
        };
        let found = within("a tick is run", pages.wait_for(is_so)).await.expect("the registry is here");
        found.runs_at.clone().expect("that was waited for")
    }
}

/// An instance over a store of its own.
struct Member {
    elect: Elect,
    process: Killable,
    schedule: Schedule,
}

impl Member {
    async fn start(place: &Place, number: usize, registry: &Registry) -> Self {
        Self::over(place.store().await, number, registry, quick).await
    }

    /// Starts a member whose wall clock is up to five minutes off.
    async fn over(
        store: MongoStore,
        number: usize,
        registry: &Registry,
        config: fn(&str) -> ElectConfig,
    ) -> Self {
        let holder = format!("pod-{number}");
        let off = i64::try_from(number * 79_190 % 600_000).unwrap() - 300_000;
        let process = Killable::default();
        let builder = Elect::builder(store, config(&holder).with_poll_interval(NEVER))
            .clock(Arc::new(Elsewhere { millis: off }))
            .tasks(Arc::new(process.clone()));
        let elect = builder.start().await.expect("the server is up");
        let registry = registry.clone();
        let schedule = elect
            .schedule(NAME, "* * * * * *")
            .misfire(Misfire::All { window: 10 * MINUTE, at_most: 600 })
            .overlap(Overlap::Queue)
            // Nothing is purged, which would cost a command now and then.
            .keep_history(MINUTE * 60, 1 << 40)
            .run(move |tick, _lease| {
                let (registry, holder) = (registry.clone(), holder.clone());
                async move {
                    // A run takes a while, so that it can be killed in the middle.
                    let _running = registry.begin(&tick, &holder);
                    tokio::time::sleep(30 * MS).await;
                    Ok::<_, String>(())
                }
            });
        Self { elect, process, schedule: schedule.unwrap() }
    }

    fn is(&self, holder: &str) -> bool {
        self.elect.config().holder().as_str() == holder
    }
}

/// Ends one as a crash would.
fn kill(members: &mut Vec<Member>, holder: &str) {
    let place = members.iter().position(|member| member.is(holder)).expect("it lives");
    members.remove(place).process.kill();
}

async fn start(place: &Place, numbers: std::ops::Range<usize>, registry: &Registry) -> Vec<Member> {
    join_all(numbers.map(|number| Member::start(place, number, registry))).await
}

async fn settled(members: &[Member]) {
    let schedules = members[0].elect.schedules();
    let is_so = |status: &tenure::spread::SpreadStatus| {
        status.is_settled() && status.members.len() == members.len() && status.held() == 1
    };
    within("the schedule has an owner", schedules.until(is_so)).await;
}

/// The ledger, earliest entry first.
async fn ledger(store: &MongoStore) -> Vec<RunRecord> {
    let id = ScheduleId { namespace: "test".parse().unwrap(), name: NAME.parse().unwrap() };
    let history = store.history(id, None, 10_000, LIMIT).await.expect("the server is up");
    assert!(history.refused.is_empty() && history.next.is_none());
    let mut runs = history.items;
    runs.reverse();
    runs
}

/// Whole seconds from one to the other, both included.
fn every_second(from: StoreTime, to: StoreTime) -> Vec<StoreTime> {
    (from.as_millis()..=to.as_millis()).step_by(1000).map(StoreTime::from_millis).collect()
}

/// Lateness is judged by `fleet::twenty_instances…` of the simulator's schedules, in paused time. `TENURE_ROUNDS` lets
/// more owners die.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_with_wrong_clocks_and_dying_owners_run_each_tick_once() {
    const FLEET: usize = 6;
    let rounds = 2 * usize::try_from(rounds()).unwrap();
    let place = Place::on(replica_set().await.uri()).await;
    let (store, registry) = (place.store().await, Registry::default());
    let mut members = start(&place, 0..FLEET, &registry).await;
    settled(&members).await;
    for round in 0..rounds {
        let owner = registry.mid_tick().await;
        if round % 2 == 1 {
            // At the very second: it claims, or is about to.
            let left = 1000 - wall().as_millis().rem_euclid(1000);
            tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
        }
        let killed = wall();
        kill(&mut members, &owner);
        members.push(Member::start(&place, FLEET + round, &registry).await);
        let caught_up = |run: &Run| run.by != owner && run.at >= killed && run.lateness() < CAUGHT_UP;
        registry.until("another has caught up", caught_up).await;
    }
    // All of them, in the middle of a tick.
    registry.mid_tick().await;
    for member in members.drain(..) {
        member.process.kill();
    }
    let members = start(&place, FLEET + rounds..2 * FLEET + rounds, &registry).await;
    let back = |run: &Run| members.iter().any(|member| member.is(&run.by)) && run.lateness() < CAUGHT_UP;
    registry.until("the new ones have caught up", back).await;

    let ledger = ledger(&store).await;
    let runs = registry.runs();
    let (first, last) = (ledger[0].id.instant, ledger.last().unwrap().id.instant);
    let instants: Vec<_> = ledger.iter().map(|run| run.id.instant).collect();
    assert_eq!(instants, every_second(first, last), "each instant is in the ledger once");
    for run in &ledger[..ledger.len() - 1] {
        assert_eq!(run.id.entry, Entry::Tick);
        assert_eq!(run.finish.as_ref().map(|finish| finish.outcome), Some(Outcome::Succeeded), "{run:?}");
    }
    // What was begun again is what a dead owner had begun.
    let begun = runs.iter().filter(|run| run.instant <= last).count();
    let again = begun - ledger.len();
    println!("{again} of {} ticks begun again", ledger.len());
    assert!(again <= rounds + 1, "{again}");
    join_all(members.iter().map(|member| member.elect.close())).await;
}

/// Commands that one instance's client sent, and the bells that it heard.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    /// The commands on the ledger: which, and of which instant where it is of one.
    sent: Vec<(String, Option<i64>)>,
    /// The bells that were of the ledger.
    told: usize,
}

impl Log {
    fn options(&self, place: &Place) -> MongoOptions {
        let log = self.clone();
        let handler = EventHandler::callback(move |event| log.note(event));
        MongoOptions::new().database(&place.name).command_events(handler)
    }

    fn note(&self, event: CommandEvent) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            CommandEvent::Started(event) => {
                let Some((name, collection)) = event.command.iter().next() else { return };
                if collection.as_str() == Some("runs") {
                    entries.sent.push((name.clone(), instant(&event.command)));
                }
            }
            CommandEvent::Succeeded(event) => {
                let cursor = event.reply.get_document("cursor");
                let batch = cursor.and_then(|cursor| cursor.get_array("nextBatch"));
                let news = |bell: &Bson| bell.as_document()?.get_array("news").ok().cloned();
                let news = batch.into_iter().flatten().filter_map(news).flatten();
                let of_schedules =
                    |news: &Bson| news.as_document().is_some_and(|news| news.contains_key("schedule"));
                entries.told += news.filter(of_schedules).count();
            }
            _ => {}
        }
    }

    fn sent(&self) -> Vec<(String, Option<i64>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sent.clone()
    }

    fn told(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).told
    }
}

/// The instant of the run that a `findAndModify` is of.
fn instant(command: &Document) -> Option<i64> {
    let id = command.get_document("query").ok()?.get_document("_id").ok()?;
    Some(id.get_datetime("at").ok()?.timestamp_millis())
}

fn why(text: &str) -> Why {
    Why::new(text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_costs_its_owner_two_commands_and_nobody_else_any() {
    const TICKS: usize = 5;
    let place = Place::on(replica_set().await.uri()).await;
    let registry = Registry::default();
    let logs: Vec<_> = (0..3).map(|_| Log::default()).collect();
    let members = join_all(logs.iter().enumerate().map(|(number, log)| {
        let (place, registry) = (&place, &registry);
        async move {
            let store = connected(&place.uri, log.options(place)).await;
            Member::over(store, number, registry, steady).await
        }
    }))
    .await;
    settled(&members).await;
    // Whoever has it now has read the ledger.
    let owner = registry.mid_tick().await;
    let (sent, told) = (
        logs.iter().map(|log| log.sent().len()).collect::<Vec<_>>(),
        logs.iter().map(Log::told).collect::<Vec<_>>(),
    );
    let first = registry.runs().last().unwrap().instant;
    let last = first.plus(SECOND * u32::try_from(TICKS + 1).unwrap());
    registry.until("ticks are run", |run| run.instant >= last).await;
    for (number, log) in logs.iter().enumerate() {
        let sent = log.sent().split_off(sent[number]);
        if !members[number].is(&owner) {
            assert_eq!(sent, [], "whoever does not own it does not look at the ledger");
            continue;
        }
        let mut of_tick: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, instant) in sent {
            of_tick.entry(instant).or_default().push(name);
        }
        of_tick.retain(|instant, _| {
            instant.is_some_and(|instant| instant > first.as_millis() && instant < last.as_millis())
        });
        assert_eq!(of_tick.len(), TICKS, "{of_tick:?}");
        // A server that stands still is asked again: that may be met by a tick or two.
        let two = |names: &&Vec<String>| **names == ["findAndModify"; 2];
        assert!(of_tick.values().filter(two).count() > TICKS / 2, "{of_tick:?}");
        assert!(of_tick.values().all(|names| names.len() >= 2), "{of_tick:?}");
    }
    // What was said of the schedule at the start may be heard late.
    let told_since: Vec<_> = logs.iter().zip(&told).map(|(log, before)| log.told() - before).collect();
    assert!(
        told_since.iter().all(|told| *told < TICKS),
        "somebody hears of claims and finishes: {told_since:?}"
    );
    // What an operator says is heard of.
    let told: Vec<_> = logs.iter().map(Log::told).collect();
    asked(async || members[0].schedule.pause(why("to see that events are counted")).await).await;
    until("all hear of the pause", async || {
        let all_hear = logs.iter().zip(&told).all(|(log, before)| log.told() > *before);
        when(all_hear, &logs)
    })
    .await;
    join_all(members.iter().map(|member| member.elect.close())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_and_orders_reach_the_owner_by_a_hint_and_outlive_every_instance() {
    let place = Place::on(replica_set().await.uri()).await;
    let (store, registry) = (place.store().await, Registry::default());
    let mut members = start(&place, 0..3, &registry).await;
    settled(&members).await;
    let operator = place.instance(quick("operator")).await;
    let schedules = operator.schedules();
    let owner = registry.mid_tick().await;

    let status = async || asked(async || schedules.status(NAME).await).await.unwrap();
    asked(async || schedules.pause(NAME, why("the disk is full")).await).await;
    let paused = status().await.record.pause.unwrap();
    assert!(paused.is_on() && paused.by.as_str() == "operator");
    let ordered = asked(async || schedules.run_now(NAME, why("once")).await).await;
    let run = registry.until("it is run now", |run| run.instant == ordered).await;
    assert!(run.is_ordered && run.by == owner, "{run:?}");
    println!("run now: begun after {:?}", run.lateness());
    // It has heard of the pause, too.
    let heard = run.at;
    until("it is wanted no more", async || {
        let orders = status().await.record.orders;
        when(orders.is_empty(), orders)
    })
    .await;
    // Ticks are not run meanwhile, also not by the next owner, who is there as soon as it runs what is
    // wanted.
    kill(&mut members, &owner);
    let ordered = asked(async || schedules.run_now(NAME, why("twice")).await).await;
    let run = registry.until("it is run by another", |run| run.instant == ordered).await;
    assert!(run.by != owner && run.is_ordered, "{run:?}");
    let in_pause = |run: &&Run| !run.is_ordered && run.instant > heard;
    assert_eq!(registry.runs().iter().filter(in_pause).count(), 0, "{:?}", registry.runs());

    let resumed = wall();
    asked(async || schedules.resume(NAME).await).await;
    let run = registry.until("it goes on", |run| !run.is_ordered && run.instant > resumed).await;
    println!("resumed: the tick of {:?} later began {:?} late", run.instant.since(resumed), run.lateness());
    let until = status().await.record.pause.unwrap().until.unwrap();

    // All of them are restarted.
    registry.mid_tick().await;
    join_all(members.iter().map(|member| member.elect.close())).await;
    drop(members);
    let members = start(&place, 3..6, &registry).await;
    let is_late = |run: &Run| members.iter().any(|member| member.is(&run.by)) && run.lateness() < CAUGHT_UP;
    registry.until("the new ones have caught up", is_late).await;

    let runs = registry.runs();
    let ledger = ledger(&store).await;
    let mut instants = Vec::new();
    for entry in ledger.iter().filter(|entry| entry.id.entry != Entry::Order) {
        match &entry.skipped {
            Some(skipped) => instants.extend(every_second(skipped.from, entry.id.instant)),
            None => instants.push(entry.id.instant),
        }
    }
    assert_eq!(instants, every_second(instants[0], *instants.last().unwrap()), "{ledger:#?}");
    for entry in &ledger {
        let is_paused = entry.id.instant >= paused.since && entry.id.instant < until;
        match (entry.id.entry, &entry.skipped) {
            (Entry::Skipped, Some(skipped)) => {
                assert_eq!(skipped.why.as_str(), "paused");
                assert!(is_paused && skipped.from >= paused.since, "{entry:?}");
            }
            (Entry::Tick, None) => {
                let has_just_begun = entry.id.instant <= heard;
                assert!(!is_paused || has_just_begun, "{entry:?}");
            }
            (Entry::Order, None) => assert!(entry.has_succeeded(), "{entry:?}"),
            (_, _) => panic!("{entry:?}"),
        }
    }
    // The one that was killed was between two runs; of those that were closed one was not, and is told to stop if its
    // machine stands still.
    let mut once: Vec<_> = runs.iter().map(|run| (run.is_ordered, run.instant)).collect();
    once.sort_unstable();
    once.dedup();
    assert!(runs.len() - once.len() <= 1, "nothing is run twice: {runs:?}");
    join_all(members.iter().map(|member| member.elect.close())).await;
    operator.close().await;
}
